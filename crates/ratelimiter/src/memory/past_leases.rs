//! The leases that have ended or were denied: their IDs are not allowed again for a while.

use std::collections::VecDeque;
use std::time::Duration;

use super::open_leases::LimitPlace;
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// Lists of fewer leases keep their room.
const ROOM_KEPT: usize = 64;

/// How many of the oldest leases a large memory forgets when it is full.
const FORGOTTEN_AT_ONCE: usize = 64;

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// It was completed, or all that it had reserved has expired.
    Ended,
    /// It was denied, first for want of room at this limit.
    Denied(LimitPlace),
}

/// A part of the past leases, oldest first: the newest ones, up to a number and an age. Where a lease stands is told by an index
/// elsewhere.
#[derive(Debug)]
pub(super) struct PastLeases {
    remember_for_nanos: u64,
    remember_max: usize,
    queue: VecDeque<PastLease>,
    /// How many leases have left the queue's front, modulo [`PLACE_COUNT`](Self::PLACE_COUNT). A place is this plus the
    /// position in the queue, so that it stays the same while older leases leave.
    forgotten: u32,
    /// Nothing is old enough to be forgotten before this moment.
    next_forgotten_at: Timestamp,
}

#[derive(Debug)]
struct PastLease {
    id: LeaseId,
    since: Timestamp,
    past: Past,
}

impl PastLeases {
    /// How many places there are.
    pub(super) const PLACE_COUNT: u32 = 1 << 30;

    pub(super) fn new(remember_for: Duration, remember_max: usize) -> Self {
        assert!(remember_max < 1 << 30, "there are places for all");
        Self {
            // More than a u64 of nanoseconds is for ever.
            remember_for_nanos: u64::try_from(remember_for.as_nanos()).unwrap_or(u64::MAX),
            remember_max,
            queue: VecDeque::new(),
            forgotten: 0,
            next_forgotten_at: Timestamp::from_unix_nanos(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    fn lease_at(&self, place: u32) -> &PastLease {
        let at = place.wrapping_sub(self.forgotten) % Self::PLACE_COUNT;
        &self.queue[at as usize]
    }

    pub(super) fn id_at(&self, place: u32) -> LeaseId {
        self.lease_at(place).id
    }

    pub(super) fn past_at(&self, place: u32) -> Past {
        self.lease_at(place).past
    }

    /// Adds a lease, and answers where. It may be one too many until [`PastLeases::is_too_many`] was asked.
    #[inline]
    pub(super) fn push(&mut self, now: Timestamp, id: LeaseId, past: Past) -> u32 {
        let at = u32::try_from(self.queue.len()).expect("at most one above `remember_max`");
        self.queue.push_back(PastLease { id, since: now, past });
        self.forgotten.wrapping_add(at) % Self::PLACE_COUNT
    }

    /// How many of the oldest must go, because there are too many. A large memory forgets several at once: their places in the
    /// index are far apart, and the machine fetches them side by side.
    #[inline]
    pub(super) fn excess(&self) -> usize {
        if self.queue.len() <= self.remember_max {
            return 0;
        }
        FORGOTTEN_AT_ONCE.min(self.remember_max.div_ceil(FORGOTTEN_AT_ONCE)).max(1)
    }

    /// True if the oldest may be old enough to be forgotten.
    #[inline]
    pub(super) fn may_be_old(&self, now: Timestamp) -> bool {
        self.next_forgotten_at <= now
    }

    /// Takes out the oldest lease if it is old enough, and answers with its place and ID.
    pub(super) fn forget_old(&mut self, now: Timestamp) -> Option<(u32, LeaseId)> {
        // If there is none, whatever comes is new.
        let oldest_since = self.queue.front().map_or(now, |oldest| oldest.since);
        let old_at = oldest_since.unix_nanos().saturating_add(self.remember_for_nanos);
        if self.queue.is_empty() || now.unix_nanos() < old_at {
            self.next_forgotten_at = Timestamp::from_unix_nanos(old_at);
            return None;
        }
        self.forget_oldest()
    }

    /// Takes out the oldest lease, and answers with its place and ID.
    pub(super) fn forget_oldest(&mut self) -> Option<(u32, LeaseId)> {
        let oldest = self.queue.pop_front()?;
        let place = self.forgotten;
        self.forgotten = place.wrapping_add(1) % Self::PLACE_COUNT;
        Some((place, oldest.id))
    }

    pub(super) fn give_room_back(&mut self) {
        let count = self.queue.len();
        if self.queue.capacity() > ROOM_KEPT && count < self.queue.capacity() / 4 {
            self.queue.shrink_to(count + count / 2);
        }
    }
}
