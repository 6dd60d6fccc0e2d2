//! `/v1/admin/leases`: open leases.

use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    HeldAmount, JobId, LeaseId, LeasesError, LimitKey, OpenLease, Refused, ReleaseError, Unanswered,
};
use serde::{Deserialize, Serialize};

use crate::answer::{answer, error_of};
use crate::decode::{ErrorBody, Refusal};
use crate::error_code::ErrorCode;
use crate::field;

/// Open leases, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeasesAnswer {
    /// The leases.
    pub leases: Vec<OpenLeaseBody>,
}

/// A lease that was allowed and not completed, and of which something has not expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenLeaseBody {
    /// The lease.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D"))]
    pub lease_id: LeaseId,
    /// The caller's ID for its work; null if it gave none, or if the server does not know it.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub job_id: Option<String>,
    /// When its reservations began.
    pub reserved_at_unix_ms: u64,
    /// How long ago that was, in whole seconds.
    pub age_seconds: u64,
    /// What it has of each limit, sorted by key.
    pub amounts: Vec<HeldAmountBody>,
}

/// What an open lease has of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeldAmountBody {
    /// The key of the limit.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "global:llm:openai:gpt-4o:rpm"))]
    pub key: LimitKey,
    /// Units.
    pub amount: u64,
    /// When they return if the lease is not completed before.
    pub lapses_at_unix_ms: u64,
}

/// The answer to a release.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseAnswer {
    /// True if the lease was open, and is released.
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

answer!(ReleaseAnswer);

impl From<&OpenLease> for OpenLeaseBody {
    fn from(open: &OpenLease) -> Self {
        let OpenLease { lease, job, reserved_at, age, amounts } = open;
        let amount = |held: &HeldAmount| {
            let HeldAmount { key, amount, lapses_at } = held;
            let lapses_at_unix_ms = lapses_at.unix_ms();
            HeldAmountBody { key: key.clone(), amount: *amount, lapses_at_unix_ms }
        };
        Self {
            lease_id: *lease,
            job_id: job.as_ref().map(|job| job.as_str().to_owned()),
            reserved_at_unix_ms: reserved_at.unix_ms(),
            age_seconds: age.as_secs(),
            amounts: amounts.iter().map(amount).collect(),
        }
    }
}

impl TryFrom<OpenLeaseBody> for OpenLease {
    type Error = Refusal;

    fn try_from(body: OpenLeaseBody) -> Result<Self, Refusal> {
        let OpenLeaseBody { lease_id, job_id, reserved_at_unix_ms, age_seconds, amounts } = body;
        let amount = |body: HeldAmountBody| {
            let HeldAmountBody { key, amount, lapses_at_unix_ms } = body;
            let lapses_at = moment("lapses_at_unix_ms", lapses_at_unix_ms)?;
            Ok(HeldAmount { key, amount, lapses_at })
        };
        Ok(Self {
            lease: lease_id,
            job: job_id.map(JobId::new).transpose()?,
            reserved_at: moment("reserved_at_unix_ms", reserved_at_unix_ms)?,
            age: Duration::from_secs(age_seconds),
            amounts: amounts.into_iter().map(amount).collect::<Result<_, Refusal>>()?,
        })
    }
}

fn moment(field: &str, unix_ms: u64) -> Result<Timestamp, Refusal> {
    let nanos = unix_ms.checked_mul(1_000_000);
    let error = || Refusal::of_field(field, "must be a moment before the year 2554");
    nanos.map(Timestamp::from_unix_nanos).ok_or_else(error)
}

/// The HTTP body for leases that could not be listed.
impl From<LeasesError> for ErrorBody {
    fn from(error: LeasesError) -> Self {
        let message = error.to_string();
        let error = match error {
            LeasesError::UnknownLease { lease: _ } => {
                ErrorCode::InvalidRequest { field: "after".to_owned() }
            }
            LeasesError::Unanswered(Unanswered { .. }) => ErrorCode::BackendError,
            LeasesError::Refused(Refused { .. }) => ErrorCode::BackendRefused,
        };
        Self { error, message }
    }
}

impl ErrorBody {
    /// The error in the answer to a list of leases after this one, for a client.
    pub fn into_leases_error(self, after: Option<LeaseId>) -> LeasesError {
        let Self { error, message } = self;
        match (&error, after) {
            (ErrorCode::InvalidRequest { field }, Some(lease)) if field == "after" => {
                LeasesError::UnknownLease { lease }
            }
            _ => error_of(&error, Some(message), Duration::ZERO),
        }
    }
}

impl ReleaseAnswer {
    /// The answer with the result of a release.
    pub fn of(result: Result<(), ReleaseError>) -> Self {
        let Err(error) = result else {
            return Self { ok: true, ..Self::default() };
        };
        let message = error.to_string();
        let code = match error {
            ReleaseError::UnknownLease { lease: _ } => ErrorCode::NotFound,
            ReleaseError::Unanswered(Unanswered { .. }) => ErrorCode::BackendError,
            ReleaseError::Refused(Refused { .. }) => ErrorCode::BackendRefused,
        };
        Refusal { error: code, message }.into()
    }

    /// The result in the answer to the release of `lease`, for a client.
    ///
    /// # Errors
    /// As the backend's release. An answer of another protocol is [`ReleaseError::Refused`].
    #[expect(clippy::wildcard_enum_match_arm, reason = "`error_of` maps what operations share")]
    pub fn into_result(self, lease: LeaseId) -> Result<(), ReleaseError> {
        let Self { ok, error, message } = self;
        let code = match (ok, error) {
            (true, None) => return Ok(()),
            (_, Some(code)) => code,
            (false, None) => ErrorCode::Other("not an answer to a release".to_owned()),
        };
        match code {
            ErrorCode::NotFound => Err(ReleaseError::UnknownLease { lease }),
            code => Err(error_of(&code, message, Duration::ZERO)),
        }
    }
}
