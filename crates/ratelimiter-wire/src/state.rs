//! `GET /v1/admin/limits`: limits with current usage.

use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Capacity, LimitKey, LimitState, LimitStatus, Refused, StateError, Unanswered, Usage,
};
use serde::{Deserialize, Serialize};

use crate::answer::error_of;
use crate::decode::{Body, ErrorBody, Refusal};
use crate::definition::{
    DefinitionBody, KindBody, ModeBody, OverageBody, PeriodBody, StatusBody, WeekdayBody,
    definition_with,
};
use crate::error_code::ErrorCode;
use crate::field;

/// A limit with its current usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateBody {
    /// Identifies the limit.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "global:llm:openai:gpt-4o:rpm"))]
    pub key: LimitKey,
    /// How its units are returned.
    pub kind: KindBody,
    /// The capacity in force.
    #[serde(deserialize_with = "field::capacity", serialize_with = "field::write_capacity")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub capacity: Capacity,
    /// Rolling: how long a reservation counts. Otherwise 0.
    pub window_seconds: u64,
    /// Concurrency: when a hold that was not completed is released. Otherwise 0.
    pub timeout_seconds: u64,
    /// Calendar: when its units return: at the end of every hour, day, week or month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<PeriodBody>,
    /// Calendar: whose clocks count, as an IANA name; `UTC` by default. Not for `hour`, which is in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Calendar: when a period ends, as `HH:MM`; `00:00` by default. Only the minute counts for `hour`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<String>,
    /// Calendar with the period `week`: the day on which it ends; `monday` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weekday: Option<WeekdayBody>,
    /// Calendar with the period `month`: the day on which it ends, 1 to 28; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<u64>,
    /// What is counted, for display.
    pub unit: String,
    /// What the limit is for, for display.
    pub description: String,
    /// What happens to usage above the reservation when the limit is full.
    pub overage: OverageBody,
    /// Whether the limit denies, or only counts.
    #[serde(default, skip_serializing_if = "ModeBody::is_enforce")]
    pub mode: ModeBody,
    /// Active, paused or decreasing.
    pub status: StatusBody,
    /// The pending lower capacity: while the status is `decreasing`, and 0 while a `paused` limit is in use.
    pub pending_decrease_to: Option<u64>,
    /// Units in live reservations or holds.
    pub used: u64,
    /// Units that could be reserved now, if the limit is active.
    pub available: u64,
    /// Units used beyond what was reserved, when no capacity was left to cover them, while the limit's overage was `debt`.
    pub debt: u128,
    /// Units used beyond what was reserved, when no capacity was left to cover them, whatever the overage; counted since the backend started.
    #[serde(default)]
    pub uncovered: u128,
    /// When a calendar limit resets next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at_unix_ms: Option<u64>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateAnswer {
    /// The limit.
    pub limit: StateBody,
}

/// Limits, sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListAnswer {
    /// The limits.
    pub limits: Vec<StateBody>,
}

definition_with!(
    StateBody: key kind capacity window_seconds timeout_seconds
        period time_zone resets_at weekday day unit description overage mode,
    status: StatusBody, pending_decrease_to: Option<u64>,
    used: u64, available: u64, debt: u128, uncovered: u128, resets_at_unix_ms: Option<u64>
);

impl From<&LimitState> for StateBody {
    fn from(state: &LimitState) -> Self {
        let LimitState { limit, status, usage, resets_at } = state;
        let (status, pending) = write_status(*status, limit.capacity);
        let Usage { used, available, debt, uncovered } = *usage;
        let resets_at = resets_at.map(Timestamp::unix_ms);
        let state = (status, pending, used, available, debt, uncovered, resets_at);
        Self::joined(limit.into(), state)
    }
}

impl TryFrom<StateBody> for LimitState {
    type Error = Refusal;

    fn try_from(body: StateBody) -> Result<Self, Refusal> {
        let (definition, status, pending, used, available, debt, uncovered, resets_at_ms) =
            body.split();
        let status = read_status(status, pending, definition.capacity);
        Ok(Self {
            limit: definition.into_request()?,
            status: status?,
            usage: Usage { used, available, debt, uncovered },
            resets_at: resets_at_ms
                .map(|ms| Timestamp::from_unix_nanos(ms.saturating_mul(1_000_000))),
        })
    }
}

/// The fields `status` and `pending_decrease_to` of a limit with this capacity in force.
const fn write_status(status: LimitStatus, capacity: Capacity) -> (StatusBody, Option<u64>) {
    match status {
        LimitStatus::Active => (StatusBody::Active, None),
        LimitStatus::Paused if capacity.get() == 0 => (StatusBody::Paused, None),
        LimitStatus::Paused => (StatusBody::Paused, Some(0)),
        LimitStatus::Decreasing { to } => (StatusBody::Decreasing, Some(to.get())),
    }
}

/// The same two fields as in version 1, which has no `paused`: a pause is a capacity of 0 or a decrease to it. Limits files
/// use this form, so that an older server can read them.
pub(crate) const fn write_status_v1(
    status: LimitStatus,
    capacity: Capacity,
) -> (StatusBody, Option<u64>) {
    match write_status(status, capacity) {
        (StatusBody::Paused, None) => (StatusBody::Active, None),
        (StatusBody::Paused, to) => (StatusBody::Decreasing, to),
        status => status,
    }
}

/// The inverse of both. A decrease has a target below the capacity in force, and so has a pause while units are in use.
pub(crate) fn read_status(
    status: StatusBody,
    pending_decrease_to: Option<u64>,
    capacity: Capacity,
) -> Result<LimitStatus, Refusal> {
    let error = |message: String| Err(Refusal::of_field("pending_decrease_to", message));
    match (status, pending_decrease_to) {
        (StatusBody::Active | StatusBody::Paused, None) if capacity == Capacity::ZERO => {
            Ok(LimitStatus::Paused)
        }
        (StatusBody::Active, None) => Ok(LimitStatus::Active),
        (StatusBody::Paused, Some(0)) if capacity > Capacity::ZERO => Ok(LimitStatus::Paused),
        (StatusBody::Paused, _) => {
            error("a paused limit has the capacity 0, or decreases to 0".to_owned())
        }
        (StatusBody::Active, Some(_)) => error("an active limit has none; leave it out".to_owned()),
        (StatusBody::Decreasing, None) => {
            error("a decreasing limit needs its target capacity".to_owned())
        }
        (StatusBody::Decreasing, Some(to)) => match Capacity::new(to) {
            Ok(Capacity::ZERO) if Capacity::ZERO < capacity => Ok(LimitStatus::Paused),
            Ok(to) if to < capacity => Ok(LimitStatus::Decreasing { to }),
            Ok(_) | Err(_) => error(format!("must be below the capacity of {capacity}, not {to}")),
        },
    }
}

/// The HTTP body for a state that could not be read.
impl From<StateError> for ErrorBody {
    fn from(error: StateError) -> Self {
        let message = error.to_string();
        let error = match error {
            StateError::Unanswered(Unanswered { .. }) => ErrorCode::BackendError,
            StateError::Refused(Refused { .. }) => ErrorCode::BackendRefused,
        };
        Self { error, message }
    }
}

/// The error in such a body, for a client.
impl From<ErrorBody> for StateError {
    fn from(ErrorBody { error, message }: ErrorBody) -> Self {
        error_of(&error, Some(message), Duration::ZERO)
    }
}
