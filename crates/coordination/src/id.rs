//! The identities that callers make before they ask, so that a request repeated after a lost answer
//! is recognised (`PRIM-GEN-E`). Each is a ULID: unique without asking anyone, and sortable by age.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use ulid::Ulid;

use crate::clock::{Clock, WallClock};

/// The identity of an outbox message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Ulid);

/// The identity of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(Ulid);

/// The identity of one run of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Ulid);

/// The identity of a join.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JoinId(Ulid);

/// The text is not a ULID.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid_id: {text:?} is not a ULID")]
pub struct InvalidId {
    /// The text given.
    pub text: String,
}

/// A ULID of the machine's time and 80 random bits.
///
/// The time in it only keeps identities sortable by age; no rule reads it.
pub(crate) fn random_ulid() -> Ulid {
    let unix_ms = WallClock.now().unix_micros() / 1000;
    let unix_ms = u64::try_from(unix_ms).expect("timestamps are not negative");
    Ulid::from_parts(unix_ms, fastrand::u128(..))
}

/// The same methods for each of the types above; the types themselves stand written out.
macro_rules! id {
    ($name:ident) => {
        impl $name {
            /// A new identity that nothing else has.
            pub fn random() -> $name {
                $name(random_ulid())
            }

            /// The identity as a ULID.
            pub const fn ulid(self) -> Ulid {
                self.0
            }

            /// The identity with this ULID.
            pub const fn from_ulid(ulid: Ulid) -> $name {
                $name(ulid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<$name, InvalidId> {
                let ulid = Ulid::from_string(text);
                ulid.map($name).map_err(|_| InvalidId { text: text.to_owned() })
            }
        }
    };
}

id!(MessageId);
id!(TimerId);
id!(RunId);
id!(JoinId);

/// The message that a timer becomes carries the timer's identity, so it is enqueued once.
impl From<TimerId> for MessageId {
    fn from(timer: TimerId) -> MessageId {
        MessageId(timer.0)
    }
}

/// The message that a job run becomes carries the run's identity, so it is enqueued once.
impl From<RunId> for MessageId {
    fn from(run: RunId) -> MessageId {
        MessageId(run.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_text() {
        let id = MessageId::random();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("x".parse::<MessageId>(), Err(InvalidId { text: "x".to_owned() }));
    }

    #[test]
    fn a_timers_message_has_the_timers_identity() {
        let timer = TimerId::random();
        assert_eq!(MessageId::from(timer).ulid(), timer.ulid());
    }
}
