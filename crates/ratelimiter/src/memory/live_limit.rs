//! One limit and its live reservations: the rules for a single key, over plain data.

use std::time::Duration;

use arcstr::ArcStr;

use super::queue::{ExpiredEntry, Lifetime, Queue};
use super::rolling::{ClosedEntry, freed_at_across};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::limit::{Limit, LimitKind, Overage};
use crate::registry::{LimitState, LimitStatus, RegisteredLimit, Usage};

/// A limit and its live reservations. What every request needs is on one cache line; [`ColdFields`] has the other fields.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct LiveLimit {
    /// The key's text, here because every request compares it.
    key_text: ArcStr,
    /// Units that could be reserved now: the capacity in force minus the sum of all live amounts.
    available: u64,
    /// Number of live reservations of open leases, whose completion may free units early.
    open_count: u32,
    flags: LimitFlags,
    /// Reservations with the current lifetime.
    present: Queue,
    cold: Box<ColdFields>,
}

/// The current lifetime, then flag bits for exceptional states, so that the common case reads one cache line, then the highest bits
/// of the key's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LimitFlags(u32);

/// Fields that few requests need.
#[derive(Debug)]
struct ColdFields {
    registered: RegisteredLimit,
    /// Live reservations with earlier lifetimes; usually none.
    older: Vec<(Lifetime, Queue)>,
    /// Consecutive denials since the last allow.
    denial_streak: u32,
    debt: u128,
    uncovered: u128,
}

/// Locates one reservation: queue and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReservationRef {
    /// The reservation's number in its queue.
    pub(super) number: u32,
    /// How long the reservation lasts, which selects the queue.
    pub(super) lifetime: Lifetime,
}

impl LimitFlags {
    /// `registered` has a pending decrease.
    const DECREASING: u32 = 1 << Lifetime::BITS;
    /// There are older queues.
    const OLDER: u32 = 2 << Lifetime::BITS;
    /// The limit was deleted. It stays in its slot until it has no live reservations.
    const DELETED: u32 = 4 << Lifetime::BITS;
    /// There is a streak of denials.
    const DENIED: u32 = 8 << Lifetime::BITS;
    /// All bits above these.
    const TAG: u32 = !0 << (Lifetime::BITS + 4);

    #[inline]
    const fn tag_of(key: &LimitKey) -> u32 {
        key.hashes().text & Self::TAG
    }

    #[inline]
    const fn lifetime(self) -> Lifetime {
        Lifetime::from_bits(self.0 & (Self::DECREASING - 1))
    }

    #[inline]
    const fn is(self, what: u32) -> bool {
        self.0 & what != 0
    }

    const fn set(&mut self, what: u32, is_so: bool) {
        self.0 = if is_so { self.0 | what } else { self.0 & !what };
    }
}

impl LiveLimit {
    /// A limit without live reservations, so that a pending decrease applies at once.
    pub(super) fn new(registered: RegisteredLimit) -> Self {
        let lifetime = Lifetime::of(registered.limit.kind);
        let (older, denial_streak) = (Vec::new(), 0);
        let mut limit = Self {
            key_text: registered.limit.key.text().clone(),
            available: registered.limit.capacity.get(),
            open_count: 0,
            flags: LimitFlags(lifetime.to_bits() | LimitFlags::tag_of(&registered.limit.key)),
            present: Queue::new(lifetime),
            cold: Box::new(ColdFields { registered, older, denial_streak, debt: 0, uncovered: 0 }),
        };
        limit.settle_if_possible(0);
        limit
    }

    /// True if this is the key and the limit is not deleted.
    #[inline]
    pub(super) fn is_active_key(&self, key: &LimitKey) -> bool {
        self.has_key(key) && !self.is_deleted()
    }

    /// True if this is its key. The text decides; comparing a few hash bits first usually avoids reading another key's text.
    #[inline]
    pub(super) fn has_key(&self, key: &LimitKey) -> bool {
        self.flags.0 & LimitFlags::TAG == LimitFlags::tag_of(key) && self.key_text == *key.text()
    }

    pub(super) const fn key(&self) -> &LimitKey {
        &self.cold.registered.limit.key
    }

    pub(super) const fn kind(&self) -> LimitKind {
        self.cold.registered.limit.kind
    }

    /// The capacity in force.
    pub(super) const fn capacity(&self) -> u64 {
        self.cold.registered.limit.capacity.get()
    }

    /// Units that could be reserved now.
    #[inline]
    pub(super) const fn available(&self) -> u64 {
        self.available
    }

    /// The sum of all live amounts; never above the capacity in force.
    const fn used(&self) -> u64 {
        self.capacity() - self.available
    }

    #[inline]
    pub(super) const fn is_decreasing(&self) -> bool {
        self.flags.is(LimitFlags::DECREASING)
    }

    #[inline]
    pub(super) const fn is_deleted(&self) -> bool {
        self.flags.is(LimitFlags::DELETED)
    }

    pub(super) const fn status(&self) -> LimitStatus {
        self.cold.registered.status
    }

    /// True if nothing is admitted until the capacity is raised.
    pub(super) fn is_paused(&self) -> bool {
        self.status() == LimitStatus::Paused
    }

    /// True if it has no live reservations.
    pub(super) fn is_idle(&self) -> bool {
        self.present.is_empty() && !self.flags.is(LimitFlags::OLDER)
    }

    /// Counts a reserve that was denied because this limit was full.
    pub(super) const fn note_denial(&mut self) {
        self.cold.denial_streak = self.cold.denial_streak.saturating_add(1);
        self.flags.set(LimitFlags::DENIED, true);
    }

    /// Reserves an amount that fits, for a lease that is open.
    #[inline]
    pub(super) fn hold(&mut self, now: Timestamp, amount: u64) -> ReservationRef {
        assert!(amount <= self.available, "the caller has checked that it fits");
        self.available -= amount;
        self.open_count += 1;
        if self.flags.is(LimitFlags::DENIED) {
            self.cold.denial_streak = 0;
            self.flags.set(LimitFlags::DENIED, false);
        }
        let lifetime = self.flags.lifetime();
        let number = self.present.push(now.after_seconds(lifetime.seconds()), amount);
        ReservationRef { number, lifetime }
    }

    /// The queue that a live reservation is in.
    #[inline]
    fn queue(&self, lifetime: Lifetime) -> &Queue {
        if self.flags.lifetime() == lifetime {
            return &self.present;
        }
        let older = self.cold.older.iter().find(|(other, _)| *other == lifetime);
        &older.expect("a live reservation keeps its queue").1
    }

    #[inline]
    fn queue_mut(&mut self, lifetime: Lifetime) -> &mut Queue {
        if self.flags.lifetime() == lifetime {
            return &mut self.present;
        }
        let older = self.cold.older.iter_mut().find(|(other, _)| *other == lifetime);
        &mut older.expect("a live reservation keeps its queue").1
    }

    /// The amount of a live reservation whose lease is open.
    #[inline]
    pub(super) fn amount_of(&self, reference: ReservationRef) -> u64 {
        self.queue(reference.lifetime).amount_of(reference.number)
    }

    /// Ends a live reservation with its lease; `actual` is the use, if known. A hold is released entirely.
    #[inline]
    pub(super) fn end(&mut self, reference: ReservationRef, actual: Option<u64>) {
        let room = if self.is_decreasing() { 0 } else { self.available };
        let kept_of = |reserved: u64| match actual {
            // The excess is reserved only if all of it fits.
            Some(actual) if actual <= reserved || actual - reserved <= room => actual,
            _ => reserved,
        };
        let ClosedEntry { reserved, kept } =
            self.queue_mut(reference.lifetime).close(reference.number, kept_of);
        self.available = self.available + reserved - kept;
        self.open_count -= 1;
        if let Some(actual) = actual
            && actual > kept
        {
            self.note_uncovered(actual - kept);
        }
        if self.flags.is(LimitFlags::OLDER | LimitFlags::DECREASING) {
            self.cold.older.retain(|(_, queue)| !queue.is_empty());
            self.after_removal();
        }
    }

    /// Counts usage above the reservation that did not fit.
    #[cold]
    fn note_uncovered(&mut self, excess: u64) {
        self.cold.uncovered += u128::from(excess);
        if self.cold.registered.limit.overage == Overage::Debt {
            self.cold.debt += u128::from(excess);
        }
    }

    /// Frees what has expired by `now`, and applies a pending decrease that fits.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) {
        let Self { available, open_count, present, cold, .. } = self;
        let mut departed = |ExpiredEntry { amount, is_open }| {
            *available += amount;
            *open_count -= u32::from(is_open);
        };
        present.expire(now, &mut departed);
        if self.flags.is(LimitFlags::OLDER | LimitFlags::DECREASING) {
            cold.older.retain_mut(|(_, queue)| {
                queue.expire(now, &mut departed);
                !queue.is_empty()
            });
            self.after_removal();
        }
    }

    /// After a removal: older queues may be empty, and a pending decrease may fit.
    fn after_removal(&mut self) {
        self.flags.set(LimitFlags::OLDER, !self.cold.older.is_empty());
        self.settle_if_possible(self.used());
    }

    /// When the next reservation expires.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        if !self.flags.is(LimitFlags::OLDER) {
            return self.present.next_expiry();
        }
        let older = self.cold.older.iter().map(|(_, queue)| queue);
        let queues = std::iter::once(&self.present).chain(older);
        queues.filter_map(Queue::next_expiry).min()
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.present.shrink_to_fit();
        self.cold.older.iter_mut().for_each(|(_, queue)| queue.shrink_to_fit());
    }

    /// When to retry an amount that does not fit now. `random` is in 0..1.
    pub(super) fn hint(
        &mut self,
        now: Timestamp,
        amount: u64,
        policy: &HintPolicy,
        random: f64,
    ) -> Duration {
        let backoff = policy.delay(self.kind(), self.cold.denial_streak.max(1), random);
        match self.freed_at(amount - self.available()) {
            Some(freed_at) if self.open_count > 0 => freed_at.since(now).min(backoff),
            Some(freed_at) => freed_at.since(now),
            // Holds end when their calls do; and a repeated denied lease may request more than a capacity that was lowered since.
            None => backoff,
        }
    }

    /// When enough of a rolling limit will have expired to free `amount`, if nothing else changes.
    fn freed_at(&mut self, amount: u64) -> Option<Timestamp> {
        let Self { present, cold, .. } = self;
        if cold.older.is_empty() {
            return present.rolling_mut()?.freed_at(amount);
        }
        let older = cold.older.iter_mut().map(|(_, queue)| queue);
        let queues = std::iter::once(present).chain(older);
        let mut queues: Vec<_> = queues.filter_map(Queue::rolling_mut).collect();
        freed_at_across(&mut queues, amount)
    }

    /// Applies a pending decrease if it fits with `used` units live, and updates what depends on the definition.
    fn settle_if_possible(&mut self, used: u64) {
        let registered = &mut self.cold.registered;
        if registered.waits() && used <= registered.target().get() {
            registered.settle();
        }
        let waits = registered.waits();
        self.available = registered.limit.capacity.get() - used;
        self.flags.set(LimitFlags::DECREASING, waits);
    }

    /// Redefines the limit. A changed lifetime applies to new reservations.
    pub(super) fn redefine(&mut self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let used = self.used();
        self.cold.registered = self.cold.registered.redefined(limit)?;
        self.live_for(Lifetime::of(self.kind()));
        self.settle_if_possible(used);
        Ok(self.status())
    }

    fn live_for(&mut self, lifetime: Lifetime) {
        let before = self.flags.lifetime();
        if before == lifetime {
            return;
        }
        let older = &mut self.cold.older;
        let again = older.iter().position(|(other, _)| *other == lifetime);
        let present = again.map_or_else(|| Queue::new(lifetime), |at| older.swap_remove(at).1);
        let present_before = std::mem::replace(&mut self.present, present);
        if !present_before.is_empty() {
            older.push((before, present_before));
        }
        self.flags.0 = self.flags.0 - before.to_bits() + lifetime.to_bits();
        self.flags.set(LimitFlags::OLDER, !older.is_empty());
    }

    /// Deletes the limit. It still counts its live reservations.
    pub(super) const fn delete(&mut self) {
        self.flags.set(LimitFlags::DELETED, true);
    }

    /// The limit with its current usage.
    pub(super) fn state(&self) -> LimitState {
        let ColdFields { registered, debt, uncovered, .. } = &*self.cold;
        let usage = Usage {
            used: self.used(),
            available: self.available,
            debt: *debt,
            uncovered: *uncovered,
        };
        LimitState { limit: registered.limit.clone(), status: registered.status, usage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_request_needs_is_one_cache_line() {
        assert_eq!(size_of::<Option<LiveLimit>>(), 64);
    }
}
