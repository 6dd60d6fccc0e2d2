//! Patterns of limit keys.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::str::FromStr;

use super::{KeyError, LimitKey};

const SEPARATOR: char = ':';
/// Stands for one segment.
const ONE: &str = "*";
/// Stands for one or more segments.
const MANY: &str = "**";

/// A pattern of keys: segments separated by `:`, where `*` stands for one segment and `**` for one or more.
///
/// A pattern has the bounds of a key, at least one literal segment and at most one `**`. Without `*` and `**` it matches the key
/// with its text only. A segment may be empty, as in `a::b`, and `*` matches it. A key may be a pattern itself; it matches only
/// if all keys that it stands for do, so `*` does not match a segment that is `**`.
///
/// ```
/// use ratelimiter::{KeyPattern, LimitKey};
///
/// let pattern = KeyPattern::new("tenant:acme:**")?;
/// assert!(pattern.matches(&LimitKey::new("tenant:acme:llm:daily_tokens")?));
/// assert!(!pattern.matches(&LimitKey::new("tenant:other:llm:daily_tokens")?));
/// assert!(KeyPattern::new("tenant:ac*").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyPattern {
    /// The pattern's text, which has the shape of a key.
    text: LimitKey,
    /// The number of segments that are not `*` or `**`; at least 1.
    literal_count: usize,
    has_many: bool,
    /// The lengths of the text before the first `*` and after the last one; 0 without any.
    literal_ends: (usize, usize),
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum PatternError {
    /// The text breaks a rule of keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A `*` is only a part of this segment.
    #[error("`*` and `**` must be whole segments between `:`, not a part of `{segment}`")]
    PartOfSegment { segment: String },
    /// There is more than one `**`.
    #[error("a pattern has at most one `**`")]
    SeveralMany,
    /// Every segment is `*` or `**`.
    #[error("a pattern needs at least one segment that is not `*` or `**`")]
    NoLiteral,
}

impl KeyPattern {
    /// Creates a pattern from a text.
    ///
    /// # Errors
    /// The first rule that the text breaks.
    pub fn new(text: impl AsRef<str>) -> Result<Self, PatternError> {
        let text = LimitKey::new(text)?;
        let (mut literal_count, mut many_count) = (0, 0);
        for segment in text.as_str().split(SEPARATOR) {
            match segment {
                ONE => {}
                MANY => many_count += 1,
                literal if literal.contains('*') => {
                    return Err(PatternError::PartOfSegment { segment: literal.to_owned() });
                }
                _ => literal_count += 1,
            }
        }
        if many_count > 1 {
            return Err(PatternError::SeveralMany);
        }
        if literal_count == 0 {
            return Err(PatternError::NoLiteral);
        }
        let whole = text.as_str();
        let literal_ends = match (whole.find('*'), whole.rfind('*')) {
            (Some(first), Some(last)) => (first, whole.len() - last - 1),
            _ => (0, 0),
        };
        Ok(Self { text, literal_count, has_many: many_count == 1, literal_ends })
    }

    /// Whether a key matches. Takes time linear in the two texts, and does not allocate.
    pub fn matches(&self, key: &LimitKey) -> bool {
        // A key is compared with all templates, and nearly all differ here.
        let (text, asked, (start, end)) =
            (self.as_str().as_bytes(), key.as_str().as_bytes(), self.literal_ends);
        if !asked.ends_with(&text[text.len() - end..]) || !asked.starts_with(&text[..start]) {
            return false;
        }
        let mut segments = key.as_str().split(SEPARATOR);
        let mut before_many = self.as_str().split(SEPARATOR).take_while(|part| *part != MANY);
        if !before_many.all(|part| matches_segment(part, segments.next())) {
            return false;
        }
        if !self.has_many {
            return segments.next().is_none();
        }
        let mut after_many = self.as_str().rsplit(SEPARATOR).take_while(|part| *part != MANY);
        // What the parts before and after `**` leave over is for `**`.
        after_many.all(|part| matches_segment(part, segments.next_back()))
            && segments.next().is_some()
    }

    /// Orders patterns by how specific they are. `Less` means that this pattern is the more specific one: it has more literal
    /// segments, or else no `**` where the other has one, or else the lesser text.
    ///
    /// ```
    /// use ratelimiter::KeyPattern;
    ///
    /// let mut patterns = ["a:**", "a:*:c", "a:b:*"].map(|text| KeyPattern::new(text).unwrap());
    /// patterns.sort_by(KeyPattern::cmp_specificity);
    /// assert_eq!(patterns.map(|pattern| pattern.to_string()), ["a:*:c", "a:b:*", "a:**"]);
    /// ```
    pub fn cmp_specificity(&self, other: &Self) -> Ordering {
        let rank = |pattern: &Self| (Reverse(pattern.literal_count), pattern.has_many);
        rank(self).cmp(&rank(other)).then_with(|| self.text.cmp(&other.text))
    }

    /// The pattern as a key: that of a template, if it has a wildcard.
    pub const fn key(&self) -> &LimitKey {
        &self.text
    }

    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }
}

/// True if a segment is `*` or `**`.
pub(super) fn has_wildcard(text: &str) -> bool {
    // Nearly all keys have no `*` at all.
    text.as_bytes().contains(&b'*')
        && text.split(SEPARATOR).any(|segment| matches!(segment, ONE | MANY))
}

fn matches_segment(part: &str, segment: Option<&str>) -> bool {
    segment.is_some_and(|segment| part == segment || part == ONE && segment != MANY)
}

impl FromStr for KeyPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::new(text)
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Debug for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> KeyPattern {
        KeyPattern::new(text).unwrap()
    }

    #[test]
    fn a_pattern_matches_segment_by_segment() {
        for (text, key, expected) in [
            // Without a wildcard.
            ("a", "a", true),
            ("a", "b", false),
            ("a:b", "a:b", true),
            ("a:b", "a", false),
            ("a:b", "a:b:c", false),
            ("a:b", "A:b", false),
            // `*` is one segment.
            ("a:*", "a:b", true),
            ("a:*", "a", false),
            ("a:*", "a:b:c", false),
            ("a:*:c", "a:b:c", true),
            ("a:*:c", "a:b:d", false),
            ("*:b", "a:b", true),
            ("*:b", "b", false),
            ("a:*:*", "a:b:c", true),
            ("a:*:*", "a:b", false),
            ("tenant:*:llm:daily_tokens", "tenant:acme:llm:daily_tokens", true),
            ("tenant:*:llm:daily_tokens", "tenant:a:b:llm:daily_tokens", false),
            // `**` first.
            ("**:rpm", "a:rpm", true),
            ("**:rpm", "a:b:rpm", true),
            ("**:rpm", "rpm", false),
            ("**:rpm", "a:rpm:b", false),
            ("**:rpm", "a:xrpm", false),
            // `**` in the middle.
            ("a:**:z", "a:b:z", true),
            ("a:**:z", "a:b:c:z", true),
            ("a:**:z", "a:z", false),
            ("a:**:z", "a:z:z", true),
            ("a:**:a", "a", false),
            ("a:**:a", "a:a", false),
            ("a:*:**:z", "a:b:z", false),
            ("a:*:**:z", "a:b:c:z", true),
            ("a:**:*:z", "a:b:z", false),
            ("a:**:*:z", "a:b:c:z", true),
            // `**` last.
            ("a:**", "a:b", true),
            ("a:**", "a:b:c", true),
            ("a:**", "a", false),
            ("a:**", "ab:c", false),
            // Empty segments are segments.
            ("a:*", "a:", true),
            ("a:**", "a:", true),
            ("a:*:b", "a::b", true),
            ("a:**:b", "a::b", true),
            ("a::b", "a::b", true),
            ("a::b", "a:b", false),
            ("a::*", "a::b", true),
            ("a::*", "a:x:b", false),
            (":*", ":a", true),
            (":*", "a:a", false),
            ("*:", "a:", true),
            ("a:*:c", "a:c", false),
            // Texts of several bytes.
            ("clé:*", "clé:größe", true),
            ("clé:**:鍵", "clé:🦀:b:鍵", true),
            ("clé:*", "cle:a", false),
            // Model names have a `:` of their own.
            ("global:llm:openai:*:rpm", "global:llm:openai:gpt-4o:rpm", true),
            ("global:llm:openai:*:rpm", "global:llm:openai:ft:gpt-4o:acme:rpm", false),
            ("global:llm:openai:**:rpm", "global:llm:openai:ft:gpt-4o:acme:rpm", true),
            ("global:llm:openai:**:rpm", "global:llm:openai:rpm", false),
            ("global:llm:openai:**:rpm", "global:llm:openai:ft:gpt-4o:acme:tpm", false),
            // A key that is a pattern matches only if all keys that it stands for do.
            ("a:*", "a:*", true),
            ("a:*", "a:**", false),
            ("a:**", "a:**", true),
            ("a:**", "a:*:b", true),
            ("a:b:**", "a:*:c", false),
            ("a:b:**", "a:**", false),
            ("a:*:**", "a:**", false),
        ] {
            let matches = pattern(text).matches(&LimitKey::new(key).unwrap());
            assert_eq!(matches, expected, "{text} and {key}");
        }
    }

    #[test]
    fn a_text_that_is_no_pattern_is_refused() {
        let part = |segment: &str| PatternError::PartOfSegment { segment: segment.to_owned() };
        for (text, expected) in [
            ("*", PatternError::NoLiteral),
            ("**", PatternError::NoLiteral),
            ("*:**", PatternError::NoLiteral),
            ("a:**:b:**", PatternError::SeveralMany),
            ("a:**:**", PatternError::SeveralMany),
            ("a:b*", part("b*")),
            ("a:*b", part("*b")),
            ("a*b:c", part("a*b")),
            ("a:***", part("***")),
            ("", PatternError::Key(KeyError::Empty)),
            ("a: *", PatternError::Key(KeyError::WhiteSpace { at: 2 })),
            ("a:\u{7f}", PatternError::Key(KeyError::Control { at: 2 })),
        ] {
            assert_eq!(KeyPattern::new(text), Err(expected), "{text:?}");
        }
        let longest = format!("{}:**", "a".repeat(253));
        assert_eq!(pattern(&longest).as_str().len(), 256);
        let too_long = KeyError::TooLong { bytes: 257 };
        assert_eq!(KeyPattern::new(format!("a{longest}")), Err(PatternError::Key(too_long)));
    }

    /// The longest texts have 257 segments.
    #[test]
    fn a_pattern_of_many_segments_matches() {
        let key = LimitKey::new(":".repeat(256)).unwrap();
        assert!(pattern(&":".repeat(256)).matches(&key));
        assert!(!pattern(&":".repeat(255)).matches(&key));
        assert!(pattern(&format!("{}**", ":".repeat(254))).matches(&key));
        assert!(
            pattern(&format!(":{}", "*:".repeat(127)))
                .matches(&LimitKey::new(":".repeat(128)).unwrap())
        );
    }

    /// The definition of a match, without regard to its cost.
    fn matches_by_definition(parts: &[&str], segments: &[&str]) -> bool {
        match (parts, segments) {
            ([], []) => true,
            ([MANY, parts @ ..], [_, rest @ ..]) => {
                (0..=rest.len()).any(|taken| matches_by_definition(parts, &rest[taken..]))
            }
            ([part, parts @ ..], [segment, rest @ ..]) => {
                (*part == ONE || part == segment) && matches_by_definition(parts, rest)
            }
            ([], [_, ..]) | ([_, ..], []) => false,
        }
    }

    /// All texts of one to four of these segments.
    fn texts<'a>(segments: &[&'a str]) -> Vec<Vec<&'a str>> {
        let mut texts: Vec<Vec<&str>> = segments.iter().map(|segment| vec![*segment]).collect();
        let mut from = 0;
        for _ in 1..4 {
            let to = texts.len();
            for at in from..to {
                for segment in segments {
                    texts.push([&texts[at][..], &[*segment]].concat());
                }
            }
            from = to;
        }
        texts
    }

    #[test]
    fn every_short_pattern_matches_as_defined() {
        let (mut checked, mut matched) = (0, 0);
        for parts in texts(&["a", "", ONE, MANY]) {
            let Ok(pattern) = KeyPattern::new(parts.join(":")) else { continue };
            for segments in texts(&["a", "b", ""]) {
                let Ok(key) = LimitKey::new(segments.join(":")) else { continue };
                let expected = matches_by_definition(&parts, &segments);
                assert_eq!(pattern.matches(&key), expected, "{pattern} and {key}");
                checked += 1;
                matched += usize::from(expected);
            }
        }
        assert!(checked > 20_000 && matched > 1_000, "{matched} of {checked}");
    }

    #[test]
    fn the_most_specific_pattern_comes_first() {
        let sorted = [
            // Three literal segments; of those without `**` the lesser text.
            "a:*:c:d", "a:b:c", "a:**:b:c", //
            // Two.
            "a:*:b", "a:*:c", "a:b", "a:b:*", "a:**:b", "b:b:**", //
            // One.
            "*:a", "a", "a:*", "a:**",
        ];
        let mut patterns: Vec<_> = sorted.iter().rev().map(|text| pattern(text)).collect();
        patterns.sort_by(KeyPattern::cmp_specificity);
        let texts: Vec<_> = patterns.iter().map(KeyPattern::as_str).collect();
        assert_eq!(texts, sorted);
    }
}
