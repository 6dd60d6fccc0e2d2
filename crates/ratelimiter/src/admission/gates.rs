//! What is known of each limit that waiters need.

use std::collections::HashMap;

use super::WaiterId;
use super::queues::QueueNumber;
use crate::LimitKey;
use crate::clock::Timestamp;

/// The name of a gate while somebody needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GateNumber(usize);

/// One gate for each limit that somebody needs.
#[derive(Debug, Default)]
pub(super) struct Gates {
    by_key: HashMap<LimitKey, GateNumber>,
    gates: Vec<Gate>,
    /// Places in `gates` that nobody needs.
    free: Vec<GateNumber>,
    /// How many releases there have been, of all limits.
    releases: u64,
}

#[derive(Debug)]
struct Gate {
    key: LimitKey,
    /// How many of each queue need the limit. Empty: the place is free.
    needed_by: HashMap<QueueNumber, usize>,
    /// Who needs more than half of what was denied had better not ask before this moment. Others try their luck; that it is
    /// half, and not anything less, bounds how often one denial leads to another.
    closed: Option<Closed>,
    /// Who goes first.
    first: Option<WaiterId>,
    /// How many that need the limit ask at present.
    asking: usize,
    /// How many of them may ask at a time, so that not every worker asks for the one slot that came free.
    width: usize,
    /// The number of the last release of this limit.
    released: u64,
}

#[derive(Debug, Clone, Copy)]
struct Closed {
    /// What was denied.
    amount: u64,
    until: Timestamp,
}

impl Gates {
    /// Somebody of this queue needs the limit.
    pub(super) fn enter(&mut self, key: &LimitKey, queue: QueueNumber) -> GateNumber {
        let number = match self.by_key.get(key) {
            Some(number) => *number,
            None => self.open(key),
        };
        *self.gates[number.0].needed_by.entry(queue).or_insert(0) += 1;
        number
    }

    fn open(&mut self, key: &LimitKey) -> GateNumber {
        let gate = Gate {
            key: key.clone(),
            needed_by: HashMap::new(),
            closed: None,
            first: None,
            asking: 0,
            width: usize::MAX,
            released: 0,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.gates[number.0] = gate;
                number
            }
            None => {
                self.gates.push(gate);
                GateNumber(self.gates.len() - 1)
            }
        };
        self.by_key.insert(key.clone(), number);
        number
    }

    /// Somebody of this queue needs the limit no longer.
    pub(super) fn leave(&mut self, number: GateNumber, queue: QueueNumber) {
        let gate = &mut self.gates[number.0];
        let count = gate.needed_by.get_mut(&queue).expect("who leaves has entered");
        *count -= 1;
        if *count > 0 {
            return;
        }
        gate.needed_by.remove(&queue);
        if gate.needed_by.is_empty() {
            assert!(gate.first.is_none(), "who goes first at a limit needs it");
            self.by_key.remove(&gate.key);
            self.free.push(number);
        }
    }

    pub(super) fn key(&self, number: GateNumber) -> &LimitKey {
        &self.gates[number.0].key
    }

    /// How many releases there have been.
    pub(super) const fn releases(&self) -> u64 {
        self.releases
    }

    /// Who asked for `amount` when there had been `since` releases was denied, and told to come back at `until`. Room
    /// that has been released in the meantime makes the denial say nothing any more.
    pub(super) fn close(
        &mut self,
        now: Timestamp,
        number: GateNumber,
        amount: u64,
        until: Timestamp,
        since: u64,
    ) {
        let gate = &mut self.gates[number.0];
        gate.width = (gate.width.min(gate.asking) / 2).max(1);
        if gate.released > since {
            return;
        }
        let closed = match gate.closed.filter(|closed| closed.until > now) {
            Some(closed) if closed.amount < amount => closed,
            Some(closed) if closed.amount == amount => {
                Closed { amount, until: closed.until.max(until) }
            }
            Some(_) | None => Closed { amount, until },
        };
        gate.closed = Some(closed);
    }

    /// Somebody who needs the limit asks.
    pub(super) fn ask(&mut self, number: GateNumber) {
        self.gates[number.0].asking += 1;
    }

    /// Somebody who needs the limit has the answer, or will get none. Gives the queues where others may have waited for
    /// that.
    pub(super) fn end_asking(
        &mut self,
        number: GateNumber,
        is_allowed: bool,
        width_max: usize,
    ) -> Vec<QueueNumber> {
        let gate = &mut self.gates[number.0];
        let was_crowded = gate.asking >= gate.width;
        gate.asking -= 1;
        if is_allowed {
            gate.width = gate.width.saturating_mul(2).min(width_max);
        }
        if was_crowded { gate.needed_by.keys().copied().collect() } else { Vec::new() }
    }

    /// True if as many ask as may.
    pub(super) fn is_crowded(&self, number: GateNumber) -> bool {
        let gate = &self.gates[number.0];
        gate.asking >= gate.width
    }

    /// Until when somebody who needs `amount` had better not ask; `None` if it may.
    pub(super) fn closed_until(
        &self,
        number: GateNumber,
        amount: u64,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let closed = self.gates[number.0].closed?;
        (closed.until > now && amount > closed.amount / 2).then_some(closed.until)
    }

    /// The limit got room back. Gives the queues that may want it.
    pub(super) fn release(&mut self, key: &LimitKey) -> Vec<QueueNumber> {
        let Some(number) = self.by_key.get(key) else {
            return Vec::new();
        };
        self.releases += 1;
        let gate = &mut self.gates[number.0];
        gate.released = self.releases;
        gate.closed = None;
        gate.needed_by.keys().copied().collect()
    }

    pub(super) fn was_released_since(&self, number: GateNumber, since: u64) -> bool {
        self.gates[number.0].released > since
    }

    /// Lets this waiter go first; false if another one already does.
    pub(super) fn put_first(&mut self, number: GateNumber, who: WaiterId) -> bool {
        let first = &mut self.gates[number.0].first;
        *first.get_or_insert(who) == who
    }

    /// The waiter does not go first any more. Gives the queues that may want the limit.
    pub(super) fn end_first(&mut self, number: GateNumber, who: WaiterId) -> Vec<QueueNumber> {
        let gate = &mut self.gates[number.0];
        assert_eq!(gate.first, Some(who), "who goes first ends it alone");
        gate.first = None;
        gate.needed_by.keys().copied().collect()
    }

    /// True if another one goes before this waiter. Of two that go first, each at some gate, the older does, so that they
    /// never wait for each other.
    pub(super) fn must_yield(&self, number: GateNumber, who: WaiterId, goes_first: bool) -> bool {
        let first = self.gates[number.0].first;
        first.is_some_and(|first| first != who && (!goes_first || first < who))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty() && self.free.len() == self.gates.len()
    }
}
