//! `TPL-07`: how many limits may be made from templates.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ratelimiter::LimitKey;
use ratelimiter::clock::Timestamp;

use super::{Oracle, Reading};
use crate::executor::Operation;
use crate::limits::plan::{self, InstanceBounds, MATCHED, TEMPLATES};
use crate::outcome::{Invariant, Violation};

const SECOND: Duration = Duration::from_secs(1);

/// Instances as the backend shows them, and the reserves that may have made some.
pub(super) struct Instances {
    pub(super) bounds: InstanceBounds,
    /// The reserves of the last second, each with the number of limits that it may have made.
    recent: VecDeque<(Timestamp, usize)>,
    /// Limits that somebody has asked to define.
    redefined: BTreeSet<usize>,
}

/// How many instances there were, at one moment or at the most in a stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct InstanceCounts {
    shown: usize,
    /// Those that may have been made in the second before.
    new: usize,
}

impl Instances {
    pub(super) const fn new(bounds: InstanceBounds) -> Self {
        Self { bounds, recent: VecDeque::new(), redefined: BTreeSet::new() }
    }

    pub(super) fn forget(&mut self) {
        self.recent.clear();
    }

    pub(super) fn note_define(&mut self, limit: usize) {
        self.redefined.insert(limit);
    }

    /// A reserve was carried out.
    pub(super) fn note_reserve(&mut self, now: Timestamp, matched_count: usize) {
        self.recent.retain(|(at, _)| now.since(*at) <= SECOND);
        self.recent.push_back((now, matched_count));
    }

    pub(super) fn counts(&self, now: Timestamp, readings: &[Reading]) -> InstanceCounts {
        let recent = self.recent.iter().filter(|(at, _)| now.since(*at) <= SECOND);
        InstanceCounts { shown: shown(readings), new: recent.map(|(_, count)| count).sum() }
    }

    /// The bounds hold, except for limits that became instances again: because of a debt, or because their definition was taken back.
    pub(super) fn check(&self, readings: &[Reading]) -> Result<(), Violation> {
        let (count, count_max) = (shown(readings), self.bounds.count_max);
        let is_back = |(number, reading): &(usize, &Reading)| {
            MATCHED.contains(number) && (reading.debt > 0 || self.redefined.contains(number))
        };
        let back_max = readings.iter().enumerate().filter(is_back).count();
        if count <= count_max + back_max {
            return Ok(());
        }
        let detail =
            format!("there are {count} instances of {count_max}, and {back_max} may be back");
        Err(Violation { invariant: Invariant::InstancesBounded, detail })
    }
}

fn shown(readings: &[Reading]) -> usize {
    readings.iter().map(|reading| reading.instances).sum()
}

impl InstanceCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.shown = self.shown.max(other.shown);
        self.new = self.new.max(other.new);
    }
}

/// How many of these limits templates match.
pub(super) fn matched_count<'a>(limits: impl IntoIterator<Item = &'a usize>) -> usize {
    limits.into_iter().filter(|limit| MATCHED.contains(limit)).count()
}

impl Oracle {
    /// A template may match one of these limits, and a bound may have been reached while an operation was under way.
    pub(super) fn is_bound_reached<'a>(
        &self,
        operation: Operation,
        template: &LimitKey,
        mut needed: impl Iterator<Item = &'a usize> + Clone,
    ) -> bool {
        let number = plan::number(template);
        let count = matched_count(needed.clone());
        let governs = |limit: &usize| plan::templates_of(*limit).contains(&number);
        let InstanceCounts { shown, new } = self.operations[&operation].instances;
        let InstanceBounds { count_max, new_per_second_max } = self.instances.bounds;
        let is_reached = shown + count > count_max || new > new_per_second_max;
        TEMPLATES.contains(&number) && needed.any(governs) && is_reached
    }

    /// A reserve is denied because it needs an instance more than there may be: a template may match one of its limits, a bound may have
    /// been reached, and the lease has no earlier answer.
    pub(super) fn check_too_many(
        &self,
        operation: Operation,
        template: &LimitKey,
    ) -> Result<(), Violation> {
        let facts = &self.operations[&operation];
        let lease = &self.leases[&facts.lease];
        let needs = &lease.sent_by(operation).needs;
        if !self.is_bound_reached(operation, template, needs.keys()) {
            let InstanceCounts { shown, new } = facts.instances;
            let detail = format!(
                "L{} is denied for too many limits of {template}, with {shown} and {new} new ones",
                facts.lease
            );
            return Err(Violation { invariant: Invariant::AnswersHaveReasons, detail });
        }
        if lease.variants.iter().any(|variant| variant.allowed.is_some() || variant.denied) {
            let detail = format!("L{} is denied for too many limits now", facts.lease);
            return Err(Violation { invariant: Invariant::SameLeaseSameAnswer, detail });
        }
        Ok(())
    }
}
