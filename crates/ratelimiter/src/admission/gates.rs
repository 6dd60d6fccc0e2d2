//! What is known of each limit that waiters need.

use std::collections::HashMap;
use std::hash::Hash;

use crate::LimitKey;
use crate::clock::Timestamp;

/// The name of a gate while somebody needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GateNumber(usize);

/// One gate for each limit that somebody needs. `Q` is whom to wake when a gate opens, `W` is a waiter, which may go first.
#[derive(Debug)]
pub struct Gates<Q, W> {
    by_key: HashMap<LimitKey, GateNumber>,
    gates: Vec<Gate<Q, W>>,
    /// Places in `gates` that nobody needs.
    free: Vec<GateNumber>,
    /// How many releases there have been, of all limits.
    releases: u64,
}

#[derive(Debug)]
struct Gate<Q, W> {
    key: LimitKey,
    /// How many of each queue need the limit. Empty: the place is free.
    needed_by: HashMap<Q, usize>,
    /// Who needs more than half of what was denied had better not ask before this moment. Others try their luck; that it is
    /// half, and not anything less, bounds how often one denial leads to another.
    closed: Option<Closed>,
    /// Who goes first.
    first: Option<First<W>>,
    /// How many that need the limit ask at present.
    asking: usize,
    /// How many of them may ask at a time, so that not every worker asks for the one slot that came free.
    width: usize,
    /// How many were allowed since the width changed.
    allowed: usize,
    /// The number of the last release of this limit.
    released: u64,
}

#[derive(Debug, Clone, Copy)]
struct First<W> {
    who: W,
    /// `None`: until [`Gates::end_first`].
    until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Closed {
    /// What was denied.
    amount: u64,
    until: Timestamp,
}

impl<Q, W> Default for Gates<Q, W> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), gates: Vec::new(), free: Vec::new(), releases: 0 }
    }
}

impl<Q: Copy + Eq + Hash, W: Copy + Ord> Gates<Q, W> {
    /// Somebody of this queue needs the limit.
    pub fn enter(&mut self, key: &LimitKey, queue: Q) -> GateNumber {
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
            allowed: 0,
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
    ///
    /// # Panics
    /// If nobody of this queue did.
    pub fn leave(&mut self, number: GateNumber, queue: Q) {
        let gate = &mut self.gates[number.0];
        let count = gate.needed_by.get_mut(&queue).expect("who leaves has entered");
        *count -= 1;
        if *count > 0 {
            return;
        }
        gate.needed_by.remove(&queue);
        if gate.needed_by.is_empty() {
            let ends = gate.first.is_none_or(|first| first.until.is_some());
            assert!(ends, "who goes first at a limit needs it");
            self.by_key.remove(&gate.key);
            self.free.push(number);
        }
    }

    pub(super) fn key(&self, number: GateNumber) -> &LimitKey {
        &self.gates[number.0].key
    }

    /// How many releases there have been.
    pub const fn releases(&self) -> u64 {
        self.releases
    }

    /// Who asked for `amount` when there had been `since` releases was denied, and told to come back at `until`. Room
    /// that has been released in the meantime makes the denial say nothing any more.
    pub fn close(
        &mut self,
        now: Timestamp,
        number: GateNumber,
        amount: u64,
        until: Timestamp,
        since: u64,
    ) {
        let gate = &mut self.gates[number.0];
        gate.width = (gate.width.min(gate.asking) / 2).max(1);
        gate.allowed = 0;
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
    pub(super) fn end_asking(&mut self, number: GateNumber) -> Vec<Q> {
        let gate = &mut self.gates[number.0];
        let was_crowded = gate.asking >= gate.width;
        gate.asking -= 1;
        if was_crowded { gate.needed_by.keys().copied().collect() } else { Vec::new() }
    }

    /// Somebody who needs the limit was allowed. When as many were as may ask at a time, twice as many may; beyond
    /// `width_max` the gate is fully open.
    pub fn widen(&mut self, number: GateNumber, width_max: usize) {
        let gate = &mut self.gates[number.0];
        if gate.width == usize::MAX {
            return;
        }
        gate.allowed += 1;
        if gate.allowed >= gate.width {
            gate.allowed = 0;
            let width = gate.width.saturating_mul(2);
            gate.width = if width > width_max { usize::MAX } else { width };
        }
    }

    /// How many may ask at a time; `usize::MAX` if the gate is fully open.
    pub fn width(&self, number: GateNumber) -> usize {
        self.gates[number.0].width
    }

    /// True if as many ask as may.
    pub(super) fn is_crowded(&self, number: GateNumber) -> bool {
        let gate = &self.gates[number.0];
        gate.asking >= gate.width
    }

    /// Until when somebody who needs `amount` had better not ask; `None` if it may.
    pub fn closed_until(
        &self,
        now: Timestamp,
        number: GateNumber,
        amount: u64,
    ) -> Option<Timestamp> {
        let closed = self.gates[number.0].closed?;
        (closed.until > now && amount > closed.amount / 2).then_some(closed.until)
    }

    /// The limit got room back. Gives the queues that may want it.
    pub fn release(&mut self, key: &LimitKey) -> Vec<Q> {
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

    /// Lets somebody go first, until then or until [`Gates::end_first`]; false if another one already does.
    pub fn put_first(
        &mut self,
        now: Timestamp,
        number: GateNumber,
        who: W,
        until: Option<Timestamp>,
    ) -> bool {
        let gate = &mut self.gates[number.0];
        let has_place = gate.first.is_none_or(|first| first.who == who || first.is_over(now));
        if has_place {
            gate.first = Some(First { who, until });
        }
        has_place
    }

    /// Who goes first does so no longer. Gives the queues that may want the limit.
    ///
    /// # Panics
    /// If another one goes first.
    pub(super) fn end_first(&mut self, number: GateNumber, who: W) -> Vec<Q> {
        let gate = &mut self.gates[number.0];
        let is_own = gate.first.is_some_and(|first| first.who == who);
        assert!(is_own, "who goes first ends it alone");
        gate.first = None;
        gate.needed_by.keys().copied().collect()
    }

    /// Until when the gate is kept for somebody who goes first for a time.
    pub fn kept_until(&self, now: Timestamp, number: GateNumber) -> Option<Timestamp> {
        let until = self.gates[number.0].first?.until?;
        (until > now).then_some(until)
    }

    /// True if another one goes before this one. Of two that go first, each at some gate, the older does, so that they
    /// never wait for each other.
    pub(super) fn must_yield(
        &self,
        now: Timestamp,
        number: GateNumber,
        who: W,
        goes_first: bool,
    ) -> bool {
        let first = self.gates[number.0].first.filter(|first| !first.is_over(now));
        first.is_some_and(|first| first.who != who && (!goes_first || first.who < who))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty() && self.free.len() == self.gates.len()
    }
}

impl<W> First<W> {
    fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}
