//! Errors in a limits file, with their lines.

use std::fmt;

/// All errors in a limits file; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsFileError {
    /// The errors, by line.
    pub errors: Vec<FileError>,
}

/// One error in a limits file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The line, from 1.
    pub line: usize,
    /// The key of the limit, if it could be parsed.
    pub key: Option<String>,
    /// The field, if the error concerns one.
    pub field: Option<String>,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl FileError {
    /// An error that concerns no limit.
    pub(crate) fn at_line(line: usize, message: impl Into<String>) -> Self {
        Self { line, key: None, field: None, message: message.into() }
    }

    pub(crate) fn of_field(
        line: usize,
        key: Option<String>,
        field: &str,
        message: impl Into<String>,
    ) -> Self {
        Self { key, field: Some(field.to_owned()), ..Self::at_line(line, message) }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for LimitsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.errors.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for LimitsFileError {}
