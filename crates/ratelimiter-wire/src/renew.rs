//! `POST /v1/renew`: request and answer.

use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Denial, LeaseId, LimitKey, NewAmount, NewAmounts, Refused, RenewError, RenewNumber,
    RenewRequest, Renewal, Unanswered,
};
use serde::{Deserialize, Serialize};

use crate::answer::{answer, error_of, reason_of, whole_ms};
use crate::decode::{Body, Refusal};
use crate::denial::{DenialFields, denial_reason};
use crate::error_code::ErrorCode;
use crate::field;
use crate::strict::strict;

/// Keeps an open lease open, and changes what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    remote = "Self",
    expecting = "an object with lease_id, number and amounts"
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewBody {
    /// The lease that was allowed: a ULID.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 26, max_length = 26, pattern = "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$", example = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D"))]
    pub lease_id: LeaseId,
    /// 1 for the lease's first renew, then 2, 3, …; a renew without an answer is repeated with its number.
    #[serde(
        deserialize_with = "field::renew_number",
        serialize_with = "field::write_renew_number"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, format = "uint64", maximum = 18_446_744_073_709_551_615_u64, minimum = 1))]
    pub number: RenewNumber,
    /// What the lease holds afterwards of these limits: at most 32 with distinct keys of its requirements. Without any, its holds
    /// last longer and nothing else changes.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_items = 32))]
    pub amounts: Vec<NewAmountBody>,
}

/// What a lease shall hold of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with key and amount")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewAmountBody {
    /// The key of the limit.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 256, pattern = r"^[^\s\u0000-\u001f\u007f-\u009f]+$", example = "global:llm:openai:gpt-4o:tpm"))]
    pub key: LimitKey,
    /// Units: 0 to 2^64-1; 0 gives all of them back.
    #[serde(deserialize_with = "field::whole_number")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, format = "uint64", maximum = 18_446_744_073_709_551_615_u64))]
    pub amount: u64,
}

/// The answer to a renew.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewAnswer {
    /// True if the lease holds the new amounts.
    #[serde(default)]
    pub renewed: bool,
    /// When to ask again: with the next number after a denial, with the same one after `backend_error`; 0 if that does not help.
    #[serde(default)]
    pub retry_after_ms: u64,
    /// When the lease was renewed; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_at_unix_ms: Option<u64>,
    /// Until when the lease can be renewed again: the end of its last hold or, without holds, of its last reservation; absent if it
    /// was not renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapses_at_unix_ms: Option<u64>,
    /// The limits that had no room for more.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "field::keys")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub denied_keys: Vec<LimitKey>,
    /// The limits in shadow mode that would have denied a renew.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "field::keys")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub shadow_denied_keys: Vec<LimitKey>,
    /// Why the request failed: a stable error code, then `:` and the key or field in question.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::error_code")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "invalid_amount:global:llm:openai:gpt-4o:tpm"))]
    pub error: Option<ErrorCode>,
    /// What is wrong and what to do about it, in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

strict!(ObjectOnly: RenewBody NewAmountBody);
answer!(RenewAnswer);

impl Body for RenewBody {
    type Request = RenewRequest;

    fn into_request(self) -> Result<RenewRequest, Refusal> {
        let Self { lease_id, number, amounts } = self;
        let amount = |NewAmountBody { key, amount }| NewAmount { key, amount };
        let amounts = NewAmounts::new(amounts.into_iter().map(amount).collect::<Box<[_]>>())?;
        Ok(RenewRequest { lease: lease_id, number, amounts })
    }
}

impl From<&RenewRequest> for RenewBody {
    fn from(request: &RenewRequest) -> Self {
        let RenewRequest { lease, number, amounts } = request;
        let amount = |new: &NewAmount| {
            let NewAmount { key, amount } = new;
            NewAmountBody { key: key.clone(), amount: *amount }
        };
        let amounts = amounts.iter().map(amount).collect();
        Self { lease_id: *lease, number: *number, amounts }
    }
}

impl RenewAnswer {
    /// The answer with the limiter's result.
    pub fn of(result: Result<Renewal, RenewError>) -> Self {
        match result {
            Ok(Renewal::Renewed { renewed_at, lapses_at, shadow_denied }) => Self {
                renewed: true,
                renewed_at_unix_ms: Some(renewed_at.unix_ms()),
                lapses_at_unix_ms: Some(lapses_at.unix_ms()),
                shadow_denied_keys: shadow_denied,
                ..Self::default()
            },
            Ok(Renewal::Denied(denial)) => {
                let retry_after_ms = denial.retry_after_ms();
                let DenialFields { denied_keys, error, message } = denial.reason.into();
                Self { retry_after_ms, denied_keys, error, message, ..Self::default() }
            }
            Err(error) => Self::failed(error),
        }
    }

    fn failed(error: RenewError) -> Self {
        let message = error.to_string();
        let (code, retry_after_ms) = match error {
            RenewError::LeaseEnded => (ErrorCode::LeaseEnded, 0),
            RenewError::Superseded => (ErrorCode::RenewSuperseded, 0),
            RenewError::InvalidAmount { key } => (ErrorCode::InvalidAmount { key }, 0),
            RenewError::UnknownKey { key } => (ErrorCode::UnknownLimitKey { key }, 0),
            RenewError::AmountExceedsCapacity { key } => {
                (ErrorCode::AmountExceedsCapacity { key }, 0)
            }
            // As a server of an earlier version answers, which does not know the path.
            RenewError::Unsupported => (ErrorCode::NotFound, 0),
            RenewError::Unanswered(Unanswered { reason: _, retry_after }) => {
                (ErrorCode::BackendError, whole_ms(retry_after))
            }
            RenewError::InvalidRequest { reason: _ }
            | RenewError::Refused(Refused { reason: _ }) => (ErrorCode::BackendRefused, 0),
        };
        Self { retry_after_ms, error: Some(code), message: Some(message), ..Self::default() }
    }

    /// The result in the answer, for a client.
    ///
    /// # Errors
    /// As the limiter's renew. An answer of another protocol is [`RenewError::Refused`].
    pub fn into_result(self) -> Result<Renewal, RenewError> {
        let Self {
            renewed,
            retry_after_ms,
            renewed_at_unix_ms,
            lapses_at_unix_ms,
            denied_keys,
            shadow_denied_keys: shadow_denied,
            error,
            message,
        } = self;
        let retry_after = Duration::from_millis(retry_after_ms);
        match (renewed, error) {
            (true, None) => {
                let moment = |ms: Option<u64>| {
                    let nanos = ms.and_then(|ms| ms.checked_mul(1_000_000));
                    nanos
                        .map(Timestamp::from_unix_nanos)
                        .ok_or_else(|| refused("an answer to a renew without valid timestamps"))
                };
                let renewed_at = moment(renewed_at_unix_ms)?;
                let lapses_at = moment(lapses_at_unix_ms)?;
                Ok(Renewal::Renewed { renewed_at, lapses_at, shadow_denied })
            }
            (false, None) if retry_after_ms == 0 && denied_keys.is_empty() => {
                Err(refused("not an answer to a renew; is this a ratelimiter server?"))
            }
            (false, error) => match denial_reason(error, denied_keys) {
                Ok(reason) => Ok(Renewal::Denied(Denial { reason, retry_after })),
                Err(code) => Err(renew_error(code, message, retry_after)),
            },
            (true, Some(code)) => Err(renew_error(code, message, retry_after)),
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "`error_of` maps what all operations share")]
fn renew_error(code: ErrorCode, message: Option<String>, retry_after: Duration) -> RenewError {
    match code {
        ErrorCode::LeaseEnded => RenewError::LeaseEnded,
        ErrorCode::RenewSuperseded => RenewError::Superseded,
        ErrorCode::InvalidAmount { key } => RenewError::InvalidAmount { key },
        ErrorCode::UnknownLimitKey { key } => RenewError::UnknownKey { key },
        ErrorCode::AmountExceedsCapacity { key } => RenewError::AmountExceedsCapacity { key },
        ErrorCode::NotFound => RenewError::Unsupported,
        ErrorCode::InvalidRequest { .. } | ErrorCode::DuplicateKey { .. } => {
            RenewError::InvalidRequest { reason: reason_of(&code, message) }
        }
        code => error_of(&code, message, retry_after),
    }
}

fn refused(reason: &str) -> RenewError {
    Refused { reason: reason.to_owned() }.into()
}
