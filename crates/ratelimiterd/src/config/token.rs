//! A secret that opens the server.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, Error};

/// The most bytes of a token.
const TOKEN_BYTES_MAX: usize = 1_024;

/// A secret that opens the server: given literally, or as `file:/path` to read it from. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Literal(String),
    File(PathBuf),
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token could never be sent in a header.
    #[error("a token has 1 to {TOKEN_BYTES_MAX} visible ASCII characters")]
    Shape,
    /// The file holds no token.
    #[error("{path}: {reason}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Token {
    /// Checks the text of a config.
    ///
    /// # Errors
    /// The text could never be sent in a header.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        match text.strip_prefix("file:") {
            Some("") => Err(TokenError::Shape),
            Some(path) => Ok(Self(Source::File(PathBuf::from(path)))),
            None => Ok(Self(Source::Literal(checked(text)?))),
        }
    }

    /// The secret itself. Reads the file if it stands in one; a line's end after it does not belong to it.
    ///
    /// # Errors
    /// The file cannot be read, or holds no token.
    pub fn reveal(&self) -> Result<String, TokenError> {
        match &self.0 {
            Source::Literal(text) => Ok(text.clone()),
            Source::File(path) => {
                let fault = |reason: String| TokenError::File { path: shown(path), reason };
                let text =
                    std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
                checked(text.trim_end()).map_err(|error| fault(error.to_string()))
            }
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn checked(text: &str) -> Result<String, TokenError> {
    let fits = (1..=TOKEN_BYTES_MAX).contains(&text.len());
    if !fits || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TokenError::Shape);
    }
    Ok(text.to_owned())
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Literal(_) => f.write_str("Token(…)"),
            Source::File(path) => write!(f, "Token(file:{})", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let token = Token::new("s3cret").unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert_eq!(token.reveal().unwrap(), "s3cret");
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused() {
        for text in ["", "two words", "file:", "é", &"x".repeat(1_025)] {
            assert_eq!(Token::new(text), Err(TokenError::Shape), "{text}");
        }
        assert!(Token::new(&"x".repeat(1_024)).is_ok());
    }

    #[test]
    fn a_token_from_a_file_ends_before_the_line_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::new(&format!("file:{}", path.display())).unwrap();
        assert!(matches!(token.reveal(), Err(TokenError::File { .. })), "there is no file yet");
        std::fs::write(&path, "s3cret\n").unwrap();
        assert_eq!(token.reveal().unwrap(), "s3cret");
        std::fs::write(&path, "\n").unwrap();
        assert!(
            matches!(token.reveal(), Err(TokenError::File { .. })),
            "an empty file opens nothing"
        );
    }
}
