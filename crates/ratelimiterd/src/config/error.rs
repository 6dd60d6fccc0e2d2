//! Errors of a config, with path and source.

use std::fmt;

/// All errors of a config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// At least one error.
    pub errors: Vec<SettingError>,
}

/// One error of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// The source of the value: a file, an environment variable or a flag.
    pub origin: String,
    /// The path of the value, such as `server.listen_addr`; empty for the whole source.
    pub path: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

/// One invalid value of a config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ValueError {
    /// The path of the value, such as `auth.tokens[0].name`.
    pub path: String,
    /// What is wrong and what to do about it. Never quotes a token.
    pub message: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, path, message } = self;
        match path.as_str() {
            "" => write!(f, "{origin}: {message}"),
            path => write!(f, "{origin}: {path}: {message}"),
        }
    }
}

impl fmt::Display for ConfigError {
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
