//! Bearer tokens of a config.

use std::fmt;
use std::path::PathBuf;

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use crate::disk::{Disk, OsDisk};

const TOKEN_BYTES_MAX: usize = 1_024;

/// The most bytes that are read of a token file: a token and some trailing white space.
const FILE_BYTES_MAX: u64 = 4 * TOKEN_BYTES_MAX as u64;

/// A secret, given literally or as `file:/path` to read it from. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Literal(String),
    File(PathBuf),
}

/// A token is invalid or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum TokenError {
    /// The token cannot be sent in a header.
    #[error("a secret has 1 to {TOKEN_BYTES_MAX} visible ASCII characters")]
    Shape,
    /// The file cannot be read, or contains no valid token.
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
}

impl Token {
    /// Checks a literal token, or the path of a token file.
    ///
    /// # Errors
    /// The token cannot be sent in a header.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        match text.strip_prefix("file:") {
            Some("") => Err(TokenError::Shape),
            Some(path) => Ok(Self(Source::File(PathBuf::from(path)))),
            None => Ok(Self(Source::Literal(checked(text)?))),
        }
    }

    /// Returns the secret. Reads the file if the token is given as one, and ignores trailing white space in it.
    ///
    /// # Errors
    /// The file cannot be read, or contains no valid token.
    pub fn read_secret(&self) -> Result<String, TokenError> {
        match &self.0 {
            Source::Literal(text) => Ok(text.clone()),
            Source::File(path) => {
                let file_error =
                    |reason: String| TokenError::File { path: path.display().to_string(), reason };
                let disk: &dyn Disk = &OsDisk;
                let bytes = match disk.read_file(path, FILE_BYTES_MAX) {
                    Ok(Ok(bytes)) => bytes,
                    Ok(Err(_)) => return Err(file_error("is not a file".to_owned())),
                    Err(error) => return Err(file_error(error.to_string())),
                };
                let text = String::from_utf8_lossy(&bytes);
                checked(text.trim_end()).map_err(|error| file_error(error.to_string()))
            }
        }
    }
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

/// Deserializes a list of tokens. Errors do not quote the value, which may be a secret.
pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Token>, D::Error> {
    let Value::Array(items) = Value::deserialize(deserializer)? else {
        return Err(D::Error::custom(
            "must be a list of tokens, such as [\"file:/run/secrets/token\"]",
        ));
    };
    items.into_iter().map(read).collect()
}

/// Deserializes a token. Errors do not quote the value.
pub(super) fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
    read(Value::deserialize(deserializer)?)
}

/// Deserializes a token that may be absent.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Token>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_null() { Ok(None) } else { read(value).map(Some) }
}

fn read<E: Error>(item: Value) -> Result<Token, E> {
    match item {
        Value::String(text) => Token::new(&text).map_err(E::custom),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(E::custom("a secret is text; put it in quotes"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let token = Token::new("s3cret").unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert_eq!(token.read_secret().unwrap(), "s3cret");
    }

    #[test]
    fn a_token_that_cannot_be_sent_in_a_header_is_refused() {
        for text in ["", "two words", "file:", "é", &"x".repeat(1_025)] {
            assert_eq!(Token::new(text), Err(TokenError::Shape), "{text}");
        }
        assert!(Token::new(&"x".repeat(1_024)).is_ok());
    }

    #[test]
    fn a_token_from_a_file_ends_before_the_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::new(&format!("file:{}", path.display())).unwrap();
        assert!(
            matches!(token.read_secret(), Err(TokenError::File { .. })),
            "there is no file yet"
        );
        std::fs::write(&path, "s3cret\n").unwrap();
        assert_eq!(token.read_secret().unwrap(), "s3cret");
        std::fs::write(&path, "\n").unwrap();
        assert!(
            matches!(token.read_secret(), Err(TokenError::File { .. })),
            "an empty file opens nothing"
        );
        std::fs::write(&path, "x".repeat(1_000_000)).unwrap();
        assert!(matches!(token.read_secret(), Err(TokenError::File { .. })), "no token is so long");
        for endless in ["file:/dev/zero", "file:/dev"] {
            let error = Token::new(endless).unwrap().read_secret().unwrap_err();
            assert!(error.to_string().ends_with("is not a file"), "{error}");
        }
    }
}
