//! Payloads, content hashes and error texts, with their bounds.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The most bytes a payload has: 1 MiB.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The most bytes a content hash has, enough for SHA-512.
pub const CONTENT_HASH_BYTES_MAX: usize = 64;
/// The most bytes of an error's text that are kept.
pub const ERROR_TEXT_BYTES_MAX: usize = 2048;

/// The bytes of a message. Clones share them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<[u8]>);

/// A hash of a message's content, by any function that the sender and the receiver agree on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ContentHash(Arc<[u8]>);

/// An error message for people. If it is empty, the stored one stays.
///
/// A text longer than [`ERROR_TEXT_BYTES_MAX`] is truncated at a character boundary, and a NUL,
/// which databases refuse, becomes `U+FFFD`: storing an error never fails because of its text.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ErrorText(Arc<str>);

/// Why bytes were refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum InvalidPayload {
    /// More than [`PAYLOAD_BYTES_MAX`] bytes.
    #[error("payload_too_large: {bytes} bytes, at most {PAYLOAD_BYTES_MAX} are allowed")]
    TooLarge { bytes: usize },
    /// An empty hash, or one of more than [`CONTENT_HASH_BYTES_MAX`] bytes.
    #[error("content_hash_length: {bytes} bytes, 1 to {CONTENT_HASH_BYTES_MAX} are allowed")]
    HashLength { bytes: usize },
}

impl Payload {
    /// A payload of these bytes, which may be empty.
    ///
    /// # Errors
    /// [`InvalidPayload::TooLarge`] above [`PAYLOAD_BYTES_MAX`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Payload, InvalidPayload> {
        let bytes = bytes.into();
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(InvalidPayload::TooLarge { bytes: bytes.len() });
        }
        Ok(Payload(Arc::from(bytes)))
    }

    /// The empty payload.
    pub fn empty() -> Payload {
        Payload(Arc::from([]))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as text, if they are UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }
}

impl ContentHash {
    /// A hash with these bytes.
    ///
    /// # Errors
    /// [`InvalidPayload::HashLength`] if it is empty or above [`CONTENT_HASH_BYTES_MAX`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<ContentHash, InvalidPayload> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() || bytes.len() > CONTENT_HASH_BYTES_MAX {
            return Err(InvalidPayload::HashLength { bytes: bytes.len() });
        }
        Ok(ContentHash(Arc::from(bytes)))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl ErrorText {
    /// The text, truncated to [`ERROR_TEXT_BYTES_MAX`].
    pub fn new(text: impl AsRef<str>) -> ErrorText {
        let text = text.as_ref();
        let cut = &text[..text.floor_char_boundary(ERROR_TEXT_BYTES_MAX)];
        if cut.contains('\0') {
            return ErrorText::new(cut.replace('\0', "\u{fffd}"));
        }
        ErrorText(Arc::from(cut))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({} bytes)", self.0.len())
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl From<&str> for ErrorText {
    fn from(text: &str) -> ErrorText {
        ErrorText::new(text)
    }
}

impl From<String> for ErrorText {
    fn from(text: String) -> ErrorText {
        ErrorText::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_at_the_bound_is_accepted_and_one_byte_more_is_not() {
        assert!(Payload::new(vec![0; PAYLOAD_BYTES_MAX]).is_ok());
        assert_eq!(
            Payload::new(vec![0; PAYLOAD_BYTES_MAX + 1]),
            Err(InvalidPayload::TooLarge { bytes: 1_048_577 })
        );
    }

    #[test]
    fn a_hash_has_one_to_sixty_four_bytes() {
        assert!(ContentHash::new([7]).is_ok());
        assert!(ContentHash::new([7; CONTENT_HASH_BYTES_MAX]).is_ok());
        assert_eq!(ContentHash::new([]), Err(InvalidPayload::HashLength { bytes: 0 }));
        assert_eq!(ContentHash::new([7; 65]), Err(InvalidPayload::HashLength { bytes: 65 }));
    }

    #[test]
    fn a_long_error_is_cut_at_a_character() {
        let text = "é".repeat(ERROR_TEXT_BYTES_MAX);
        assert_eq!(ErrorText::new(&text).as_str().len(), ERROR_TEXT_BYTES_MAX);
        let text = format!("a{text}");
        assert_eq!(ErrorText::new(text).as_str().len(), ERROR_TEXT_BYTES_MAX - 1);
    }

    #[test]
    fn an_error_has_no_nul() {
        assert_eq!(ErrorText::new("a\0b").as_str(), "a\u{fffd}b");
        assert!(ErrorText::new("\0".repeat(ERROR_TEXT_BYTES_MAX)).as_str().len() <= 2048);
    }
}
