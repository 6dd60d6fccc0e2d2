//! What all answers share: the HTTP status, refusals, and the errors of every operation.

use std::time::Duration;

use ratelimiter::{Refused, Unanswered};

use crate::error_code::ErrorCode;

/// Implements what every answer with an optional error has.
macro_rules! answer {
    ($answer:ident) => {
        impl $answer {
            /// The HTTP status of this answer.
            pub const fn http_status(&self) -> u16 {
                match &self.error {
                    Some(code) => code.http_status(),
                    None => 200,
                }
            }
        }

        impl From<$crate::decode::Refusal> for $answer {
            fn from($crate::decode::Refusal { error, message }: $crate::decode::Refusal) -> Self {
                Self { error: Some(error), message: Some(message), ..Self::default() }
            }
        }
    };
}

pub(crate) use answer;

/// The client's error for a code without a meaning of its own to an operation: only an unfinished
/// request may be retried.
pub(crate) fn error_of<E: From<Unanswered> + From<Refused>>(
    code: &ErrorCode,
    message: Option<String>,
    retry_after: Duration,
) -> E {
    let reason = reason_of(code, message);
    match code {
        ErrorCode::BackendError | ErrorCode::RequestTimeout => {
            Unanswered { reason, retry_after }.into()
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
        | ErrorCode::RenewSuperseded
        | ErrorCode::InvalidAmount { .. }
        | ErrorCode::KindConflict { .. }
        | ErrorCode::TooManyInstances { .. }
        | ErrorCode::TooManyWaiters
        | ErrorCode::TooManyLimits
        | ErrorCode::LimitsReadOnly
        | ErrorCode::NotFound
        | ErrorCode::Unauthorized
        | ErrorCode::Forbidden
        | ErrorCode::ForbiddenKey { .. }
        | ErrorCode::MethodNotAllowed
        | ErrorCode::BodyTooLarge
        | ErrorCode::BackendRefused
        | ErrorCode::Other(_) => Refused { reason }.into(),
    }
}

/// The code and the server's message as one text.
pub(crate) fn reason_of(code: &ErrorCode, message: Option<String>) -> String {
    match message {
        Some(message) if !message.is_empty() => format!("{code}: {message}"),
        _ => code.to_string(),
    }
}

/// Whole milliseconds, rounded up.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
