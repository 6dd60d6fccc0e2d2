//! One limit and its live reservations: the rules for a single key, over plain data.

use std::time::Duration;

use arcstr::ArcStr;

use super::queue::{Queue, freed_at};
use super::reservations::{Closed, Held};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::limit::{Limit, LimitKind, Overage};
use crate::registry::{LimitState, LimitStatus, RegisteredLimit, Usage};

const HAS_QUEUE: &str = "a live reservation keeps its queue";

/// A limit and its live reservations. What every request needs comes first; [`ColdFields`] has the rest.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct LiveLimit {
    key_text: ArcStr,
    /// A hash of it, which nearly always tells another key.
    key_tag: u32,
    /// Number of live reservations of open leases, whose completion may free units early.
    open_count: u32,
    /// Units that could be reserved now: the capacity in force minus the sum of all live amounts.
    pub(super) available: u64,
    lifetime_seconds: u32,
    /// There is a streak of denials.
    is_denied: bool,
    /// `registered` has a pending decrease.
    pub(super) is_decreasing: bool,
    /// The limit was deleted. It stays in its slot until it has no live reservations.
    pub(super) is_deleted: bool,
    /// A concurrency limit.
    is_hold: bool,
    /// Reservations with the current lifetime; `None` until there is one, and after a sweep that finds none.
    present: Option<Queue>,
    cold: Box<ColdFields>,
}

/// Fields that few requests need.
#[derive(Debug)]
struct ColdFields {
    registered: RegisteredLimit,
    /// Live reservations with earlier lifetimes, in seconds; usually none.
    older: Vec<(u32, Queue)>,
    /// Consecutive denials since the last allow.
    denial_streak: u32,
    debt: u128,
    uncovered: u128,
}

/// Locates one reservation of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReservationRef {
    /// The reservation's number in its queue.
    number: u32,
    /// Selects the queue.
    lifetime_seconds: u32,
    /// Actuals are for reservations that are not holds.
    pub(super) is_hold: bool,
}

impl ReservationRef {
    /// When a reservation that was made at that moment expires.
    #[inline]
    pub(super) const fn expires_at(self, reserved_at: Timestamp) -> Timestamp {
        reserved_at.after_seconds(self.lifetime_seconds)
    }
}

impl LiveLimit {
    /// A limit without live reservations, so that a pending decrease applies at once.
    pub(super) fn new(registered: RegisteredLimit) -> Self {
        let Limit { key, kind, capacity, .. } = registered.limit.clone();
        let older = Vec::new();
        let cold = ColdFields { registered, older, denial_streak: 0, debt: 0, uncovered: 0 };
        let mut limit = Self {
            key_text: key.text().clone(),
            key_tag: key.hashes().text,
            open_count: 0,
            available: capacity.get(),
            lifetime_seconds: kind.lifetime_seconds(),
            is_denied: false,
            is_decreasing: false,
            is_deleted: false,
            is_hold: matches!(kind, LimitKind::Concurrency { .. }),
            present: None,
            cold: Box::new(cold),
        };
        limit.settle_if_possible(0);
        limit
    }

    /// True if this is its key.
    #[inline]
    pub(super) fn has_key(&self, key: &LimitKey) -> bool {
        self.key_tag == key.hashes().text && self.key_text == *key.text()
    }

    /// The limit as it is registered.
    pub(super) const fn registered(&self) -> &RegisteredLimit {
        &self.cold.registered
    }

    /// The capacity in force.
    pub(super) const fn capacity(&self) -> u64 {
        self.cold.registered.limit.capacity.get()
    }

    /// True if an amount can be reserved now.
    #[inline]
    pub(super) const fn fits(&self, amount: u64) -> bool {
        amount <= self.available && !self.is_decreasing
    }

    /// The sum of all live amounts; never above the capacity in force.
    const fn used(&self) -> u64 {
        self.capacity() - self.available
    }

    /// True if it has no live reservations: every one is of at least one unit.
    pub(super) const fn is_idle(&self) -> bool {
        self.used() == 0
    }

    /// Counts a reserve that was denied because this limit was full.
    pub(super) const fn note_denial(&mut self) {
        self.is_denied = true;
        self.cold.denial_streak = self.cold.denial_streak.saturating_add(1);
    }

    /// Reserves an amount that fits, for a lease that is open.
    #[inline]
    pub(super) fn hold(&mut self, now: Timestamp, amount: u64) -> ReservationRef {
        assert!(amount <= self.available, "the caller has checked that it fits");
        self.available -= amount;
        self.open_count += 1;
        if self.is_denied {
            (self.is_denied, self.cold.denial_streak) = (false, 0);
        }
        let present =
            self.present.get_or_insert_with(|| Queue::new(self.cold.registered.limit.kind));
        let expires_at = now.after_seconds(self.lifetime_seconds);
        let number = present.reservations.push(expires_at, amount);
        let (lifetime_seconds, is_hold) = (self.lifetime_seconds, self.is_hold);
        ReservationRef { number, lifetime_seconds, is_hold }
    }

    /// The queue that a live reservation is in.
    #[inline]
    fn queue_mut(&mut self, reference: ReservationRef) -> &mut Queue {
        if reference.lifetime_seconds == self.lifetime_seconds {
            return self.present.as_mut().expect(HAS_QUEUE);
        }
        let mut older = self.cold.older.iter_mut();
        let older = older.find(|(lifetime, _)| *lifetime == reference.lifetime_seconds);
        &mut older.expect(HAS_QUEUE).1
    }

    /// The amount of a live reservation whose lease is open.
    pub(super) fn amount_of(&mut self, reference: ReservationRef) -> u64 {
        self.queue_mut(reference).reservations.amount_of(reference.number)
    }

    /// Ends a live reservation with its lease; `actual` is the use, if known. A hold is released entirely.
    #[inline]
    pub(super) fn end(&mut self, reference: ReservationRef, actual: Option<u64>) {
        let room = if self.is_decreasing { 0 } else { self.available };
        let kept_of = |reserved: u64| match actual {
            _ if reference.is_hold => 0,
            // The excess is reserved only if all of it fits.
            Some(actual) if actual <= reserved || actual - reserved <= room => actual,
            _ => reserved,
        };
        let Closed { reserved, kept, .. } =
            self.queue_mut(reference).close(reference.number, kept_of);
        self.available = self.available + reserved - kept;
        self.open_count -= 1;
        if let Some(actual) = actual
            && actual > kept
        {
            self.note_uncovered(actual - kept);
        }
        if self.is_decreasing {
            self.settle_if_possible(self.used());
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
    pub(super) fn expire(&mut self, now: Timestamp) {
        let Self { available, open_count, present, cold, .. } = self;
        let mut departed = |held: Held| {
            *available += held.amount();
            *open_count -= u32::from(held.is_open());
        };
        if let Some(present) = present {
            present.expire(now, &mut departed);
        }
        cold.older.retain_mut(|(_, queue)| {
            queue.expire(now, &mut departed);
            queue.next_expiry().is_some()
        });
        if self.is_decreasing {
            self.settle_if_possible(self.used());
        }
    }

    fn queues(&self) -> impl Iterator<Item = &Queue> + Clone {
        let older = self.cold.older.iter().map(|(_, queue)| queue);
        self.present.iter().chain(older)
    }

    /// No reservation expires before this moment.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.queues().filter_map(Queue::next_expiry).min()
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        if self.is_idle() {
            (self.present, self.cold.older) = (None, Vec::new());
        }
        let older = self.cold.older.iter_mut().map(|(_, queue)| queue);
        self.present.iter_mut().chain(older).for_each(Queue::shrink_to_fit);
    }

    /// When to retry an amount that does not fit now. `random` is in 0..1.
    pub(super) fn hint(
        &self,
        now: Timestamp,
        amount: u64,
        policy: &HintPolicy,
        random: f64,
    ) -> Duration {
        let backoff =
            policy.delay(self.registered().limit.kind, self.cold.denial_streak.max(1), random);
        // Open leases may free units earlier, so the hint is at most the backoff.
        let wait_max = if self.open_count > 0 { backoff } else { Duration::MAX };
        let is_in_time = |moment: Timestamp| moment.since(now) <= wait_max;
        let freed_at = || freed_at(self.queues(), amount - self.available, is_in_time);
        // Holds end when their calls do, so that no moment is known.
        let freed_at = (!self.is_hold).then(freed_at).flatten();
        // A repeated denied lease may request more than a capacity that was lowered since.
        freed_at.map_or(backoff, |moment| moment.since(now))
    }

    /// Applies a pending decrease if it fits with `used` units live, and updates what depends on the definition.
    fn settle_if_possible(&mut self, used: u64) {
        let registered = &mut self.cold.registered;
        if registered.waits() && used <= registered.target().get() {
            registered.settle();
        }
        self.is_decreasing = registered.waits();
        self.available = registered.limit.capacity.get() - used;
    }

    /// Redefines the limit. A changed lifetime applies to new reservations.
    pub(super) fn redefine(&mut self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let used = self.used();
        self.cold.registered = self.cold.registered.redefined(limit)?;
        self.live_for(self.registered().limit.kind.lifetime_seconds());
        self.settle_if_possible(used);
        Ok(self.registered().status)
    }

    /// Makes the queue of this lifetime the present one.
    fn live_for(&mut self, lifetime_seconds: u32) {
        if self.lifetime_seconds == lifetime_seconds {
            return;
        }
        let older = &mut self.cold.older;
        let again = older.iter().position(|(lifetime, _)| *lifetime == lifetime_seconds);
        let present = again.map(|at| older.swap_remove(at).1);
        let before = std::mem::replace(&mut self.lifetime_seconds, lifetime_seconds);
        if let Some(queue) = std::mem::replace(&mut self.present, present) {
            older.push((before, queue));
        }
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
