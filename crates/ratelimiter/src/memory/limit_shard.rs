//! A part of the limits: those whose keys belong to one shard, with their reservations.

use std::time::Duration;

use super::live_limit::{LiveLimit, Place};
use super::place_index::PlaceIndex;
use super::share::{Share, freed_at_over};
use super::timeline::{Lifetime, Timeline};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::limit::{Limit, LimitKind};
use crate::registry::{LimitStatus, RegisteredLimit};

/// Fewer reservations than this are walked for a hint; more get sums.
const SUMS_COUNT_MIN: u32 = 256;
const NEVER: Timestamp = Timestamp::from_unix_nanos(u64::MAX);

/// A part of the limits, found by key or by slot, with their reservations by lifetime.
#[derive(Debug)]
pub(super) struct LimitShard {
    /// The slots of the limits that are in force, by the hash of their keys.
    index: PlaceIndex,
    /// The limits; a deleted one stays while something of it is live, so that a live reservation's slot is that of its limit.
    slots: Vec<Option<LiveLimit>>,
    /// The slots without a limit.
    free: Vec<u32>,
    /// The reservations: a timeline for each lifetime.
    timelines: Vec<Timeline>,
    /// Nothing expires before this moment.
    next_expiry: Timestamp,
}

/// A reservation as its lease knows it, beside the limit's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    /// The low bits of the reservation's number in its timeline.
    pub(super) number: u32,
    /// For how long the reservation lasts, which tells the timeline.
    pub(super) lifetime: Lifetime,
}

impl Default for LimitShard {
    fn default() -> Self {
        Self {
            index: PlaceIndex::default(),
            slots: Vec::new(),
            free: Vec::new(),
            timelines: Vec::new(),
            next_expiry: NEVER,
        }
    }
}

impl LimitShard {
    /// The slot and the limit of a key.
    #[inline]
    pub(super) fn find(&self, key: &LimitKey) -> Option<(u32, &LiveLimit)> {
        let mut limit = None;
        let is_key = |slot| {
            limit = Some(self.limit(slot)).filter(|limit| limit.key() == key);
            limit.is_some()
        };
        let slot = self.index.find(key.place().hash(), is_key)?.place;
        Some((slot, limit?))
    }

    /// The limit in a slot that was found for a key, or of a live reservation.
    #[inline]
    pub(super) fn limit(&self, slot: u32) -> &LiveLimit {
        self.slots[slot as usize].as_ref().expect("a slot with a limit")
    }

    #[inline]
    pub(super) fn limit_mut(&mut self, slot: u32) -> &mut LiveLimit {
        self.slots[slot as usize].as_mut().expect("a slot with a limit")
    }

    /// All limits that are in force, in no order.
    pub(super) fn limits(&self) -> impl Iterator<Item = &LiveLimit> {
        self.slots.iter().flatten().filter(|limit| !limit.is_deleted())
    }

    /// Returns what has expired by `now`, and ends decreases that have become possible.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) {
        if self.next_expiry <= now {
            self.collect(now);
        }
    }

    #[cold]
    fn collect(&mut self, now: Timestamp) {
        let Self { slots, free, timelines, next_expiry, .. } = self;
        *next_expiry = NEVER;
        for (at, timeline) in (0..).zip(timelines) {
            timeline.expire(now, |number, entry| {
                let slot = &mut slots[entry.slot as usize];
                let limit = slot.as_mut().expect("a live reservation's limit is in its slot");
                limit.expire(at, number, entry.held);
                if limit.is_deleted() && limit.live_count() == 0 {
                    *slot = None;
                    free.push(entry.slot);
                }
            });
            *next_expiry = timeline.next_expiry().unwrap_or(NEVER).min(*next_expiry);
        }
    }

    /// Reserves an amount that fits, for a lease that is open.
    #[inline]
    pub(super) fn hold(&mut self, slot: u32, now: Timestamp, amount: u64) -> Made {
        let limit = self.slots[slot as usize].as_mut().expect("the slot was found for a key");
        let Place { timeline, newest } = limit.place();
        let timeline = &mut self.timelines[timeline as usize];
        let lifetime = timeline.lifetime();
        let expires_at = now.after_seconds(lifetime.seconds());
        let number = timeline.push(expires_at, slot, amount, newest);
        limit.hold(amount, number);
        self.next_expiry = self.next_expiry.min(expires_at);
        let low = u32::try_from(number & u64::from(u32::MAX)).expect("32 bits");
        Made { number: low, lifetime }
    }

    /// The amount of a live reservation.
    pub(super) fn amount_of(&self, slot: u32, made: Made) -> u64 {
        let timeline = &self.timelines[self.timeline_of(self.limit(slot), made) as usize];
        timeline.entry(timeline.number_of(made.number)).held.amount()
    }

    /// The lease of a live reservation has ended; `actual` is what it used, if that is known.
    #[inline]
    pub(super) fn end(&mut self, slot: u32, made: Made, actual: Option<u64>) {
        let at = self.timeline_of(self.limit(slot), made);
        let timeline = &mut self.timelines[at as usize];
        let limit = self.slots[slot as usize].as_mut().expect("a live reservation's limit");
        let number = timeline.number_of(made.number);
        debug_assert_eq!(timeline.entry(number).slot, slot, "the reservation is live");
        timeline.close(number, |reserved| {
            if made.lifetime.is_hold() {
                limit.release(reserved)
            } else {
                limit.reconcile(at, number, reserved, actual)
            }
        });
        if limit.is_deleted() && limit.live_count() == 0 {
            self.slots[slot as usize] = None;
            self.free.push(slot);
        }
    }

    /// The timeline that a live reservation is in: that of its limit, unless the lifetime has changed since.
    #[inline]
    fn timeline_of(&self, limit: &LiveLimit, made: Made) -> u32 {
        let is_it = |timeline: &Timeline| timeline.lifetime() == made.lifetime;
        let present = limit.place().timeline;
        if is_it(&self.timelines[present as usize]) {
            return present;
        }
        let at = self.timelines.iter().position(is_it);
        number_of(at.expect("a live reservation keeps its timeline"))
    }

    /// When to ask again for an amount that does not fit now. `random` is in 0..1.
    pub(super) fn hint(
        &mut self,
        slot: u32,
        now: Timestamp,
        amount: u64,
        policy: &HintPolicy,
        random: f64,
    ) -> Duration {
        let limit = self.limit(slot);
        let backoff = policy.delay(limit.kind(), limit.denial_streak().max(1), random);
        if limit.is_concurrency() {
            return backoff;
        }
        let has_open_leases = limit.has_open_leases();
        match self.freed_at(slot, amount - limit.available()) {
            Some(freed_at) if has_open_leases => freed_at.since(now).min(backoff),
            Some(freed_at) => freed_at.since(now),
            // A denied lease that is repeated may ask for more than the capacity has become.
            None => backoff,
        }
    }

    /// When so much of a rolling limit will have expired that `amount` is free, if nothing else changes.
    fn freed_at(&mut self, slot: u32, amount: u64) -> Option<Timestamp> {
        let Self { slots, timelines, .. } = self;
        let limit = slots[slot as usize].as_mut().expect("the slot was found for a key");
        let share = |Place { timeline, newest }| Share {
            timeline: &timelines[timeline as usize],
            slot,
            newest,
        };
        limit.forget_older(|place| is_live(timelines, place));
        let is_one = limit.places().nth(1).is_none();
        if is_one && limit.live_count() < SUMS_COUNT_MIN {
            return share(limit.place()).freed_at(amount, limit.used());
        }
        if !limit.has_sums() {
            let sums = limit.places().map(|place| (place.timeline, share(place).sums()));
            let sums = sums.collect();
            limit.keep_sums(sums);
        }
        let with_sums = |place: Place| (share(place), limit.sums(place.timeline));
        let shares: Vec<_> = limit.places().map(with_sums).collect();
        match shares[..] {
            [(share, sums)] => share.freed_at_by_sums(amount, sums),
            _ => freed_at_over(&shares, amount),
        }
    }

    /// Defines a limit, or changes it.
    pub(super) fn define(
        &mut self,
        now: Timestamp,
        limit: Limit,
    ) -> Result<LimitStatus, DefineError> {
        self.expire(now);
        match self.find(&limit.key) {
            Some((slot, _)) => {
                let timeline = self.timeline_for(limit.kind);
                let Self { slots, timelines, .. } = self;
                let live = slots[slot as usize].as_mut().expect("the slot was found for a key");
                live.forget_older(|place| is_live(timelines, place));
                live.redefine(limit, timeline)
            }
            None => Ok(self.insert(RegisteredLimit::active(limit))),
        }
    }

    /// Puts a limit back as it was registered. What is live of a limit of the same kind stays.
    pub(super) fn restore(&mut self, now: Timestamp, registered: RegisteredLimit) -> LimitStatus {
        let RegisteredLimit { limit, .. } = &registered;
        let target = Limit { capacity: registered.target(), ..limit.clone() };
        let defined = self.find(&limit.key).map(|(_, live)| live.kind());
        if defined.is_some_and(|kind| kind.is_same_kind(limit.kind)) {
            // First the capacity that was in force, then the one that waited for room below it.
            let restored = self.define(now, limit.clone()).and_then(|_| self.define(now, target));
            return restored.expect("the kind is the same");
        }
        self.remove(&limit.key);
        self.insert(registered)
    }

    /// Puts in a limit whose key is not defined. Nothing of it is live, so a decrease that was under way ends here.
    pub(super) fn insert(&mut self, registered: RegisteredLimit) -> LimitStatus {
        let hash = registered.limit.key.place().hash();
        let timeline = self.timeline_for(registered.limit.kind);
        let live = LiveLimit::new(registered, timeline);
        let status = live.status();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            number_of(self.slots.len() - 1)
        });
        self.slots[slot as usize] = Some(live);
        self.index.insert(hash, slot);
        status
    }

    /// The timeline for reservations of this kind. One that is not in use becomes it before there is a new one, so that
    /// there are never more than the limits and the live reservations need.
    fn timeline_for(&mut self, kind: LimitKind) -> u32 {
        let lifetime = Lifetime::of(kind);
        if let Some(at) = self.timelines.iter().position(|t| t.lifetime() == lifetime) {
            return number_of(at);
        }
        let mut in_use: Vec<_> = self.timelines.iter().map(|t| !t.is_empty()).collect();
        for place in self.slots.iter().flatten().flat_map(LiveLimit::places) {
            in_use[place.timeline as usize] = true;
        }
        let timeline = Timeline::new(lifetime);
        if let Some(at) = in_use.iter().position(|in_use| !in_use) {
            self.timelines[at] = timeline;
            return number_of(at);
        }
        self.timelines.push(timeline);
        number_of(self.timelines.len() - 1)
    }

    /// Takes a limit out of force; false if the key is not defined.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        let is_key = |slot| self.limit(slot).key() == key;
        let Some(found) = self.index.find(key.place().hash(), is_key) else {
            return false;
        };
        self.index.remove(found);
        self.index.give_room_back();
        let slot = found.place;
        let limit = self.limit_mut(slot);
        limit.delete();
        if limit.live_count() == 0 {
            self.slots[slot as usize] = None;
            self.free.push(slot);
        }
        true
    }

    /// Returns what has expired, ends decreases that have become possible, and gives unused room back.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.expire(now);
        self.timelines.iter_mut().for_each(Timeline::give_room_back);
    }
}

/// True if the newest reservation at a place of a rolling limit has not expired.
fn is_live(timelines: &[Timeline], place: &Place) -> bool {
    timelines[place.timeline as usize].numbers().contains(&place.newest)
}

fn number_of(at: usize) -> u32 {
    u32::try_from(at).expect("a shard has fewer than 2^32 limits and lifetimes")
}
