//! `POST /v1/admin/forgive`: request and answer.

use std::time::Duration;

use ratelimiter::{ForgiveError, LimitKey, Refused, Unanswered};
use serde::{Deserialize, Serialize};

use crate::answer::{answer, error_of};
use crate::decode::{Body, Refusal};
use crate::error_code::ErrorCode;
use crate::field;
use crate::strict::strict;

/// Asks to set the debt of a limit to 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with key")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForgiveBody {
    /// The key of the limit.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 256, pattern = r"^[^\s\u0000-\u001f\u007f-\u009f]+$", example = "tenant:acme:llm:daily_tokens"))]
    pub key: LimitKey,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForgiveAnswer {
    /// True if the debt is forgiven.
    #[serde(default)]
    pub ok: bool,
    /// How much the debt was; absent for an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgiven: Option<u128>,
    /// Why the request failed: a stable error code, then `:` and the key or field in question.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::error_code")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "unknown_limit_key:tenant:acme:llm:daily_tokens"))]
    pub error: Option<ErrorCode>,
    /// What is wrong and what to do about it, in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

strict!(ObjectOnly: ForgiveBody);
answer!(ForgiveAnswer);

impl Body for ForgiveBody {
    type Request = LimitKey;

    fn into_request(self) -> Result<LimitKey, Refusal> {
        let Self { key } = self;
        Ok(key)
    }
}

impl ForgiveAnswer {
    /// The answer with the result of a forgive.
    pub fn of(result: Result<u128, ForgiveError>) -> Self {
        let error = match result {
            Ok(forgiven) => {
                return Self { ok: true, forgiven: Some(forgiven), ..Self::default() };
            }
            Err(error) => error,
        };
        let message = error.to_string();
        let code = match error {
            ForgiveError::UnknownKey { key } => ErrorCode::UnknownLimitKey { key },
            ForgiveError::Unanswered(Unanswered { .. }) => ErrorCode::BackendError,
            ForgiveError::Refused(Refused { .. }) => ErrorCode::BackendRefused,
        };
        Refusal { error: code, message }.into()
    }

    /// The result in the answer, for a client.
    ///
    /// # Errors
    /// As the backend's forgive. An answer of another protocol is [`ForgiveError::Refused`].
    #[expect(clippy::wildcard_enum_match_arm, reason = "`error_of` maps what operations share")]
    pub fn into_result(self) -> Result<u128, ForgiveError> {
        let Self { ok: _, forgiven, error, message } = self;
        let code = match (forgiven, error) {
            (_, Some(code)) => code,
            (Some(forgiven), None) => return Ok(forgiven),
            (None, None) => ErrorCode::Other("not an answer to a forgive".to_owned()),
        };
        match code {
            ErrorCode::UnknownLimitKey { key } => Err(ForgiveError::UnknownKey { key }),
            code => Err(error_of(&code, message, Duration::ZERO)),
        }
    }
}
