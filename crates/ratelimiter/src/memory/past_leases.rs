//! The leases that have ended or were denied: their IDs are not allowed again for a while.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// Lists of fewer leases keep their room.
const ROOM_KEPT: usize = 64;

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// It was completed, or all that it had reserved has expired.
    Ended,
    /// It was denied, first for want of room at the limit whose key has this tag.
    Denied(u32),
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

    fn lease_at(&self, place: u32) -> Option<&PastLease> {
        let at = place.wrapping_sub(self.forgotten) % Self::PLACE_COUNT;
        self.queue.get(at as usize)
    }

    /// The lease at a place, if it is not forgotten.
    pub(super) fn id_at(&self, place: u32) -> Option<LeaseId> {
        self.lease_at(place).map(|lease| lease.id)
    }

    /// What became of the lease at a place, if it is not old enough to be forgotten.
    pub(super) fn past_at(&self, place: u32, now: Timestamp) -> Option<Past> {
        let PastLease { since, past, .. } = self.lease_at(place)?;
        (now.unix_nanos() < self.old_at(*since)).then_some(*past)
    }

    /// When a lease that is past since then may be forgotten.
    fn old_at(&self, since: Timestamp) -> u64 {
        since.unix_nanos().saturating_add(self.remember_for_nanos)
    }

    /// Adds a lease, and answers where. It may be one too many until [`PastLeases::forget_excess`].
    #[inline]
    pub(super) fn push(&mut self, now: Timestamp, id: LeaseId, past: Past) -> u32 {
        let at = u32::try_from(self.queue.len()).expect("at most one above `remember_max`");
        self.queue.push_back(PastLease { id, since: now, past });
        self.forgotten.wrapping_add(at) % Self::PLACE_COUNT
    }

    /// Forgets the oldest if there are too many, or if it is too old.
    #[inline]
    pub(super) fn forget_excess(&mut self, now: Timestamp) {
        while self.queue.len() > self.remember_max {
            self.forget_oldest();
        }
        if self.next_forgotten_at <= now {
            self.forget_old(now);
        }
    }

    /// Forgets all that are too old.
    pub(super) fn forget_old(&mut self, now: Timestamp) {
        while let Some(oldest) = self.queue.front() {
            let old_at = self.old_at(oldest.since);
            self.next_forgotten_at = Timestamp::from_unix_nanos(old_at);
            if now.unix_nanos() < old_at {
                return;
            }
            self.forget_oldest();
        }
        // Whatever comes is new.
        self.next_forgotten_at = Timestamp::from_unix_nanos(self.old_at(now));
    }

    fn forget_oldest(&mut self) {
        self.queue.pop_front();
        self.forgotten = self.forgotten.wrapping_add(1) % Self::PLACE_COUNT;
    }

    pub(super) fn give_room_back(&mut self) {
        let count = self.queue.len();
        if self.queue.capacity() > ROOM_KEPT && count < self.queue.capacity() / 4 {
            self.queue.shrink_to(count + count / 2);
        }
    }
}
