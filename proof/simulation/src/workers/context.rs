//! Shared state of a run: provider, limiter, oracle and trace.

use std::any::Any;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordination::{Leases, MemoryProvider, MonotonicClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{Capacity, HoldTimeout, Limit, LimitKey, LimitKind, MemoryLimiter, Window};
use ratelimiter_client::TokioClock;
use testkit::coordination::Call;

use super::flawed::Flawed;
use super::handlers::HandlerLog;
use super::oracle::Oracle;
use super::settings::{PROVIDER, ROOMY, ROOMY_SLOTS, TIGHT, TIGHT_SLOTS};
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::outcome::{Invariant, Outcome, Violation};

const TOKENS: u64 = 1_000_000;
const REQUESTS: u64 = 10;
const WINDOW_SECONDS: u64 = 20;

/// What all parts of one run share. Clones are of the same run.
#[derive(Clone)]
pub(super) struct SimContext {
    pub(super) provider: MemoryProvider,
    pub(super) limiter: MemoryLimiter,
    pub(super) limiter_clock: TokioClock,
    pub(super) flawed: Arc<Flawed>,
    state: Arc<Mutex<SimState>>,
}

pub(super) struct SimState {
    pub(super) oracle: Oracle,
    pub(super) handlers: HandlerLog,
    pub(super) outcome: Outcome,
    is_traced: bool,
}

impl SimContext {
    pub(super) fn new(flaw: Option<Flaw>, is_traced: bool) -> SimContext {
        let clock = MonotonicClock::starting_at(Timestamp::MIN);
        let provider = MemoryProvider::with_clock(Arc::new(clock));
        let limiter_clock = TokioClock::starting_at(ratelimiter::clock::Timestamp::from_unix_ms(0));
        let mut options = MemoryOptions::for_tests(limiter_clock.clone());
        // It depends on lease IDs, which are random.
        (options.hints.rolling.jitter, options.hints.concurrency.jitter) = Default::default();
        let limiter = MemoryLimiter::with_options(options);
        let flawed = Arc::new(Flawed::new(flaw, provider.clone()));
        for (model, slots) in [(TIGHT, TIGHT_SLOTS), (ROOMY, ROOMY_SLOTS)] {
            let window = Window::from_seconds(WINDOW_SECONDS).expect("it is a window");
            let timeout = HoldTimeout::from_seconds(flawed.hold_seconds(model));
            let timeout = timeout.expect("it is a timeout");
            let rolling = LimitKind::Rolling { window };
            define(&limiter, LimitKey::llm_rpm(PROVIDER, model), rolling, REQUESTS);
            define(&limiter, LimitKey::llm_tpm(PROVIDER, model), rolling, TOKENS);
            let concurrency = LimitKind::Concurrency { timeout };
            define(&limiter, LimitKey::llm_concurrency(PROVIDER, model), concurrency, slots);
        }
        let state = SimState {
            oracle: Oracle::default(),
            handlers: HandlerLog::default(),
            outcome: Outcome::default(),
            is_traced,
        };
        SimContext { provider, limiter, limiter_clock, flawed, state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.provider.clock().now()
    }

    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        let now = self.now();
        self.state().note(now, text);
    }

    pub(super) fn note_fault(&self, fault: Fault) {
        self.state().outcome.faults.note(fault);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().outcome.violation.is_some()
    }

    /// Holds what the provider has just answered against the oracle.
    pub(super) fn saw(&self, process: usize, call: &Call<'_>, answer: &dyn Any) {
        let now = self.now();
        let mut state = self.state();
        let state = &mut *state;
        let Some(observed) = state.oracle.names.observe(call, answer) else {
            return;
        };
        state.outcome.checks += 1;
        if observed.is_change() {
            state.note(now, || format!("process {process}: {observed:?}"));
        }
        let checked = state.oracle.check(observed, now, &state.handlers, &mut state.outcome.faults);
        state.record(checked);
    }
}

impl SimState {
    pub(super) fn note(&mut self, now: Timestamp, text: impl FnOnce() -> String) {
        if self.is_traced {
            let at = now.since(Timestamp::MIN).as_secs_f64() * 1_000.0;
            writeln!(self.outcome.trace, "{at:>10.3}ms  {}", text())
                .expect("a text takes any line");
        }
    }

    /// Records a violation; the first one stands.
    pub(super) fn record(&mut self, checked: Result<(), Violation>) {
        if let Err(violation) = checked {
            self.outcome.violation.get_or_insert(violation);
        }
    }

    pub(super) fn fail(&mut self, invariant: Invariant, detail: String) {
        self.record(Err(Violation { invariant, detail }));
    }
}

fn define<E: std::fmt::Debug>(
    limiter: &MemoryLimiter,
    key: Result<LimitKey, E>,
    kind: LimitKind,
    capacity: u64,
) {
    let capacity = Capacity::new(capacity).expect("it is a capacity");
    let limit = Limit::new(key.expect("it is a key"), kind, capacity);
    limiter.define_now(limit).expect("the limiter is empty");
}
