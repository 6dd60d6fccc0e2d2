//! The JSON form of a limit's definition.

use ratelimiter::{
    Capacity, HoldTimeout, Limit, LimitError, LimitKey, LimitKind, Note, Overage, Window,
};
use serde::{Deserialize, Serialize};

use crate::decode::{Body, Refusal};
use crate::field;
use crate::object::object_only;

/// The definition of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with key, kind and capacity")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionBody {
    /// Identifies the limit: 1 to 256 bytes without white space or control characters.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 1, max_length = 256, pattern = r"^[^\s\u0000-\u001f\u007f-\u009f]+$", example = "global:llm:openai:gpt-4o:rpm"))]
    pub key: LimitKey,
    /// How its units are returned.
    pub kind: KindBody,
    /// The most units held at a time: 0 to 2^63-1. 0 pauses the limit: reserves are denied until it is raised.
    #[serde(deserialize_with = "field::capacity", serialize_with = "field::write_capacity")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, maximum = 9_223_372_036_854_775_807_i64))]
    pub capacity: Capacity,
    /// Rolling: how long a reservation counts, 1 to 2 678 400. Concurrency: 0.
    // The range depends on the kind, and is checked with it.
    #[serde(default, deserialize_with = "field::whole_number")]
    #[cfg_attr(feature = "openapi", schema(maximum = 2_678_400))]
    pub window_seconds: u64,
    /// Concurrency: when a hold that was not completed is released, 1 to 86 400. Rolling: 0.
    #[serde(default, deserialize_with = "field::whole_number")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400))]
    pub timeout_seconds: u64,
    /// What is counted, for display. At most 1 KiB.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    pub unit: String,
    /// What the limit is for, for display. At most 1 KiB.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    pub description: String,
    /// What happens to usage above the reservation when the limit is full.
    #[serde(default)]
    pub overage: OverageBody,
}

/// How the units of a limit are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum KindBody {
    /// When the window has passed.
    Rolling,
    /// When the lease completes, or after the timeout.
    Concurrency,
}

/// What happens to usage above the reservation when the limit is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OverageBody {
    /// It is added to the key's debt.
    #[default]
    Debt,
    /// It only counts in a metric.
    Deny,
}

/// What a limit admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum StatusBody {
    /// Up to its capacity.
    #[default]
    Active,
    /// Nothing: its capacity was set to 0.
    Paused,
    /// Nothing for now: a lower capacity applies when enough units have been returned.
    Decreasing,
}

object_only!(DefinitionBody);

/// Joins a definition with further fields to a body, and splits it again. Both name every field, so
/// that a new one does not compile until it is handled.
macro_rules! definition_with {
    ($body:ident: $($field:ident)+, $($more:ident: $type:ty),+) => {
        impl $body {
            fn joined(definition: DefinitionBody, $($more: $type),+) -> Self {
                let DefinitionBody { $($field),+ } = definition;
                Self { $($field,)+ $($more),+ }
            }

            fn split(self) -> (DefinitionBody, $($type),+) {
                let Self { $($field,)+ $($more),+ } = self;
                (DefinitionBody { $($field),+ }, $($more),+)
            }
        }
    };
}

pub(crate) use definition_with;

impl Body for DefinitionBody {
    type Request = Limit;

    /// DEF-02, DEF-03
    fn into_request(self) -> Result<Limit, Refusal> {
        let Self {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
        } = self;
        let of_field = |field: &'static str| {
            move |error: LimitError| Refusal::of_field(field, error.to_string())
        };
        let kind = match kind {
            KindBody::Rolling => {
                let window =
                    Window::from_seconds(window_seconds).map_err(of_field("window_seconds"))?;
                must_be_zero("timeout_seconds", timeout_seconds, "rolling")?;
                LimitKind::Rolling { window }
            }
            KindBody::Concurrency => {
                let timeout = HoldTimeout::from_seconds(timeout_seconds)
                    .map_err(of_field("timeout_seconds"))?;
                must_be_zero("window_seconds", window_seconds, "concurrency")?;
                LimitKind::Concurrency { timeout }
            }
        };
        Ok(Limit {
            key,
            kind,
            capacity,
            overage: overage.into(),
            unit: Note::new(unit).map_err(of_field("unit"))?,
            description: Note::new(description).map_err(of_field("description"))?,
        })
    }
}

fn must_be_zero(field: &'static str, seconds: u64, kind: &'static str) -> Result<(), Refusal> {
    if seconds == 0 {
        return Ok(());
    }
    let message =
        format!("a {kind} limit has no {field}; leave it out, or give 0 instead of {seconds}");
    Err(Refusal::of_field(field, message))
}

impl From<&Limit> for DefinitionBody {
    fn from(limit: &Limit) -> Self {
        let Limit { key, kind, capacity, overage, unit, description } = limit;
        let (kind, window_seconds, timeout_seconds) = match *kind {
            LimitKind::Rolling { window } => (KindBody::Rolling, window.seconds(), 0),
            LimitKind::Concurrency { timeout } => (KindBody::Concurrency, 0, timeout.seconds()),
        };
        Self {
            key: key.clone(),
            kind,
            capacity: *capacity,
            window_seconds: window_seconds.into(),
            timeout_seconds: timeout_seconds.into(),
            unit: unit.as_str().to_owned(),
            description: description.as_str().to_owned(),
            overage: (*overage).into(),
        }
    }
}

impl From<OverageBody> for Overage {
    fn from(overage: OverageBody) -> Self {
        match overage {
            OverageBody::Debt => Self::Debt,
            OverageBody::Deny => Self::Deny,
        }
    }
}

impl From<Overage> for OverageBody {
    fn from(overage: Overage) -> Self {
        match overage {
            Overage::Debt => Self::Debt,
            Overage::Deny => Self::Deny,
        }
    }
}
