//! One limit and how much of it is taken: the rules for a single key, over plain data.

use std::time::Duration;

use super::queue::{Departed, Lifetime, Queue};
use super::rolling::freed_at_over;
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::limit::{Limit, LimitKind, Overage};
use crate::registry::{LimitState, LimitStatus, RegisteredLimit, Usage};

/// A limit and how much of it is taken. What every request needs stands on two cache lines; the rest stands elsewhere.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct LiveLimit {
    key: LimitKey,
    /// The capacity in force, as in `rest`.
    capacity: u64,
    /// The sum of all live amounts; never above the capacity in force.
    used: u64,
    /// How many live reservations belong to open leases, whose completion may free room early.
    open_count: u32,
    /// How many denials there were since something was last allowed.
    denial_streak: u32,
    /// As in `rest`.
    is_decreasing: bool,
    /// True if there are older queues in `rest`, which most requests then need not look at.
    has_older: bool,
    /// True from the limit's deletion on. It stays in its slot until nothing of it is live.
    is_deleted: bool,
    /// What is reserved for the present lifetime.
    present: Queue,
    rest: Box<Rest>,
}

/// What few requests need of a limit.
#[derive(Debug)]
struct Rest {
    registered: RegisteredLimit,
    /// What was reserved while the lifetime was another, and is still live; mostly nothing.
    older: Vec<Queue>,
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

impl LiveLimit {
    /// A limit of which nothing is live, so that a decrease that was under way ends here.
    pub(super) fn new(registered: RegisteredLimit) -> Self {
        let mut limit = Self {
            key: registered.limit.key.clone(),
            capacity: 0,
            used: 0,
            open_count: 0,
            denial_streak: 0,
            is_decreasing: false,
            has_older: false,
            is_deleted: false,
            present: Queue::new(Lifetime::of(registered.limit.kind)),
            rest: Box::new(Rest { registered, older: Vec::new(), debt: 0, uncovered: 0 }),
        };
        limit.settle_if_possible();
        limit
    }

    #[inline]
    pub(super) const fn key(&self) -> &LimitKey {
        &self.key
    }

    pub(super) const fn kind(&self) -> LimitKind {
        self.rest.registered.limit.kind
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many units could be reserved now.
    #[inline]
    pub(super) const fn available(&self) -> u64 {
        self.capacity - self.used
    }

    #[inline]
    pub(super) const fn is_decreasing(&self) -> bool {
        self.is_decreasing
    }

    #[inline]
    pub(super) const fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    pub(super) const fn status(&self) -> LimitStatus {
        self.rest.registered.status
    }

    /// True if nothing of it is live.
    pub(super) fn is_idle(&self) -> bool {
        self.present.is_empty() && !self.has_older
    }

    /// Notes that a reserve was denied for want of room here.
    pub(super) const fn note_denial(&mut self) {
        self.denial_streak = self.denial_streak.saturating_add(1);
    }

    /// Reserves an amount that fits, for a lease that is open.
    #[inline]
    pub(super) fn hold(&mut self, now: Timestamp, amount: u64) -> Made {
        assert!(amount <= self.available(), "the caller has looked that it fits");
        self.used += amount;
        self.open_count += 1;
        self.denial_streak = 0;
        let lifetime = self.present.lifetime();
        let number = self.present.push(now.after_seconds(lifetime.seconds()), amount);
        Made { number, lifetime }
    }

    /// The queue that a live reservation is in.
    #[inline]
    fn queue(&self, lifetime: Lifetime) -> &Queue {
        if self.present.lifetime() == lifetime {
            return &self.present;
        }
        let older = self.rest.older.iter().find(|queue| queue.lifetime() == lifetime);
        older.expect("a live reservation keeps its queue")
    }

    #[inline]
    fn queue_mut(&mut self, lifetime: Lifetime) -> &mut Queue {
        if self.present.lifetime() == lifetime {
            return &mut self.present;
        }
        let older = self.rest.older.iter_mut().find(|queue| queue.lifetime() == lifetime);
        older.expect("a live reservation keeps its queue")
    }

    /// The amount of a live reservation whose lease is open.
    #[inline]
    pub(super) fn amount_of(&self, made: Made) -> u64 {
        self.queue(made.lifetime).amount_of(made.number)
    }

    /// The lease of a live reservation has ended; `actual` is what it used, if that is known. Of a hold nothing stays.
    #[inline]
    pub(super) fn end(&mut self, made: Made, actual: Option<u64>) {
        let reserved = self.amount_of(made);
        let kept = match actual {
            _ if made.lifetime.is_hold() => 0,
            None => reserved,
            Some(actual) if actual <= reserved => actual,
            Some(actual) => self.grown(reserved, actual),
        };
        self.used = self.used - reserved + kept;
        self.open_count -= 1;
        self.queue_mut(made.lifetime).close(made.number, kept);
        if self.has_older {
            self.rest.older.retain(|queue| !queue.is_empty());
            self.has_older = !self.rest.older.is_empty();
        }
        if self.is_decreasing {
            self.settle_if_possible();
        }
    }

    /// How much stays reserved when more was used: the excess is reserved only if all of it has room.
    #[cold]
    fn grown(&mut self, reserved: u64, actual: u64) -> u64 {
        let excess = actual - reserved;
        if !self.is_decreasing && excess <= self.available() {
            return actual;
        }
        self.rest.uncovered += u128::from(excess);
        if self.rest.registered.limit.overage == Overage::Debt {
            self.rest.debt += u128::from(excess);
        }
        reserved
    }

    /// Returns what has expired by `now`, and ends a decrease that has become possible.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) {
        let Self { used, open_count, present, rest, .. } = self;
        let mut departed = |Departed { amount, is_open }| {
            *used -= amount;
            *open_count -= u32::from(is_open);
        };
        present.expire(now, &mut departed);
        if self.has_older {
            rest.older.retain_mut(|queue| {
                queue.expire(now, &mut departed);
                !queue.is_empty()
            });
            self.has_older = !rest.older.is_empty();
        }
        if self.is_decreasing {
            self.settle_if_possible();
        }
    }

    /// When the next reservation expires.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        if !self.has_older {
            return self.present.next_expiry();
        }
        let queues = std::iter::once(&self.present).chain(&self.rest.older);
        queues.filter_map(Queue::next_expiry).min()
    }

    pub(super) fn give_room_back(&mut self) {
        self.present.give_room_back();
        self.rest.older.iter_mut().for_each(Queue::give_room_back);
    }

    /// When to ask again for an amount that does not fit now. `random` is in 0..1.
    pub(super) fn hint(
        &mut self,
        now: Timestamp,
        amount: u64,
        policy: &HintPolicy,
        random: f64,
    ) -> Duration {
        let backoff = policy.delay(self.kind(), self.denial_streak.max(1), random);
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
        let queues = std::iter::once(present).chain(&mut rest.older);
        let mut queues: Vec<_> = queues.filter_map(Queue::rolling_mut).collect();
        freed_at_over(&mut queues, amount)
    }

    /// Ends a decrease for which the room is free, and brings the copies of the definition up to date.
    fn settle_if_possible(&mut self) {
        let registered = &mut self.rest.registered;
        if registered.status != LimitStatus::Active && self.used <= registered.target().get() {
            registered.settle();
        }
        self.capacity = registered.limit.capacity.get();
        self.is_decreasing = registered.status != LimitStatus::Active;
    }

    /// Defines the limit anew. A lifetime that changes applies to reservations from now on.
    pub(super) fn redefine(&mut self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.rest.registered = self.rest.registered.redefined(limit)?;
        self.live_for(Lifetime::of(self.kind()));
        self.settle_if_possible();
        Ok(self.status())
    }

    fn live_for(&mut self, lifetime: Lifetime) {
        if self.present.lifetime() == lifetime {
            return;
        }
        let older = &mut self.rest.older;
        let again = older.iter().position(|queue| queue.lifetime() == lifetime);
        let present = again.map_or_else(|| Queue::new(lifetime), |at| older.swap_remove(at));
        let before = std::mem::replace(&mut self.present, present);
        if !before.is_empty() {
            older.push(before);
        }
        self.has_older = !older.is_empty();
    }

    /// Takes the limit out of force. It goes on counting what is live.
    pub(super) const fn delete(&mut self) {
        self.is_deleted = true;
    }

    /// The limit with its figures of the moment.
    pub(super) fn state(&self) -> LimitState {
        let Rest { registered, debt, uncovered, .. } = &*self.rest;
        let usage = Usage {
            used: self.used,
            available: self.available(),
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
    fn what_every_request_needs_is_small() {
        assert!(size_of::<LiveLimit>() <= 128, "{}", size_of::<LiveLimit>());
    }
}
