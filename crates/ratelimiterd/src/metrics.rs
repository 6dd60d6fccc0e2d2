//! Prometheus metrics with stable names.
//!
//! Counting a request takes a few atomic additions to counters in arrays; only a denial looks up a key.

mod histogram;
mod key_counters;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::{LimitKey, LimitState};
use ratelimiter_wire::{CompleteAnswer, ErrorCode, ReserveAnswer};

pub(crate) use self::histogram::Histogram;
use self::key_counters::KeyCounters;
pub(crate) use self::text::Text;

#[derive(Debug)]
pub(crate) struct Metrics {
    clock: MonotonicClock,
    reserves: OutcomeCounters,
    completes: OutcomeCounters,
    denied: KeyCounters,
    requests: [Histogram; Route::ALL.len()],
    keys_max: usize,
}

/// Start time of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started(Timestamp);

/// A route, as a label of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// `POST /v1/reserve`
    Reserve,
    /// `POST /v1/reserve/batch`
    ReserveBatch,
    /// `POST /v1/complete`
    Complete,
    /// `POST /v1/complete/batch`
    CompleteBatch,
    /// `/v1/admin/…`
    Admin,
}

/// The outcome of a reserve or a complete, as a label of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Denied,
    Ok,
    Paused,
    Decreasing,
    UnknownKey,
    OverCapacity,
    LeaseConflict,
    LeaseEnded,
    InvalidActual,
    Invalid,
    Unauthorized,
    NoAnswer,
}

/// One counter per outcome.
#[derive(Debug, Default)]
struct OutcomeCounters([AtomicU64; Outcome::COUNT]);

impl Route {
    const ALL: [Self; 5] =
        [Self::Reserve, Self::ReserveBatch, Self::Complete, Self::CompleteBatch, Self::Admin];

    const fn label(self) -> &'static str {
        match self {
            Self::Reserve => "/v1/reserve",
            Self::ReserveBatch => "/v1/reserve/batch",
            Self::Complete => "/v1/complete",
            Self::CompleteBatch => "/v1/complete/batch",
            Self::Admin => "/v1/admin/limits",
        }
    }
}

impl Outcome {
    const COUNT: usize = Self::NoAnswer as usize + 1;
    /// The outcomes that a reserve can have.
    const OF_RESERVE: [Self; 11] = [
        Self::Allowed,
        Self::Denied,
        Self::Paused,
        Self::Decreasing,
        Self::UnknownKey,
        Self::OverCapacity,
        Self::LeaseConflict,
        Self::LeaseEnded,
        Self::Invalid,
        Self::Unauthorized,
        Self::NoAnswer,
    ];
    /// The outcomes that a complete can have.
    const OF_COMPLETE: [Self; 5] =
        [Self::Ok, Self::InvalidActual, Self::Invalid, Self::Unauthorized, Self::NoAnswer];

    const fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Ok => "ok",
            Self::Paused => "limit_paused",
            Self::Decreasing => "limit_decreasing",
            Self::UnknownKey => "unknown_limit_key",
            Self::OverCapacity => "amount_exceeds_capacity",
            Self::LeaseConflict => "lease_conflict",
            Self::LeaseEnded => "lease_ended",
            Self::InvalidActual => "invalid_actual",
            Self::Invalid => "invalid_request",
            Self::Unauthorized => "unauthorized",
            Self::NoAnswer => "backend_error",
        }
    }

    const fn of_error(code: &ErrorCode) -> Self {
        match code {
            ErrorCode::LimitPaused { .. } => Self::Paused,
            ErrorCode::LimitDecreasing { .. } => Self::Decreasing,
            ErrorCode::UnknownLimitKey { .. } => Self::UnknownKey,
            ErrorCode::AmountExceedsCapacity { .. } => Self::OverCapacity,
            ErrorCode::LeaseConflict => Self::LeaseConflict,
            ErrorCode::LeaseEnded => Self::LeaseEnded,
            ErrorCode::InvalidActual { .. } => Self::InvalidActual,
            ErrorCode::Unauthorized | ErrorCode::Forbidden => Self::Unauthorized,
            ErrorCode::InvalidRequest { .. }
            | ErrorCode::DuplicateKey { .. }
            | ErrorCode::KindConflict { .. }
            | ErrorCode::TooManyLimits
            | ErrorCode::LimitsReadOnly
            | ErrorCode::NotFound
            | ErrorCode::MethodNotAllowed
            | ErrorCode::BodyTooLarge
            | ErrorCode::RequestTimeout => Self::Invalid,
            ErrorCode::BackendError | ErrorCode::BackendRefused | ErrorCode::Other(_) => {
                Self::NoAnswer
            }
        }
    }
}

impl OutcomeCounters {
    fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }
}

impl Metrics {
    /// At most `keys_max` keys get their own metrics.
    pub(crate) fn new(keys_max: usize) -> Self {
        Self {
            clock: MonotonicClock::new(),
            reserves: OutcomeCounters::default(),
            completes: OutcomeCounters::default(),
            denied: KeyCounters::new(keys_max),
            requests: Default::default(),
            keys_max,
        }
    }

    pub(crate) fn start(&self) -> Started {
        Started(self.clock.now())
    }

    /// Records the duration of a request.
    pub(crate) fn stop(&self, route: Route, Started(since): Started) {
        self.requests[route as usize].record(self.clock.now().since(since));
    }

    pub(crate) fn count_reserve(&self, answer: &ReserveAnswer) {
        self.reserves.count(match &answer.error {
            Some(code) => Outcome::of_error(code),
            None if answer.allowed => Outcome::Allowed,
            None => Outcome::Denied,
        });
        for key in &answer.denied_keys {
            self.denied.count(key);
        }
        if let Some(ErrorCode::LimitPaused { key } | ErrorCode::LimitDecreasing { key }) =
            &answer.error
        {
            self.denied.count(key);
        }
    }

    pub(crate) fn count_complete(&self, answer: &CompleteAnswer) {
        self.completes.count(answer.error.as_ref().map_or(Outcome::Ok, Outcome::of_error));
    }

    /// The most limits whose metrics are exported.
    pub(crate) fn keys_max(&self) -> usize {
        self.keys_max
    }

    /// Everything in Prometheus' text format. The states and open leases come from the backend.
    pub(crate) fn render(&self, states: &[LimitState], open_leases: Option<u64>) -> String {
        let mut text = Text::default();
        text.family("ratelimiter_reserve_total", "counter", "Reserve responses by outcome.");
        for outcome in Outcome::OF_RESERVE {
            let count = self.reserves.get(outcome);
            text.sample("ratelimiter_reserve_total", &[("outcome", outcome.label())], count);
        }
        text.family("ratelimiter_complete_total", "counter", "Complete responses by outcome.");
        for outcome in Outcome::OF_COMPLETE {
            let count = self.completes.get(outcome);
            text.sample("ratelimiter_complete_total", &[("outcome", outcome.label())], count);
        }
        text.family(
            "ratelimiter_denied_total",
            "counter",
            "Denials per limit; the empty key counts the limits beyond metrics.keys_max.",
        );
        for (key, count) in self.denied.counts() {
            let key = key.as_ref().map_or("", LimitKey::as_str);
            text.sample("ratelimiter_denied_total", &[("key", key)], count);
        }
        text.limits(states);
        if let Some(open_leases) = open_leases {
            text.family(
                "ratelimiter_open_leases",
                "gauge",
                "Leases that are allowed and not yet completed.",
            );
            text.sample("ratelimiter_open_leases", &[], open_leases);
        }
        text.family("ratelimiter_request_seconds", "histogram", "Duration of requests.");
        for route in Route::ALL {
            let histogram = &self.requests[route as usize];
            text.histogram("ratelimiter_request_seconds", ("route", route.label()), histogram);
        }
        text.into_string()
    }
}

#[cfg(test)]
mod tests;
