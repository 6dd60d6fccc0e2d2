//! One limit and how much of it is taken: the rules for a single key, over plain data.

use std::time::Duration;

use arcstr::ArcStr;

use super::queue::{Departed, Lifetime, Queue};
use super::rolling::{Closed, freed_at_over};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::limit::{Limit, LimitKind, Overage};
use crate::registry::{LimitState, LimitStatus, RegisteredLimit, Usage};

/// A limit and how much of it is taken. What every request needs stands on one cache line; the rest stands elsewhere.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct LiveLimit {
    /// The key's text, here because every request looks at it.
    key_text: ArcStr,
    /// How many units could be reserved now: the capacity in force without the sum of all live amounts.
    available: u64,
    /// How many live reservations belong to open leases, whose completion may free room early.
    open_count: u32,
    terms: Terms,
    /// What is reserved for the present lifetime.
    present: Queue,
    rest: Box<Rest>,
}

/// The present lifetime, in the bits above it what is out of the ordinary, for which most requests then need not look elsewhere, and in the
/// highest bits those of the key's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Terms(u32);

/// What few requests need of a limit.
#[derive(Debug)]
struct Rest {
    registered: RegisteredLimit,
    /// What was reserved while the lifetime was another, and is still live; mostly nothing.
    older: Vec<(Lifetime, Queue)>,
    /// How many denials there were since something was last allowed.
    denial_streak: u32,
    debt: u128,
    uncovered: u128,
}

/// A reservation as its lease knows it, beside the limit's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    /// The reservation's number in its queue.
    pub(super) number: u32,
    /// For how long the reservation lasts, which tells the queue.
    pub(super) lifetime: Lifetime,
}

impl Terms {
    /// The capacity is on its way down, as `registered` tells.
    const DECREASING: u32 = 1 << Lifetime::BITS;
    /// There are older queues.
    const OLDER: u32 = 2 << Lifetime::BITS;
    /// The limit was deleted. It stays in its slot until nothing of it is live.
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
    /// A limit of which nothing is live, so that a decrease that was under way ends here.
    pub(super) fn new(registered: RegisteredLimit) -> Self {
        let lifetime = Lifetime::of(registered.limit.kind);
        let (older, denial_streak) = (Vec::new(), 0);
        let mut limit = Self {
            key_text: registered.limit.key.text().clone(),
            available: registered.limit.capacity.get(),
            open_count: 0,
            terms: Terms(lifetime.to_bits() | Terms::tag_of(&registered.limit.key)),
            present: Queue::new(lifetime),
            rest: Box::new(Rest { registered, older, denial_streak, debt: 0, uncovered: 0 }),
        };
        limit.settle_if_possible(0);
        limit
    }

    /// True if it is in force under a key of its group.
    #[inline]
    pub(super) fn is_in_force_as(&self, key: &LimitKey) -> bool {
        self.has_key(key) && !self.is_deleted()
    }

    /// True if this is its key. The text decides; a few bits mostly spare the look at another key's text.
    #[inline]
    pub(super) fn has_key(&self, key: &LimitKey) -> bool {
        self.terms.0 & Terms::TAG == Terms::tag_of(key) && self.key_text == *key.text()
    }

    pub(super) const fn key(&self) -> &LimitKey {
        &self.rest.registered.limit.key
    }

    pub(super) const fn kind(&self) -> LimitKind {
        self.rest.registered.limit.kind
    }

    /// The capacity in force.
    pub(super) const fn capacity(&self) -> u64 {
        self.rest.registered.limit.capacity.get()
    }

    /// How many units could be reserved now.
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
        self.terms.is(Terms::DECREASING)
    }

    #[inline]
    pub(super) const fn is_deleted(&self) -> bool {
        self.terms.is(Terms::DELETED)
    }

    pub(super) const fn status(&self) -> LimitStatus {
        self.rest.registered.status
    }

    /// True if nothing is admitted until somebody raises the capacity.
    pub(super) fn is_paused(&self) -> bool {
        self.status() == LimitStatus::Paused
    }

    /// True if nothing of it is live.
    pub(super) fn is_idle(&self) -> bool {
        self.present.is_empty() && !self.terms.is(Terms::OLDER)
    }

    /// Notes that a reserve was denied for want of room here.
    pub(super) const fn note_denial(&mut self) {
        self.rest.denial_streak = self.rest.denial_streak.saturating_add(1);
        self.terms.set(Terms::DENIED, true);
    }

    /// Reserves an amount that fits, for a lease that is open.
    #[inline]
    pub(super) fn hold(&mut self, now: Timestamp, amount: u64) -> Made {
        assert!(amount <= self.available, "the caller has looked that it fits");
        self.available -= amount;
        self.open_count += 1;
        if self.terms.is(Terms::DENIED) {
            self.rest.denial_streak = 0;
            self.terms.set(Terms::DENIED, false);
        }
        let lifetime = self.terms.lifetime();
        let number = self.present.push(now.after_seconds(lifetime.seconds()), amount);
        Made { number, lifetime }
    }

    /// The queue that a live reservation is in.
    #[inline]
    fn queue(&self, lifetime: Lifetime) -> &Queue {
        if self.terms.lifetime() == lifetime {
            return &self.present;
        }
        let older = self.rest.older.iter().find(|(other, _)| *other == lifetime);
        &older.expect("a live reservation keeps its queue").1
    }

    #[inline]
    fn queue_mut(&mut self, lifetime: Lifetime) -> &mut Queue {
        if self.terms.lifetime() == lifetime {
            return &mut self.present;
        }
        let older = self.rest.older.iter_mut().find(|(other, _)| *other == lifetime);
        &mut older.expect("a live reservation keeps its queue").1
    }

    /// The amount of a live reservation whose lease is open.
    #[inline]
    pub(super) fn amount_of(&self, made: Made) -> u64 {
        self.queue(made.lifetime).amount_of(made.number)
    }

    /// The lease of a live reservation has ended; `actual` is what it used, if that is known. Of a hold nothing stays.
    #[inline]
    pub(super) fn end(&mut self, made: Made, actual: Option<u64>) {
        let room = if self.is_decreasing() { 0 } else { self.available };
        let kept_of = |reserved: u64| match actual {
            // The excess is reserved only if all of it has room.
            Some(actual) if actual <= reserved || actual - reserved <= room => actual,
            _ => reserved,
        };
        let Closed { reserved, kept } = self.queue_mut(made.lifetime).close(made.number, kept_of);
        self.available = self.available + reserved - kept;
        self.open_count -= 1;
        if let Some(actual) = actual
            && actual > kept
        {
            self.note_uncovered(actual - kept);
        }
        if self.terms.is(Terms::OLDER | Terms::DECREASING) {
            self.rest.older.retain(|(_, queue)| !queue.is_empty());
            self.tidy();
        }
    }

    /// So much was used above what was reserved, and had no room.
    #[cold]
    fn note_uncovered(&mut self, excess: u64) {
        self.rest.uncovered += u128::from(excess);
        if self.rest.registered.limit.overage == Overage::Debt {
            self.rest.debt += u128::from(excess);
        }
    }

    /// Returns what has expired by `now`, and ends a decrease that has become possible.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) {
        let Self { available, open_count, present, rest, .. } = self;
        let mut departed = |Departed { amount, is_open }| {
            *available += amount;
            *open_count -= u32::from(is_open);
        };
        present.expire(now, &mut departed);
        if self.terms.is(Terms::OLDER | Terms::DECREASING) {
            rest.older.retain_mut(|(_, queue)| {
                queue.expire(now, &mut departed);
                !queue.is_empty()
            });
            self.tidy();
        }
    }

    /// Something has left: there may be no older queues any more, and a decrease may have become possible.
    fn tidy(&mut self) {
        self.terms.set(Terms::OLDER, !self.rest.older.is_empty());
        self.settle_if_possible(self.used());
    }

    /// When the next reservation expires.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        if !self.terms.is(Terms::OLDER) {
            return self.present.next_expiry();
        }
        let older = self.rest.older.iter().map(|(_, queue)| queue);
        let queues = std::iter::once(&self.present).chain(older);
        queues.filter_map(Queue::next_expiry).min()
    }

    pub(super) fn give_room_back(&mut self) {
        self.present.give_room_back();
        self.rest.older.iter_mut().for_each(|(_, queue)| queue.give_room_back());
    }

    /// When to ask again for an amount that does not fit now. `random` is in 0..1.
    pub(super) fn hint(
        &mut self,
        now: Timestamp,
        amount: u64,
        policy: &HintPolicy,
        random: f64,
    ) -> Duration {
        let backoff = policy.delay(self.kind(), self.rest.denial_streak.max(1), random);
        match self.freed_at(amount - self.available()) {
            Some(freed_at) if self.open_count > 0 => freed_at.since(now).min(backoff),
            Some(freed_at) => freed_at.since(now),
            // Holds end when their calls do; and a denied lease that is repeated may ask for more than the capacity has become.
            None => backoff,
        }
    }

    /// When so much of a rolling limit will have expired that `amount` is free, if nothing else changes.
    fn freed_at(&mut self, amount: u64) -> Option<Timestamp> {
        let Self { present, rest, .. } = self;
        if rest.older.is_empty() {
            return present.rolling_mut()?.freed_at(amount);
        }
        let older = rest.older.iter_mut().map(|(_, queue)| queue);
        let queues = std::iter::once(present).chain(older);
        let mut queues: Vec<_> = queues.filter_map(Queue::rolling_mut).collect();
        freed_at_over(&mut queues, amount)
    }

    /// Ends a decrease for which the room is free; so much is live. Brings up to date what follows from the definition.
    fn settle_if_possible(&mut self, used: u64) {
        let registered = &mut self.rest.registered;
        if registered.waits() && used <= registered.target().get() {
            registered.settle();
        }
        let waits = registered.waits();
        self.available = registered.limit.capacity.get() - used;
        self.terms.set(Terms::DECREASING, waits);
    }

    /// Defines the limit anew. A lifetime that changes applies to reservations from now on.
    pub(super) fn redefine(&mut self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let used = self.used();
        self.rest.registered = self.rest.registered.redefined(limit)?;
        self.live_for(Lifetime::of(self.kind()));
        self.settle_if_possible(used);
        Ok(self.status())
    }

    fn live_for(&mut self, lifetime: Lifetime) {
        let before = self.terms.lifetime();
        if before == lifetime {
            return;
        }
        let older = &mut self.rest.older;
        let again = older.iter().position(|(other, _)| *other == lifetime);
        let present = again.map_or_else(|| Queue::new(lifetime), |at| older.swap_remove(at).1);
        let present_before = std::mem::replace(&mut self.present, present);
        if !present_before.is_empty() {
            older.push((before, present_before));
        }
        self.terms.0 = self.terms.0 - before.to_bits() + lifetime.to_bits();
        self.terms.set(Terms::OLDER, !older.is_empty());
    }

    /// Takes the limit out of force. It goes on counting what is live.
    pub(super) const fn delete(&mut self) {
        self.terms.set(Terms::DELETED, true);
    }

    /// The limit with its figures of the moment.
    pub(super) fn state(&self) -> LimitState {
        let Rest { registered, debt, uncovered, .. } = &*self.rest;
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
