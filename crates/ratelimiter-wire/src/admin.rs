//! Answers to `PUT` and `DELETE /v1/admin/limits`.

use std::time::Duration;

use ratelimiter::{DefineError, DeleteError, Limit, LimitKey, LimitStatus, Refused, Unanswered};
use serde::{Deserialize, Serialize};

use crate::answer::{answer, error_of};
use crate::decode::Refusal;
use crate::definition::StatusBody;
use crate::error_code::ErrorCode;
use crate::field;

/// The answer to a definition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefineAnswer {
    /// True if the limit is defined, and survives a restart.
    #[serde(default)]
    pub ok: bool,
    /// The limit's new status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusBody>,
    /// Why the request failed: a stable error code, then `:` and the key or field in question.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::error_code")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "kind_conflict:global:llm:openai:gpt-4o:rpm"))]
    pub error: Option<ErrorCode>,
    /// What is wrong and what to do about it, in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The answer to a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeleteAnswer {
    /// True if the limit was deleted.
    #[serde(default)]
    pub ok: bool,
    /// Why the request failed: a stable error code.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::error_code")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "not_found"))]
    pub error: Option<ErrorCode>,
    /// What is wrong and what to do about it, in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

answer!(DefineAnswer);
answer!(DeleteAnswer);

impl DefineAnswer {
    /// The answer with the result of a definition.
    pub fn of(result: Result<LimitStatus, DefineError>) -> Self {
        let error = match result {
            Ok(status) => {
                let status = match status {
                    LimitStatus::Active => StatusBody::Active,
                    LimitStatus::Paused => StatusBody::Paused,
                    LimitStatus::Decreasing { to: _ } => StatusBody::Decreasing,
                };
                return Self { ok: true, status: Some(status), ..Self::default() };
            }
            Err(error) => error,
        };
        let message = error.to_string();
        let code = match error {
            DefineError::KindConflict { key, is: _ } => ErrorCode::KindConflict { key },
            DefineError::Unanswered(Unanswered { .. }) => ErrorCode::BackendError,
            DefineError::Refused(Refused { .. }) => ErrorCode::BackendRefused,
        };
        Refusal { error: code, message }.into()
    }

    /// The result in the answer to the definition of `asked`, for a client.
    ///
    /// # Errors
    /// As the backend's define. An answer of another protocol is [`DefineError::Refused`].
    #[expect(clippy::wildcard_enum_match_arm, reason = "`error_of` maps what operations share")]
    pub fn into_result(self, asked: &Limit) -> Result<LimitStatus, DefineError> {
        let Self { ok: _, status, error, message } = self;
        let code = match (status, error) {
            (_, Some(code)) => code,
            (Some(StatusBody::Active), None) => return Ok(LimitStatus::Active),
            (Some(StatusBody::Paused), None) => return Ok(LimitStatus::Paused),
            (Some(StatusBody::Decreasing), None) => {
                return Ok(LimitStatus::Decreasing { to: asked.capacity });
            }
            (None, None) => ErrorCode::Other("not an answer to a definition".to_owned()),
        };
        match code {
            ErrorCode::KindConflict { key } => {
                let is = if asked.kind.is_concurrency() { "rolling" } else { "concurrency" };
                Err(DefineError::KindConflict { key, is })
            }
            code => Err(error_of(&code, message, Duration::ZERO)),
        }
    }
}

impl DeleteAnswer {
    /// The answer with the result of a deletion.
    pub fn of(result: Result<(), DeleteError>) -> Self {
        let Err(error) = result else {
            return Self { ok: true, ..Self::default() };
        };
        let message = error.to_string();
        let code = match error {
            DeleteError::UnknownKey { key: _ } => ErrorCode::NotFound,
            DeleteError::Unanswered(Unanswered { .. }) => ErrorCode::BackendError,
            DeleteError::Refused(Refused { .. }) => ErrorCode::BackendRefused,
        };
        Refusal { error: code, message }.into()
    }

    /// The result in the answer to the deletion of `key`, for a client.
    ///
    /// # Errors
    /// As the backend's delete. An answer of another protocol is [`DeleteError::Refused`].
    #[expect(clippy::wildcard_enum_match_arm, reason = "`error_of` maps what operations share")]
    pub fn into_result(self, key: &LimitKey) -> Result<(), DeleteError> {
        let Self { ok, error, message } = self;
        let code = match (ok, error) {
            (true, None) => return Ok(()),
            (_, Some(code)) => code,
            (false, None) => ErrorCode::Other("not an answer to a deletion".to_owned()),
        };
        match code {
            ErrorCode::NotFound => Err(DeleteError::UnknownKey { key: key.clone() }),
            code => Err(error_of(&code, message, Duration::ZERO)),
        }
    }
}
