//! Gates: what is known about each limit that waiters need.

use std::collections::HashMap;

use crate::LimitKey;
use crate::clock::Timestamp;

/// The ID of a gate while a waiter needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GateId(usize);

/// One gate for each limit that a waiter needs. `W` is a waiter, which may go first.
#[derive(Debug)]
pub struct Gates<W> {
    by_key: HashMap<LimitKey, GateId>,
    gates: Vec<Gate<W>>,
    /// Unused places in `gates`.
    free: Vec<GateId>,
    /// The number of releases of all limits so far.
    releases: u64,
}

#[derive(Debug)]
struct Gate<W> {
    key: LimitKey,
    /// The number of waiters that need the limit. 0: the place is unused.
    needed_by: usize,
    /// Closed to waiters that need more than half of the denied amount. Smaller ones may still try; the factor of two bounds
    /// the number of denials.
    closed: Option<Closed>,
    first: Option<First<W>>,
    /// The amount for which a waiter's request waits for room of the limit. Nobody else asks for more than half of it meanwhile.
    attended_for: Option<u64>,
    /// Waiters that ask.
    asking: usize,
    /// How many may ask at a time, so that not every worker asks for the one slot that came free.
    width: usize,
    /// Waiters that were allowed since the width changed.
    allowed: usize,
    /// The number of the last release of this limit.
    released: u64,
}

#[derive(Debug, Clone, Copy)]
struct First<W> {
    waiter: W,
    /// `None`: until [`Gates::end_first`].
    until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Closed {
    amount: u64,
    until: Timestamp,
}

impl<W> Default for Gates<W> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), gates: Vec::new(), free: Vec::new(), releases: 0 }
    }
}

impl<W: Copy + Ord> Gates<W> {
    /// One more waiter needs the limit.
    pub fn enter(&mut self, key: &LimitKey) -> GateId {
        let id = match self.by_key.get(key) {
            Some(id) => *id,
            None => self.open(key),
        };
        self.gates[id.0].needed_by += 1;
        id
    }

    fn open(&mut self, key: &LimitKey) -> GateId {
        let gate = Gate {
            key: key.clone(),
            needed_by: 0,
            closed: None,
            first: None,
            attended_for: None,
            asking: 0,
            width: usize::MAX,
            allowed: 0,
            released: 0,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.gates[id.0] = gate;
                id
            }
            None => {
                self.gates.push(gate);
                GateId(self.gates.len() - 1)
            }
        };
        self.by_key.insert(key.clone(), id);
        id
    }

    /// A waiter no longer needs the limit.
    ///
    /// # Panics
    /// If none did.
    pub fn leave(&mut self, id: GateId) {
        let gate = &mut self.gates[id.0];
        assert!(gate.needed_by > 0, "a waiter enters before it leaves");
        gate.needed_by -= 1;
        if gate.needed_by == 0 {
            let ends = gate.first.is_none_or(|first| first.until.is_some());
            assert!(ends, "a waiter that goes first at a gate needs its limit");
            self.by_key.remove(&gate.key);
            self.free.push(id);
        }
    }

    /// True if a waiter needs the limit.
    pub(super) fn is_needed(&self, id: GateId) -> bool {
        self.gates[id.0].needed_by > 0
    }

    pub(super) fn key(&self, id: GateId) -> &LimitKey {
        &self.gates[id.0].key
    }

    /// The number of releases so far.
    pub const fn releases(&self) -> u64 {
        self.releases
    }

    /// A waiter that began to ask for `amount` after `since` releases was denied until `until`. If the limit got room back in
    /// the meantime, the denial is outdated and closes nothing.
    pub fn close(&mut self, now: Timestamp, id: GateId, amount: u64, until: Timestamp, since: u64) {
        let gate = &mut self.gates[id.0];
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

    /// A waiter begins to ask.
    pub(super) fn ask(&mut self, id: GateId) {
        self.gates[id.0].asking += 1;
    }

    /// A waiter has its answer, or will get none. True if others may have waited for that.
    pub(super) fn end_asking(&mut self, id: GateId) -> bool {
        let was_at_width = self.is_at_width(id);
        self.gates[id.0].asking -= 1;
        was_at_width
    }

    /// A waiter was allowed. After as many allows as the width, the width doubles; beyond `width_max` the gate is fully open.
    pub fn widen(&mut self, id: GateId, width_max: usize) {
        let gate = &mut self.gates[id.0];
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
    pub fn width(&self, id: GateId) -> usize {
        self.gates[id.0].width
    }

    /// True if no more waiters may ask at present.
    pub(super) fn is_at_width(&self, id: GateId) -> bool {
        let gate = &self.gates[id.0];
        gate.asking >= gate.width
    }

    /// The request of a waiter that asks waits for room of the limit.
    ///
    /// # Panics
    /// If one does already.
    pub(super) fn attend(&mut self, id: GateId, amount: u64) {
        let before = self.gates[id.0].attended_for.replace(amount);
        assert!(before.is_none(), "one waiter at a time attends a gate");
    }

    pub(super) fn is_attended(&self, id: GateId) -> bool {
        self.gates[id.0].attended_for.is_some()
    }

    /// True if a waiter that needs this amount must wait for the answer to the one that attends.
    pub(super) fn is_attended_for(&self, id: GateId, amount: u64) -> bool {
        self.gates[id.0].attended_for.is_some_and(|attended| amount > attended / 2)
    }

    /// The request of that waiter does not wait any more. The gate is open.
    pub(super) fn end_attending(&mut self, id: GateId) {
        let gate = &mut self.gates[id.0];
        gate.attended_for = None;
        gate.closed = None;
    }

    /// Until when the gate is closed for `amount`; `None` if it is open.
    pub fn closed_until(&self, now: Timestamp, id: GateId, amount: u64) -> Option<Timestamp> {
        let closed = self.gates[id.0].closed?;
        (closed.until > now && amount > closed.amount / 2).then_some(closed.until)
    }

    /// The denied amount that closed the gate last; `None` if it was opened since.
    pub(super) fn closed_for(&self, id: GateId) -> Option<u64> {
        self.gates[id.0].closed.map(|closed| closed.amount)
    }

    /// The limit got room back. Returns its gate, if a waiter needs it.
    pub fn release(&mut self, key: &LimitKey) -> Option<GateId> {
        let id = *self.by_key.get(key)?;
        self.release_gate(id);
        Some(id)
    }

    fn release_gate(&mut self, id: GateId) {
        self.releases += 1;
        let gate = &mut self.gates[id.0];
        gate.released = self.releases;
        gate.closed = None;
    }

    /// The waiter whose denial closed the gate has left.
    pub(super) fn reopen(&mut self, id: GateId) {
        self.gates[id.0].closed = None;
    }

    /// All limits may have got room back. Returns their gates, always in the same order, so that a simulation can be repeated.
    pub(super) fn release_all(&mut self) -> Vec<GateId> {
        let places = (0..self.gates.len()).map(GateId);
        let needed: Vec<GateId> = places.filter(|id| self.is_needed(*id)).collect();
        for id in &needed {
            self.release_gate(*id);
        }
        needed
    }

    /// The gate of a limit, if a waiter needs it.
    pub(super) fn find(&self, key: &LimitKey) -> Option<GateId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn was_released_since(&self, id: GateId, since: u64) -> bool {
        self.gates[id.0].released > since
    }

    /// Lets a waiter go first. False if another one does.
    pub fn put_first(
        &mut self,
        now: Timestamp,
        id: GateId,
        waiter: W,
        until: Option<Timestamp>,
    ) -> bool {
        let gate = &mut self.gates[id.0];
        let is_free = gate.first.is_none_or(|first| first.waiter == waiter || first.is_over(now));
        if is_free {
            gate.first = Some(First { waiter, until });
        }
        is_free
    }

    /// The waiter no longer goes first.
    ///
    /// # Panics
    /// If another one goes first.
    pub(super) fn end_first(&mut self, id: GateId, waiter: W) {
        let gate = &mut self.gates[id.0];
        let is_own = gate.first.is_some_and(|first| first.waiter == waiter);
        assert!(is_own, "only the waiter that goes first ends it");
        gate.first = None;
    }

    /// True if a waiter goes first.
    pub(super) fn has_first(&self, now: Timestamp, id: GateId) -> bool {
        self.gates[id.0].first.is_some_and(|first| !first.is_over(now))
    }

    /// Until when the gate is reserved for the waiter that goes first, if that time is limited.
    pub fn kept_until(&self, now: Timestamp, id: GateId) -> Option<Timestamp> {
        let until = self.gates[id.0].first?.until?;
        (until > now).then_some(until)
    }

    /// True if another waiter goes before this one. Of two that go first at different gates the older one does, so that they
    /// never wait for each other.
    pub(super) fn must_yield(
        &self,
        now: Timestamp,
        id: GateId,
        waiter: W,
        goes_first: bool,
    ) -> bool {
        let first = self.gates[id.0].first.filter(|first| !first.is_over(now));
        first.is_some_and(|first| first.waiter != waiter && (!goes_first || first.waiter < waiter))
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
