//! Names: topics, sources, owner tokens, jobs, resources.
//!
//! Each is its own type with a checking constructor, so that a job's name cannot be passed as a
//! topic and a blank name cannot exist (`PRIM-GEN-D`).

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The most bytes a name has.
pub const NAME_BYTES_MAX: usize = 255;

/// The kind of a message, timer or job; handlers are chosen by topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(Arc<str>);

/// The system that sent an inbox message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(Arc<str>);

/// The ID that a source gave its message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceMessageId(Arc<str>);

/// Links a message to the request that caused it, in logs and spans.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CorrelationId(Arc<str>);

/// Identifies who claims work or holds a lease. Two workers never share one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerToken(Arc<str>);

/// The name of a job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName(Arc<str>);

/// The name of a resource that is protected by a system lease.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

/// Why a name was refused. `what` is the kind of name: `topic`, `source`, `owner token`, …
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum InvalidName {
    /// Empty, or nothing but white space.
    #[error("blank_name: the {what} is blank")]
    Blank { what: &'static str },
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("name_too_long: the {what} has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed")]
    TooLong { what: &'static str, bytes: usize },
    /// Has a control character, which logs do not show and databases may refuse.
    #[error("name_has_control_character: the {what} has a control character")]
    ControlCharacter { what: &'static str },
}

fn checked(what: &'static str, text: &str) -> Result<Arc<str>, InvalidName> {
    if text.trim().is_empty() {
        return Err(InvalidName::Blank { what });
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(InvalidName::TooLong { what, bytes: text.len() });
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidName::ControlCharacter { what });
    }
    Ok(Arc::from(text))
}

/// The methods of each type above. The types are written out, so that a reader finds them.
macro_rules! name {
    ($name:ident, $what:literal) => {
        impl $name {
            #[doc = concat!("The ", $what, " with this text.")]
            ///
            /// # Errors
            /// [`InvalidName`] if the text is blank, too long or has a control character.
            pub fn new(text: impl AsRef<str>) -> Result<$name, InvalidName> {
                checked($what, text.as_ref()).map($name)
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(Topic, "topic");
name!(Source, "source");
name!(SourceMessageId, "message ID");
name!(CorrelationId, "correlation ID");
name!(OwnerToken, "owner token");
name!(JobName, "job name");
name!(ResourceName, "resource name");

impl OwnerToken {
    /// A unique token: the time and 80 random bits.
    pub fn random() -> OwnerToken {
        OwnerToken(Arc::from(crate::id::random_ulid().to_string().as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRIM-GEN-D
    #[test]
    fn a_blank_name_is_refused_and_says_which() {
        for text in ["", " ", "\t\n"] {
            assert_eq!(Topic::new(text), Err(InvalidName::Blank { what: "topic" }));
            assert_eq!(OwnerToken::new(text), Err(InvalidName::Blank { what: "owner token" }));
            assert_eq!(SourceMessageId::new(text), Err(InvalidName::Blank { what: "message ID" }));
            assert_eq!(JobName::new(text), Err(InvalidName::Blank { what: "job name" }));
            assert_eq!(ResourceName::new(text), Err(InvalidName::Blank { what: "resource name" }));
            assert_eq!(Source::new(text), Err(InvalidName::Blank { what: "source" }));
            assert!(CorrelationId::new(text).is_err());
        }
    }

    #[test]
    fn a_name_at_the_bound_is_accepted_and_one_byte_more_is_not() {
        assert!(Topic::new("t".repeat(NAME_BYTES_MAX)).is_ok());
        assert_eq!(
            Topic::new("t".repeat(NAME_BYTES_MAX + 1)),
            Err(InvalidName::TooLong { what: "topic", bytes: 256 })
        );
    }

    #[test]
    fn a_control_character_is_refused() {
        assert_eq!(
            Topic::new("a\0b").unwrap_err().to_string(),
            "name_has_control_character: the topic has a control character"
        );
    }

    #[test]
    fn random_owners_differ() {
        assert_ne!(OwnerToken::random(), OwnerToken::random());
    }
}
