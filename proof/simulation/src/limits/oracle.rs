//! What was promised, from nothing but what clients sent and were told.
//!
//! For every lease and limit the oracle knows two bounds: the units that *must* be held now, because somebody was told
//! so, and those that *may* be held, because a request was sent and its end is unknown. Whatever a backend does in
//! between is right; above or below it has over-admitted, leaked, or lost something. [`bounds`] has the arithmetic.
//! Of the completes of a lease the first that took effect counts, alone and for all limits; [`once`] has which that may be.

mod admission;
mod bounds;
mod definitions;
mod in_force;
mod instances;
mod once;
mod parts;
mod periods;
mod renew_facts;
mod renews;
mod told;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{CAPACITY_MAX, Overage};

use self::bounds::Span;
pub(super) use self::definitions::ChangeTold;
use self::definitions::Definitions;
use self::in_force::Possible;
use self::instances::{InstanceCounts, Instances, matched_count};
use self::periods::Periods;
use self::renew_facts::RenewFacts;
use self::waits::Waits;
use super::plan::{LimitSetup, LimitsPlan, PlannedWait, key, templates_of};
use crate::executor::Operation;
use crate::outcome::{Invariant, Violation};

/// A limit as its backend shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    pub(super) capacity: u128,
    pub(super) used: u128,
    pub(super) debt: u128,
    /// Nothing new begins there, because its capacity is on its way down.
    pub(super) is_closed: bool,
    /// When the period of a calendar limit ends.
    pub(super) resets_at: Option<Timestamp>,
    /// Of a template: how many limits there are that were made from it.
    pub(super) instances: usize,
}

/// By how much a backend may be late, as it is documented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AllowedLag {
    /// What has expired is released so much later.
    pub(super) expiry_lag: Duration,
    /// What was reconciled may last so much longer.
    pub(super) reconciled: Duration,
    /// A lease that has expired may be taken for a live one for so long.
    pub(super) noticed: Duration,
    /// A waiter is admitted, answered and forgotten at once.
    pub(super) waits_at_once: bool,
    /// A change that failed may be in force until the backend answers.
    pub(super) failed_changes_linger: bool,
}

pub(super) struct Oracle {
    allowed_lag: AllowedLag,
    limits: Vec<LimitFacts>,
    leases: BTreeMap<usize, LeaseFacts>,
    operations: BTreeMap<Operation, OperationFacts>,
    definitions: Definitions,
    instances: Instances,
    waits: Waits,
    waiters_max: usize,
    /// How many times everything was forgotten, as a process in memory does when it crashes.
    epoch: usize,
}

struct LimitFacts {
    setup: LimitSetup,
    /// Every capacity that somebody asked for, and 0, which an account has before it is given some.
    asked: BTreeSet<u64>,
    asked_for_zero: bool,
    /// Debt that was there at the last check; it never goes down.
    debt: u128,
    /// Debt that has to be there: excess for which there was no room at any moment.
    debt_min: u128,
    /// The definitions that may be in force.
    possible: Possible,
    /// What is reserved of it may be forgotten now: there may be no such limit, or its own definition may be deleted.
    may_be_lost: bool,
    /// The change that deletes it, if it is the only one that may have.
    deleted_by: Option<Operation>,
    /// It may be made anew at any moment, and begin a period then.
    may_be_new: bool,
    /// One of them was in shadow mode, at some moment.
    was_shadow: bool,
    /// Of a calendar limit.
    periods: Option<Periods>,
}

#[derive(Clone, Default)]
struct LeaseFacts {
    variants: Vec<RequirementSet>,
    renews: Vec<RenewFacts>,
    completes: Vec<CompleteFacts>,
}

/// One set of requirements that was sent for a lease. There should be one.
#[derive(Clone)]
struct RequirementSet {
    needs: BTreeMap<usize, u64>,
    operations: Vec<Operation>,
    first_sent_at: Timestamp,
    /// When the ledger was last told something for it.
    touched_at: Option<Timestamp>,
    /// When its reservations began, once somebody was told.
    allowed: Option<Timestamp>,
    denied: bool,
    /// The limits that may have been deleted since, and its reservations with them; by a change under way, or for good.
    may_be_lost: BTreeMap<usize, Option<Operation>>,
}

#[derive(Clone)]
struct CompleteFacts {
    operation: Operation,
    actuals: BTreeMap<usize, u64>,
    /// It was sent when somebody knew that the lease is allowed.
    after_allow: bool,
    sent_at: Timestamp,
    /// When the ledger was last told something for it.
    touched_at: Option<Timestamp>,
    told: Answer,
    told_at: Option<Timestamp>,
    /// Limits that had no room for the excess, at any moment since it was sent.
    tight: BTreeSet<usize>,
    /// Limits that certainly had room for the excess, at every moment since it was sent.
    roomy: BTreeSet<usize>,
    /// Limits at which the excess is certainly held.
    covered: BTreeSet<usize>,
    /// Another complete of the lease took effect before, so this one has changed nothing and never will.
    is_ruled_out: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    None,
    Done,
    Refused,
}

/// A request of a client.
struct OperationFacts {
    epoch: usize,
    lease: usize,
    sent_at: Timestamp,
    /// How many tasks and messages work for it.
    guards: usize,
    /// The limits that certainly had room for it, at every moment since it was sent.
    roomy: BTreeSet<usize>,
    /// The definitions of its limits that may have been in force since it was sent.
    met: BTreeMap<usize, Possible>,
    /// The most units of its limits that may have been held since it was sent, with its own.
    may_max: BTreeMap<usize, u128>,
    /// The most instances since it was sent.
    instances: InstanceCounts,
    wait: Option<PlannedWait>,
    /// Others waited at its server for limits that it needs.
    is_behind: bool,
    /// Its client has gone away before it was answered.
    has_left: bool,
    /// It was denied, and the same lease may be admitted later.
    is_denied_for_now: bool,
    is_open: bool,
}

impl Oracle {
    pub(super) fn new(plan: &LimitsPlan, allowed_lag: AllowedLag) -> Self {
        let (limits, now) = (&plan.limits, plan.starts_at);
        let facts = |setup: &LimitSetup| LimitFacts {
            setup: *setup,
            asked: BTreeSet::from([0]),
            asked_for_zero: false,
            debt: 0,
            debt_min: 0,
            possible: Possible::default(),
            may_be_lost: false,
            deleted_by: None,
            may_be_new: false,
            was_shadow: false,
            periods: None,
        };
        let defined = limits.iter().enumerate().filter(|(_, setup)| setup.is_defined);
        let definitions = defined.clone().map(|(number, setup)| (key(number), setup.definition()));
        let mut oracle = Self {
            allowed_lag,
            limits: limits.iter().map(facts).collect(),
            leases: BTreeMap::new(),
            operations: BTreeMap::new(),
            definitions: Definitions::new(definitions),
            instances: Instances::new(plan.instance_bounds),
            waits: Waits::default(),
            waiters_max: plan.waiters_max,
            epoch: 0,
        };
        for (number, setup) in defined {
            oracle.note_capacity(number, setup.capacity);
        }
        oracle.follow_definitions(now);
        oracle.begin_periods(now);
        oracle
    }

    /// All calendar limits begin a period, under a schedule that may be in force.
    fn begin_periods(&mut self, now: Timestamp) {
        for facts in &mut self.limits {
            facts.periods = facts.setup.definition().schedule.map(|_| {
                let mut periods = Periods::default();
                periods.begin(now, &facts.possible.schedules());
                periods
            });
        }
    }

    /// Somebody asks for a capacity.
    pub(super) fn define_sent(&mut self, limit: usize, capacity: u64) {
        self.instances.note_define(limit);
        self.note_capacity(limit, capacity);
    }

    /// A limit may have a capacity, or all that a template matches.
    fn note_capacity(&mut self, limit: usize, capacity: u64) {
        for (number, facts) in self.limits.iter_mut().enumerate() {
            if number == limit || templates_of(number).contains(&limit) {
                facts.asked.insert(capacity);
                facts.asked_for_zero |= capacity == 0;
            }
        }
    }

    /// The process has lost everything that it knew.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.leases.clear();
        self.instances.forget();
        self.waits.forget();
        self.epoch += 1;
        for limit in &mut self.limits {
            (limit.debt, limit.debt_min) = (0, 0);
        }
        self.begin_periods(now);
    }

    pub(super) fn reserve_sent(
        &mut self,
        operation: Operation,
        lease: usize,
        needs: &[(usize, u64)],
        wait: Option<PlannedWait>,
        now: Timestamp,
    ) {
        let needs: BTreeMap<usize, u64> = needs.iter().copied().collect();
        let limits = needs.keys().copied().collect();
        self.note_operation(operation, lease, now, limits);
        self.operations.get_mut(&operation).expect("it was noted").wait = wait;
        let facts = self.leases.entry(lease).or_default();
        if let Some(variant) = facts.variants.iter_mut().find(|variant| variant.needs == needs) {
            variant.operations.push(operation);
            return;
        }
        facts.variants.push(RequirementSet {
            needs,
            operations: vec![operation],
            first_sent_at: now,
            touched_at: None,
            allowed: None,
            denied: false,
            may_be_lost: BTreeMap::new(),
        });
    }

    pub(super) fn complete_sent(
        &mut self,
        operation: Operation,
        lease: usize,
        actuals: &[(usize, u64)],
        now: Timestamp,
    ) {
        let actuals: BTreeMap<usize, u64> = actuals.iter().copied().collect();
        let limits: BTreeSet<usize> = actuals.keys().copied().collect();
        self.note_operation(operation, lease, now, limits.clone());
        let facts = self.leases.entry(lease).or_default();
        let after_allow = facts.is_known_to_be_allowed();
        let is_ruled_out = facts.is_completed();
        facts.completes.push(CompleteFacts {
            operation,
            actuals,
            after_allow,
            sent_at: now,
            touched_at: None,
            told: Answer::None,
            told_at: None,
            tight: limits.clone(),
            roomy: limits,
            covered: BTreeSet::new(),
            is_ruled_out,
        });
    }

    fn note_operation(
        &mut self,
        operation: Operation,
        lease: usize,
        sent_at: Timestamp,
        limits: BTreeSet<usize>,
    ) {
        let met = |limit: &usize| (*limit, self.limits[*limit].possible.clone());
        let facts = OperationFacts {
            epoch: self.epoch,
            lease,
            sent_at,
            guards: 0,
            met: limits.iter().map(met).collect(),
            may_max: limits.iter().map(|limit| (*limit, 0)).collect(),
            instances: InstanceCounts::default(),
            wait: None,
            is_behind: false,
            has_left: false,
            is_denied_for_now: false,
            roomy: limits,
            is_open: true,
        };
        self.operations.insert(operation, facts);
    }

    /// A task or a message begins to work for a request, or ends to.
    pub(super) fn count_work(&mut self, operation: Operation, begins: bool, now: Timestamp) {
        if let Some(facts) = self.operations.get_mut(&operation) {
            facts.guards = if begins { facts.guards + 1 } else { facts.guards - 1 };
        }
        if self.definitions.count_work(operation, begins) {
            self.follow_definitions(now);
        }
    }

    /// Something was carried out for a request.
    pub(super) fn touched(&mut self, operation: Operation, now: Timestamp) {
        // What is done for a client that has left is undone at once, or after a while.
        let is_undone = |facts: &OperationFacts| facts.has_left && self.allowed_lag.waits_at_once;
        let counts = |facts: &&OperationFacts| facts.epoch == self.epoch && !is_undone(facts);
        let Some(facts) = self.operations.get(&operation).filter(counts) else {
            return;
        };
        let Some(lease) = self.leases.get_mut(&facts.lease) else {
            return;
        };
        for variant in &mut lease.variants {
            if variant.operations.contains(&operation) {
                variant.touched_at = Some(now);
                self.instances.note_reserve(now, matched_count(variant.needs.keys()));
            }
        }
        for renew in lease.renews.iter_mut().filter(|renew| renew.operation == operation) {
            renew.touched_at = Some(now);
            self.instances.note_reserve(now, matched_count(renew.amounts.keys()));
        }
        let completes = lease.completes.iter_mut();
        for complete in completes.filter(|complete| complete.operation == operation) {
            complete.touched_at = Some(now);
        }
    }

    /// Requests that have neither an answer nor were reported unknown.
    pub(super) fn open_operations(&self) -> Vec<Operation> {
        let open = self.operations.iter().filter(|(_, facts)| facts.is_open);
        open.map(|(operation, _)| *operation).collect()
    }

    /// Holds what the backend shows against what was promised.
    pub(super) fn check(&mut self, now: Timestamp, readings: &[Reading]) -> Result<(), Violation> {
        let mut spans = Vec::with_capacity(readings.len());
        for (limit, reading) in readings.iter().enumerate() {
            self.follow_time(limit, now);
            let span = self.span(limit, now);
            let Span { must, may, debt_max, accounted } = span;
            spans.push(span);
            let Reading { capacity, used, debt, is_closed, resets_at, .. } = *reading;
            let name = key(limit);
            let violation = |invariant, detail| Err(Violation { invariant, detail });
            let facts = &self.limits[limit];
            let enforces = facts.possible.certainly_enforces();
            if must > capacity && enforces {
                let detail = format!("{must} units of {name} are promised, it has {capacity}");
                return violation(Invariant::NeverAboveCapacity, detail);
            }
            if used > capacity && enforces {
                let detail = format!("{used} units of {name} are held, it has {capacity}");
                return violation(Invariant::NeverAboveCapacity, detail);
            }
            if used < must {
                let detail = format!("{used} units of {name} are held, {must} are promised");
                return violation(Invariant::HeldAsPromised, detail);
            }
            if used > may {
                let detail = format!("{used} units of {name} are held, requests explain {may}");
                return violation(Invariant::CountedOnce, detail);
            }
            // A limit that is to enforce while it is over its capacity goes down from the largest one.
            let is_enforcing = is_closed && facts.was_shadow && capacity == CAPACITY_MAX.into();
            let is_asked = |capacity: u64| is_enforcing || facts.asked.contains(&capacity);
            if !u64::try_from(capacity).is_ok_and(is_asked) {
                let detail = format!("{name} has {capacity}, asked for was {:?}", facts.asked);
                return violation(Invariant::CapacityAsAsked, detail);
            }
            if self.is_debt(limit) && used + debt > accounted {
                let detail = format!(
                    "{used} units of {name} are held and {debt} are debt, requests explain {accounted}"
                );
                return violation(Invariant::DebtAsUsed, detail);
            }
            let (debt_min, before) = (facts.debt_min, facts.debt);
            if debt > debt_max || debt < debt_min.max(before) {
                let detail = format!(
                    "the debt of {name} is {debt}, it was {before}, and requests explain {debt_min} to {debt_max}"
                );
                return violation(Invariant::DebtAsUsed, detail);
            }
            self.limits[limit].debt = debt;
            self.check_reset(limit, resets_at)?;
        }
        self.instances.check(readings)?;
        self.check_waits(now, readings)?;
        self.note_room(now, readings, &spans);
        self.rule_out(now, readings, &spans)
    }

    /// `CAL-01`: the period ends when it must, and what is shown of it rules out all other moments.
    fn check_reset(&mut self, limit: usize, shown: Option<Timestamp>) -> Result<(), Violation> {
        let facts = &mut self.limits[limit];
        let (Some(periods), Some(shown)) = (&mut facts.periods, shown) else {
            return Ok(());
        };
        if !periods.may_end_at(shown) {
            let ends: Vec<_> = periods.ends().map(Timestamp::unix_ms).collect();
            let shown = shown.unix_ms();
            let detail = format!("{} resets at {shown} ms, and not at {ends:?}", key(limit));
            return Err(Violation { invariant: Invariant::ResetsOnSchedule, detail });
        }
        if !facts.may_be_new {
            periods.settle(shown);
        }
        Ok(())
    }

    /// Keeps up who certainly had room, and who certainly had none.
    fn note_room(&mut self, now: Timestamp, readings: &[Reading], spans: &[Span]) {
        self.note_room_of_renews(now, readings, spans);
        let instances = self.instances.counts(now, readings);
        for (operation, facts) in self.operations.iter_mut().filter(|(_, facts)| facts.is_open) {
            let Some(lease) = self.leases.get(&facts.lease) else {
                continue;
            };
            facts.instances.add(instances);
            // It may be in the sum already; then it is counted twice here, and has even less room.
            let is_renew = lease.renews.iter().any(|renew| renew.operation == *operation);
            facts.roomy.retain(|limit| {
                let own = lease.variants.iter().filter_map(|variant| variant.needs.get(limit));
                let own = u128::from(own.max().copied().unwrap_or(0));
                let Reading { capacity, is_closed, .. } = readings[*limit];
                is_renew || !is_closed && spans[*limit].may + own <= capacity
            });
            for (limit, may_max) in &mut facts.may_max {
                *may_max = spans[*limit].may.max(*may_max);
            }
        }
        for lease in self.leases.values_mut() {
            for complete in &mut lease.completes {
                if complete.told != Answer::None {
                    continue;
                }
                let actuals = &complete.actuals;
                // What it asks for is in the sum already.
                complete.roomy.retain(|limit| {
                    let Reading { capacity, is_closed, .. } = readings[*limit];
                    !is_closed && spans[*limit].may <= capacity
                });
                complete.tight.retain(|limit| {
                    let reserved =
                        lease.variants.iter().filter_map(|variant| variant.needs.get(limit));
                    let excess =
                        actuals[limit].saturating_sub(reserved.max().copied().unwrap_or(0));
                    // A limit in shadow mode may be over its capacity.
                    let free = readings[*limit].capacity.saturating_sub(spans[*limit].must);
                    excess > 0 && free < u128::from(excess)
                });
            }
        }
    }

    fn is_debt(&self, limit: usize) -> bool {
        let setup = &self.limits[limit].setup;
        !setup.is_concurrency() && setup.overage == Overage::Debt
    }
}
