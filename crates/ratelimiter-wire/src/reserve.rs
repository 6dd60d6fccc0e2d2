//! `POST /v1/reserve`: request and answer.

use std::num::NonZeroU64;
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Decision, Denial, DenialReason, JobId, LeaseId, LimitKey, RESERVE_WAIT_MAX, Refused,
    RequestError, Requirement, Requirements, ReserveError, ReserveRequest, Unanswered, Wait,
};
use serde::{Deserialize, Serialize};

use crate::answer::{answer, error_of, reason_of, whole_ms};
use crate::decode::{Body, Refusal};
use crate::error_code::ErrorCode;
use crate::field;
use crate::strict::strict;

/// The longest wait of a reserve, in milliseconds.
const WAIT_MS_MAX: u64 = RESERVE_WAIT_MAX.as_secs() * 1_000;

/// Asks whether a call may go ahead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    remote = "Self",
    expecting = "an object with lease_id and requirements"
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReserveBody {
    /// Identifies the attempt: a ULID. A retry after a denial uses a new one, a retry after no answer the same.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 26, max_length = 26, pattern = "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$", example = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D"))]
    pub lease_id: LeaseId,
    /// The caller's ID for its work, for logs and for the list of open leases. 1 to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub job_id: Option<String>,
    /// Reserved together or not at all: 1 to 32 requirements with distinct keys.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 32))]
    pub requirements: Vec<RequirementBody>,
    /// How long to wait for room, in milliseconds: 0 to 60000. Without it, or with 0, a request without room is denied at once.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "field::optional_number::<_, 0, WAIT_MS_MAX>"
    )]
    #[cfg_attr(feature = "openapi", schema(maximum = 60_000))]
    pub wait_ms: Option<u64>,
    /// Requests that wait take turns by queue, for example one per tenant; within a queue the first to come is the first served. At
    /// most 256 bytes; empty by default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    pub queue: String,
}

/// What a call needs of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with key and amount")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequirementBody {
    /// The key of the limit.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 256, pattern = r"^[^\s\u0000-\u001f\u007f-\u009f]+$", example = "global:llm:openai:gpt-4o:rpm"))]
    pub key: LimitKey,
    /// Units: 1 to 2^64-1.
    #[serde(deserialize_with = "field::amount")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, format = "uint64", maximum = 18_446_744_073_709_551_615_u64, minimum = 1))]
    pub amount: NonZeroU64,
}

/// The answer to a reserve.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReserveAnswer {
    /// True if the call may go ahead.
    #[serde(default)]
    pub allowed: bool,
    /// When to retry; 0 if that does not help.
    #[serde(default)]
    pub retry_after_ms: u64,
    /// When the reservations began; 0 for a denial, absent for an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_at_unix_ms: Option<u64>,
    /// The limits that had no room.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "field::keys")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub denied_keys: Vec<LimitKey>,
    /// The limits in shadow mode that would have denied an allowed request.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "field::keys")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub shadow_denied_keys: Vec<LimitKey>,
    /// How long the request waited, if it has `wait_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// Why the request failed: a stable error code, then `:` and the key or field in question.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::error_code")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "unknown_limit_key:global:llm:openai:gpt-4o:rpm"))]
    pub error: Option<ErrorCode>,
    /// What is wrong and what to do about it, in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

strict!(ObjectOnly: ReserveBody RequirementBody);
answer!(ReserveAnswer);

impl Body for ReserveBody {
    type Request = ReserveRequest;

    fn into_request(self) -> Result<ReserveRequest, Refusal> {
        let Self { lease_id, job_id, requirements, wait_ms, queue } = self;
        let requirement = |RequirementBody { key, amount }| Requirement { key, amount };
        let requirements: Box<[_]> = requirements.into_iter().map(requirement).collect();
        let template = requirements.iter().position(|requirement| requirement.key.is_template());
        let job = job_id.map(JobId::new).transpose()?;
        let requirements = Requirements::new(requirements).map_err(|error| match template {
            Some(at) if matches!(error, RequestError::TemplateKey { .. }) => {
                Refusal::of_field(&format!("requirements[{at}].key"), error.to_string())
            }
            Some(_) | None => error.into(),
        })?;
        // The queue is checked even if the request does not wait.
        let wait = Wait::new(Duration::from_millis(wait_ms.unwrap_or(0)), queue)?;
        let wait = wait_ms.map(|_| wait);
        Ok(ReserveRequest { lease: lease_id, job, requirements, wait })
    }
}

impl From<&ReserveRequest> for ReserveBody {
    fn from(request: &ReserveRequest) -> Self {
        let ReserveRequest { lease, job, requirements, wait } = request;
        let requirement = |requirement: &Requirement| {
            let Requirement { key, amount } = requirement;
            RequirementBody { key: key.clone(), amount: *amount }
        };
        Self {
            lease_id: *lease,
            job_id: job.as_ref().map(|job| job.as_str().to_owned()),
            requirements: requirements.iter().map(requirement).collect(),
            wait_ms: wait.as_ref().map(|wait| whole_ms(wait.at_most())),
            queue: wait.as_ref().map(|wait| wait.queue().to_owned()).unwrap_or_default(),
        }
    }
}

impl ReserveAnswer {
    /// The answer with the limiter's decision.
    pub fn of(result: Result<Decision, ReserveError>) -> Self {
        match result {
            Ok(Decision::Allowed { reserved_at, shadow_denied }) => Self {
                allowed: true,
                reserved_at_unix_ms: Some(reserved_at.unix_ms()),
                shadow_denied_keys: shadow_denied,
                ..Self::default()
            },
            Ok(Decision::Denied(denial)) => Self::denied(denial),
            Err(error) => Self::failed(error),
        }
    }

    /// The same answer to a request that waited.
    #[must_use]
    pub fn after(self, waited: Option<Duration>) -> Self {
        let waited_ms = waited.and_then(|waited| u64::try_from(waited.as_millis()).ok());
        Self { waited_ms, ..self }
    }

    fn denied(denial: Denial) -> Self {
        let retry_after_ms = denial.retry_after_ms();
        let denied = Self { retry_after_ms, reserved_at_unix_ms: Some(0), ..Self::default() };
        let (message, code) = match denial.reason {
            DenialReason::NoRoom { keys } => return Self { denied_keys: keys, ..denied },
            DenialReason::Paused { key } => (
                format!("{key} is paused (capacity 0); nothing is admitted until it is raised"),
                ErrorCode::LimitPaused { key },
            ),
            DenialReason::Decreasing { key } => (
                format!(
                    "the capacity of {key} is being lowered; nothing is admitted until it applies"
                ),
                ErrorCode::LimitDecreasing { key },
            ),
            DenialReason::TooManyWaiters { keys } => {
                let message = "too many requests wait already; see server.waiters_max".to_owned();
                let error = Some(ErrorCode::TooManyWaiters);
                return Self { denied_keys: keys, error, message: Some(message), ..denied };
            }
            DenialReason::TooManyInstances { template } => (
                format!(
                    "too many limits are made from templates, such as {template}; see registry.instances_max and registry.new_instances_per_second_max"
                ),
                ErrorCode::TooManyInstances { template },
            ),
        };
        Self { error: Some(code), message: Some(message), ..denied }
    }

    fn failed(error: ReserveError) -> Self {
        let message = error.to_string();
        let (code, retry_after_ms) = match error {
            ReserveError::UnknownKey { key } => (ErrorCode::UnknownLimitKey { key }, 0),
            ReserveError::AmountExceedsCapacity { key } => {
                (ErrorCode::AmountExceedsCapacity { key }, 0)
            }
            ReserveError::LeaseConflict => (ErrorCode::LeaseConflict, 0),
            ReserveError::LeaseEnded => (ErrorCode::LeaseEnded, 0),
            ReserveError::Unanswered(Unanswered { reason: _, retry_after }) => {
                (ErrorCode::BackendError, whole_ms(retry_after))
            }
            ReserveError::InvalidRequest { reason: _ }
            | ReserveError::Refused(Refused { reason: _ }) => (ErrorCode::BackendRefused, 0),
        };
        Self { retry_after_ms, error: Some(code), message: Some(message), ..Self::default() }
    }

    /// True if the server does not know the fields with which a request waits for room.
    pub fn refuses_waiting(&self) -> bool {
        let Some(ErrorCode::InvalidRequest { field }) = &self.error else { return false };
        field == "wait_ms" || field == "queue"
    }

    /// The decision in the answer, for a client.
    ///
    /// # Errors
    /// As the limiter's reserve. An answer of another protocol is [`ReserveError::Refused`].
    pub fn into_result(self) -> Result<Decision, ReserveError> {
        let Self {
            allowed,
            retry_after_ms,
            reserved_at_unix_ms,
            denied_keys,
            shadow_denied_keys: shadow_denied,
            waited_ms: _,
            error,
            message,
        } = self;
        let retry_after = Duration::from_millis(retry_after_ms);
        let denied = |reason| Ok(Decision::Denied(Denial { reason, retry_after }));
        match (allowed, error) {
            (true, None) => {
                let nanos = reserved_at_unix_ms.and_then(|ms| ms.checked_mul(1_000_000));
                let nanos =
                    nanos.ok_or_else(|| refused("an allowed answer without a valid timestamp"))?;
                let reserved_at = Timestamp::from_unix_nanos(nanos);
                Ok(Decision::Allowed { reserved_at, shadow_denied })
            }
            (false, None) if retry_after_ms == 0 && denied_keys.is_empty() => {
                Err(refused("not an answer to a reserve; is this a ratelimiter server?"))
            }
            (false, None) => denied(DenialReason::NoRoom { keys: denied_keys }),
            (false, Some(ErrorCode::LimitPaused { key })) => denied(DenialReason::Paused { key }),
            (false, Some(ErrorCode::LimitDecreasing { key })) => {
                denied(DenialReason::Decreasing { key })
            }
            (false, Some(ErrorCode::TooManyInstances { template })) => {
                denied(DenialReason::TooManyInstances { template })
            }
            (false, Some(ErrorCode::TooManyWaiters)) => {
                denied(DenialReason::TooManyWaiters { keys: denied_keys })
            }
            (_, Some(code)) => Err(reserve_error(code, message, retry_after)),
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "`error_of` maps what all operations share")]
fn reserve_error(code: ErrorCode, message: Option<String>, retry_after: Duration) -> ReserveError {
    match code {
        ErrorCode::UnknownLimitKey { key } => ReserveError::UnknownKey { key },
        ErrorCode::AmountExceedsCapacity { key } => ReserveError::AmountExceedsCapacity { key },
        ErrorCode::LeaseConflict => ReserveError::LeaseConflict,
        ErrorCode::LeaseEnded => ReserveError::LeaseEnded,
        ErrorCode::InvalidRequest { .. } | ErrorCode::DuplicateKey { .. } => {
            ReserveError::InvalidRequest { reason: reason_of(&code, message) }
        }
        code => error_of(&code, message, retry_after),
    }
}

fn refused(reason: &str) -> ReserveError {
    Refused { reason: reason.to_owned() }.into()
}
