//! What a caller makes of the words that mean the same for every operation.

use std::time::Duration;

use ratelimiter::{Refused, Unanswered};

use crate::word::ErrorWord;

/// The two ways to fail that every operation shares.
pub(crate) enum Failure {
    Unanswered(Unanswered),
    Refused(Refused),
}

impl Failure {
    /// Which of the two a word is: only a server that did not get to the end may be asked again.
    pub(crate) fn of(word: &ErrorWord, message: Option<String>, retry_after: Duration) -> Self {
        let reason = match message {
            Some(message) if !message.is_empty() => format!("{word}: {message}"),
            _ => word.to_string(),
        };
        match word {
            ErrorWord::BackendError | ErrorWord::RequestTimeout => {
                Self::Unanswered(Unanswered { reason, retry_after })
            }
            ErrorWord::InvalidRequest { .. }
            | ErrorWord::DuplicateKey { .. }
            | ErrorWord::UnknownLimitKey { .. }
            | ErrorWord::AmountExceedsCapacity { .. }
            | ErrorWord::LimitPaused { .. }
            | ErrorWord::LimitDecreasing { .. }
            | ErrorWord::LeaseConflict
            | ErrorWord::LeaseEnded
            | ErrorWord::InvalidActual { .. }
            | ErrorWord::KindConflict { .. }
            | ErrorWord::TooManyLimits
            | ErrorWord::LimitsReadOnly
            | ErrorWord::NotFound
            | ErrorWord::Unauthorized
            | ErrorWord::Forbidden
            | ErrorWord::MethodNotAllowed
            | ErrorWord::BodyTooLarge
            | ErrorWord::BackendRefused
            | ErrorWord::Other(_) => Self::Refused(Refused { reason }),
        }
    }
}

/// A whole number of milliseconds that is at least as long.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
