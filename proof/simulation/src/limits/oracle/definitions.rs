//! `DEF-08`: what the limits file may say, from nothing but what was asked for and answered.
//!
//! For every key the oracle knows the targets that the file may have: the last that was answered, and those of changes
//! whose end nobody knows. A change is *under way* until it was answered, or, if it was not, until nobody works for it.

use std::collections::{BTreeMap, BTreeSet};

use ratelimiter::clock::Timestamp;
use ratelimiter::{LimitKey, Registry};

use super::Oracle;
use super::in_force::{Possible, Target};
use crate::executor::Operation;
use crate::limits::plan::{Definition, TEMPLATES, key, templates_of};
use crate::outcome::{Invariant, Violation};

/// What whoever asked for a change was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChangeTold {
    /// It is safe on disk.
    Made,
    /// It is not in the limits file, and never will be.
    NotMade,
    /// Nobody knows.
    Unknown,
}

#[derive(Default)]
pub(super) struct Definitions {
    /// The targets that each key may have when no change of it is under way.
    settled: BTreeMap<LimitKey, BTreeSet<Target>>,
    /// By the operation and the key; a list of definitions is one operation with several keys.
    under_way: BTreeMap<(Operation, LimitKey), Change>,
    /// Definitions that were not made, and that a ledger may have until it answers.
    lingering: BTreeMap<LimitKey, BTreeSet<Target>>,
}

struct Change {
    wanted: Target,
    /// How many tasks work for it.
    guards: usize,
    is_unknown: bool,
    /// The targets of changes that came to their end meanwhile, and may have taken effect after this one.
    others: BTreeSet<Target>,
}

impl Definitions {
    pub(super) fn new(limits: impl IntoIterator<Item = (LimitKey, Definition)>) -> Self {
        let settled = |(key, definition)| (key, BTreeSet::from([Some(definition)]));
        Self { settled: limits.into_iter().map(settled).collect(), ..Self::default() }
    }

    /// A task begins to work for a change, or ends to. False if it works for something else.
    pub(super) fn count_work(&mut self, operation: Operation, begins: bool) -> bool {
        let changes = self.under_way.iter_mut().filter(|((of, _), _)| *of == operation);
        let mut is_change = false;
        for (_, change) in changes {
            change.guards = if begins { change.guards + 1 } else { change.guards - 1 };
            is_change = true;
        }
        if is_change {
            self.end_unknown(operation);
        }
        is_change
    }

    /// The targets of a key when no change of it is under way.
    fn settled_targets(&self, key: &LimitKey) -> BTreeSet<Target> {
        self.settled.get(key).cloned().unwrap_or_else(undefined)
    }

    /// The targets that may be in force for a key.
    fn targets(&self, key: &LimitKey) -> BTreeSet<Target> {
        let mut targets = self.settled_targets(key);
        targets.extend(self.lingering.get(key).into_iter().flatten());
        for (_, change) in self.under_way.iter().filter(|((_, other), _)| other == key) {
            targets.insert(change.wanted);
            targets.extend(&change.others);
        }
        targets
    }

    /// The definitions of a limit that may be in force: its own, or that of a template (`TPL-02`, `TPL-03`).
    pub(super) fn possible(&self, limit: usize) -> Possible {
        governing(limit, |key| self.targets(key))
    }

    /// The limit's own definition may be deleted now.
    pub(super) fn may_be_deleted(&self, key: &LimitKey) -> bool {
        let mut changes = self.under_way.iter().filter(|((_, other), _)| other == key);
        changes.any(|(_, change)| change.wanted.is_none())
            && self.targets(key).iter().any(Option::is_some)
    }

    /// A template, or a limit that may have no definition of its own and is matched by one.
    pub(super) fn may_follow_templates(&self, limit: usize) -> bool {
        let is_matched = !templates_of(limit).is_empty();
        TEMPLATES.contains(&limit) || is_matched && self.targets(&key(limit)).contains(&None)
    }

    /// The change that deletes a limit, or the template that governs it, if no other may have.
    pub(super) fn deleted_by(&self, limit: usize) -> Option<Operation> {
        let templates = templates_of(limit).iter().copied();
        let keys: Vec<_> = std::iter::once(limit).chain(templates).map(key).collect();
        let mut deletes = self.under_way.iter().filter(|((_, other), change)| {
            keys.contains(other) && (change.wanted.is_none() || change.others.contains(&None))
        });
        let ((operation, _), _) = deletes.next()?;
        let is_settled = !governing(limit, |key| self.settled_targets(key)).may_be_missing();
        (is_settled && deletes.next().is_none()).then_some(*operation)
    }

    /// The keys that an operation is about to change.
    fn keys_of(&self, operation: Operation) -> Vec<LimitKey> {
        let keys = self.under_way.keys().filter(|(of, _)| *of == operation);
        keys.map(|(_, key)| key.clone()).collect()
    }

    /// A change that may have been made has nobody left who could make it.
    fn end_unknown(&mut self, operation: Operation) {
        for key in self.keys_of(operation) {
            let change = &self.under_way[&(operation, key.clone())];
            if change.is_unknown && change.guards == 0 {
                let Change { wanted, .. } = self.end(operation, &key, true);
                self.settled.entry(key).or_insert_with(undefined).insert(wanted);
            }
        }
    }

    /// A change comes to its end. If it took effect, those that are under way with it may have done so before.
    fn end(&mut self, operation: Operation, key: &LimitKey, may_be_made: bool) -> Change {
        let ended = self.under_way.remove(&(operation, key.clone())).expect("it is under way");
        let others = self.under_way.iter_mut().filter(|((_, other), _)| other == key);
        for (_, other) in others.filter(|_| may_be_made) {
            other.others.insert(ended.wanted);
        }
        ended
    }

    /// `OPS-03`: a key that the file changed by half of an operation. Says nothing while anything else may have changed
    /// one of the keys.
    fn changed_in_part(&self, registry: &Registry, operation: Operation) -> Option<LimitKey> {
        let mut made = Vec::new();
        for key in self.keys_of(operation) {
            let Change { wanted, others, .. } = &self.under_way[&(operation, key.clone())];
            let settled = self.settled_targets(&key);
            let changes = self.under_way.keys().filter(|(_, other)| *other == key);
            let is_changed_by_others = changes.count() > 1 || !others.is_empty();
            if is_changed_by_others || settled.len() > 1 || settled.contains(wanted) {
                return None;
            }
            made.push((target_of(registry, &key) == *wanted, key));
        }
        let (first, _) = *made.first()?;
        made.into_iter().find(|(is_made, _)| *is_made != first).map(|(_, key)| key)
    }
}

/// The definitions that may govern a limit: its own, or the first there is of its templates.
fn governing(limit: usize, targets: impl Fn(&LimitKey) -> BTreeSet<Target>) -> Possible {
    let mut possible = targets(&key(limit));
    for template in templates_of(limit) {
        if !possible.remove(&None) {
            break;
        }
        possible.extend(targets(&key(*template)));
    }
    Possible::new(possible)
}

fn target_of(registry: &Registry, key: &LimitKey) -> Target {
    registry.get(key).map(Definition::of)
}

/// Nobody has defined it.
fn undefined() -> BTreeSet<Target> {
    BTreeSet::from([None])
}

impl Oracle {
    /// Somebody asks for a change; `None` to delete the limit.
    pub(crate) fn change_sent(
        &mut self,
        operation: Operation,
        key: &LimitKey,
        wanted: Target,
        now: Timestamp,
    ) {
        let (guards, is_unknown, others) = (0, false, BTreeSet::new());
        let change = Change { wanted, guards, is_unknown, others };
        self.definitions.under_way.insert((operation, key.clone()), change);
        self.follow_definitions(now);
    }

    /// Whoever asked for a change is told, or gives up.
    pub(crate) fn change_told(&mut self, operation: Operation, told: ChangeTold, now: Timestamp) {
        let lingers = self.allowed_lag.failed_changes_linger;
        let definitions = &mut self.definitions;
        for key in definitions.keys_of(operation) {
            match told {
                ChangeTold::Unknown => {
                    let change = definitions.under_way.get_mut(&(operation, key));
                    change.expect("it was sent").is_unknown = true;
                }
                ChangeTold::NotMade => {
                    let Change { wanted, .. } = definitions.end(operation, &key, false);
                    if lingers && wanted.is_some() {
                        definitions.lingering.entry(key).or_default().insert(wanted);
                    }
                }
                ChangeTold::Made => {
                    let Change { wanted, mut others, .. } = definitions.end(operation, &key, true);
                    others.insert(wanted);
                    definitions.lingering.remove(&key);
                    definitions.settled.insert(key, others);
                }
            }
        }
        definitions.end_unknown(operation);
        self.follow_definitions(now);
        if told == ChangeTold::NotMade {
            self.keep_reserved(operation);
        }
    }

    /// Holds what the limits file says against what was answered.
    pub(crate) fn check_file(&self, registry: &Registry) -> Result<(), Violation> {
        let Definitions { settled, under_way, .. } = &self.definitions;
        let defined = registry.iter().map(|registered| &registered.limit.key);
        let keys: BTreeSet<&LimitKey> = settled.keys().chain(defined).collect();
        for key in keys {
            let target = target_of(registry, key);
            let mut may_be = self.definitions.settled_targets(key);
            let changes = under_way.iter().filter(|((_, other), _)| other == key);
            may_be.extend(changes.map(|(_, change)| change.wanted));
            if !may_be.contains(&target) {
                let detail = format!("the file has {target:?} for {key}, answers say {may_be:?}");
                return Err(Violation { invariant: Invariant::DefinitionsKept, detail });
            }
        }
        let in_part = |(operation, _): &(Operation, LimitKey)| {
            self.definitions.changed_in_part(registry, *operation)
        };
        if let Some(key) = under_way.keys().find_map(in_part) {
            let detail = format!("the file has a part of a list of definitions, up to {key}");
            return Err(Violation { invariant: Invariant::DefinitionsKept, detail });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratelimiter::{Overage, RegisteredLimit};

    use super::*;
    use crate::limits::oracle::{AllowedLag, LimitFacts};
    use crate::limits::plan::{
        InstanceBounds, LimitSetup, LimitsPlan, SetupKind, WAITERS_MAX_WIDE,
    };

    const A: Operation = Operation(0);
    const B: Operation = Operation(1);
    const AT_ONCE: AllowedLag = AllowedLag {
        expiry_lag: Duration::ZERO,
        reconciled: Duration::ZERO,
        noticed: Duration::ZERO,
        waits_at_once: true,
        failed_changes_linger: false,
    };
    const NOW: Timestamp = Timestamp::from_unix_ms(1_736_660_000_000);
    const SETUP: LimitSetup = LimitSetup {
        kind: SetupKind::Rolling { seconds: 1 },
        capacity: 1,
        overage: Overage::Debt,
        is_shadow: false,
        is_defined: true,
    };

    fn oracle(limits: &[LimitSetup]) -> Oracle {
        let plan = LimitsPlan {
            seed: 0,
            starts_at: NOW,
            skews_ms: vec![0],
            limits: limits.to_vec(),
            instance_bounds: InstanceBounds::WIDE,
            waiters_max: WAITERS_MAX_WIDE,
            expiry_lag_ms: 0,
            leases_cached_max: 0,
            events: Vec::new(),
        };
        Oracle::new(&plan, AT_ONCE)
    }

    fn sent(oracle: &mut Oracle, operation: Operation, number: usize, capacity: u64) {
        let wanted = Definition::of_capacity(capacity);
        oracle.change_sent(operation, &key(number), Some(wanted), NOW);
    }

    fn limit(number: usize, capacity: u64) -> RegisteredLimit {
        RegisteredLimit::in_force(SETUP.limit(number, Definition::of_capacity(capacity)))
    }

    /// Which of the capacities 0 to 3 the file may have. The limit had 1, A asks for 2 and B for 3.
    fn may_have(happens: impl FnOnce(&mut Oracle)) -> Vec<u64> {
        let mut oracle = oracle(&[SETUP]);
        sent(&mut oracle, A, 0, 2);
        happens(&mut oracle);
        let file = |capacity| [limit(0, capacity)];
        let is_kept =
            |capacity: &u64| oracle.check_file(&file(*capacity).into_iter().collect()).is_ok();
        assert!(oracle.check_file(&Registry::new()).is_err(), "nobody has deleted it");
        (0..=3).filter(is_kept).collect()
    }

    fn b_sent(oracle: &mut Oracle) {
        sent(oracle, B, 0, 3);
    }

    /// OPS-03
    #[test]
    fn ops_03_the_file_may_have_all_of_a_list_or_nothing() {
        let mut oracle = oracle(&[SETUP, SETUP]);
        let is_kept = |oracle: &Oracle, capacities: [u64; 2]| {
            let limits = [0, 1].map(|number| limit(number, capacities[number]));
            oracle.check_file(&limits.into_iter().collect()).is_ok()
        };
        let both = [[1, 1], [2, 3], [2, 1], [1, 3]];
        for (number, capacity) in [(0, 2), (1, 3)] {
            sent(&mut oracle, A, number, capacity);
        }
        assert_eq!(both.map(|file| is_kept(&oracle, file)), [true, true, false, false]);
        // Another change of one of them may have come before or after.
        sent(&mut oracle, B, 1, 3);
        assert_eq!(both.map(|file| is_kept(&oracle, file)), [true; 4]);
        oracle.change_told(B, ChangeTold::NotMade, NOW);
        assert_eq!(both.map(|file| is_kept(&oracle, file)), [true, true, false, false]);
        oracle.change_told(A, ChangeTold::Made, NOW);
        assert_eq!(both.map(|file| is_kept(&oracle, file)), [false, true, false, false]);
    }

    /// OPS-03
    #[test]
    fn ops_03_a_list_may_be_followed_by_a_change_of_a_part() {
        let mut oracle = oracle(&[SETUP, SETUP]);
        sent(&mut oracle, A, 0, 2);
        sent(&mut oracle, A, 1, 3);
        sent(&mut oracle, B, 1, 1);
        oracle.change_told(B, ChangeTold::Made, NOW);
        assert_eq!(oracle.check_file(&[limit(0, 2), limit(1, 1)].into_iter().collect()), Ok(()));
    }

    /// TPL-02, TPL-03, TPL-04
    #[test]
    fn tpl_02_a_limit_is_governed_by_its_own_definition_or_by_its_first_template() {
        use ChangeTold::{Made, NotMade};
        let setups: Vec<_> = (0..TEMPLATES.end)
            .map(|number| LimitSetup {
                capacity: number as u64,
                is_defined: matches!(number, 8 | 10),
                ..SETUP
            })
            .collect();
        let mut oracle = oracle(&setups);
        // The largest capacity that may be in force, and whether what is reserved may be lost.
        let may = |oracle: &Oracle, limit: usize| {
            let LimitFacts { possible, may_be_lost, .. } = &oracle.limits[limit];
            (possible.capacity_max(), *may_be_lost)
        };
        assert_eq!([4, 5, 6, 7].map(|limit| may(&oracle, limit).0), [8, 10, 8, 10]);
        let mut change = |limit: usize, wanted: Option<u64>, told: ChangeTold| {
            let wanted = wanted.map(Definition::of_capacity);
            oracle.change_sent(A, &key(limit), wanted, NOW);
            let before = may(&oracle, 4);
            oracle.change_told(A, told, NOW);
            [before, may(&oracle, 4)]
        };
        assert_eq!(change(4, Some(20), NotMade), [(20, false), (8, false)]);
        assert_eq!(change(4, None, NotMade), [(8, false); 2], "it has no definition of its own");
        assert_eq!(change(4, Some(20), Made), [(20, false); 2]);
        assert_eq!(change(8, None, Made), [(20, false); 2]);
        assert_eq!(change(4, None, Made), [(20, true), (10, false)]);
        assert_eq!(change(8, Some(3), Made), [(10, false), (3, false)]);
        assert_eq!(change(10, None, Made), [(3, false); 2]);
        assert_eq!(change(8, None, NotMade), [(3, true), (3, false)]);
        assert_eq!(change(8, None, Made), [(3, true), (0, true)]);
    }

    /// DEF-08
    #[test]
    fn def_08_the_file_may_have_what_was_answered_and_what_nobody_knows() {
        use ChangeTold::{Made, NotMade, Unknown};
        assert_eq!(may_have(|_| {}), [1, 2]);
        assert_eq!(may_have(|oracle| oracle.change_told(A, Made, NOW)), [2]);
        assert_eq!(may_have(|oracle| oracle.change_told(A, NotMade, NOW)), [1]);
        assert_eq!(may_have(|oracle| oracle.change_told(A, Unknown, NOW)), [1, 2]);
        let one_after_the_other = |oracle: &mut Oracle| {
            oracle.change_told(A, Unknown, NOW);
            b_sent(oracle);
            oracle.change_told(B, Made, NOW);
        };
        assert_eq!(may_have(one_after_the_other), [3]);
        let at_once = |oracle: &mut Oracle| {
            b_sent(oracle);
            oracle.change_told(A, Made, NOW);
            oracle.change_told(B, Made, NOW);
        };
        assert_eq!(may_have(at_once), [2, 3]);
        let still_worked_on = |oracle: &mut Oracle| {
            oracle.count_work(A, true, NOW);
            oracle.change_told(A, Unknown, NOW);
            b_sent(oracle);
            oracle.change_told(B, Made, NOW);
        };
        assert_eq!(may_have(still_worked_on), [2, 3]);
    }
}
