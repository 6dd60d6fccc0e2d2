//! Why a call is refused, in the shape of either API.

use std::time::Duration;

use hyper::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::limits::{Dimension, Refused};

/// Anthropic's status when it has no capacity.
const OVERLOADED: u16 = 529;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    InvalidRequest {
        message: String,
    },
    BodyTooLarge {
        bytes_max: usize,
    },
    WrongKey,
    UnknownPath {
        path: String,
    },
    WrongMethod {
        path: String,
    },
    /// The provider takes no `stream_options`.
    StreamOptions,
    /// A limit is used up.
    NoRoom(Refused),
    /// [`crate::Fault::TooManyRequests`].
    TooManyRequests {
        retry_after: Duration,
    },
    Quota,
    Unavailable,
}

impl Problem {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidRequest { message: message.into() }
    }

    pub(crate) fn status(&self, api: Api) -> StatusCode {
        match self {
            Self::InvalidRequest { .. } | Self::StreamOptions => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::WrongKey => StatusCode::UNAUTHORIZED,
            Self::UnknownPath { .. } => StatusCode::NOT_FOUND,
            Self::WrongMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoRoom(_) | Self::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Quota => match api {
                Api::OpenAi => StatusCode::TOO_MANY_REQUESTS,
                Api::Anthropic => StatusCode::PAYMENT_REQUIRED,
            },
            Self::Unavailable => match api {
                Api::OpenAi => StatusCode::SERVICE_UNAVAILABLE,
                Api::Anthropic => StatusCode::from_u16(OVERLOADED).expect("it has three digits"),
            },
        }
    }

    pub(crate) fn body(&self, api: Api, request_id: &str) -> Value {
        let message = self.message();
        match api {
            Api::OpenAi => {
                let (kind, code) = self.openai_type_and_code();
                json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
            }
            Api::Anthropic => json!({
                "type": "error",
                "error": { "type": self.anthropic_type(), "message": message },
                "request_id": request_id,
            }),
        }
    }

    /// Says when to come back, if that is known. Anthropic has no `retry-after-ms`, but proxies before it do.
    pub(crate) fn insert_retry_after(&self, headers: &mut HeaderMap, api: Api) {
        let (wait, has_ms) = match self {
            Self::NoRoom(Refused { fits_after: Some(wait), .. }) => (*wait, api == Api::OpenAi),
            Self::TooManyRequests { retry_after } => (*retry_after, true),
            Self::NoRoom(Refused { fits_after: None, .. })
            | Self::InvalidRequest { .. }
            | Self::BodyTooLarge { .. }
            | Self::WrongKey
            | Self::UnknownPath { .. }
            | Self::WrongMethod { .. }
            | Self::StreamOptions
            | Self::Quota
            | Self::Unavailable => return,
        };
        let ms = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        headers.insert("retry-after", ms.div_ceil(1_000).into());
        if has_ms {
            headers.insert("retry-after-ms", ms.into());
        }
    }

    fn message(&self) -> String {
        match self {
            Self::InvalidRequest { message } => message.clone(),
            Self::BodyTooLarge { bytes_max } => {
                format!("The request is larger than {bytes_max} bytes.")
            }
            Self::WrongKey => "Incorrect API key provided.".to_owned(),
            Self::UnknownPath { path } => format!("Invalid URL ({path})"),
            Self::WrongMethod { path } => format!("Not a method of {path}."),
            Self::StreamOptions => "Unknown parameter: 'stream_options'.".to_owned(),
            Self::NoRoom(refused) => no_room(refused),
            Self::TooManyRequests { retry_after } => {
                format!("Rate limit reached. Please try again in {}ms.", retry_after.as_millis())
            }
            Self::Quota => "You exceeded your current quota, please check your plan and billing \
                            details."
                .to_owned(),
            Self::Unavailable => "The engine is currently overloaded.".to_owned(),
        }
    }

    const fn openai_type_and_code(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::InvalidRequest { .. } | Self::BodyTooLarge { .. } | Self::WrongMethod { .. } => {
                ("invalid_request_error", None)
            }
            Self::WrongKey => ("invalid_request_error", Some("invalid_api_key")),
            Self::UnknownPath { .. } => ("invalid_request_error", Some("unknown_url")),
            Self::StreamOptions => ("invalid_request_error", Some("unknown_parameter")),
            Self::NoRoom(Refused { dimension: Dimension::Tokens, .. }) => {
                ("tokens", Some("rate_limit_exceeded"))
            }
            Self::NoRoom(Refused { dimension: Dimension::Requests, .. })
            | Self::TooManyRequests { .. } => ("requests", Some("rate_limit_exceeded")),
            Self::Quota => ("insufficient_quota", Some("insufficient_quota")),
            Self::Unavailable => ("server_error", None),
        }
    }

    const fn anthropic_type(&self) -> &'static str {
        match self {
            Self::InvalidRequest { .. } | Self::WrongMethod { .. } | Self::StreamOptions => {
                "invalid_request_error"
            }
            Self::BodyTooLarge { .. } => "request_too_large",
            Self::WrongKey => "authentication_error",
            Self::UnknownPath { .. } => "not_found_error",
            Self::NoRoom(_) | Self::TooManyRequests { .. } => "rate_limit_error",
            Self::Quota => "billing_error",
            Self::Unavailable => "overloaded_error",
        }
    }
}

fn no_room(refused: &Refused) -> String {
    let Refused { dimension, limit, remaining, requested, fits_after } = refused;
    let name = match dimension {
        Dimension::Requests => "requests per min (RPM)",
        Dimension::Tokens => "tokens per min (TPM)",
    };
    match fits_after {
        None => format!("Request too large on {name}: Limit {limit}, Requested {requested}."),
        Some(wait) => format!(
            "Rate limit reached on {name}: Limit {limit}, Remaining {remaining}, Requested \
             {requested}. Please try again in {}ms.",
            wait.as_nanos().div_ceil(1_000_000)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_room_for(ms: u64) -> Problem {
        Problem::NoRoom(Refused {
            dimension: Dimension::Tokens,
            limit: 100,
            remaining: 3,
            requested: 5,
            fits_after: Some(Duration::from_millis(ms)),
        })
    }

    /// GW-14
    #[test]
    fn a_problem_has_the_shape_of_its_api() {
        let openai = no_room_for(1_200).body(Api::OpenAi, "req_1");
        assert_eq!(openai["error"]["code"], "rate_limit_exceeded");
        assert_eq!(openai["error"]["type"], "tokens");
        let anthropic = no_room_for(1_200).body(Api::Anthropic, "req_1");
        assert_eq!(anthropic["type"], "error");
        assert_eq!(anthropic["error"]["type"], "rate_limit_error");
        assert_eq!(anthropic["request_id"], "req_1");
    }

    #[test]
    fn times_to_wait_are_rounded_up() {
        let mut headers = HeaderMap::new();
        no_room_for(1_200).insert_retry_after(&mut headers, Api::OpenAi);
        assert_eq!(headers["retry-after"], "2");
        assert_eq!(headers["retry-after-ms"], "1200");
        let mut headers = HeaderMap::new();
        no_room_for(1_000).insert_retry_after(&mut headers, Api::Anthropic);
        assert_eq!(headers["retry-after"], "1");
        assert!(!headers.contains_key("retry-after-ms"));
    }
}
