//! Limit keys, their standard families, and patterns of them.

mod family;
mod pattern;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::LazyLock;

use arcstr::ArcStr;
pub use family::{KeyFamily, LlmDimension};
use foldhash::fast::RandomState;
pub use pattern::{KeyPattern, PatternError};

/// The most bytes that a key may have.
pub const KEY_BYTES_MAX: usize = 256;

/// The name of a limit: 1 to 256 bytes of UTF-8 without white space or control characters.
///
/// Cloning is cheap, since clones share the text.
///
/// ```
/// use ratelimiter::LimitKey;
///
/// let key = LimitKey::new("global:llm:openai:gpt-4o:rpm")?;
/// assert_eq!(key, LimitKey::llm_rpm("openai", "gpt-4o")?);
/// assert!(LimitKey::new("two words").is_err());
/// # Ok::<(), ratelimiter::KeyError>(())
/// ```
#[derive(Clone)]
pub struct LimitKey {
    text: ArcStr,
    /// Computed once, since a key is looked up far more often than it is created.
    hashes: KeyHashes,
}

/// Hashes of a key's text and of its stem: the text without the dimension of an LLM's limit.
///
/// Equal keys of one process have equal hashes. Different keys may collide, so the text decides. The hashes are seeded at random, so
/// nobody can construct keys that collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHashes {
    pub(crate) text: u32,
    pub(crate) stem: u32,
}

impl KeyHashes {
    fn of(text: &str) -> Self {
        static HASHERS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
        let [of_stems, of_texts] = &*HASHERS;
        let stem = high_half(of_stems.hash_one(family::stem(text)));
        Self { text: high_half(of_texts.hash_one(text)), stem }
    }
}

const fn high_half(hash: u64) -> u32 {
    let [.., a, b, c, d] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum KeyError {
    /// The text is empty.
    #[error("a key must not be empty: it has 1 to {KEY_BYTES_MAX} bytes")]
    Empty,
    /// The text has more than [`KEY_BYTES_MAX`] bytes.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {bytes}")]
    TooLong { bytes: usize },
    /// The text contains white space, first at this byte offset.
    #[error("a key must not contain white space, this one has some at byte {at}")]
    WhiteSpace { at: usize },
    /// The text contains a control character, first at this byte offset.
    #[error("a key must not contain control characters, this one has one at byte {at}")]
    Control { at: usize },
    /// A part of a standard key is empty: `provider`, `model` or `tenant`.
    #[error("the {part} of a key must not be empty")]
    EmptyPart { part: &'static str },
    /// A `provider` or `tenant` contains a colon, so the key could not be parsed back. Model names may.
    #[error("the {part} of a key must not contain ':'")]
    ColonInPart { part: &'static str },
}

impl LimitKey {
    /// Creates a key from a text.
    ///
    /// # Errors
    /// The first rule that the text breaks.
    pub fn new(text: impl AsRef<str>) -> Result<Self, KeyError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: text.len() });
        }
        if !is_plain_ascii(text) {
            check_characters(text)?;
        }
        Ok(Self { text: ArcStr::from(text), hashes: KeyHashes::of(text) })
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True if a segment is `*` or `**`: the key names a template, from which limits are made for the keys that it
    /// [matches](KeyPattern::matches).
    ///
    /// ```
    /// use ratelimiter::LimitKey;
    ///
    /// assert!(LimitKey::new("tenant:*:llm:daily_tokens")?.is_template());
    /// assert!(!LimitKey::new("tenant:acme:llm:daily_tokens")?.is_template());
    /// # Ok::<(), ratelimiter::KeyError>(())
    /// ```
    pub fn is_template(&self) -> bool {
        pattern::has_wildcard(&self.text)
    }

    /// The key's text, which clones share.
    #[inline]
    pub(crate) const fn text(&self) -> &ArcStr {
        &self.text
    }

    #[inline]
    pub(crate) const fn hashes(&self) -> KeyHashes {
        self.hashes
    }
}

#[cfg(test)]
impl LimitKey {
    /// A key whose hashes equal those of all other keys created here, so that only the text differs.
    pub(crate) fn colliding(text: &str) -> Self {
        Self { text: ArcStr::from(text), hashes: KeyHashes { text: 0, stem: 0 } }
    }
}

/// True if every byte is printable ASCII, as in nearly all keys. Other texts take the slow check.
fn is_plain_ascii(text: &str) -> bool {
    // No early exit, so that the compiler can vectorise the loop.
    text.bytes().fold(true, |is_plain, byte| is_plain & byte.is_ascii_graphic())
}

fn check_characters(text: &str) -> Result<(), KeyError> {
    for (at, character) in text.char_indices() {
        if character.is_whitespace() {
            return Err(KeyError::WhiteSpace { at });
        }
        if character.is_control() {
            return Err(KeyError::Control { at });
        }
    }
    Ok(())
}

impl PartialEq for LimitKey {
    fn eq(&self, other: &Self) -> bool {
        // The hashes of two different keys nearly always differ.
        self.hashes == other.hashes && self.text == other.text
    }
}

impl Eq for LimitKey {}

impl PartialOrd for LimitKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LimitKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for LimitKey {
    /// Equals the hash of the text, as `Borrow<str>` requires.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl AsRef<str> for LimitKey {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl std::borrow::Borrow<str> for LimitKey {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl std::str::FromStr for LimitKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DEF-01
    #[test]
    fn def_01_a_key_has_1_to_256_bytes() {
        assert_eq!(LimitKey::new(""), Err(KeyError::Empty));
        assert!(LimitKey::new("k").is_ok());
        assert!(LimitKey::new("k".repeat(256)).is_ok());
        assert_eq!(LimitKey::new("k".repeat(257)), Err(KeyError::TooLong { bytes: 257 }));
        assert!(LimitKey::new("é".repeat(128)).is_ok(), "bytes are counted, not characters");
        assert_eq!(LimitKey::new("é".repeat(129)), Err(KeyError::TooLong { bytes: 258 }));
    }

    /// TPL-01
    #[test]
    fn tpl_01_a_key_with_a_segment_that_is_a_wildcard_is_a_template() {
        for text in ["a:*", "*:a", "a:*:b", "a:**", "**:a", "a:**:b", "*", "**", "a*:*"] {
            assert!(LimitKey::new(text).unwrap().is_template(), "{text}");
        }
        for text in ["a", "a:b", "a*", "*a", "a*b:c", "a:***", "a:*b:c", "a::b"] {
            assert!(!LimitKey::new(text).unwrap().is_template(), "{text}");
        }
    }

    /// DEF-01
    #[test]
    fn def_01_a_key_has_no_white_space_and_no_control_characters() {
        for (text, expected) in [
            ("a b", KeyError::WhiteSpace { at: 1 }),
            ("a\tb", KeyError::WhiteSpace { at: 1 }),
            ("ab\n", KeyError::WhiteSpace { at: 2 }),
            ("a\u{a0}b", KeyError::WhiteSpace { at: 1 }),
            ("a\u{2003}b", KeyError::WhiteSpace { at: 1 }),
            ("a\0b", KeyError::Control { at: 1 }),
            ("a\u{7f}b", KeyError::Control { at: 1 }),
            ("é\u{9f}", KeyError::Control { at: 2 }),
        ] {
            assert_eq!(LimitKey::new(text), Err(expected), "{text:?}");
        }
        for text in ["global:llm:openai:gpt-4o:rpm", "org/model@v1.2:free", "clé:größe", "鍵"] {
            assert_eq!(LimitKey::new(text).unwrap().as_str(), text);
        }
    }
}
