//! Mapping of the error codes that all operations share.

use std::time::Duration;

use ratelimiter::{Refused, Unanswered};

use crate::error_code::ErrorCode;

/// The two ways to fail that every operation shares.
pub(crate) enum CallFailure {
    Unanswered(Unanswered),
    Refused(Refused),
}

impl CallFailure {
    /// Maps a code to one of the two: only an unfinished request may be retried.
    pub(crate) fn of(code: &ErrorCode, message: Option<String>, retry_after: Duration) -> Self {
        let reason = match message {
            Some(message) if !message.is_empty() => format!("{code}: {message}"),
            _ => code.to_string(),
        };
        match code {
            ErrorCode::BackendError | ErrorCode::RequestTimeout => {
                Self::Unanswered(Unanswered { reason, retry_after })
            }
            ErrorCode::InvalidRequest { .. }
            | ErrorCode::DuplicateKey { .. }
            | ErrorCode::UnknownLimitKey { .. }
            | ErrorCode::AmountExceedsCapacity { .. }
            | ErrorCode::LimitPaused { .. }
            | ErrorCode::LimitDecreasing { .. }
            | ErrorCode::LeaseConflict
            | ErrorCode::LeaseEnded
            | ErrorCode::InvalidActual { .. }
            | ErrorCode::KindConflict { .. }
            | ErrorCode::TooManyLimits
            | ErrorCode::LimitsReadOnly
            | ErrorCode::NotFound
            | ErrorCode::Unauthorized
            | ErrorCode::Forbidden
            | ErrorCode::MethodNotAllowed
            | ErrorCode::BodyTooLarge
            | ErrorCode::BackendRefused
            | ErrorCode::Other(_) => Self::Refused(Refused { reason }),
        }
    }
}

/// Whole milliseconds, rounded up.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
