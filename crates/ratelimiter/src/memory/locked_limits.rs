//! Several shards of limits, locked together.

use std::sync::{Mutex, MutexGuard};

use smallvec::SmallVec;

use super::limit_shard::LimitShard;
use super::live_limit::LiveLimit;
use super::open_leases::LimitPlace;
use crate::clock::Timestamp;
use crate::key::{KeyPlace, LimitKey};

/// All limits, in shards that are locked on their own.
#[derive(Debug)]
pub(super) struct Limits {
    shards: Box<[Padded]>,
}

/// A shard on cache lines of its own, so that threads on different shards do not slow each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<LimitShard>);

impl Limits {
    pub(super) fn new() -> Self {
        let shards = (0..KeyPlace::SHARD_COUNT).map(|_| Padded::default()).collect();
        Self { shards }
    }

    #[inline]
    fn lock_one(&self, shard: usize) -> MutexGuard<'_, LimitShard> {
        self.shards[shard].0.lock().expect("no thread has panicked while it held a lock")
    }

    /// Locks the shard that a key belongs to.
    pub(super) fn lock_for(&self, key: &LimitKey) -> MutexGuard<'_, LimitShard> {
        self.lock_one(usize::from(key.place().shard()))
    }

    /// Locks several shards, always in the same order, so that no two threads wait for each other.
    #[inline]
    pub(super) fn lock(&self, shards: impl Iterator<Item = u8>) -> LockedLimits<'_> {
        // One bit a shard: what is to be locked, without doubles, and in order.
        let mut wanted = 0_u64;
        for shard in shards {
            wanted |= 1 << shard;
        }
        let mut guards = SmallVec::new();
        while wanted != 0 {
            let shard = wanted.trailing_zeros() as usize;
            guards.push((shard, self.lock_one(shard)));
            wanted &= wanted - 1;
        }
        LockedLimits { guards }
    }

    /// Locks every shard in turn.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, LimitShard>> {
        (0..self.shards.len()).map(|shard| self.lock_one(shard))
    }
}

/// The shards that one request needs.
#[derive(Debug)]
pub(super) struct LockedLimits<'a> {
    /// The locked shards by growing number.
    guards: SmallVec<[(usize, MutexGuard<'a, LimitShard>); 4]>,
}

/// Which of the locked shards.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockedShard(u8);

impl LockedLimits<'_> {
    /// Returns what has expired in all these shards.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) {
        for (_, shard) in &mut self.guards {
            shard.expire(now);
        }
    }

    /// Finds a shard among the locked ones, to ask for it several times.
    #[inline]
    pub(super) fn find(&self, shard: u8) -> LockedShard {
        let mut at = 0;
        while self.guards[at].0 != usize::from(shard) {
            at += 1;
        }
        LockedShard(u8::try_from(at).expect("a request has at most 32 shards"))
    }

    #[inline]
    pub(super) fn shard(&self, at: LockedShard) -> &LimitShard {
        &self.guards[usize::from(at.0)].1
    }

    #[inline]
    pub(super) fn shard_mut(&mut self, at: LockedShard) -> &mut LimitShard {
        &mut self.guards[usize::from(at.0)].1
    }

    /// The limit at a place where one was found under these locks, or where a live reservation is.
    #[inline]
    pub(super) fn limit(&self, place: LimitPlace) -> &LiveLimit {
        self.shard(self.find(place.shard())).limit(place.slot())
    }
}
