//! Runs a script on the limiter and the oracle, and compares their answers and states.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::{Clock, FakeClock};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Decision, DenialReason, HintPolicy, LimitState, MemoryLimiter, Page, ReserveError,
};

use crate::generator::{Flaw, Script};
use crate::operation::{Operation, complete_request, key, limit, reserve_request};
use crate::oracle::{Expected, Oracle};

/// Runs a script; `Err` has the trace up to the first disagreement.
pub(crate) fn run(script: &Script) -> Result<(), String> {
    let mut trace = String::new();
    let result =
        catch_unwind(AssertUnwindSafe(|| ScriptRunner::new(script).run(script, &mut trace)));
    let failure = match result {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(failure)) => failure,
        Err(_) => "the limiter panicked; see its message above".to_owned(),
    };
    Err(format!(
        "jitter {}, remembers {}s\n{trace}{failure}\n",
        script.has_jitter, script.remember_seconds
    ))
}

/// Small enough that all leases share one shard, so that its index and its chunks of past leases fill up.
const REMEMBER_MAX: usize = 8_000;

struct ScriptRunner {
    clock: Arc<FakeClock>,
    limiter: MemoryLimiter,
    oracle: Oracle,
}

impl ScriptRunner {
    fn new(script: &Script) -> Self {
        let clock = Arc::new(FakeClock::new());
        let mut hints = HintPolicy::default();
        if !script.has_jitter {
            hints.rolling.jitter = Duration::ZERO;
            hints.concurrency.jitter = Duration::ZERO;
        }
        let remember_for = Duration::from_secs(script.remember_seconds);
        if matches!(script.flaw, Some(Flaw::HintsTooLate)) {
            hints.concurrency.base *= 2;
        }
        let oracle = Oracle::new(clock.now().unix_nanos(), remember_for, script.has_jitter);
        let mut options =
            MemoryOptions { hints, remember_for, ..MemoryOptions::for_tests(clock.clone()) };
        options.remember_max = match script.flaw {
            Some(Flaw::ForgetsLeases) => 0,
            // One shard for all leases, and enough for those of every script.
            _ => REMEMBER_MAX,
        };
        Self { clock, limiter: MemoryLimiter::with_options(options), oracle }
    }

    fn run(mut self, script: &Script, trace: &mut String) -> Result<(), String> {
        let began = self.clock.now();
        for operation in &script.operations {
            let at = self.clock.now().since(began);
            trace.push_str(&format!("{at:?} {operation}"));
            let answer = self.step(operation)?;
            trace.push_str(&format!(" -> {answer}\n"));
            self.compare_states()?;
        }
        let states = self.limiter.states_now(&Page::default());
        agree("the list of limits", &states, &self.oracle.states())
    }

    fn step(&mut self, operation: &Operation) -> Result<String, String> {
        match operation {
            Operation::Define { key, is_concurrency, seconds, capacity, overage } => {
                let limit = limit(*key, *is_concurrency, *seconds, *capacity, *overage);
                let answer = self.limiter.define_now(limit.clone());
                agree("define", &answer, &self.oracle.define(&limit))?;
                Ok(format!("{answer:?}"))
            }
            Operation::Delete { key: number } => {
                let answer = self.limiter.delete_now(&key(*number));
                agree("delete", &answer.is_ok(), &self.oracle.delete(&key(*number)))?;
                Ok(format!("{answer:?}"))
            }
            Operation::Reserve { lease, needs } => {
                let request = reserve_request(*lease, needs);
                let answer = self.limiter.reserve_now(&request);
                let expected = self.oracle.reserve(&request);
                agree_on_reserve(&answer, &expected)?;
                Ok(format!("{answer:?}"))
            }
            Operation::Complete { lease, actuals } => {
                let request = complete_request(*lease, actuals);
                let answer = self.limiter.complete_now(&request);
                agree("complete", &answer, &self.oracle.complete(&request, &answer))?;
                Ok(format!("{answer:?}"))
            }
            Operation::Advance { nanos } => Ok(self.advance(*nanos)),
            Operation::AdvanceToExpiry { just_before } => {
                let until = self.oracle.until_next_expiry().unwrap_or(0);
                Ok(self.advance(until.saturating_sub(u64::from(*just_before))))
            }
            Operation::Sweep => {
                self.limiter.sweep();
                self.oracle.sweep();
                agree("open leases", &self.limiter.open_leases(), &self.oracle.open_leases())?;
                Ok("ok".to_owned())
            }
        }
    }

    fn advance(&mut self, nanos: u64) -> String {
        self.clock.advance(Duration::from_nanos(nanos));
        self.oracle.advance(nanos);
        "ok".to_owned()
    }

    fn compare_states(&mut self) -> Result<(), String> {
        for expected in self.oracle.states() {
            let key = &expected.limit.key;
            let state = self.limiter.state_now(key);
            agree("state", &state, &Some(expected.clone()))?;
            let LimitState { limit, usage, .. } = expected;
            // RES-02: the main property.
            if usage.used > limit.capacity.get() {
                return Err(format!("{} units of {:?} are live", usage.used, limit));
            }
        }
        Ok(())
    }
}

fn agree<T: PartialEq + std::fmt::Debug>(
    what: &str,
    limiter: &T,
    oracle: &T,
) -> Result<(), String> {
    match limiter == oracle {
        true => Ok(()),
        false => Err(format!("\n{what}\n  limiter: {limiter:?}\n  oracle:  {oracle:?}")),
    }
}

fn agree_on_reserve(
    answer: &Result<Decision, ReserveError>,
    expected: &Expected,
) -> Result<(), String> {
    let agreed = match (answer, expected) {
        (Ok(Decision::Allowed { reserved_at }), Expected::Allowed { reserved_at_nanos }) => {
            reserved_at.unix_nanos() == *reserved_at_nanos
        }
        (Ok(Decision::Denied(denial)), Expected::Denied { keys, hint }) => {
            denial.reason == (DenialReason::NoRoom { keys: keys.clone() })
                && hint.contains(&denial.retry_after)
        }
        (Ok(Decision::Denied(denial)), Expected::DeniedAgain) => {
            let names_keys =
                matches!(&denial.reason, DenialReason::NoRoom { keys } if !keys.is_empty());
            names_keys && denial.retry_after_ms() >= 1
        }
        (Ok(Decision::Denied(denial)), Expected::Paused { key }) => {
            denial.reason == (DenialReason::Paused { key: key.clone() })
                && denial.retry_after == Duration::from_secs(10)
        }
        (Ok(Decision::Denied(denial)), Expected::Decreasing { key }) => {
            denial.reason == (DenialReason::Decreasing { key: key.clone() })
                && denial.retry_after == Duration::from_secs(10)
        }
        (Err(error), Expected::Refused(expected)) => error == expected,
        (Err(error), Expected::EndedOrConflict) => {
            matches!(error, ReserveError::LeaseEnded | ReserveError::LeaseConflict)
        }
        _ => false,
    };
    match agreed {
        true => Ok(()),
        false => Err(format!("\nreserve\n  limiter: {answer:?}\n  oracle:  {expected:?}")),
    }
}
