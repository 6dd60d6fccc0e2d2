//! Who waits at a server, for how long and behind whom: `WAIT-01`, `WAIT-02`, `WAIT-04` to `WAIT-06`.
//!
//! A server in memory admits, answers and forgets a waiter at the moment at which it may, so whoever still waits at a later moment
//! shows that it has not. On a ledger the asking takes time, and these checks are not made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{Decision, DenialReason, ReserveError};

use super::{Oracle, Reading};
use crate::executor::Operation;
use crate::limits::plan::{PlannedWait, Queue};
use crate::outcome::{Invariant, Violation};

#[derive(Default)]
pub(super) struct Waits {
    /// By their leases.
    waiters: BTreeMap<usize, WaiterFacts>,
    /// Requests that have arrived so far.
    arrivals: u64,
    /// Leases that were admitted.
    admitted: BTreeSet<usize>,
    is_shut_down: bool,
}

/// A lease that waits.
struct WaiterFacts {
    arrival: u64,
    needs: BTreeMap<usize, u64>,
    queue: Queue,
    /// Never empty.
    callers: Vec<CallerFacts>,
    /// Since when it has had room that nobody else waits for.
    roomy_since: Option<Timestamp>,
    /// When somebody who came later, and needs the same, was admitted.
    overtaken_at: Option<Timestamp>,
}

struct CallerFacts {
    operation: Operation,
    deadline: Timestamp,
}

impl Waits {
    /// The process has ended.
    pub(super) fn forget(&mut self) {
        *self = Self { arrivals: self.arrivals, ..Self::default() };
    }
}

impl WaiterFacts {
    /// Somebody waited until this moment.
    fn check(&self, lease: usize, until: Timestamp) -> Result<(), Violation> {
        let is_before = |moment: &Timestamp| *moment < until;
        let violation = |invariant, detail| Err(Violation { invariant, detail });
        if let Some(caller) = self.callers.iter().find(|caller| is_before(&caller.deadline)) {
            let CallerFacts { operation, deadline } = caller;
            let detail = format!(
                "[{}] waits for L{lease} at {until:?}, its time was over at {deadline:?}",
                operation.0
            );
            return violation(Invariant::AnsweredInTime, detail);
        }
        if let Some(since) = self.roomy_since.filter(is_before) {
            let detail = format!("L{lease} has had room since {since:?}, and waits at {until:?}");
            return violation(Invariant::WokenAtOnce, detail);
        }
        if let Some(at) = self.overtaken_at.filter(is_before) {
            let detail = format!("L{lease} was overtaken at {at:?}, and waits at {until:?}");
            return violation(Invariant::FirstComeFirstServed, detail);
        }
        Ok(())
    }

    fn needs_any_of(&self, needs: &BTreeMap<usize, u64>) -> bool {
        self.needs.keys().any(|limit| needs.contains_key(limit))
    }
}

impl Oracle {
    /// A reserve has arrived at its server.
    pub(crate) fn arrived(&mut self, operation: Operation, now: Timestamp) {
        if !self.watches(operation) {
            return;
        }
        self.note_behind(operation);
        let facts = &self.operations[&operation];
        let waits = |wait: &PlannedWait| wait.at_most_ms > 0;
        let Some(wait) = facts.wait.filter(waits) else {
            return;
        };
        let waits = &mut self.waits;
        waits.arrivals += 1;
        let waiter = waits.waiters.entry(facts.lease).or_insert_with(|| WaiterFacts {
            arrival: waits.arrivals,
            needs: self.leases[&facts.lease].sent_by(operation).needs.clone(),
            queue: wait.queue,
            callers: Vec::new(),
            roomy_since: None,
            overtaken_at: None,
        });
        let at_most = if waits.is_shut_down { Duration::ZERO } else { wait.at_most() };
        waiter.callers.push(CallerFacts { operation, deadline: now.after(at_most) });
    }

    /// Its server has answered it.
    pub(crate) fn answered(
        &mut self,
        operation: Operation,
        answer: &Result<Decision, ReserveError>,
        now: Timestamp,
    ) -> Result<(), Violation> {
        if !self.watches(operation) {
            return Ok(());
        }
        self.note_behind(operation);
        let lease = self.operations[&operation].lease;
        let was_shut_down = self.waits.is_shut_down;
        let (until, reserved_at) = match answer {
            Ok(Decision::Allowed { reserved_at, .. }) => (*reserved_at, Some(*reserved_at)),
            Ok(Decision::Denied(_)) | Err(_) => (now, None),
        };
        let arrival = self.waits.waiters.get(&lease).map(|waiter| waiter.arrival);
        let waited = self.end_caller(operation, until)?;
        let is_joined = self.waits.waiters.contains_key(&lease);
        let is_withdrawn = waited && !self.leases[&lease].completes.is_empty();
        let facts = self.operations.get_mut(&operation).expect("it was sent");
        facts.is_denied_for_now |= is_joined || is_withdrawn || waited && was_shut_down;
        if let Some(reserved_at) = reserved_at.filter(|_| self.waits.admitted.insert(lease)) {
            let arrival = arrival.filter(|_| waited).unwrap_or(u64::MAX);
            self.note_overtaken(operation, arrival, reserved_at);
        }
        self.check_bound(lease, answer)
    }

    /// A denial may be for the sake of those that wait.
    fn note_behind(&mut self, operation: Operation) {
        let facts = self.operations.get_mut(&operation).expect("it was sent");
        let needs = &self.leases[&facts.lease].sent_by(operation).needs;
        let mut others = self.waits.waiters.iter().filter(|(lease, _)| **lease != facts.lease);
        facts.is_behind |= others.any(|(_, other)| other.needs_any_of(needs));
    }

    /// Those that were there before are overtaken if they are not admitted at this moment too: in the same queue those that need the
    /// same, and by a reserve that does not wait also those that wait for one of its limits alone.
    fn note_overtaken(&mut self, operation: Operation, arrival: u64, reserved_at: Timestamp) {
        let facts = &self.operations[&operation];
        let needs = &self.leases[&facts.lease].sent_by(operation).needs;
        let queue = facts.wait.filter(|wait| wait.at_most_ms > 0).map(|wait| wait.queue);
        for waiter in self.waits.waiters.values_mut().filter(|waiter| waiter.arrival < arrival) {
            let is_same = waiter.needs == *needs;
            let is_overtaken = match queue {
                Some(queue) => is_same && waiter.queue == queue,
                None => is_same || waiter.needs.len() == 1 && waiter.needs_any_of(needs),
            };
            if is_overtaken {
                waiter.overtaken_at.get_or_insert(reserved_at);
            }
        }
    }

    /// `WAIT-05`
    fn check_bound(
        &self,
        lease: usize,
        answer: &Result<Decision, ReserveError>,
    ) -> Result<(), Violation> {
        let Ok(Decision::Denied(denial)) = answer else {
            return Ok(());
        };
        let others = self.waits.waiters.keys().filter(|other| **other != lease).count();
        if matches!(denial.reason, DenialReason::TooManyWaiters { .. }) && others < self.waiters_max
        {
            let detail = format!("too many wait, and these are {others}");
            return Err(Violation { invariant: Invariant::AnswersHaveReasons, detail });
        }
        Ok(())
    }

    /// Its client has gone away before it was answered, and its server knows.
    pub(crate) fn left(&mut self, operation: Operation, now: Timestamp) -> Result<(), Violation> {
        self.operations.get_mut(&operation).expect("it was sent").has_left = true;
        match self.watches(operation) {
            true => self.end_caller(operation, now).map(|_| ()),
            false => Ok(()),
        }
    }

    /// The server was told to stop: it answers all that wait.
    pub(crate) fn shut_down(&mut self, now: Timestamp) {
        self.waits.is_shut_down = true;
        let waiters = self.waits.waiters.values_mut();
        for caller in waiters.flat_map(|waiter| &mut waiter.callers) {
            caller.deadline = caller.deadline.min(now);
        }
    }

    /// Time has leapt to this moment: what should have happened in between happens now.
    pub(crate) fn leapt(&mut self, now: Timestamp) {
        for waiter in self.waits.waiters.values_mut() {
            (waiter.roomy_since, waiter.overtaken_at) = (None, None);
            for caller in &mut waiter.callers {
                caller.deadline = caller.deadline.max(now);
            }
        }
    }

    fn watches(&self, operation: Operation) -> bool {
        let facts = self.operations.get(&operation);
        self.allowed_lag.waits_at_once && facts.is_some_and(|facts| facts.epoch == self.epoch)
    }

    /// A caller waits no longer; false if it has not.
    fn end_caller(&mut self, operation: Operation, until: Timestamp) -> Result<bool, Violation> {
        let lease = self.operations[&operation].lease;
        let Some(waiter) = self.waits.waiters.get_mut(&lease) else {
            return Ok(false);
        };
        waiter.check(lease, until)?;
        let Some(at) = waiter.callers.iter().position(|caller| caller.operation == operation)
        else {
            return Ok(false);
        };
        waiter.callers.remove(at);
        if waiter.callers.is_empty() {
            self.waits.waiters.remove(&lease);
        }
        Ok(true)
    }

    /// Nobody waits who should not.
    pub(super) fn check_waits(
        &mut self,
        now: Timestamp,
        readings: &[Reading],
    ) -> Result<(), Violation> {
        let has_room = |(limit, amount): (&usize, &u64)| {
            let Reading { capacity, used, is_closed, .. } = readings[*limit];
            // A change wakes those that wait when it is made, which a slow disk delays.
            let possible = &self.limits[*limit].possible;
            let enforces = possible.is_settled() && possible.certainly_enforces();
            enforces && !is_closed && used + u128::from(*amount) <= capacity
        };
        let waiters = &self.waits.waiters;
        let mut roomy = BTreeSet::new();
        for (lease, waiter) in waiters {
            let mut others = waiters.iter().filter(|(other, _)| *other != lease);
            if waiter.needs.iter().all(has_room)
                && !others.any(|(_, other)| other.needs_any_of(&waiter.needs))
            {
                roomy.insert(*lease);
            }
        }
        for (lease, waiter) in &mut self.waits.waiters {
            match roomy.contains(lease) {
                true => drop(waiter.roomy_since.get_or_insert(now)),
                false => waiter.roomy_since = None,
            }
            waiter.check(*lease, now)?;
        }
        Ok(())
    }
}
