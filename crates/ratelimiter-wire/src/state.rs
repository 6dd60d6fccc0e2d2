//! `GET /v1/admin/limits`: limits with current usage.

use std::time::Duration;

use ratelimiter::{
    Capacity, LimitKey, LimitState, LimitStatus, Refused, StateError, Unanswered, Usage,
};
use serde::{Deserialize, Serialize};

use crate::answer::error_of;
use crate::decode::{Body, ErrorBody, Refusal};
use crate::definition::{DefinitionBody, KindBody, OverageBody, StatusBody, definition_with};
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
    /// Rolling: how long a reservation counts. Concurrency: 0.
    pub window_seconds: u64,
    /// Concurrency: when a hold that was not completed is released. Rolling: 0.
    pub timeout_seconds: u64,
    /// What is counted, for display.
    pub unit: String,
    /// What the limit is for, for display.
    pub description: String,
    /// What happens to usage above the reservation when the limit is full.
    pub overage: OverageBody,
    /// Active, paused or decreasing.
    pub status: StatusBody,
    /// The pending lower capacity: while the status is `decreasing`, and 0 while a `paused` limit is in use.
    pub pending_decrease_to: Option<u64>,
    /// Units in live reservations or holds.
    pub used: u64,
    /// Units that could be reserved now, if the limit is active.
    pub available: u64,
    /// Units used beyond what was reserved, when no capacity was left to cover them, while the limit's overage was `debt`.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub debt: u128,
    /// Units used beyond what was reserved, when no capacity was left to cover them, whatever the overage; counted since the backend started.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub uncovered: u128,
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
    StateBody: key kind capacity window_seconds timeout_seconds unit description overage,
    status: StatusBody, pending_decrease_to: Option<u64>,
    used: u64, available: u64, debt: u128, uncovered: u128
);

impl From<&LimitState> for StateBody {
    fn from(state: &LimitState) -> Self {
        let LimitState { limit, status, usage } = state;
        let (status, pending) = write_status(*status, limit.capacity);
        let Usage { used, available, debt, uncovered } = *usage;
        Self::joined(limit.into(), status, pending, used, available, debt, uncovered)
    }
}

impl TryFrom<StateBody> for LimitState {
    type Error = Refusal;

    fn try_from(body: StateBody) -> Result<Self, Refusal> {
        let (definition, status, pending, used, available, debt, uncovered) = body.split();
        let status = read_status(status, pending, definition.capacity);
        Ok(Self {
            limit: definition.into_request()?,
            status: status?,
            usage: Usage { used, available, debt, uncovered },
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
