//! `DEF-08`: what the limits file may say, from nothing but what was asked for and answered.
//!
//! For every key the oracle knows the targets that the file may have: the last that was answered, and those of changes
//! whose end nobody knows. A change is *under way* until it was answered, or, if it was not, until nobody works for it.

use std::collections::{BTreeMap, BTreeSet};

use ratelimiter::{LimitKey, Registry};

use super::Oracle;
use crate::executor::Operation;
use crate::outcome::{Invariant, Violation};

/// The capacity that a definition aims at; `None` if there is no definition.
type Target = Option<u64>;

/// What whoever asked for a change was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChangeTold {
    /// It is safe on disk.
    Made,
    /// It has no effect, and never will have.
    NotMade,
    /// Nobody knows.
    Unknown,
}

#[derive(Default)]
pub(super) struct Definitions {
    /// The targets that each key may have when no change of it is under way.
    settled: BTreeMap<LimitKey, BTreeSet<Target>>,
    under_way: BTreeMap<Operation, Change>,
}

struct Change {
    key: LimitKey,
    wanted: Target,
    /// How many tasks work for it.
    guards: usize,
    is_unknown: bool,
    /// The targets of changes that came to their end meanwhile, and may have taken effect after this one.
    others: BTreeSet<Target>,
}

impl Definitions {
    pub(super) fn new(limits: impl IntoIterator<Item = (LimitKey, u64)>) -> Self {
        let settled = |(key, capacity)| (key, BTreeSet::from([Some(capacity)]));
        Self { settled: limits.into_iter().map(settled).collect(), under_way: BTreeMap::new() }
    }

    /// A task begins to work for a change, or ends to.
    pub(super) fn count_work(&mut self, operation: Operation, begins: bool) {
        if let Some(change) = self.under_way.get_mut(&operation) {
            change.guards = if begins { change.guards + 1 } else { change.guards - 1 };
            self.end_unknown(operation);
        }
    }

    /// A change that may have been made has nobody left who could make it.
    fn end_unknown(&mut self, operation: Operation) {
        let is_over = |change: &Change| change.is_unknown && change.guards == 0;
        if self.under_way.get(&operation).is_some_and(is_over) {
            let Change { key, wanted, .. } = self.end(operation, true);
            self.settled.entry(key).or_insert_with(undefined).insert(wanted);
        }
    }

    /// A change comes to its end. If it took effect, those that are under way with it may have done so before.
    fn end(&mut self, operation: Operation, may_be_made: bool) -> Change {
        let ended = self.under_way.remove(&operation).expect("it is under way");
        let others = self.under_way.values_mut().filter(|other| other.key == ended.key);
        for other in others.filter(|_| may_be_made) {
            other.others.insert(ended.wanted);
        }
        ended
    }
}

/// Nobody has defined it.
fn undefined() -> BTreeSet<Target> {
    BTreeSet::from([None])
}

impl Oracle {
    /// Somebody asks for a change; `None` to delete the limit.
    pub(crate) fn change_sent(&mut self, operation: Operation, key: &LimitKey, wanted: Target) {
        let (guards, is_unknown, others) = (0, false, BTreeSet::new());
        let change = Change { key: key.clone(), wanted, guards, is_unknown, others };
        self.definitions.under_way.insert(operation, change);
    }

    /// Whoever asked for a change is told, or gives up.
    pub(crate) fn change_told(&mut self, operation: Operation, told: ChangeTold) {
        let definitions = &mut self.definitions;
        match told {
            ChangeTold::Unknown => {
                let change = definitions.under_way.get_mut(&operation).expect("it was sent");
                change.is_unknown = true;
                definitions.end_unknown(operation);
            }
            ChangeTold::NotMade => drop(definitions.end(operation, false)),
            ChangeTold::Made => {
                let Change { key, wanted, mut others, .. } = definitions.end(operation, true);
                others.insert(wanted);
                definitions.settled.insert(key, others);
            }
        }
    }

    /// Holds what the limits file says against what was answered.
    pub(crate) fn check_file(&self, registry: &Registry) -> Result<(), Violation> {
        let Definitions { settled, under_way } = &self.definitions;
        let defined = registry.iter().map(|registered| &registered.limit.key);
        let keys: BTreeSet<&LimitKey> = settled.keys().chain(defined).collect();
        for key in keys {
            let target = registry.get(key).map(|registered| registered.target().get());
            let mut may_be = settled.get(key).cloned().unwrap_or_else(undefined);
            let changes = under_way.values().filter(|change| change.key == *key);
            may_be.extend(changes.map(|change| change.wanted));
            if !may_be.contains(&target) {
                let detail = format!("the file has {target:?} for {key}, answers say {may_be:?}");
                return Err(Violation { invariant: Invariant::DefinitionsKept, detail });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratelimiter::{Overage, RegisteredLimit};

    use super::*;
    use crate::limits::oracle::AllowedLag;
    use crate::limits::plan::{LimitSetup, key};

    const A: Operation = Operation(0);
    const B: Operation = Operation(1);
    const AT_ONCE: AllowedLag = AllowedLag {
        expiry_lag: Duration::ZERO,
        reconciled: Duration::ZERO,
        noticed: Duration::ZERO,
    };

    /// Which of the capacities 0 to 3 the file may have. The limit had 1, A asks for 2 and B for 3.
    fn may_have(happens: impl FnOnce(&mut Oracle)) -> Vec<u64> {
        let overage = Overage::Debt;
        let setup = LimitSetup { is_concurrency: false, seconds: 1, capacity: 1, overage };
        let mut oracle = Oracle::new(&[setup], AT_ONCE);
        oracle.change_sent(A, &key(0), Some(2));
        happens(&mut oracle);
        let file = |capacity| [RegisteredLimit::in_force(setup.limit(0, capacity))];
        let is_kept =
            |capacity: &u64| oracle.check_file(&file(*capacity).into_iter().collect()).is_ok();
        assert!(oracle.check_file(&Registry::new()).is_err(), "nobody has deleted it");
        (0..=3).filter(is_kept).collect()
    }

    fn b_sent(oracle: &mut Oracle) {
        oracle.change_sent(B, &key(0), Some(3));
    }

    /// DEF-08
    #[test]
    fn def_08_the_file_may_have_what_was_answered_and_what_nobody_knows() {
        use ChangeTold::{Made, NotMade, Unknown};
        assert_eq!(may_have(|_| {}), [1, 2]);
        assert_eq!(may_have(|oracle| oracle.change_told(A, Made)), [2]);
        assert_eq!(may_have(|oracle| oracle.change_told(A, NotMade)), [1]);
        assert_eq!(may_have(|oracle| oracle.change_told(A, Unknown)), [1, 2]);
        let one_after_the_other = |oracle: &mut Oracle| {
            oracle.change_told(A, Unknown);
            b_sent(oracle);
            oracle.change_told(B, Made);
        };
        assert_eq!(may_have(one_after_the_other), [3]);
        let at_once = |oracle: &mut Oracle| {
            b_sent(oracle);
            oracle.change_told(A, Made);
            oracle.change_told(B, Made);
        };
        assert_eq!(may_have(at_once), [2, 3]);
        let still_worked_on = |oracle: &mut Oracle| {
            oracle.count_work(A, true);
            oracle.change_told(A, Unknown);
            b_sent(oracle);
            oracle.change_told(B, Made);
        };
        assert_eq!(may_have(still_worked_on), [2, 3]);
    }
}
