//! Templates, in plans that were made without them.
//!
//! Like the rest of the second edition they have a generator of their own. The leases that were there need only limits that were there.

use super::super::{
    Definition, EVENTS_MS, EventKind, InstanceBounds, LimitSetup, MATCHED, SetupKind, TEMPLATES,
    UNMATCHED,
};
use super::{Generator, limit};
use crate::limits::calendar::Schedule;

/// How templates and the limits that they match are defined.
struct Family {
    setup: LimitSetup,
    /// Of a calendar limit: those that it may have.
    schedules: Vec<Schedule>,
    changes_mode: bool,
}

impl Generator {
    /// Adds templates and leases of the limits that they match, in most plans.
    pub(super) fn templates(&mut self, seed: u64, lease_count: usize) {
        let own = fastrand::Rng::with_seed(seed.rotate_left(48) ^ 0x7E3A_91A7);
        let before = std::mem::replace(&mut self.random, own);
        if self.percent(60) {
            let family = self.family();
            self.template_limits(&family);
            self.instance_bounds = self.bounds();
            for lease in 0..self.random.usize(6..=24) {
                self.leased = MATCHED.collect();
                self.leased.extend(UNMATCHED.filter(|_| self.random.u8(..6) == 0));
                self.lease(lease_count + lease);
            }
            for limit in MATCHED.chain(TEMPLATES) {
                self.family_changes(&family, limit);
            }
        }
        self.random = before;
    }

    fn family(&mut self) -> Family {
        let calendar = self.limits.iter().filter_map(|limit| limit.definition().schedule);
        let schedules: Vec<Schedule> = calendar.collect();
        let mut setup = limit(&mut self.random);
        if let Some(schedule) = schedules.first().copied().filter(|_| self.percent(40)) {
            setup.kind = SetupKind::Calendar { schedule };
        }
        let changes_mode = self.percent(25);
        Family { setup, schedules, changes_mode }
    }

    /// The limits that the plan does not have yet. Few of those that templates match are defined at the start.
    fn template_limits(&mut self, family: &Family) {
        while UNMATCHED.contains(&self.limits.len()) {
            let unmatched = limit(&mut self.random);
            self.limits.push(unmatched);
        }
        for number in MATCHED.chain(TEMPLATES) {
            let defined_percent = if TEMPLATES.contains(&number) { 65 } else { 15 };
            let Definition { capacity, is_shadow, schedule } = self.family_definition(family);
            let kind = match schedule {
                Some(schedule) => SetupKind::Calendar { schedule },
                None => family.setup.kind,
            };
            let is_defined = self.percent(defined_percent);
            self.limits.push(LimitSetup { kind, capacity, is_shadow, is_defined, ..family.setup });
        }
    }

    fn family_definition(&mut self, family: &Family) -> Definition {
        let schedule = family.setup.definition().schedule;
        let other = self.random.choice(&family.schedules).copied();
        let schedule = schedule.map(|same| other.unwrap_or(same));
        let is_shadow = family.changes_mode && self.random.bool();
        Definition { capacity: self.random.u64(1..=14), is_shadow, schedule }
    }

    fn bounds(&mut self) -> InstanceBounds {
        let mut bounds = InstanceBounds::WIDE;
        match self.random.u8(..6) {
            0 => bounds.count_max = self.random.usize(1..=3),
            1 => bounds.new_per_second_max = self.random.usize(1..=3),
            _ => {}
        }
        bounds
    }

    /// A limit or a template is defined, changed and deleted, in any order.
    fn family_changes(&mut self, family: &Family, limit: usize) {
        for _ in 0..self.random.usize(..=3) {
            let at_ms = self.random.u64(..EVENTS_MS);
            if self.percent(30) {
                let (server, disk) = (self.server(), self.disk());
                self.event(at_ms, self.clients, EventKind::Delete { server, limit, disk });
                continue;
            }
            let mut definition = self.family_definition(family);
            if self.percent(8) {
                definition.capacity = 0;
            }
            self.define(at_ms, limit, definition);
        }
    }
}
