//! The answer to a reserve.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::key::LimitKey;

/// The answer to a reserve. Being denied is an answer, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a call may go ahead only when the decision allows it"]
pub enum Decision {
    /// The call may go ahead: all its requirements are reserved.
    Allowed {
        /// When the reservations began. A repeated reserve of the same lease returns the first timestamp.
        reserved_at: Timestamp,
        /// The limits in [shadow mode](crate::LimitMode::Shadow) that would have denied it, in the request's order. A repeated
        /// reserve does not name them again.
        shadow_denied: Vec<LimitKey>,
    },
    /// Not now. Nothing is reserved.
    Denied(Denial),
}

/// Why a reserve was denied, and when to retry with a new lease ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What was in the way.
    pub reason: DenialReason,
    /// When to retry. A retry after this time may still be denied, because other callers compete for the limit.
    pub retry_after: Duration,
}

/// Why a reserve was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenialReason {
    /// These limits had no room for the requested amounts.
    NoRoom {
        /// The limits, in the request's order. A backend may name only the first.
        keys: Vec<LimitKey>,
    },
    /// The limit is paused: its capacity was set to 0, and nothing is admitted until it is raised. The lease ID may
    /// be used again.
    Paused {
        /// The limit.
        key: LimitKey,
    },
    /// The limit's capacity is being decreased, and nothing is admitted until the new capacity applies.
    Decreasing {
        /// The limit.
        key: LimitKey,
    },
    /// The limit would have to be made from a template, and there are too many of these already, or too many new ones in this
    /// second. The lease ID may be used again.
    TooManyInstances {
        /// The key of the template.
        template: LimitKey,
    },
    /// There was no room, and as many requests wait as may. The lease ID may be used again.
    TooManyWaiters {
        /// The limits without room.
        keys: Vec<LimitKey>,
    },
}

impl Decision {
    /// Allowed at this moment, and no limit in shadow mode would have denied it.
    pub const fn allowed_at(reserved_at: Timestamp) -> Self {
        Self::Allowed { reserved_at, shadow_denied: Vec::new() }
    }

    /// The denial, if it is one.
    pub fn denial(&self) -> Option<&Denial> {
        match self {
            Self::Allowed { .. } => None,
            Self::Denied(denial) => Some(denial),
        }
    }

    /// True if the call may go ahead.
    pub fn is_allowed(&self) -> bool {
        self.denial().is_none()
    }
}

impl Denial {
    /// [`Denial::retry_after`] in whole milliseconds, rounded up, so that waiting that long is enough.
    pub fn retry_after_ms(&self) -> u64 {
        let ms = self.retry_after.as_nanos().div_ceil(1_000_000);
        u64::try_from(ms).unwrap_or(u64::MAX)
    }

    /// The limits that denied the reserve; none if there are [too many](DenialReason::TooManyInstances).
    pub fn keys(&self) -> &[LimitKey] {
        match &self.reason {
            DenialReason::NoRoom { keys } | DenialReason::TooManyWaiters { keys } => keys,
            DenialReason::Paused { key } | DenialReason::Decreasing { key } => {
                std::slice::from_ref(key)
            }
            DenialReason::TooManyInstances { .. } => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_rounded_up_to_milliseconds() {
        for (nanos, ms) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)] {
            let retry_after = Duration::from_nanos(nanos);
            let denial = Denial { reason: DenialReason::NoRoom { keys: vec![] }, retry_after };
            assert_eq!(denial.retry_after_ms(), ms);
        }
    }
}
