//! What is wrong with a limits file, and where.

use std::fmt;

/// Everything that is wrong with a limits file. At least one fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsFileError {
    /// The faults, by line.
    pub faults: Vec<FileFault>,
}

/// One thing that is wrong with a limits file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// The line, from 1.
    pub line: usize,
    /// The key of the limit, where it could be read.
    pub key: Option<String>,
    /// The field, where it is about one.
    pub field: Option<String>,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl FileFault {
    /// A fault of the file as a whole.
    pub(crate) fn at_line(line: usize, message: impl Into<String>) -> Self {
        Self { line, key: None, field: None, message: message.into() }
    }
}

impl fmt::Display for FileFault {
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
        for (at, fault) in self.faults.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for LimitsFileError {}
