//! Prometheus metrics with stable names.
//!
//! Counting a request takes a few atomic additions to counters in arrays; only a denial looks up a key.

mod families;
mod key_counters;

use prometheus::{CounterVec, Gauge, GaugeVec, Histogram, IntCounter, Opts, Registry, TextEncoder};
use ratelimiter::LimitState;
use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter_wire::{CompleteAnswer, ErrorCode, ReserveAnswer};

pub(crate) use self::families::{counters, register, timings};
use self::key_counters::KeyCounters;

#[derive(Debug)]
pub(crate) struct Metrics {
    clock: MonotonicClock,
    registry: Registry,
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
#[derive(Debug)]
struct OutcomeCounters([IntCounter; Outcome::ALL.len()]);

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
    const ALL: [Self; 13] = [
        Self::Allowed,
        Self::Denied,
        Self::Ok,
        Self::Paused,
        Self::Decreasing,
        Self::UnknownKey,
        Self::OverCapacity,
        Self::LeaseConflict,
        Self::LeaseEnded,
        Self::InvalidActual,
        Self::Invalid,
        Self::Unauthorized,
        Self::NoAnswer,
    ];

    const fn is_of_reserve(self) -> bool {
        !matches!(self, Self::Ok | Self::InvalidActual)
    }

    const fn is_of_complete(self) -> bool {
        matches!(
            self,
            Self::Ok | Self::InvalidActual | Self::Invalid | Self::Unauthorized | Self::NoAnswer
        )
    }

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
    /// The counters of a call that `has` these outcomes; any other would count as an invalid request.
    fn new(registry: &Registry, name: &str, help: &str, has: fn(Outcome) -> bool) -> Self {
        let family = counters(registry, name, help, "outcome");
        Self(Outcome::ALL.map(|outcome| {
            let counted_as = if has(outcome) { outcome } else { Outcome::Invalid };
            family.with_label_values(&[counted_as.label()])
        }))
    }

    fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].inc();
    }
}

impl Metrics {
    /// At most `keys_max` keys get their own metrics.
    pub(crate) fn new(keys_max: usize) -> Self {
        let registry = Registry::new();
        let reserves = OutcomeCounters::new(
            &registry,
            "ratelimiter_reserve_total",
            "Reserve responses by outcome.",
            Outcome::is_of_reserve,
        );
        let completes = OutcomeCounters::new(
            &registry,
            "ratelimiter_complete_total",
            "Complete responses by outcome.",
            Outcome::is_of_complete,
        );
        let denied = counters(
            &registry,
            "ratelimiter_denied_total",
            "Denials per limit; the empty key counts the limits beyond metrics.keys_max.",
            "key",
        );
        let name = "ratelimiter_request_seconds";
        let requests = timings(&registry, name, "Duration of requests.", "route");
        Self {
            clock: MonotonicClock::new(),
            registry,
            reserves,
            completes,
            denied: KeyCounters::new(keys_max, denied),
            requests: Route::ALL.map(|route| requests.with_label_values(&[route.label()])),
            keys_max,
        }
    }

    pub(crate) fn start(&self) -> Started {
        Started(self.clock.now())
    }

    /// Records the duration of a request.
    pub(crate) fn stop(&self, route: Route, Started(since): Started) {
        self.requests[route as usize].observe(self.clock.now().since(since).as_secs_f64());
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
        // A new registry for each scrape, so that deleted limits vanish.
        let limits = Registry::new();
        let gauges = |name, help| register(&limits, GaugeVec::new(Opts::new(name, help), &["key"]));
        let capacity = gauges("ratelimiter_limit_capacity", "Capacity in force.");
        let used = gauges("ratelimiter_limit_used", "Units in live reservations or holds.");
        let overage = Opts::new(
            "ratelimiter_overage_units_total",
            "Units used above their reservations for which no room was found.",
        );
        let overage = register(&limits, CounterVec::new(overage, &["key", "policy"]));
        for LimitState { limit, usage, .. } in states {
            let key = limit.key.as_str();
            capacity.with_label_values(&[key]).set(number(limit.capacity.get().into()));
            used.with_label_values(&[key]).set(number(usage.used.into()));
            let overage = overage.with_label_values(&[key, limit.overage.name()]);
            overage.inc_by(number(usage.uncovered));
        }
        if let Some(open_leases) = open_leases {
            let help = "Leases that are allowed and not yet completed.";
            let gauge = register(&limits, Gauge::new("ratelimiter_open_leases", help));
            gauge.set(number(open_leases.into()));
        }
        let families = [self.registry.gather(), limits.gather()].concat();
        TextEncoder::new().encode_to_string(&families).expect("a string takes every text")
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
pub(crate) fn number(count: u128) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
