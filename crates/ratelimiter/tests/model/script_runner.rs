//! Plays a script on the limiter and the oracle, and compares their answers and states.

use std::time::Duration;

use ratelimiter::clock::Clock;
use ratelimiter::{
    Decision, DenialReason, HintPolicy, KeyPattern, LimitState, Page, RenewError, Renewal,
    ReserveError,
};
use testkit::script::{Answer, Call, InMemory, Script, Step};

use crate::case::{Case, Flaw};
use crate::oracle::{Expected, ExpectedRenewal, Oracle};

/// Plays the script of a case; `Err` has the trace of the shortest part of it that fails.
pub(crate) fn run(case: &Case) -> Result<(), String> {
    let checked = case.script.check(|script, trace| ScriptRunner::new(case).run(script, trace));
    checked.map_err(|failure| {
        format!("jitter {}, remembers {}s\n{failure}", case.has_jitter, case.remember_seconds)
    })
}

/// Small enough that all leases share one shard, so that its index and its chunks of past leases fill up.
const REMEMBER_MAX: usize = 8_000;

struct ScriptRunner {
    memory: InMemory,
    oracle: Oracle,
}

impl ScriptRunner {
    fn new(case: &Case) -> Self {
        let remember_for = Duration::from_secs(case.remember_seconds);
        let memory = InMemory::new(|options| {
            if case.has_jitter {
                options.hints = HintPolicy::default();
            }
            if matches!(case.flaw, Some(Flaw::HintsTooLate)) {
                options.hints.concurrency.base *= 2;
            }
            options.remember_for = remember_for;
            options.remember_max = match case.flaw {
                Some(Flaw::ForgetsLeases) => 0,
                // One shard for all leases, and enough for those of every script.
                _ => REMEMBER_MAX,
            };
        });
        let now = memory.clock.now().unix_nanos();
        Self { memory, oracle: Oracle::new(now, remember_for, case.has_jitter) }
    }

    fn run(mut self, script: &Script, trace: &mut String) -> Result<(), String> {
        for step in &script.0 {
            let passed = self.memory.advance_to(step.at);
            self.oracle.advance(u64::try_from(passed.as_nanos()).unwrap());
            let answer = self.memory.play_traced(step, trace);
            self.compare(step, &answer)?;
            self.compare_states()?;
        }
        let states = self.memory.limiter.states_now(&Page::default());
        agree("the list of limits", &states, &self.oracle.states())?;
        for template in self.oracle.templates() {
            let page = Page { template: KeyPattern::new(&template).ok(), ..Page::default() };
            let states = self.memory.limiter.states_now(&page);
            agree("the list of instances", &states, &self.oracle.instances(&template))?;
        }
        Ok(())
    }

    fn compare(&mut self, step: &Step, answer: &Answer) -> Result<(), String> {
        match (&step.call, answer) {
            (Call::Define(limit), Answer::Defined(answer)) => {
                agree("define", answer, &self.oracle.define(limit))
            }
            (Call::Delete(key), Answer::Deleted(answer)) => {
                agree("delete", &answer.is_ok(), &self.oracle.delete(key))
            }
            (Call::Reserve(request), Answer::Decided(answer)) => {
                agree_on_reserve(answer, &self.oracle.reserve(request))
            }
            (Call::Renew(request), Answer::Renewed(answer)) => {
                agree_on_renew(answer, &self.oracle.renew(request))?;
                if let Ok(renewal) = answer {
                    self.oracle.note_renewal(request, renewal);
                }
                Ok(())
            }
            (Call::Complete(request), Answer::Completed(answer)) => {
                agree("complete", answer, &self.oracle.complete(request, answer))
            }
            (Call::State(key), Answer::State(answer)) => {
                agree("state", answer, &Ok(self.oracle.state(key)))
            }
            (Call::Sweep, Answer::Swept { open_count, .. }) => {
                self.oracle.sweep();
                agree("open leases", open_count, &self.oracle.open_leases())
            }
            _ => Err(format!("{answer:?} does not answer {step}")),
        }
    }

    fn compare_states(&mut self) -> Result<(), String> {
        let templates = self.oracle.templates();
        let instances = templates.iter().flat_map(|template| self.oracle.instances(template));
        for expected in self.oracle.states().into_iter().chain(instances) {
            let key = &expected.limit.key;
            let state = self.memory.limiter.state_now(key);
            agree("state", &state, &Some(expected.clone()))?;
            let LimitState { limit, usage, .. } = expected;
            // RES-02: the main property.
            if usage.used > limit.ceiling().get() {
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
        (
            Ok(Decision::Allowed { reserved_at, shadow_denied }),
            Expected::Allowed { reserved_at_nanos, shadow_denied: expected },
        ) => reserved_at.unix_nanos() == *reserved_at_nanos && shadow_denied == expected,
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

fn agree_on_renew(
    answer: &Result<Renewal, RenewError>,
    expected: &ExpectedRenewal,
) -> Result<(), String> {
    let fixed_hint = Duration::from_secs(10);
    let agreed = match (answer, expected) {
        (
            Ok(Renewal::Renewed { renewed_at, lapses_at, shadow_denied }),
            ExpectedRenewal::Renewed { lapses_at_nanos, shadow_denied: expected },
        ) => {
            let lapses = match lapses_at_nanos {
                Some(nanos) => lapses_at.unix_nanos() == *nanos,
                None => lapses_at <= renewed_at,
            };
            lapses && shadow_denied == expected
        }
        (Ok(Renewal::Denied(denial)), ExpectedRenewal::Denied { keys, hint }) => {
            denial.reason == (DenialReason::NoRoom { keys: keys.clone() })
                && hint.contains(&denial.retry_after)
        }
        (Ok(Renewal::Denied(denial)), ExpectedRenewal::Paused { key }) => {
            denial.reason == (DenialReason::Paused { key: key.clone() })
                && denial.retry_after == fixed_hint
        }
        (Ok(Renewal::Denied(denial)), ExpectedRenewal::Decreasing { key }) => {
            denial.reason == (DenialReason::Decreasing { key: key.clone() })
                && denial.retry_after == fixed_hint
        }
        (Ok(renewal), ExpectedRenewal::Again(before)) => renewal == before,
        (Err(error), ExpectedRenewal::Refused(expected)) => error == expected,
        _ => false,
    };
    match agreed {
        true => Ok(()),
        false => Err(format!("\nrenew\n  limiter: {answer:?}\n  oracle:  {expected:?}")),
    }
}
