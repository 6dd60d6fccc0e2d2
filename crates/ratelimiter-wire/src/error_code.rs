//! Stable error codes and their HTTP statuses.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use ratelimiter::LimitKey;

/// The `error` field of an answer: a stable code, then `:` and the key or field in question.
///
/// ```
/// use ratelimiter_wire::ErrorCode;
///
/// let Ok(code) = "unknown_limit_key:global:llm:openai:gpt-4o:rpm".parse();
/// assert!(matches!(&code, ErrorCode::UnknownLimitKey { key } if key.as_str().ends_with(":rpm")));
/// assert_eq!(code.http_status(), 404);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorCode {
    /// `invalid_request:<field>`: the request is malformed.
    InvalidRequest {
        /// The path of the field, such as `requirements[0].amount`; `body` if the body is not JSON.
        field: String,
    },
    /// `duplicate_key:<key>`: a key is listed twice in one request.
    DuplicateKey {
        /// The key.
        key: LimitKey,
    },
    /// `unknown_limit_key:<key>`: no limit has this key.
    UnknownLimitKey {
        /// The key.
        key: LimitKey,
    },
    /// `amount_exceeds_capacity:<key>`: the amount is above the limit's capacity, which is not 0.
    AmountExceedsCapacity {
        /// The key.
        key: LimitKey,
    },
    /// `limit_paused:<key>`: the capacity is 0; nothing is admitted until it is raised.
    LimitPaused {
        /// The key.
        key: LimitKey,
    },
    /// `limit_decreasing:<key>`: a lower capacity is pending.
    LimitDecreasing {
        /// The key.
        key: LimitKey,
    },
    /// `lease_conflict`: the lease ID was used before, for other requirements.
    LeaseConflict,
    /// `lease_ended`: the lease was completed, or one of its reservations has expired.
    LeaseEnded,
    /// `invalid_actual:<key>`: the lease has no rolling reservation of this key.
    InvalidActual {
        /// The key.
        key: LimitKey,
    },
    /// `kind_conflict:<key>`: the key is of the other kind.
    KindConflict {
        /// The key.
        key: LimitKey,
    },
    /// `too_many_limits`: the server has its maximum number of limits.
    TooManyLimits,
    /// `limits_read_only`: the server cannot write its limits file. Repeating does not help.
    LimitsReadOnly,
    /// `not_found`: no such limit, or no such path.
    NotFound,
    /// `unauthorized`: the request has no valid token.
    Unauthorized,
    /// `forbidden`: the token does not permit this operation.
    Forbidden,
    /// `method_not_allowed`: the path does not support this method.
    MethodNotAllowed,
    /// `body_too_large`: the body is larger than the server accepts.
    BodyTooLarge,
    /// `request_timeout`: the body did not arrive in time.
    RequestTimeout,
    /// `backend_error`: no answer, so the outcome is unknown. Repeat with the same lease ID.
    BackendError,
    /// `backend_refused`: the server's backend does not accept the server. Repeating does not help.
    BackendRefused,
    /// A code that this version does not know, from a newer server.
    Other(String),
}

impl ErrorCode {
    /// The HTTP status of the code. Nothing else decides a status.
    pub const fn http_status(&self) -> u16 {
        match self {
            Self::LimitPaused { .. } | Self::LimitDecreasing { .. } => 200,
            Self::InvalidRequest { .. }
            | Self::DuplicateKey { .. }
            | Self::InvalidActual { .. } => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::UnknownLimitKey { .. } | Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::LeaseConflict
            | Self::LeaseEnded
            | Self::KindConflict { .. }
            | Self::TooManyLimits
            | Self::LimitsReadOnly => 409,
            Self::BodyTooLarge => 413,
            Self::AmountExceedsCapacity { .. } => 422,
            Self::BackendRefused | Self::Other(_) => 500,
            Self::BackendError => 503,
        }
    }

    /// The code, and the key or field after the colon.
    fn parts(&self) -> (&str, Option<&str>) {
        match self {
            Self::InvalidRequest { field } => ("invalid_request", Some(field)),
            Self::DuplicateKey { key } => ("duplicate_key", Some(key.as_str())),
            Self::UnknownLimitKey { key } => ("unknown_limit_key", Some(key.as_str())),
            Self::AmountExceedsCapacity { key } => ("amount_exceeds_capacity", Some(key.as_str())),
            Self::LimitPaused { key } => ("limit_paused", Some(key.as_str())),
            Self::LimitDecreasing { key } => ("limit_decreasing", Some(key.as_str())),
            Self::LeaseConflict => ("lease_conflict", None),
            Self::LeaseEnded => ("lease_ended", None),
            Self::InvalidActual { key } => ("invalid_actual", Some(key.as_str())),
            Self::KindConflict { key } => ("kind_conflict", Some(key.as_str())),
            Self::TooManyLimits => ("too_many_limits", None),
            Self::LimitsReadOnly => ("limits_read_only", None),
            Self::NotFound => ("not_found", None),
            Self::Unauthorized => ("unauthorized", None),
            Self::Forbidden => ("forbidden", None),
            Self::MethodNotAllowed => ("method_not_allowed", None),
            Self::BodyTooLarge => ("body_too_large", None),
            Self::RequestTimeout => ("request_timeout", None),
            Self::BackendError => ("backend_error", None),
            Self::BackendRefused => ("backend_refused", None),
            Self::Other(text) => (text, None),
        }
    }

    /// The inverse of [`ErrorCode::parts`]; `None` for an unknown code or an invalid key.
    fn from_parts(code: &str, about: Option<&str>) -> Option<Self> {
        let key = || about.and_then(|key| LimitKey::new(key).ok());
        Some(match code {
            "invalid_request" => Self::InvalidRequest { field: about?.to_owned() },
            "duplicate_key" => Self::DuplicateKey { key: key()? },
            "unknown_limit_key" => Self::UnknownLimitKey { key: key()? },
            "amount_exceeds_capacity" => Self::AmountExceedsCapacity { key: key()? },
            "limit_paused" => Self::LimitPaused { key: key()? },
            "limit_decreasing" => Self::LimitDecreasing { key: key()? },
            "lease_conflict" => Self::LeaseConflict,
            "lease_ended" => Self::LeaseEnded,
            "invalid_actual" => Self::InvalidActual { key: key()? },
            "kind_conflict" => Self::KindConflict { key: key()? },
            "too_many_limits" => Self::TooManyLimits,
            "limits_read_only" => Self::LimitsReadOnly,
            "not_found" => Self::NotFound,
            "unauthorized" => Self::Unauthorized,
            "forbidden" => Self::Forbidden,
            "method_not_allowed" => Self::MethodNotAllowed,
            "body_too_large" => Self::BodyTooLarge,
            "request_timeout" => Self::RequestTimeout,
            "backend_error" => Self::BackendError,
            "backend_refused" => Self::BackendRefused,
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (code, Some(about)) => write!(f, "{code}:{about}"),
            (code, None) => f.write_str(code),
        }
    }
}

impl FromStr for ErrorCode {
    type Err = Infallible;

    /// Never fails: an unknown code is [`ErrorCode::Other`].
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (code, about) = match text.split_once(':') {
            Some((code, about)) => (code, Some(about)),
            None => (text, None),
        };
        Ok(Self::from_parts(code, about).unwrap_or_else(|| Self::Other(text.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes with their statuses, as in `docs/reference/http-api.md`.
    const CODES: [(&str, u16); 19] = [
        ("invalid_request:requirements[0].amount", 400),
        ("duplicate_key:a:b", 400),
        ("unknown_limit_key:a:b", 404),
        ("amount_exceeds_capacity:a:b", 422),
        ("limit_paused:a:b", 200),
        ("limit_decreasing:a:b", 200),
        ("lease_conflict", 409),
        ("lease_ended", 409),
        ("invalid_actual:a:b", 400),
        ("kind_conflict:a:b", 409),
        ("too_many_limits", 409),
        ("not_found", 404),
        ("unauthorized", 401),
        ("forbidden", 403),
        ("method_not_allowed", 405),
        ("body_too_large", 413),
        ("request_timeout", 408),
        ("backend_error", 503),
        ("backend_refused", 500),
    ];

    /// HTTP-04
    #[test]
    fn every_code_round_trips_and_has_its_status() {
        for (text, status) in CODES {
            let Ok(code) = text.parse::<ErrorCode>();
            assert!(!matches!(code, ErrorCode::Other(_)), "{text}");
            assert_eq!(code.to_string(), text);
            assert_eq!(code.http_status(), status, "{text}");
        }
    }

    /// HTTP-04
    #[test]
    fn an_unknown_error_code_is_preserved() {
        for text in ["tomorrow:k", "tomorrow", "unknown_limit_key:two words", "unknown_limit_key"] {
            let Ok(code) = text.parse::<ErrorCode>();
            assert_eq!(code, ErrorCode::Other(text.to_owned()));
            assert_eq!(code.to_string(), text);
        }
    }
}
