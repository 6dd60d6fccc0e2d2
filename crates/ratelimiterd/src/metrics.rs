//! Prometheus metrics with stable names.
//!
//! Counting a request takes a few atomic additions to counters in arrays; only a denial looks up a key.

mod gateway;
mod histogram;
mod key_counters;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::{Decision, LimitKey, LimitState};
use ratelimiter_wire::{CompleteAnswer, ErrorCode, RenewAnswer, ReserveAnswer};

pub(crate) use self::gateway::GatewayMetrics;
pub(crate) use self::histogram::Histogram;
use self::key_counters::KeyCounters;
pub(crate) use self::text::Text;

#[derive(Debug)]
pub(crate) struct Metrics {
    clock: MonotonicClock,
    reserves: OutcomeCounters,
    renews: OutcomeCounters,
    completes: OutcomeCounters,
    denied: KeyCounters,
    shadow_denied: KeyCounters,
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
    /// `POST /v1/renew`
    Renew,
    /// `POST /v1/complete`
    Complete,
    /// `POST /v1/complete/batch`
    CompleteBatch,
    /// `/v1/admin/…`
    Admin,
}

/// The outcome of a reserve, a renew or a complete, as a label of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    Renewed,
    Ok,
    Paused,
    Decreasing,
    TooManyLimits,
    TooManyWaiters,
    UnknownKey,
    OverCapacity,
    LeaseConflict,
    LeaseEnded,
    RenewSuperseded,
    InvalidAmount,
    InvalidActual,
    Invalid,
    Unauthorized,
    Forbidden,
    ForbiddenKey,
    NoAnswer,
    ClientGone,
}

/// What is measured when it is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gauges<'a> {
    pub(crate) states: &'a [LimitState],
    /// The number of limits that were made from each template.
    pub(crate) instances: &'a [(LimitKey, usize)],
    /// `None` if the backend does not know.
    pub(crate) open_leases: Option<u64>,
    pub(crate) waiters: usize,
}

/// Who may see what of the metrics.
pub(crate) struct MetricsView<'a> {
    /// The callers to show, by name.
    pub(crate) callers: Vec<(&'a str, &'a OutcomeCounters)>,
    /// Whether a key is shown.
    pub(crate) shows_key: &'a dyn Fn(&LimitKey) -> bool,
}

/// One counter per outcome.
#[derive(Debug, Default)]
pub(crate) struct OutcomeCounters([AtomicU64; Outcome::COUNT]);

impl Route {
    const ALL: [Self; 6] = [
        Self::Reserve,
        Self::ReserveBatch,
        Self::Renew,
        Self::Complete,
        Self::CompleteBatch,
        Self::Admin,
    ];

    const fn label(self) -> &'static str {
        match self {
            Self::Reserve => "/v1/reserve",
            Self::ReserveBatch => "/v1/reserve/batch",
            Self::Renew => "/v1/renew",
            Self::Complete => "/v1/complete",
            Self::CompleteBatch => "/v1/complete/batch",
            Self::Admin => "/v1/admin/limits",
        }
    }
}

impl Outcome {
    const COUNT: usize = Self::ClientGone as usize + 1;
    /// The outcomes that a reserve can have.
    const OF_RESERVE: [Self; 16] = [
        Self::Allowed,
        Self::Denied,
        Self::Paused,
        Self::Decreasing,
        Self::TooManyLimits,
        Self::TooManyWaiters,
        Self::UnknownKey,
        Self::OverCapacity,
        Self::LeaseConflict,
        Self::LeaseEnded,
        Self::Invalid,
        Self::Unauthorized,
        Self::Forbidden,
        Self::ForbiddenKey,
        Self::NoAnswer,
        Self::ClientGone,
    ];
    /// The outcomes that a renew can have.
    const OF_RENEW: [Self; 15] = [
        Self::Renewed,
        Self::Denied,
        Self::Paused,
        Self::Decreasing,
        Self::TooManyLimits,
        Self::UnknownKey,
        Self::OverCapacity,
        Self::LeaseEnded,
        Self::RenewSuperseded,
        Self::InvalidAmount,
        Self::Invalid,
        Self::Unauthorized,
        Self::Forbidden,
        Self::ForbiddenKey,
        Self::NoAnswer,
    ];
    /// The outcomes that a complete can have.
    const OF_COMPLETE: [Self; 7] = [
        Self::Ok,
        Self::InvalidActual,
        Self::Invalid,
        Self::Unauthorized,
        Self::Forbidden,
        Self::ForbiddenKey,
        Self::NoAnswer,
    ];

    /// The outcomes that a reserve cannot have.
    const NOT_OF_RESERVE: [Self; 5] =
        [Self::Renewed, Self::RenewSuperseded, Self::InvalidAmount, Self::Ok, Self::InvalidActual];

    const fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Renewed => "renewed",
            Self::Ok => "ok",
            Self::Paused => "limit_paused",
            Self::Decreasing => "limit_decreasing",
            Self::TooManyLimits => "too_many_limits",
            Self::TooManyWaiters => "too_many_waiters",
            Self::UnknownKey => "unknown_limit_key",
            Self::OverCapacity => "amount_exceeds_capacity",
            Self::LeaseConflict => "lease_conflict",
            Self::LeaseEnded => "lease_ended",
            Self::RenewSuperseded => "renew_superseded",
            Self::InvalidAmount => "invalid_amount",
            Self::InvalidActual => "invalid_actual",
            Self::Invalid => "invalid_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::ForbiddenKey => "forbidden_key",
            Self::NoAnswer => "backend_error",
            Self::ClientGone => "client_gone",
        }
    }

    const fn of_error(code: &ErrorCode) -> Self {
        match code {
            ErrorCode::LimitPaused { .. } => Self::Paused,
            ErrorCode::LimitDecreasing { .. } => Self::Decreasing,
            ErrorCode::TooManyInstances { .. } => Self::TooManyLimits,
            ErrorCode::TooManyWaiters => Self::TooManyWaiters,
            ErrorCode::UnknownLimitKey { .. } => Self::UnknownKey,
            ErrorCode::AmountExceedsCapacity { .. } => Self::OverCapacity,
            ErrorCode::LeaseConflict => Self::LeaseConflict,
            ErrorCode::LeaseEnded => Self::LeaseEnded,
            ErrorCode::RenewSuperseded => Self::RenewSuperseded,
            ErrorCode::InvalidAmount { .. } => Self::InvalidAmount,
            ErrorCode::InvalidActual { .. } => Self::InvalidActual,
            ErrorCode::Unauthorized => Self::Unauthorized,
            ErrorCode::Forbidden => Self::Forbidden,
            ErrorCode::ForbiddenKey { .. } => Self::ForbiddenKey,
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
    pub(crate) fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer, for its caller too: its error, or without one what was `decided`.
    fn count_answer(&self, caller: Option<&Self>, error: Option<&ErrorCode>, decided: Outcome) {
        let outcome = error.map_or(decided, Outcome::of_error);
        self.count(outcome);
        if let Some(calls) = caller {
            calls.count(outcome);
        }
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
            renews: OutcomeCounters::default(),
            completes: OutcomeCounters::default(),
            denied: KeyCounters::new(keys_max),
            shadow_denied: KeyCounters::new(keys_max),
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

    /// Counts a reserve, for its caller too; a call without a valid token has none. `key_of` returns the key for
    /// which a limit is counted (`TPL-06`), if there still is one.
    pub(crate) fn count_reserve(
        &self,
        caller: Option<&OutcomeCounters>,
        answer: &ReserveAnswer,
        key_of: impl Fn(&LimitKey) -> Option<LimitKey>,
    ) {
        let ReserveAnswer { allowed, denied_keys, shadow_denied_keys, error, .. } = answer;
        let decided = if *allowed { Outcome::Allowed } else { Outcome::Denied };
        self.reserves.count_answer(caller, error.as_ref(), decided);
        self.count_keys(denied_keys, shadow_denied_keys, error.as_ref(), key_of);
    }

    /// Counts a renew, as [`Metrics::count_reserve`].
    pub(crate) fn count_renew(
        &self,
        caller: Option<&OutcomeCounters>,
        answer: &RenewAnswer,
        key_of: impl Fn(&LimitKey) -> Option<LimitKey>,
    ) {
        let RenewAnswer { renewed, denied_keys, shadow_denied_keys, error, .. } = answer;
        let decided = if *renewed { Outcome::Renewed } else { Outcome::Denied };
        self.renews.count_answer(caller, error.as_ref(), decided);
        self.count_keys(denied_keys, shadow_denied_keys, error.as_ref(), key_of);
    }

    /// Counts the limits that denied a call of the gateway, and those that would have.
    pub(crate) fn count_decision(
        &self,
        decision: &Decision,
        key_of: impl Fn(&LimitKey) -> Option<LimitKey>,
    ) {
        match decision {
            Decision::Allowed { shadow_denied, .. } => {
                self.count_keys(&[], shadow_denied, None, key_of);
            }
            Decision::Denied(denial) => self.count_keys(denial.keys(), &[], None, key_of),
        }
    }

    /// Counts the limits that denied, or would have.
    fn count_keys(
        &self,
        denied: &[LimitKey],
        shadow_denied: &[LimitKey],
        error: Option<&ErrorCode>,
        key_of: impl Fn(&LimitKey) -> Option<LimitKey>,
    ) {
        let count = |counters: &KeyCounters, key: &LimitKey| match key_of(key) {
            Some(key) => counters.count(&key),
            None => counters.count_other(),
        };
        denied.iter().for_each(|key| count(&self.denied, key));
        shadow_denied.iter().for_each(|key| count(&self.shadow_denied, key));
        if let Some(
            ErrorCode::LimitPaused { key }
            | ErrorCode::LimitDecreasing { key }
            | ErrorCode::TooManyInstances { template: key },
        ) = error
        {
            count(&self.denied, key);
        }
    }

    /// Counts reserves whose client went away while they waited for room.
    pub(crate) fn count_gone(&self, caller: &OutcomeCounters, count: usize) {
        for _ in 0..count {
            self.reserves.count(Outcome::ClientGone);
            caller.count(Outcome::ClientGone);
        }
    }

    /// Counts a complete, as [`Metrics::count_reserve`].
    pub(crate) fn count_complete(&self, caller: Option<&OutcomeCounters>, answer: &CompleteAnswer) {
        self.completes.count_answer(caller, answer.error.as_ref(), Outcome::Ok);
    }

    /// The most limits whose metrics are exported.
    pub(crate) fn keys_max(&self) -> usize {
        self.keys_max
    }

    /// Everything that a view shows, in Prometheus' text format.
    pub(crate) fn render(&self, view: &MetricsView<'_>, gauges: &Gauges<'_>) -> String {
        let Gauges { states, instances, open_leases, waiters } = *gauges;
        let mut text = Text::default();
        let (reserves, renews, completes) = (&self.reserves, &self.renews, &self.completes);
        text.outcomes("reserve", "Reserve", reserves, &Outcome::OF_RESERVE);
        text.outcomes("renew", "Renew", renews, &Outcome::OF_RENEW);
        text.outcomes("complete", "Complete", completes, &Outcome::OF_COMPLETE);
        // Up to a thousand callers: an outcome that a caller has not had is left out.
        text.family(
            "ratelimiter_calls_total",
            "counter",
            "Reserves, renews and completes by caller.",
        );
        for (caller, calls) in &view.callers {
            for outcome in Outcome::OF_RESERVE.into_iter().chain(Outcome::NOT_OF_RESERVE) {
                let labels = [("caller", *caller), ("outcome", outcome.label())];
                match calls.get(outcome) {
                    0 => {}
                    count => text.sample("ratelimiter_calls_total", &labels, count),
                }
            }
        }
        text.keys(
            "ratelimiter_denied_total",
            "Denials per limit or template; the empty key counts the limits beyond metrics.keys_max, and those that are gone.",
            &self.denied,
            view.shows_key,
        );
        text.keys(
            "ratelimiter_shadow_denied_total",
            "Allowed reserves and renews that the limit, in shadow mode, would have denied.",
            &self.shadow_denied,
            view.shows_key,
        );
        text.limits(states);
        text.family(
            "ratelimiter_template_instances",
            "gauge",
            "Limits that were made from the template and exist now.",
        );
        let shown = instances.iter().filter(|(template, _)| (view.shows_key)(template));
        for (template, count) in shown.take(self.keys_max) {
            let labels = [("key", template.as_str())];
            text.sample("ratelimiter_template_instances", &labels, count);
        }
        if let Some(open_leases) = open_leases {
            text.family(
                "ratelimiter_open_leases",
                "gauge",
                "Leases that are allowed and not yet completed.",
            );
            text.sample("ratelimiter_open_leases", &[], open_leases);
        }
        text.family("ratelimiter_waiters", "gauge", "Reserves that wait for room.");
        text.sample("ratelimiter_waiters", &[], waiters);
        text.family(
            "ratelimiter_request_seconds",
            "histogram",
            "Duration of requests, with the time that a reserve waits for room.",
        );
        for route in Route::ALL {
            let histogram = &self.requests[route as usize];
            text.histogram("ratelimiter_request_seconds", ("route", route.label()), histogram);
        }
        text.into_string()
    }
}

#[cfg(test)]
mod tests;
