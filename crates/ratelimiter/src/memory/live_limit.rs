//! One limit with its live reservations: the rules for a single key, over plain data, with `now` as an argument.

use std::time::Duration;

use super::timeline::{Departed, Timeline};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::limit::{Limit, Overage};
use crate::registry::{LimitState, LimitStatus, RegisteredLimit, Usage};

/// A limit with its live reservations. What every request needs of it stands together in two cache lines; the rest
/// stands elsewhere.
#[derive(Debug)]
pub(super) struct LiveLimit {
    key: LimitKey,
    /// The capacity in force, as in `rest`.
    capacity: u64,
    /// The sum of all live amounts; never above the capacity in force.
    used: u64,
    /// Nothing expires before this moment.
    next_expiry: Timestamp,
    /// The reservations of the present lifetime.
    timeline: Timeline,
    /// The number of the next reservation. It goes on where the slot's last limit ended, so that a number
    /// belongs to one reservation for ever.
    next_number: u64,
    /// How many live reservations belong to open leases, whose completion may free room early.
    open_count: u32,
    /// How many denials there were since something was last allowed.
    denial_streak: u32,
    /// For how long a reservation or hold lasts, as in `rest`.
    lifetime_seconds: u32,
    /// As in `rest`.
    is_concurrency: bool,
    /// As in `rest`.
    is_decreasing: bool,
    /// True while the limit is in its shard's list of those to sweep.
    is_swept: bool,
    rest: Box<Rest>,
}

/// What few requests need of a limit.
#[derive(Debug)]
struct Rest {
    registered: RegisteredLimit,
    /// The reservations that were made while the window or timeout was another; mostly there are none.
    older: Vec<Timeline>,
    /// The number at which this limit began: smaller ones are reservations of a limit that was deleted.
    first_number: u64,
    debt: u128,
    uncovered: u128,
}

/// Where a live reservation stands: in which timeline, and where there.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Which of the older timelines; `None` for the present one.
    older: Option<usize>,
    at: usize,
}

const NEVER: Timestamp = Timestamp::from_unix_nanos(u64::MAX);

impl LiveLimit {
    pub(super) fn new(registered: RegisteredLimit, first_number: u64) -> Self {
        let mut limit = Self {
            key: registered.limit.key.clone(),
            capacity: 0,
            used: 0,
            next_expiry: NEVER,
            timeline: Timeline::default(),
            next_number: first_number,
            open_count: 0,
            denial_streak: 0,
            lifetime_seconds: 0,
            is_concurrency: false,
            is_decreasing: false,
            is_swept: false,
            rest: Box::new(Rest {
                registered,
                older: Vec::new(),
                first_number,
                debt: 0,
                uncovered: 0,
            }),
        };
        limit.settle_if_possible();
        limit
    }

    pub(super) const fn key(&self) -> &LimitKey {
        &self.key
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) const fn is_concurrency(&self) -> bool {
        self.is_concurrency
    }

    pub(super) const fn is_decreasing(&self) -> bool {
        self.is_decreasing
    }

    pub(super) const fn status(&self) -> LimitStatus {
        self.rest.registered.status
    }

    /// True when nothing is live, so that there is nothing to sweep.
    pub(super) fn is_idle(&self) -> bool {
        self.timeline.is_empty() && self.rest.older.is_empty()
    }

    /// Marks the limit as being in the list of those to sweep; false if it was not yet.
    pub(super) const fn mark_swept(&mut self) -> bool {
        std::mem::replace(&mut self.is_swept, true)
    }

    /// Keeps the mark while there is something to sweep.
    pub(super) fn keep_swept_while_live(&mut self) -> bool {
        self.is_swept = !self.is_idle();
        self.is_swept
    }

    pub(super) const fn next_number(&self) -> u64 {
        self.next_number
    }

    /// True if this limit, and not an earlier one in its slot, gave out the number.
    pub(super) fn gave_out(&self, number: u64) -> bool {
        (self.rest.first_number..self.next_number).contains(&number)
    }

    /// Returns what has expired by `now`, and ends a decrease that has become possible.
    pub(super) fn expire(&mut self, now: Timestamp) {
        if self.next_expiry <= now {
            self.collect(now);
        }
    }

    fn collect(&mut self, now: Timestamp) {
        let departed = self.timeline.expire(now);
        self.subtract(departed);
        for n in 0..self.rest.older.len() {
            let departed = self.rest.older[n].expire(now);
            self.subtract(departed);
        }
        self.rest.older.retain(|timeline| !timeline.is_empty());
        let next = self.timelines().filter_map(Timeline::next_expiry).min();
        self.next_expiry = next.unwrap_or(NEVER);
        self.settle_if_possible();
    }

    fn subtract(&mut self, departed: Departed) {
        self.used -= departed.amount;
        self.open_count -= departed.open_count;
    }

    fn timelines(&self) -> impl Iterator<Item = &Timeline> {
        std::iter::once(&self.timeline).chain(&self.rest.older)
    }

    /// Ends a decrease for which the room is free, and brings the copies of the definition up to date.
    fn settle_if_possible(&mut self) {
        let registered = &mut self.rest.registered;
        if registered.status != LimitStatus::Active && self.used <= registered.target().get() {
            registered.settle();
        }
        self.capacity = registered.limit.capacity.get();
        self.lifetime_seconds = registered.limit.kind.lifetime_seconds();
        self.is_concurrency = registered.limit.kind.is_concurrency();
        self.is_decreasing = registered.status != LimitStatus::Active;
    }

    /// Defines the limit anew. A lifetime that changes applies to reservations from now on.
    pub(super) fn redefine(&mut self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let rest = &mut *self.rest;
        let before = rest.registered.limit.kind;
        rest.registered = rest.registered.redefined(limit)?;
        if rest.registered.limit.kind != before && !self.timeline.is_empty() {
            rest.older.push(std::mem::take(&mut self.timeline));
        }
        self.settle_if_possible();
        Ok(self.status())
    }

    /// How many units could be reserved now.
    pub(super) const fn available(&self) -> u64 {
        self.capacity - self.used
    }

    /// Reserves an amount that fits. Answers with the reservation's number and expiry.
    pub(super) fn hold(&mut self, now: Timestamp, amount: u64) -> (u64, Timestamp) {
        assert!(amount <= self.available(), "the caller has looked that it fits");
        let number = self.next_number;
        let expires_at = now.after_seconds(self.lifetime_seconds);
        self.timeline.push(number, expires_at, amount);
        self.next_expiry = self.next_expiry.min(expires_at);
        self.next_number += 1;
        self.used += amount;
        self.open_count += 1;
        self.denial_streak = 0;
        (number, expires_at)
    }

    /// The amount of a live reservation; `None` if it has expired.
    pub(super) fn amount_of(&self, number: u64) -> Option<u64> {
        self.find(number).map(|place| self.timeline(place).amount_at(place.at))
    }

    /// The lease of a reservation has ended; `actual` is what it used, if that is known. An expired reservation stays as
    /// it is: there is nothing left to shrink or to grow.
    pub(super) fn end(&mut self, number: u64, actual: Option<u64>) {
        let Some(place) = self.find(number) else {
            return;
        };
        let reserved = self.timeline(place).amount_at(place.at);
        let kept = if self.is_concurrency {
            0
        } else {
            self.reconciled(reserved, actual.unwrap_or(reserved))
        };
        self.timeline_mut(place).close_at(place.at, kept);
        self.used = self.used - reserved + kept;
        self.open_count -= 1;
        if self.is_decreasing {
            self.settle_if_possible();
        }
    }

    /// Where a live reservation stands; `None` if it has expired.
    fn find(&self, number: u64) -> Option<Place> {
        if let Some(at) = self.timeline.position(number) {
            return Some(Place { older: None, at });
        }
        let in_older = |(n, timeline): (usize, &Timeline)| {
            timeline.position(number).map(|at| Place { older: Some(n), at })
        };
        self.rest.older.iter().enumerate().find_map(in_older)
    }

    fn timeline(&self, place: Place) -> &Timeline {
        place.older.map_or(&self.timeline, |n| &self.rest.older[n])
    }

    fn timeline_mut(&mut self, place: Place) -> &mut Timeline {
        match place.older {
            None => &mut self.timeline,
            Some(n) => &mut self.rest.older[n],
        }
    }

    /// How much stays reserved when `actual` was used: an excess only if all of it has room.
    fn reconciled(&mut self, reserved: u64, actual: u64) -> u64 {
        if actual <= reserved {
            return actual;
        }
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

    /// Notes that a reserve was denied for want of room here.
    pub(super) const fn note_denial(&mut self) {
        self.denial_streak = self.denial_streak.saturating_add(1);
    }

    /// When to ask again for an amount that does not fit now. `random` is in 0..1.
    pub(super) fn hint(
        &mut self,
        now: Timestamp,
        amount: u64,
        policy: &HintPolicy,
        random: f64,
    ) -> Duration {
        let kind = self.rest.registered.limit.kind;
        let backoff = policy.delay(kind, self.denial_streak.max(1), random);
        if self.is_concurrency {
            return backoff;
        }
        let missing = amount - self.available();
        match self.freed_at(missing) {
            Some(freed_at) if self.open_count == 0 => freed_at.since(now),
            Some(freed_at) => freed_at.since(now).min(backoff),
            // A denied lease that is repeated may ask for more than the capacity has become.
            None => backoff,
        }
    }

    fn freed_at(&mut self, amount: u64) -> Option<Timestamp> {
        self.timeline.prepare_hints();
        if self.rest.older.is_empty() {
            return self.timeline.freed_at(amount);
        }
        self.rest.older.iter_mut().for_each(Timeline::prepare_hints);
        let timelines: Vec<_> = self.timelines().collect();
        Timeline::freed_at_over(&timelines, amount)
    }

    /// The limit with its figures of the moment, after [`LiveLimit::expire`].
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
    fn what_every_request_needs_fits_two_cache_lines() {
        assert!(size_of::<LiveLimit>() <= 128, "{}", size_of::<LiveLimit>());
    }
}
