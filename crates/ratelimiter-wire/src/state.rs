//! `GET /v1/admin/limits`: limits with their figures of the moment.

use std::time::Duration;

use ratelimiter::{
    Capacity, LimitKey, LimitState, LimitStatus, Refused, StateError, Unanswered, Usage,
};
use serde::{Deserialize, Serialize};

use crate::decode::{Body, ErrorBody, Refusal};
use crate::definition::{DefinitionBody, KindBody, OverageBody, StatusBody};
use crate::failure::Failure;
use crate::field;
use crate::word::ErrorWord;

/// A limit with the figures of the moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateBody {
    /// The limit's name.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "global:llm:openai:gpt-4o:rpm"))]
    pub key: LimitKey,
    /// How its units return.
    pub kind: KindBody,
    /// The capacity in force.
    #[serde(deserialize_with = "field::capacity", serialize_with = "field::write_capacity")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub capacity: Capacity,
    /// Rolling: for how long a reservation counts. Concurrency: 0.
    pub window_seconds: u64,
    /// Concurrency: after which time a forgotten hold is released. Rolling: 0.
    pub timeout_seconds: u64,
    /// What is counted, for people.
    pub unit: String,
    /// What the limit is for, for people.
    pub description: String,
    /// What becomes of use above the reservation that has no room.
    pub overage: OverageBody,
    /// What the limit admits.
    pub status: StatusBody,
    /// The capacity that waits for units to return: while the status is `decreasing`, and 0 while a `paused` limit is in use.
    pub pending_decrease_to: Option<u64>,
    /// Units in live reservations or holds.
    pub used: u64,
    /// Units that could be reserved now, if the limit is active.
    pub available: u64,
    /// Units that were used without room, where the limit's overage becomes debt.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub debt: u128,
    /// Units that were used without room, whatever became of them; counted since the backend started.
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

impl From<&LimitState> for StateBody {
    fn from(state: &LimitState) -> Self {
        let LimitState { limit, status, usage } = state;
        let DefinitionBody {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
        } = limit.into();
        let (status, pending_decrease_to) = write_status(*status, capacity);
        let Usage { used, available, debt, uncovered } = *usage;
        Self {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
            status,
            pending_decrease_to,
            used,
            available,
            debt,
            uncovered,
        }
    }
}

impl TryFrom<StateBody> for LimitState {
    type Error = Refusal;

    fn try_from(body: StateBody) -> Result<Self, Refusal> {
        let StateBody {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
            status,
            pending_decrease_to,
            used,
            available,
            debt,
            uncovered,
        } = body;
        let definition = DefinitionBody {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
        };
        Ok(Self {
            limit: definition.into_request()?,
            status: read_status(status, pending_decrease_to, capacity)?,
            usage: Usage { used, available, debt, uncovered },
        })
    }
}

/// The two fields that say what a limit with this capacity in force admits.
const fn write_status(status: LimitStatus, capacity: Capacity) -> (StatusBody, Option<u64>) {
    match status {
        LimitStatus::Active => (StatusBody::Active, None),
        LimitStatus::Paused if capacity.get() == 0 => (StatusBody::Paused, None),
        LimitStatus::Paused => (StatusBody::Paused, Some(0)),
        LimitStatus::Decreasing { to } => (StatusBody::Decreasing, Some(to.get())),
    }
}

/// The same two fields in the words of the first edition, in which a pause is a capacity of 0 or a decrease to it.
/// Limits files use them, so that an older server can read them.
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

/// The inverse of both: a decrease has a target below the capacity in force, and so has a pause while units are in use.
pub(crate) fn read_status(
    status: StatusBody,
    pending_decrease_to: Option<u64>,
    capacity: Capacity,
) -> Result<LimitStatus, Refusal> {
    let fault = |message: String| Err(Refusal::of_field("pending_decrease_to", message));
    match (status, pending_decrease_to) {
        (StatusBody::Active | StatusBody::Paused, None) if capacity == Capacity::ZERO => {
            Ok(LimitStatus::Paused)
        }
        (StatusBody::Active, None) => Ok(LimitStatus::Active),
        (StatusBody::Paused, Some(0)) if capacity > Capacity::ZERO => Ok(LimitStatus::Paused),
        (StatusBody::Paused, _) => {
            fault("a paused limit has the capacity 0, or goes down to 0".to_owned())
        }
        (StatusBody::Active, Some(_)) => fault("an active limit has none; leave it out".to_owned()),
        (StatusBody::Decreasing, None) => {
            fault("a decreasing limit needs the capacity that waits".to_owned())
        }
        (StatusBody::Decreasing, Some(to)) => match Capacity::new(to) {
            Ok(Capacity::ZERO) if Capacity::ZERO < capacity => Ok(LimitStatus::Paused),
            Ok(to) if to < capacity => Ok(LimitStatus::Decreasing { to }),
            Ok(_) | Err(_) => fault(format!("must be below the capacity of {capacity}, not {to}")),
        },
    }
}

/// The HTTP body that says why a state could not be read.
impl From<StateError> for ErrorBody {
    fn from(error: StateError) -> Self {
        let message = error.to_string();
        let error = match error {
            StateError::Unanswered(Unanswered { .. }) => ErrorWord::BackendError,
            StateError::Refused(Refused { .. }) => ErrorWord::BackendRefused,
        };
        Self { error, message }
    }
}

/// What such a body says, for a caller that got it.
impl From<ErrorBody> for StateError {
    fn from(ErrorBody { error, message }: ErrorBody) -> Self {
        match Failure::of(&error, Some(message), Duration::ZERO) {
            Failure::Unanswered(unanswered) => unanswered.into(),
            Failure::Refused(refused) => refused.into(),
        }
    }
}
