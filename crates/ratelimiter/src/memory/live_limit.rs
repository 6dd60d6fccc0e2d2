//! One limit and how much of it is taken: the rules for a single key, over plain data.

use super::sums::Sums;
use super::timeline::{Held, Timeline};
use crate::error::DefineError;
use crate::key::LimitKey;
use crate::limit::{Limit, LimitKind, Overage};
use crate::registry::{LimitState, LimitStatus, RegisteredLimit, Usage};

/// A limit and how much of it is taken. What every request needs stands together; the rest stands elsewhere.
#[derive(Debug)]
pub(super) struct LiveLimit {
    key: LimitKey,
    /// The capacity in force, as in `rest`.
    capacity: u64,
    /// The sum of all live amounts; never above the capacity in force.
    used: u64,
    /// The number of the newest reservation in the present timeline, which links to those before it. It may have expired;
    /// of holds it means nothing.
    newest: u64,
    /// Which of the shard's timelines takes new reservations.
    timeline: u32,
    /// How many reservations have neither expired nor ended with nothing left.
    live_count: u32,
    /// How many live reservations belong to open leases, whose completion may free room early.
    open_count: u32,
    /// How many denials there were since something was last allowed.
    denial_streak: u32,
    /// As in `rest`.
    is_concurrency: bool,
    /// As in `rest`.
    is_decreasing: bool,
    /// True from the limit's deletion on. It stays in its slot until nothing of it is live.
    is_deleted: bool,
    /// True while there are sums to be kept true.
    has_sums: bool,
    rest: Box<Rest>,
}

/// What few requests need of a limit.
#[derive(Debug)]
struct Rest {
    registered: RegisteredLimit,
    /// Where reservations are that were made while the window was another; mostly nowhere. Hints need it, so holds do not.
    older: Vec<Place>,
    /// Sums over the amounts in each timeline, made when a hint first needs them, and kept true until nothing is live.
    sums: Vec<(u32, Sums)>,
    debt: u128,
    uncovered: u128,
}

/// Where a limit has reservations: in which timeline, and the newest one's number there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) timeline: u32,
    pub(super) newest: u64,
}

impl LiveLimit {
    /// A limit of which nothing is live, so that a decrease that was under way ends here. Its reservations will go into
    /// this timeline.
    pub(super) fn new(registered: RegisteredLimit, timeline: u32) -> Self {
        let mut limit = Self {
            key: registered.limit.key.clone(),
            capacity: 0,
            used: 0,
            newest: Timeline::NO_NUMBER,
            timeline,
            live_count: 0,
            open_count: 0,
            denial_streak: 0,
            is_concurrency: false,
            is_decreasing: false,
            is_deleted: false,
            has_sums: false,
            rest: Box::new(Rest {
                registered,
                older: Vec::new(),
                sums: Vec::new(),
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

    pub(super) const fn kind(&self) -> LimitKind {
        self.rest.registered.limit.kind
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// How many units could be reserved now.
    pub(super) const fn available(&self) -> u64 {
        self.capacity - self.used
    }

    pub(super) const fn is_concurrency(&self) -> bool {
        self.is_concurrency
    }

    pub(super) const fn is_decreasing(&self) -> bool {
        self.is_decreasing
    }

    pub(super) const fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    pub(super) const fn status(&self) -> LimitStatus {
        self.rest.registered.status
    }

    pub(super) const fn live_count(&self) -> u32 {
        self.live_count
    }

    pub(super) const fn has_open_leases(&self) -> bool {
        self.open_count > 0
    }

    pub(super) const fn denial_streak(&self) -> u32 {
        self.denial_streak
    }

    /// Notes that a reserve was denied for want of room here.
    pub(super) const fn note_denial(&mut self) {
        self.denial_streak = self.denial_streak.saturating_add(1);
    }

    /// Which timeline takes new reservations, and the newest one there.
    pub(super) const fn place(&self) -> Place {
        Place { timeline: self.timeline, newest: self.newest }
    }

    /// All timelines in which hints must look: the present one first.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        std::iter::once(self.place()).chain(self.rest.older.iter().copied())
    }

    /// Counts a reservation that was made in the present timeline.
    #[inline]
    pub(super) fn hold(&mut self, amount: u64, number: u64) {
        assert!(amount <= self.available(), "the caller has looked that it fits");
        self.used += amount;
        self.newest = number;
        self.live_count += 1;
        self.open_count += 1;
        self.denial_streak = 0;
        if self.has_sums {
            self.sums_of(self.timeline).add(number, amount);
        }
    }

    /// The lease of a hold has ended, and nothing of the hold stays.
    #[inline]
    pub(super) fn release(&mut self, amount: u64) -> u64 {
        self.used -= amount;
        self.open_count -= 1;
        self.live_count -= 1;
        self.after_return();
        0
    }

    /// The lease of a rolling reservation has ended; `actual` is what it used, if that is known. Answers with what stays reserved.
    #[inline]
    pub(super) fn reconcile(
        &mut self,
        timeline: u32,
        number: u64,
        reserved: u64,
        actual: Option<u64>,
    ) -> u64 {
        let kept = match actual {
            None => reserved,
            Some(actual) if actual <= reserved => actual,
            Some(actual) => self.grown(reserved, actual),
        };
        self.used = self.used - reserved + kept;
        self.open_count -= 1;
        self.live_count -= u32::from(kept == 0);
        if self.has_sums {
            self.sums_of(timeline).replace(number, reserved, kept);
        }
        self.after_return();
        kept
    }

    /// How much stays reserved when more was used: the excess is reserved only if all of it has room.
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

    /// A reservation has expired.
    pub(super) fn expire(&mut self, timeline: u32, number: u64, held: Held) {
        self.used -= held.amount();
        self.live_count -= 1;
        self.open_count -= u32::from(held.is_open());
        if self.has_sums {
            let sums = self.sums_of(timeline);
            sums.replace(number, held.amount(), 0);
            sums.forget_before(number);
        }
        self.after_return();
    }

    /// Units have returned: a decrease may have become possible, and an idle limit has no sums to keep.
    #[inline]
    fn after_return(&mut self) {
        if self.is_decreasing {
            self.settle_if_possible();
        }
        if self.live_count == 0 && self.has_sums {
            self.drop_sums();
        }
    }

    fn drop_sums(&mut self) {
        self.has_sums = false;
        self.rest.sums = Vec::new();
    }

    /// Forgets the older timelines in which nothing of this limit is live.
    pub(super) fn forget_older(&mut self, is_live: impl Fn(&Place) -> bool) {
        let Rest { older, sums, .. } = &mut *self.rest;
        older.retain(is_live);
        let present = self.timeline;
        sums.retain(|(of, _)| *of == present || older.iter().any(|place| place.timeline == *of));
    }

    /// Ends a decrease for which the room is free, and brings the copies of the definition up to date.
    fn settle_if_possible(&mut self) {
        let registered = &mut self.rest.registered;
        if registered.status != LimitStatus::Active && self.used <= registered.target().get() {
            registered.settle();
        }
        self.capacity = registered.limit.capacity.get();
        self.is_concurrency = registered.limit.kind.is_concurrency();
        self.is_decreasing = registered.status != LimitStatus::Active;
    }

    /// Defines the limit anew. A lifetime that changes applies to reservations from now on, which go into this timeline.
    pub(super) fn redefine(
        &mut self,
        limit: Limit,
        timeline: u32,
    ) -> Result<LimitStatus, DefineError> {
        self.rest.registered = self.rest.registered.redefined(limit)?;
        if timeline != self.timeline {
            let before = self.place();
            let older = &mut self.rest.older;
            let again = older.iter().position(|place| place.timeline == timeline);
            self.newest = again.map_or(Timeline::NO_NUMBER, |at| older.swap_remove(at).newest);
            if self.live_count > 0 && !self.is_concurrency {
                older.push(before);
            }
            self.timeline = timeline;
            // Made again when a hint needs them.
            self.drop_sums();
        }
        self.settle_if_possible();
        Ok(self.status())
    }

    /// Takes the limit out of force. It goes on counting what is live.
    pub(super) const fn delete(&mut self) {
        self.is_deleted = true;
    }

    pub(super) const fn has_sums(&self) -> bool {
        self.has_sums
    }

    /// The sums over a timeline, after [`LiveLimit::keep_sums`].
    pub(super) fn sums(&self, timeline: u32) -> &Sums {
        let sums = self.rest.sums.iter().find(|(of, _)| *of == timeline);
        &sums.expect("there are sums for every timeline of the limit").1
    }

    /// From now on these sums, one for each of [`LiveLimit::places`], are kept true.
    pub(super) fn keep_sums(&mut self, sums: Vec<(u32, Sums)>) {
        self.has_sums = true;
        self.rest.sums = sums;
    }

    fn sums_of(&mut self, timeline: u32) -> &mut Sums {
        let sums = self.rest.sums.iter_mut().find(|(of, _)| *of == timeline);
        &mut sums.expect("there are sums for every timeline of the limit").1
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
        assert!(size_of::<LiveLimit>() <= 80, "{}", size_of::<LiveLimit>());
    }
}
