//! Answers to `PUT` and `DELETE /v1/admin/limits`.

use std::time::Duration;

use ratelimiter::{DefineError, DeleteError, Limit, LimitKey, LimitStatus, Refused, Unanswered};
use serde::{Deserialize, Serialize};

use crate::answer::{answer, error_of};
use crate::decode::Refusal;
use crate::definition::StatusBody;
use crate::definitions::LIMITS;
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
    /// For a list, in place of `status`: the new status of each limit, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<LimitStatusBody>,
    /// Why the request failed: a stable error code, then `:` and the key or field in question.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::error_code")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "kind_conflict:global:llm:openai:gpt-4o:rpm"))]
    pub error: Option<ErrorCode>,
    /// What is wrong and what to do about it, in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The status of one limit of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LimitStatusBody {
    /// The key of the limit.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "global:llm:openai:gpt-4o:rpm"))]
    pub key: LimitKey,
    /// Its new status.
    pub status: StatusBody,
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
        match result {
            Ok(status) => Self { ok: true, status: Some(status.into()), ..Self::default() },
            Err(error) => refusal_of(error, "").into(),
        }
    }

    /// The answer with the result of a list of definitions, whose keys these are.
    ///
    /// # Panics
    /// The result does not have one status per key.
    pub fn of_all(keys: Vec<LimitKey>, result: Result<Vec<LimitStatus>, DefineError>) -> Self {
        match result {
            Ok(statuses) => {
                assert_eq!(statuses.len(), keys.len(), "there is one status per definition");
                let status = |(key, status): (_, LimitStatus)| LimitStatusBody {
                    key,
                    status: status.into(),
                };
                let statuses = keys.into_iter().zip(statuses).map(status).collect();
                Self { ok: true, statuses, ..Self::default() }
            }
            Err(error) => {
                let at = match &error {
                    DefineError::InvalidKey { key, .. }
                    | DefineError::CapacityOutOfRange { key, .. } => {
                        keys.iter().position(|k| k == key)
                    }
                    DefineError::KindConflict { .. }
                    | DefineError::TooManyTemplates { .. }
                    | DefineError::Unanswered(_)
                    | DefineError::Refused(_) => None,
                };
                let place = format!("{LIMITS}[{}].", at.unwrap_or_default());
                refusal_of(error, &place).into()
            }
        }
    }

    /// The result in the answer to the definition of `asked`, for a client.
    ///
    /// # Errors
    /// As the backend's define. An answer of another protocol is [`DefineError::Refused`].
    pub fn into_result(self, asked: &Limit) -> Result<LimitStatus, DefineError> {
        let Self { ok: _, status, statuses: _, error, message } = self;
        match (status, error) {
            (_, Some(code)) => Err(error_about(code, message)),
            (Some(status), None) => Ok(status_of(status, asked)),
            (None, None) => Err(no_answer(message)),
        }
    }

    /// The results in the answer to the definitions of `asked`, for a client.
    ///
    /// # Errors
    /// As [`DefineAnswer::into_result`].
    pub fn into_results(self, asked: &[Limit]) -> Result<Vec<LimitStatus>, DefineError> {
        let Self { ok: _, status: _, statuses, error, message } = self;
        if let Some(code) = error {
            return Err(error_about(code, message));
        }
        let keys = statuses.iter().map(|body| &body.key);
        if !keys.eq(asked.iter().map(|limit| &limit.key)) {
            return Err(no_answer(message));
        }
        let status = |(body, limit): (LimitStatusBody, &Limit)| status_of(body.status, limit);
        Ok(statuses.into_iter().zip(asked).map(status).collect())
    }

    /// True if the answer to a valid list comes from a server that takes single definitions only: it does not know the
    /// field, or does not accept as long a body.
    pub fn is_list_unsupported(&self) -> bool {
        match &self.error {
            Some(ErrorCode::InvalidRequest { field }) => field == LIMITS,
            Some(ErrorCode::BodyTooLarge) => true,
            Some(_) | None => false,
        }
    }
}

impl From<LimitStatus> for StatusBody {
    fn from(status: LimitStatus) -> Self {
        match status {
            LimitStatus::Active => Self::Active,
            LimitStatus::Paused => Self::Paused,
            LimitStatus::Decreasing { to: _ } => Self::Decreasing,
        }
    }
}

fn status_of(status: StatusBody, asked: &Limit) -> LimitStatus {
    match status {
        StatusBody::Active => LimitStatus::Active,
        StatusBody::Paused => LimitStatus::Paused,
        StatusBody::Decreasing => LimitStatus::Decreasing { to: asked.capacity },
    }
}

/// `place` is the path of the definition, if a field of it is invalid.
fn refusal_of(error: DefineError, place: &str) -> Refusal {
    let message = error.to_string();
    let error = match error {
        DefineError::InvalidKey { .. } => {
            return Refusal::of_field(&format!("{place}key"), message);
        }
        DefineError::CapacityOutOfRange { .. } => {
            return Refusal::of_field(&format!("{place}capacity"), message);
        }
        DefineError::KindConflict { key, is: _ } => ErrorCode::KindConflict { key },
        DefineError::TooManyTemplates { .. } => ErrorCode::TooManyLimits,
        DefineError::Unanswered(Unanswered { .. }) => ErrorCode::BackendError,
        DefineError::Refused(Refused { .. }) => ErrorCode::BackendRefused,
    };
    Refusal { error, message }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "`error_of` maps what operations share")]
fn error_about(code: ErrorCode, message: Option<String>) -> DefineError {
    match code {
        ErrorCode::KindConflict { key } => {
            DefineError::KindConflict { key, is: kind_in(message.as_deref()) }
        }
        code => error_of(&code, message, Duration::ZERO),
    }
}

fn no_answer(message: Option<String>) -> DefineError {
    let code = ErrorCode::Other("not an answer to a definition".to_owned());
    error_of(&code, message, Duration::ZERO)
}

/// The kind of the existing limit, which only the message of a conflict tells.
fn kind_in(message: Option<&str>) -> &'static str {
    let is_named =
        |kind: &&str| message.is_some_and(|text| text.contains(&format!("is a {kind} limit")));
    ["rolling", "concurrency", "calendar"].into_iter().find(is_named).unwrap_or("different")
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
