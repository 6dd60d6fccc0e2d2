//! Scripts of limiter calls: one language for model, differential and four-backend tests.
//!
//! ```text
//! limit rpm rolling 60s 1            a limit; `deny` at the end for its overage
//! 0s reserve A rpm=1                 a lease and its requirements
//! 1s renew A 1 rpm=3                 a lease, the number of the renew, and the new amounts
//! 1s complete A rpm=0                a lease and its actuals
//! 1s define rpm rolling 60s 5        as `limit`, at a time
//! 1s delete rpm
//! 1s state rpm
//! 1s sweep
//! ```
//!
//! A lease is a number in base 36. An answer may follow after ` -> `, so the trace of a script is a script.

mod agreement;
mod generator;
#[cfg(test)]
mod tests;
mod text;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ratelimiter::clock::{Clock, FakeClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, HintPolicy, Limit,
    LimitKey, LimitState, LimitStatus, MemoryLimiter, RenewError, RenewRequest, Renewal,
    ReserveError, ReserveRequest, StateError,
};

use crate::shortest;

pub use agreement::History;
pub use generator::{KeyKind, KeyProfile, Profile};
pub use text::{NotAScript, amount_of, duration_of, limit_of, status_text};

/// Calls in the order of their times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script(pub Vec<Step>);

/// One line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Since the start of the script.
    pub at: Duration,
    /// The call made at this time.
    pub call: Call,
}

/// A call of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the methods")]
pub enum Call {
    Define(Limit),
    Delete(LimitKey),
    Reserve(ReserveRequest),
    Renew(RenewRequest),
    Complete(CompleteRequest),
    State(LimitKey),
    /// Only the memory backend has it.
    Sweep,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the calls")]
pub enum Answer {
    Defined(Result<LimitStatus, DefineError>),
    Deleted(Result<(), DeleteError>),
    Decided(Result<Decision, ReserveError>),
    Renewed(Result<Renewal, RenewError>),
    Completed(Result<(), CompleteError>),
    State(Result<Option<LimitState>, StateError>),
    /// The leases that are left.
    Swept {
        open_count: usize,
        past_count: usize,
    },
}

impl Script {
    /// Plays the script; `play` adds to a trace and returns the failure, if any.
    ///
    /// # Errors
    /// The trace and the failure, or panic, of the shortest part of the script that fails.
    pub fn check(
        &self,
        play: impl Fn(&Self, &mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        let run = |script: &Self| {
            let mut trace = String::new();
            let played = catch_unwind(AssertUnwindSafe(|| play(script, &mut trace)));
            let panicked = |_| Err("\na panic; see its message above".to_owned());
            let failure = played.unwrap_or_else(panicked);
            failure.map_err(|failure| format!("{trace}{failure}\n"))
        };
        let fails = |steps: &[Step]| run(&Self(steps.to_vec())).is_err();
        run(self).map_err(|whole| {
            // A failure that does not repeat is shown whole.
            run(&Self(shortest(self.0.clone(), fails))).err().unwrap_or(whole)
        })
    }
}

/// Makes a call of any backend.
///
/// # Panics
/// At a sweep.
pub async fn play(backend: &impl Backend, call: &Call) -> Answer {
    match call {
        Call::Define(limit) => Answer::Defined(backend.define(limit.clone()).await),
        Call::Delete(key) => Answer::Deleted(backend.delete(key).await),
        Call::Reserve(request) => Answer::Decided(backend.reserve(request).await),
        Call::Renew(request) => Answer::Renewed(backend.renew(request).await),
        Call::Complete(request) => Answer::Completed(backend.complete(request).await),
        Call::State(key) => Answer::State(backend.state(key).await),
        Call::Sweep => unreachable!("only the memory backend sweeps"),
    }
}

/// The memory backend on a clock that the steps of a script advance.
#[derive(Debug)]
pub struct InMemory {
    /// The clock of the limiter.
    pub clock: Arc<FakeClock>,
    /// The backend.
    pub limiter: MemoryLimiter,
    began: Timestamp,
}

impl InMemory {
    /// A backend without limits. Its hints have no jitter, so that they are exact, unless `change` says otherwise.
    pub fn new(change: impl FnOnce(&mut MemoryOptions)) -> Self {
        let clock = Arc::new(FakeClock::new());
        let mut options = MemoryOptions::for_tests(Arc::clone(&clock));
        options.hints = exact_hints();
        change(&mut options);
        let limiter = MemoryLimiter::with_options(options);
        Self { began: clock.now(), clock, limiter }
    }

    /// Advances the clock to a time of the script; returns by how much.
    ///
    /// # Panics
    /// If that time is in the past.
    pub fn advance_to(&self, at: Duration) -> Duration {
        let passed = self.clock.now().since(self.began);
        let by = at.checked_sub(passed).expect("a script's time goes forward");
        self.clock.advance(by);
        by
    }

    /// Makes the call of a step, at its time.
    ///
    /// # Panics
    /// If that time is in the past.
    pub fn play(&self, step: &Step) -> Answer {
        self.advance_to(step.at);
        if step.call == Call::Sweep {
            self.limiter.sweep();
            let (open_count, past_count) = (self.limiter.open_leases(), self.limiter.past_leases());
            return Answer::Swept { open_count, past_count };
        }
        let mut answer = pin!(play(&self.limiter, &step.call));
        // The memory backend waits for nothing; it only lets other tasks run.
        loop {
            let polled = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(answer) = polled {
                return answer;
            }
        }
    }

    /// Makes the call of a step, at its time, and adds the step and its answer to a trace.
    ///
    /// # Panics
    /// If that time is in the past.
    pub fn play_traced(&self, step: &Step, trace: &mut String) -> Answer {
        trace.push_str(&step.to_string());
        let answer = self.play(step);
        trace.push_str(&format!(" -> {}\n", answer.text(self.began, step.at)));
        answer
    }
}

fn exact_hints() -> HintPolicy {
    let mut hints = HintPolicy::default();
    hints.rolling.jitter = Duration::ZERO;
    hints.concurrency.jitter = Duration::ZERO;
    hints
}
