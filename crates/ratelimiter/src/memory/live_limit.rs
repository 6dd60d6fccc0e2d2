//! One limit and its live reservations: the rules for a single key, over plain data.

use std::time::Duration;

use arcstr::ArcStr;

use super::queue::{Queue, freed_at};
use super::reservations::{Closed, Held};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::limit::{Limit, LimitKind, LimitMode, Overage};
use crate::registry::{LimitState, LimitStatus, RegisteredLimit, Usage};
use crate::template::InstanceMark;

/// How many reservations [`LiveLimit::lapse`] looks at.
const LAPSE_CHECKS_MAX: usize = 256;
const HAS_QUEUE: &str = "a live reservation keeps its queue";
/// Stands for a lifetime that ends with the period of a calendar limit.
const CALENDAR: u32 = 0;

/// A limit and its live reservations. What every request needs comes first; [`ColdFields`] has the rest.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct LiveLimit {
    key_text: ArcStr,
    /// A hash of it, which nearly always tells another key.
    key_tag: u32,
    /// Number of live reservations of open leases, whose completion may free units early.
    open_count: u32,
    /// Units that could be reserved now: the ceiling minus the sum of all live amounts.
    pub(super) available: u64,
    /// Of new reservations; [`CALENDAR`] if they end with the period.
    lifetime_seconds: u32,
    /// There is a streak of denials.
    is_denied: bool,
    admits: Admits,
    /// The limit was deleted. It stays in its slot until it has no live reservations.
    pub(super) is_deleted: bool,
    /// A concurrency limit.
    is_hold: bool,
    /// Reservations with the current lifetime; `None` until there is one, and after a sweep that finds none.
    present: Option<Queue>,
    cold: Box<ColdFields>,
}

/// What a limit admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admits {
    UpToCapacity,
    /// Nothing: a decrease is pending.
    Nothing,
    /// Whatever can be counted: the limit is in shadow mode.
    Everything,
}

/// Fields that few requests need.
#[derive(Debug)]
struct ColdFields {
    registered: RegisteredLimit,
    /// Live reservations with earlier lifetimes, in seconds; usually none.
    older: Vec<(u32, Queue)>,
    /// When the period of a calendar limit ends; in the past if nothing has asked for it since.
    period_ends_at: Timestamp,
    /// Consecutive denials since the last allow.
    denial_streak: u32,
    debt: u128,
    /// Always 0 for an instance, whose template counts it.
    uncovered: u128,
    /// Of a limit that was made from a template.
    instance: Option<InstanceMark>,
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
    /// True if it ended, or ends, with the period of a calendar limit.
    pub(super) const fn is_calendar(self) -> bool {
        self.lifetime_seconds == CALENDAR
    }
}

impl LiveLimit {
    /// A limit without live reservations, so that a pending decrease applies at once.
    pub(super) fn new(
        now: Timestamp,
        registered: RegisteredLimit,
        instance: Option<InstanceMark>,
    ) -> Self {
        let Limit { key, kind, .. } = registered.limit.clone();
        let cold = ColdFields {
            older: Vec::new(),
            period_ends_at: kind.expires_at(now),
            denial_streak: 0,
            debt: 0,
            uncovered: 0,
            instance,
            registered,
        };
        let mut limit = Self {
            key_text: key.text().clone(),
            key_tag: key.hashes().text,
            open_count: 0,
            available: cold.registered.limit.ceiling().get(),
            lifetime_seconds: kind.lifetime_seconds().unwrap_or(CALENDAR),
            is_denied: false,
            admits: Admits::UpToCapacity,
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

    /// The key of the template that governs an instance.
    pub(super) fn template(&self) -> Option<&LimitKey> {
        self.cold.instance.as_ref().map(InstanceMark::template)
    }

    /// True for an instance that nothing keeps: it is like one that is made anew.
    pub(super) fn is_unused_instance(&self) -> bool {
        self.cold.instance.is_some() && self.is_idle() && self.cold.debt == 0
    }

    /// Makes an instance a limit of its own.
    pub(super) fn set_explicit(&mut self) {
        self.cold.instance = None;
    }

    /// Redefines an instance from the template that governs it now, which is of its kind.
    pub(super) fn govern(&mut self, now: Timestamp, limit: Limit, instance: InstanceMark) {
        self.redefine(now, limit).expect("the kind is the same");
        self.cold.instance = Some(instance);
    }

    /// Deletes the limit. It counts no longer as an instance.
    pub(super) fn delete(&mut self) {
        self.is_deleted = true;
        self.cold.instance = None;
    }

    /// The most units that can be reserved at a time.
    pub(super) const fn ceiling(&self) -> u64 {
        self.cold.registered.limit.ceiling().get()
    }

    /// True if it admits nothing until a pending decrease applies.
    #[inline]
    pub(super) fn is_decreasing(&self) -> bool {
        self.admits == Admits::Nothing
    }

    /// True if it is paused and denies.
    pub(super) fn is_paused(&self) -> bool {
        self.registered().status == LimitStatus::Paused && self.admits != Admits::Everything
    }

    /// True if its reservations end with a period.
    pub(super) const fn is_calendar(&self) -> bool {
        self.lifetime_seconds == CALENDAR
    }

    /// True if it is in shadow mode and would have denied an amount.
    #[inline]
    pub(super) fn shadow_denies(&self, amount: u64) -> bool {
        self.admits == Admits::Everything && amount > self.free_capacity()
    }

    /// The part of the capacity that is not in use; nothing if a limit in shadow mode is over it.
    fn free_capacity(&self) -> u64 {
        self.registered().limit.capacity.get().saturating_sub(self.used())
    }

    /// True if an amount can be reserved now.
    #[inline]
    pub(super) fn fits(&self, amount: u64) -> bool {
        amount <= self.available && !self.is_decreasing()
    }

    /// The sum of all live amounts; never above the ceiling.
    const fn used(&self) -> u64 {
        self.ceiling() - self.available
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

    /// Reserves an amount that fits, for a lease that is open. Also returns when it expires.
    #[inline]
    pub(super) fn hold(&mut self, now: Timestamp, amount: u64) -> (ReservationRef, Timestamp) {
        assert!(amount <= self.available, "the caller has checked that it fits");
        self.available -= amount;
        self.open_count += 1;
        if self.is_denied {
            (self.is_denied, self.cold.denial_streak) = (false, 0);
        }
        let present =
            self.present.get_or_insert_with(|| Queue::new(self.cold.registered.limit.kind));
        let expires_at = match self.lifetime_seconds {
            CALENDAR => {
                let ceiling = self.cold.registered.limit.ceiling().get();
                self.cold.begin_period(now, ceiling - self.available == amount)
            }
            seconds => now.after_seconds(seconds),
        };
        let number = present.reservations.push(expires_at, amount);
        let (lifetime_seconds, is_hold) = (self.lifetime_seconds, self.is_hold);
        (ReservationRef { number, lifetime_seconds, is_hold }, expires_at)
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
        let room = if self.is_decreasing() { 0 } else { self.available };
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
        if self.is_decreasing() {
            self.settle_if_possible(self.used());
        }
    }

    /// Counts usage above the reservation that did not fit, or whose period has ended.
    #[cold]
    pub(super) fn note_uncovered(&mut self, excess: u64) {
        match &self.cold.instance {
            Some(instance) => instance.note_uncovered(excess),
            None => self.cold.uncovered += u128::from(excess),
        }
        if self.cold.registered.limit.overage == Overage::Debt {
            self.cold.debt += u128::from(excess);
        }
    }

    /// Sets the debt to 0, and returns what it was.
    pub(super) fn forgive(&mut self) -> u128 {
        std::mem::take(&mut self.cold.debt)
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
        if self.is_decreasing() {
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
        // Holds end when their calls do, so that no moment is known; nor when others will have what they wait for.
        let is_known = !self.is_hold && amount > self.available;
        let freed_at = is_known.then(freed_at).flatten();
        // A repeated denied lease may request more than a capacity that was lowered since.
        freed_at.map_or(backoff, |moment| moment.since(now))
    }

    /// When an amount that does not fit now may, if no lease completes before and a pending decrease applies; `None` if never. Where many
    /// reservations lapse before, it is the moment of one of them (`MEM-03`).
    pub(super) fn lapse(&self, now: Timestamp, amount: u64) -> Option<Duration> {
        let target = self.registered().target().get();
        let freed = self.used().saturating_add(amount).checked_sub(target)?;
        let (mut checks_left, mut last) = (LAPSE_CHECKS_MAX, None);
        let is_checked = |moment| {
            last = Some(moment);
            checks_left -= 1;
            checks_left > 0
        };
        let freed_at = freed_at(self.queues(), freed, is_checked);
        let moment = if checks_left == 0 { last } else { freed_at };
        moment.map(|moment| moment.since(now))
    }

    /// Applies a pending decrease if it fits with `used` units live, and updates what depends on the definition.
    fn settle_if_possible(&mut self, used: u64) {
        let registered = &mut self.cold.registered;
        if registered.waits() && used <= registered.target().get() {
            registered.settle();
        }
        self.admits = match registered.limit.mode {
            LimitMode::Shadow => Admits::Everything,
            LimitMode::Enforce if registered.waits() => Admits::Nothing,
            LimitMode::Enforce => Admits::UpToCapacity,
        };
        self.available = registered.limit.ceiling().get() - used;
    }

    /// Redefines the limit. A changed lifetime applies to new reservations, a changed calendar from the next reset.
    pub(super) fn redefine(
        &mut self,
        now: Timestamp,
        limit: Limit,
    ) -> Result<LimitStatus, DefineError> {
        let used = self.used();
        let redefined = self.registered().redefined(limit)?;
        self.cold.begin_period(now, false);
        self.cold.registered = redefined;
        self.live_for(self.registered().limit.kind.lifetime_seconds().unwrap_or(CALENDAR));
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
    pub(super) fn state(&mut self, now: Timestamp) -> LimitState {
        let (used, available) = (self.used(), self.free_capacity());
        let resets_at = self.is_calendar().then(|| self.cold.begin_period(now, used == 0));
        let ColdFields { registered, debt, uncovered, .. } = &*self.cold;
        let usage = Usage { used, available, debt: *debt, uncovered: *uncovered };
        let (limit, status) = (registered.limit.clone(), registered.status);
        LimitState { limit, status, usage, resets_at }
    }
}

impl ColdFields {
    /// When the current period of a calendar limit ends. Begins the next one if that is over, and also if nothing is live in an
    /// instance, so that it does not matter whether the sweep has dropped it.
    #[cold]
    fn begin_period(&mut self, now: Timestamp, is_idle: bool) -> Timestamp {
        let is_new = is_idle && self.instance.is_some() && self.debt == 0;
        if self.period_ends_at <= now || is_new {
            self.period_ends_at = self.registered.limit.kind.expires_at(now);
        }
        self.period_ends_at
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
