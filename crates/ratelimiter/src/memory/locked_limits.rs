//! Several shards of limits, locked together.

use std::sync::{Mutex, MutexGuard};

use smallvec::SmallVec;

use super::limit_shard::LimitShard;
use super::live_limit::LiveLimit;
use super::open_leases::LimitPlace;
use crate::key::LimitKey;
use crate::request::REQUIREMENTS_MAX;

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
        let shards = (0..LimitPlace::SHARD_COUNT).map(|_| Padded::default()).collect();
        Self { shards }
    }

    fn lock_one(&self, shard: u8) -> MutexGuard<'_, LimitShard> {
        let shard = &self.shards[usize::from(shard)].0;
        shard.lock().expect("no thread has panicked while it held a lock")
    }

    /// Locks the shard that a key belongs to.
    pub(super) fn lock_for(&self, key: &LimitKey) -> MutexGuard<'_, LimitShard> {
        self.lock_one(key.place().shard())
    }

    /// Locks several shards, always in the same order, so that no two threads wait for each other.
    pub(super) fn lock(&self, shards: impl Iterator<Item = u8>) -> LockedLimits<'_> {
        let mut order = [0; REQUIREMENTS_MAX];
        let mut count = 0;
        for shard in shards {
            // Mostly a request needs two shards, so that a look at those before is cheaper than to sort.
            let at = order[..count].iter().position(|other| *other >= shard).unwrap_or(count);
            if at == count || order[at] != shard {
                order.copy_within(at..count, at + 1);
                order[at] = shard;
                count += 1;
            }
        }
        let guards = order[..count].iter().map(|shard| (*shard, self.lock_one(*shard))).collect();
        LockedLimits { guards }
    }

    /// Locks every shard in turn.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, LimitShard>> {
        (0..=u8::MAX).map(|shard| self.lock_one(shard))
    }
}

/// The shards that one request needs.
#[derive(Debug)]
pub(super) struct LockedLimits<'a> {
    /// The locked shards by growing number.
    guards: SmallVec<[(u8, MutexGuard<'a, LimitShard>); 4]>,
}

impl LockedLimits<'_> {
    pub(super) fn shard(&mut self, shard: u8) -> &mut LimitShard {
        let guard = self.guards.iter_mut().find(|(number, _)| *number == shard);
        &mut guard.expect("the shard was locked for this request").1
    }

    /// The limit at a place where one was found under these locks.
    pub(super) fn limit(&mut self, place: LimitPlace) -> &mut LiveLimit {
        self.shard(place.shard()).limit(place.slot())
    }

    /// The limit that is at a place now, if any; perhaps another one than when the place was noted.
    pub(super) fn limit_at(&mut self, place: LimitPlace) -> Option<&mut LiveLimit> {
        self.shard(place.shard()).limit_at(place.slot())
    }
}
