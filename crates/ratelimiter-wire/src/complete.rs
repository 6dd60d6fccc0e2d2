//! `POST /v1/complete`: request and answer.

use std::time::Duration;

use ratelimiter::{
    Actual, Actuals, CompleteError, CompleteRequest, JobId, LeaseId, LimitKey, Refused, Unanswered,
};
use serde::{Deserialize, Serialize};

use crate::answer::{answer, error_of, whole_ms};
use crate::decode::{Body, Refusal};
use crate::error_code::ErrorCode;
use crate::field;
use crate::strict::strict;

/// Reports the end of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with lease_id and actuals")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompleteBody {
    /// The lease that was allowed: a ULID.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 26, max_length = 26, pattern = "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$", example = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D"))]
    pub lease_id: LeaseId,
    /// The caller's ID for its work; only for logs. 1 to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub job_id: Option<String>,
    /// Actual use of the rolling limits, where the caller knows it: at most 32 with distinct keys.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_items = 32))]
    pub actuals: Vec<ActualBody>,
}

/// What a call used of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with key and actual_amount")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActualBody {
    /// The key of the limit.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 256, pattern = r"^[^\s\u0000-\u001f\u007f-\u009f]+$", example = "global:llm:openai:gpt-4o:tpm"))]
    pub key: LimitKey,
    /// Units: 0 to 2^64-1.
    #[serde(deserialize_with = "field::whole_number")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, format = "uint64", maximum = 18_446_744_073_709_551_615_u64))]
    pub actual_amount: u64,
}

/// The answer to a complete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompleteAnswer {
    /// True if the lease has ended, now or before.
    #[serde(default)]
    pub ok: bool,
    /// When to repeat the request; absent if that does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Why the request failed: a stable error code, then `:` and the key or field in question.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::error_code")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "invalid_actual:global:llm:openai:gpt-4o:tpm"))]
    pub error: Option<ErrorCode>,
    /// What is wrong and what to do about it, in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

strict!(ObjectOnly: CompleteBody ActualBody);
answer!(CompleteAnswer);

impl Body for CompleteBody {
    type Request = CompleteRequest;

    fn into_request(self) -> Result<CompleteRequest, Refusal> {
        let Self { lease_id, job_id, actuals } = self;
        let actual = |ActualBody { key, actual_amount }| Actual { key, amount: actual_amount };
        Ok(CompleteRequest {
            lease: lease_id,
            job: job_id.map(JobId::new).transpose()?,
            actuals: Actuals::new(actuals.into_iter().map(actual).collect::<Box<[_]>>())?,
        })
    }
}

impl From<&CompleteRequest> for CompleteBody {
    fn from(request: &CompleteRequest) -> Self {
        let CompleteRequest { lease, job, actuals } = request;
        let actual = |actual: &Actual| {
            let Actual { key, amount } = actual;
            ActualBody { key: key.clone(), actual_amount: *amount }
        };
        Self {
            lease_id: *lease,
            job_id: job.as_ref().map(|job| job.as_str().to_owned()),
            actuals: actuals.iter().map(actual).collect(),
        }
    }
}

impl CompleteAnswer {
    /// The answer with the limiter's result.
    pub fn of(result: Result<(), CompleteError>) -> Self {
        let Err(error) = result else {
            return Self { ok: true, ..Self::default() };
        };
        let message = Some(error.to_string());
        let (code, retry_after_ms) = match error {
            CompleteError::InvalidActual { key } => (ErrorCode::InvalidActual { key }, None),
            CompleteError::Unanswered(Unanswered { reason: _, retry_after }) => {
                (ErrorCode::BackendError, Some(whole_ms(retry_after)))
            }
            CompleteError::Refused(Refused { reason: _ }) => (ErrorCode::BackendRefused, None),
        };
        Self { ok: false, retry_after_ms, error: Some(code), message }
    }

    /// The result in the answer, for a client.
    ///
    /// # Errors
    /// As the limiter's complete. An answer of another protocol is [`CompleteError::Refused`].
    #[expect(clippy::wildcard_enum_match_arm, reason = "`error_of` maps what operations share")]
    pub fn into_result(self) -> Result<(), CompleteError> {
        let Self { ok, retry_after_ms, error, message } = self;
        let code = match (ok, error) {
            (true, None) => return Ok(()),
            (_, Some(code)) => code,
            (false, None) => ErrorCode::Other("not an answer to a complete".to_owned()),
        };
        match code {
            ErrorCode::InvalidActual { key } => Err(CompleteError::InvalidActual { key }),
            code => {
                let retry_after = Duration::from_millis(retry_after_ms.unwrap_or(0));
                Err(error_of(&code, message, retry_after))
            }
        }
    }
}
