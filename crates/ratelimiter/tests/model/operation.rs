//! The operations of a script.

use std::fmt;

use ratelimiter::{
    Actuals, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind, Overage,
    Requirements, ReserveRequest, Window,
};

/// One step of a script. Keys and leases are numbers.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Define {
        key: u8,
        is_concurrency: bool,
        seconds: u32,
        capacity: u64,
        overage: Overage,
    },
    Delete {
        key: u8,
    },
    Reserve {
        lease: u32,
        needs: Vec<(u8, u64)>,
    },
    Complete {
        lease: u32,
        actuals: Vec<(u8, u64)>,
    },
    Advance {
        nanos: u64,
    },
    /// To the moment of the next expiry, or a nanosecond before it.
    AdvanceToExpiry {
        just_before: bool,
    },
    Sweep,
}

/// The first key of a model. From here on, three keys of a model and one outside any group alternate. Keys below are outside any
/// group.
pub(crate) const FIRST_OF_MODELS: u8 = 10;
/// A key that is never defined.
pub(crate) const UNKNOWN: u8 = 99;

pub(crate) fn key(number: u8) -> LimitKey {
    let in_model = number.checked_sub(FIRST_OF_MODELS).filter(|_| number != UNKNOWN);
    let made = match in_model.map(|n| (n % 4, format!("m{}", n / 4))) {
        Some((0, model)) => LimitKey::llm_rpm("p", &model),
        Some((1, model)) => LimitKey::llm_concurrency("p", &model),
        Some((2, model)) => LimitKey::llm_tpm("p", &model),
        _ => LimitKey::new(format!("k{number}")),
    };
    made.unwrap()
}

/// IDs in the order of the numbers.
pub(crate) fn lease(number: u32) -> LeaseId {
    LeaseId::from_u128(u128::from(number) + 1)
}

fn pairs(list: &[(u8, u64)]) -> impl Iterator<Item = (LimitKey, u64)> {
    list.iter().map(|(number, amount)| (key(*number), *amount))
}

pub(crate) fn reserve_request(number: u32, needs: &[(u8, u64)]) -> ReserveRequest {
    ReserveRequest::new(lease(number), Requirements::of(pairs(needs)).unwrap())
}

pub(crate) fn complete_request(number: u32, actuals: &[(u8, u64)]) -> CompleteRequest {
    CompleteRequest::new(lease(number), Actuals::of(pairs(actuals)).unwrap())
}

pub(crate) fn limit(
    number: u8,
    is_concurrency: bool,
    seconds: u32,
    capacity: u64,
    overage: Overage,
) -> Limit {
    let kind = match is_concurrency {
        true => {
            LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(seconds.into()).unwrap() }
        }
        false => LimitKind::Rolling { window: Window::from_seconds(seconds.into()).unwrap() },
    };
    Limit { overage, ..Limit::new(key(number), kind, Capacity::new(capacity).unwrap()) }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |list: &[(u8, u64)]| {
            let entries = list.iter().map(|(key, amount)| format!(" k{key}={amount}"));
            entries.collect::<String>()
        };
        match self {
            Self::Define { key, is_concurrency, seconds, capacity, overage } => {
                let kind = if *is_concurrency { "concurrency" } else { "rolling" };
                write!(f, "define k{key} {kind} {seconds}s {capacity} {}", overage.name())
            }
            Self::Delete { key } => write!(f, "delete k{key}"),
            Self::Reserve { lease, needs } => write!(f, "reserve {lease}{}", list(needs)),
            Self::Complete { lease, actuals } => write!(f, "complete {lease}{}", list(actuals)),
            Self::Advance { nanos } => write!(f, "advance {nanos}ns"),
            Self::AdvanceToExpiry { just_before: false } => f.write_str("advance to the expiry"),
            Self::AdvanceToExpiry { just_before: true } => f.write_str("advance to 1ns before it"),
            Self::Sweep => f.write_str("sweep"),
        }
    }
}
