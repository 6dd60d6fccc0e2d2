//! What is wrong with a config, and where.

use std::fmt;

/// Everything that is wrong with a config. At least one fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The faults.
    pub faults: Vec<ConfigFault>,
}

/// One thing that is wrong with a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// Where the value was given: a file, a variable of the environment, a flag.
    pub origin: String,
    /// The path of the value, such as `server.listen_addr`; empty when it is about the whole.
    pub path: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl fmt::Display for ConfigFault {
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
        for (at, fault) in self.faults.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}
