//! Scenarios, how to run them, and their outcomes.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use coordination::OwnerToken;

use crate::Fixture;
use crate::sample::owner;

/// One rule for every provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Its ID without the provider: `OUTBOX-001`. Numbers are the original scenarios, letters later
    /// ones.
    pub id: &'static str,
    /// The rule.
    pub text: &'static str,
    /// The name of its test.
    pub test: &'static str,
}

/// A scenario for one provider.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The scenario.
    pub scenario: Scenario,
    /// Runs it; it panics if the rule does not hold.
    pub run: fn(),
}

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The rule holds.
    Passed,
    /// The rule does not hold.
    Failed {
        /// The panic message.
        reason: String,
    },
}

impl Scenario {
    /// Its ID for a provider: `PRIM-INMEMORY-OUTBOX-001`.
    pub fn id_for(&self, provider: &str) -> String {
        format!("PRIM-{provider}-{}", self.id)
    }
}

impl Case {
    /// Runs the case and returns its outcome.
    pub fn outcome(&self) -> Outcome {
        match catch_unwind(AssertUnwindSafe(self.run)) {
            Ok(()) => Outcome::Passed,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                Outcome::Failed { reason: text.unwrap_or_else(|| "panicked".to_owned()) }
            }
        }
    }
}

/// Runs one scenario for a provider, and prints its ID if it fails. The tests of the suites call
/// this.
pub fn run<F: Fixture, S: Future<Output = ()>>(scenario: Scenario, steps: impl FnOnce(F) -> S) {
    let _named = ReportOnPanic { scenario, provider: F::PROVIDER };
    F::block_on(async { steps(F::fresh().await).await });
}

struct ReportOnPanic {
    scenario: Scenario,
    provider: &'static str,
}

impl Drop for ReportOnPanic {
    #[expect(clippy::print_stderr, reason = "a failing test says which rule is broken")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (id, text) = (self.scenario.id_for(self.provider), self.scenario.text);
            eprintln!("{id} does not hold: {text}");
        }
    }
}

/// The provider's answer. Without one the scenario fails.
pub(crate) async fn answer<T, E: Debug>(call: impl Future<Output = Result<T, E>>) -> T {
    call.await.expect("the provider answers")
}

/// Claims with eight tasks until nothing is left: every item is claimed exactly once.
pub(crate) async fn each_is_claimed_once<K, C>(
    added: HashSet<K>,
    claim: impl Fn(OwnerToken) -> C + Clone + Send + 'static,
) where
    K: Debug + Eq + Hash + Send + 'static,
    C: Future<Output = Vec<K>> + Send,
{
    let got = racing(|owner| {
        let claim = claim.clone();
        async move {
            let mut got = Vec::new();
            loop {
                let claimed = claim(owner.clone()).await;
                if claimed.is_empty() {
                    return got;
                }
                got.extend(claimed);
                tokio::task::yield_now().await;
            }
        }
    });
    let got = got.await;
    assert_eq!(got.len(), added.len(), "each of them once");
    assert_eq!(got.into_iter().collect::<HashSet<_>>(), added, "and all of them");
}

/// The results of eight tasks, each with its own owner token.
pub(crate) async fn racing<T, R>(run: impl Fn(OwnerToken) -> R) -> Vec<T>
where
    T: Send + 'static,
    R: Future<Output = Vec<T>> + Send + 'static,
{
    let start = |number| tokio::spawn(run(owner(&format!("worker-{number}"))));
    let tasks: Vec<_> = (0..8).map(start).collect();
    let mut got = Vec::new();
    for task in tasks {
        got.extend(task.await.expect("the task did not panic"));
    }
    got
}

/// Declares a suite: the list of its scenarios, its cases for a provider, and a macro that turns
/// each into a `#[test]`.
///
/// The first token is a dollar sign, because a macro cannot otherwise write one into another macro.
macro_rules! suite {
    (
        $dollar:tt
        $(#[$meta:meta])*
        macro $suite:ident, module $module:ident, fixture $bound:ident,
        $( $id:literal $name:ident: $text:literal; )*
    ) => {
        /// The scenarios, in the order of their IDs.
        pub const SCENARIOS: &[$crate::Scenario] = &[
            $( $crate::Scenario { id: $id, text: $text, test: stringify!($name) } ),*
        ];

        /// The scenarios, ready to run for a provider.
        pub fn cases<F: $crate::$bound>() -> Vec<$crate::Case> {
            vec![ $(
                $crate::Case {
                    scenario: $crate::Scenario { id: $id, text: $text, test: stringify!($name) },
                    run: || $crate::run::<F, _>(
                        $crate::Scenario { id: $id, text: $text, test: stringify!($name) },
                        $name::<F>,
                    ),
                }
            ),* ]
        }

        $(#[$meta])*
        #[macro_export]
        macro_rules! $suite {
            ($dollar fixture:ty) => {
                $(
                    #[test]
                    fn $name() {
                        $crate::run::<$dollar fixture, _>(
                            $crate::Scenario { id: $id, text: $text, test: stringify!($name) },
                            $crate::$module::$name::<$dollar fixture>,
                        );
                    }
                )*
            };
        }
    };
}

pub(crate) use suite;
