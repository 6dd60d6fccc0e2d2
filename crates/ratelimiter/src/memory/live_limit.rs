//! One limit with its live reservations: the rules for a single key, over plain data, with `now` as an argument.

use std::time::Duration;

use super::timeline::Timeline;
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::hint::HintPolicy;
use crate::limit::{Limit, Overage};
use crate::registry::{LimitState, LimitStatus, RegisteredLimit, Usage};

/// A limit with its live reservations.
#[derive(Debug)]
pub(super) struct LiveLimit {
    registered: RegisteredLimit,
    /// The sum of all live amounts; never above the capacity in force.
    used: u64,
    /// How many live reservations belong to open leases, whose completion may free room early.
    open_count: usize,
    /// How many denials there were since something was last allowed.
    denial_streak: u32,
    /// The reservations of the present lifetime.
    timeline: Timeline,
    /// The reservations that were made while the window or timeout was another; mostly there are none.
    older: Vec<Timeline>,
    /// The number of the next reservation. It goes on where the slot's last limit ended, so that a number
    /// belongs to one reservation for ever.
    next_number: u64,
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

impl LiveLimit {
    pub(super) fn new(registered: RegisteredLimit, first_number: u64) -> Self {
        Self {
            registered,
            used: 0,
            open_count: 0,
            denial_streak: 0,
            timeline: Timeline::default(),
            older: Vec::new(),
            next_number: first_number,
            first_number,
            debt: 0,
            uncovered: 0,
        }
    }

    pub(super) fn limit(&self) -> &Limit {
        &self.registered.limit
    }

    pub(super) fn status(&self) -> LimitStatus {
        self.registered.status
    }

    pub(super) fn is_decreasing(&self) -> bool {
        self.registered.status != LimitStatus::Active
    }

    /// True when nothing is live, so that there is nothing to sweep.
    pub(super) fn is_idle(&self) -> bool {
        self.timeline.is_empty() && self.older.is_empty()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// True if this limit, and not an earlier one in its slot, gave out the number.
    pub(super) fn gave_out(&self, number: u64) -> bool {
        (self.first_number..self.next_number).contains(&number)
    }

    /// Returns what has expired by `now`, and ends a decrease that has become possible.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let departed = self.timeline.expire(now);
        self.used -= departed.amount;
        self.open_count -= departed.open_count;
        if !self.older.is_empty() {
            for timeline in &mut self.older {
                let departed = timeline.expire(now);
                self.used -= departed.amount;
                self.open_count -= departed.open_count;
            }
            self.older.retain(|timeline| !timeline.is_empty());
        }
        self.settle_if_possible();
    }

    /// Ends a decrease for which the room is free.
    pub(super) fn settle_if_possible(&mut self) {
        if self.is_decreasing() && self.used <= self.registered.target().get() {
            self.registered.settle();
        }
    }

    /// Defines the limit anew. A lifetime that changes applies to reservations from now on.
    pub(super) fn redefine(&mut self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let before = self.registered.limit.kind;
        self.registered = self.registered.redefined(limit)?;
        if self.registered.limit.kind != before && !self.timeline.is_empty() {
            self.older.push(std::mem::take(&mut self.timeline));
        }
        self.settle_if_possible();
        Ok(self.status())
    }

    /// How many units could be reserved now.
    pub(super) fn available(&self) -> u64 {
        self.limit().capacity.get() - self.used
    }

    /// Reserves an amount that fits. Answers with the reservation's number and expiry.
    pub(super) fn hold(&mut self, now: Timestamp, amount: u64) -> (u64, Timestamp) {
        assert!(
            amount <= self.available(),
            "the caller has looked that it fits"
        );
        let number = self.next_number;
        let expires_at = now.after(self.limit().kind.lifetime());
        self.timeline.push(number, expires_at, amount);
        self.next_number += 1;
        self.used += amount;
        self.open_count += 1;
        self.denial_streak = 0;
        (number, expires_at)
    }

    /// The amount of a live reservation; `None` if it has expired.
    pub(super) fn amount_of(&self, number: u64) -> Option<u64> {
        self.find(number)
            .map(|place| self.timeline(place).amount_at(place.at))
    }

    /// The lease of a reservation has ended; `actual` is what it used, if that is known. An expired reservation stays as
    /// it is: there is nothing left to shrink or to grow.
    pub(super) fn end(&mut self, number: u64, actual: Option<u64>) {
        let Some(place) = self.find(number) else {
            return;
        };
        let reserved = self.timeline(place).amount_at(place.at);
        let kept = if self.limit().kind.is_concurrency() {
            0
        } else {
            self.reconciled(reserved, actual.unwrap_or(reserved))
        };
        self.timeline_mut(place).close_at(place.at, kept);
        self.used = self.used - reserved + kept;
        self.open_count -= 1;
        self.settle_if_possible();
    }

    /// Where a live reservation stands; `None` if it has expired.
    fn find(&self, number: u64) -> Option<Place> {
        if let Some(at) = self.timeline.position(number) {
            return Some(Place { older: None, at });
        }
        let in_older = |(n, timeline): (usize, &Timeline)| {
            timeline
                .position(number)
                .map(|at| Place { older: Some(n), at })
        };
        self.older.iter().enumerate().find_map(in_older)
    }

    fn timeline(&self, place: Place) -> &Timeline {
        place.older.map_or(&self.timeline, |n| &self.older[n])
    }

    fn timeline_mut(&mut self, place: Place) -> &mut Timeline {
        match place.older {
            None => &mut self.timeline,
            Some(n) => &mut self.older[n],
        }
    }

    /// How much stays reserved when `actual` was used: an excess only if all of it has room.
    fn reconciled(&mut self, reserved: u64, actual: u64) -> u64 {
        let Some(excess) = actual.checked_sub(reserved).filter(|excess| *excess > 0) else {
            return actual;
        };
        if !self.is_decreasing() && excess <= self.available() {
            return actual;
        }
        self.uncovered += u128::from(excess);
        if self.limit().overage == Overage::Debt {
            self.debt += u128::from(excess);
        }
        reserved
    }

    /// Notes that a reserve was denied for want of room here.
    pub(super) fn note_denial(&mut self) {
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
        let kind = self.limit().kind;
        let backoff = policy.delay(kind, self.denial_streak.max(1), random);
        if kind.is_concurrency() {
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
        if self.older.is_empty() {
            return self.timeline.freed_at(amount);
        }
        self.older.iter_mut().for_each(Timeline::prepare_hints);
        let timelines: Vec<_> = std::iter::once(&self.timeline).chain(&self.older).collect();
        Timeline::freed_at_over(&timelines, amount)
    }

    /// The limit with its figures of the moment, after [`LiveLimit::expire`].
    pub(super) fn state(&self) -> LimitState {
        let usage = Usage {
            used: self.used,
            available: self.available(),
            debt: self.debt,
            uncovered: self.uncovered,
        };
        LimitState {
            limit: self.limit().clone(),
            status: self.status(),
            usage,
        }
    }
}
