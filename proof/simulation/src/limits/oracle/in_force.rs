//! Which definitions may be in force, and what they let a limit answer.

use std::collections::BTreeSet;

use ratelimiter::clock::Timestamp;

use super::Oracle;
use crate::executor::Operation;
use crate::limits::calendar::Schedule;
use crate::limits::plan::{Definition, key};

/// The definition that a limit is meant to have; `None` if there is to be no such limit.
pub(super) type Target = Option<Definition>;

/// Definitions of a limit of which one was in force, at one moment or at some in a stretch of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Possible(BTreeSet<Target>);

impl Possible {
    pub(super) const fn new(targets: BTreeSet<Target>) -> Self {
        Self(targets)
    }

    pub(super) fn add(&mut self, others: &Self) {
        self.0.extend(&others.0);
    }

    fn definitions(&self) -> impl Iterator<Item = Definition> {
        self.0.iter().copied().flatten()
    }

    /// There may be no such limit.
    pub(super) fn may_be_missing(&self) -> bool {
        self.0.contains(&None)
    }

    pub(super) fn may_enforce(&self) -> bool {
        self.definitions().any(|definition| !definition.is_shadow)
    }

    pub(super) fn may_be_shadow(&self) -> bool {
        self.definitions().any(|definition| definition.is_shadow)
    }

    pub(super) fn certainly_enforces(&self) -> bool {
        !self.may_be_missing() && !self.may_be_shadow()
    }

    /// No change is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.0.len() == 1
    }

    pub(super) fn is_certainly_shadow(&self) -> bool {
        !self.may_be_missing() && !self.may_enforce()
    }

    pub(super) fn capacity_max(&self) -> u128 {
        self.definitions().map(|definition| definition.capacity.into()).max().unwrap_or(0)
    }

    /// The least capacity in shadow mode.
    pub(super) fn shadow_capacity_min(&self) -> Option<u128> {
        let in_shadow = self.definitions().filter(|definition| definition.is_shadow);
        in_shadow.map(|definition| definition.capacity.into()).min()
    }

    pub(super) fn schedules(&self) -> Vec<Schedule> {
        self.definitions().filter_map(|definition| definition.schedule).collect()
    }
}

impl Oracle {
    /// The definitions may have changed.
    pub(super) fn follow_definitions(&mut self, now: Timestamp) {
        for limit in 0..self.limits.len() {
            self.follow_time(limit, now);
            let facts = &mut self.limits[limit];
            facts.possible = self.definitions.possible(limit);
            facts.may_be_lost =
                facts.possible.may_be_missing() || self.definitions.may_be_deleted(&key(limit));
            facts.deleted_by = self.definitions.deleted_by(limit);
            facts.may_be_new = facts.may_be_lost || self.definitions.may_follow_templates(limit);
            facts.was_shadow |= facts.possible.may_be_shadow();
            self.follow_time(limit, now);
        }
        for facts in self.operations.values_mut().filter(|facts| facts.is_open) {
            for (limit, met) in &mut facts.met {
                met.add(&self.limits[*limit].possible);
            }
        }
    }

    /// Time has passed with the definitions that may be in force.
    pub(super) fn follow_time(&mut self, limit: usize, now: Timestamp) {
        let facts = &mut self.limits[limit];
        if let Some(periods) = &mut facts.periods {
            let schedules = facts.possible.schedules();
            periods.advance(now, &schedules);
            if facts.may_be_new {
                periods.begin(now, &schedules);
            }
        }
        if facts.may_be_lost {
            (facts.debt, facts.debt_min) = (0, 0);
            let variants = self.leases.values_mut().flat_map(|lease| &mut lease.variants);
            for variant in variants.filter(|variant| variant.needs.contains_key(&limit)) {
                let lost_with = variant.may_be_lost.entry(limit).or_insert(facts.deleted_by);
                if *lost_with != facts.deleted_by {
                    *lost_with = None;
                }
            }
        }
    }

    /// A change has no effect: what might have been lost with it was not.
    pub(super) fn keep_reserved(&mut self, operation: Operation) {
        for variant in self.leases.values_mut().flat_map(|lease| &mut lease.variants) {
            variant.may_be_lost.retain(|_, lost_with| *lost_with != Some(operation));
        }
    }
}
