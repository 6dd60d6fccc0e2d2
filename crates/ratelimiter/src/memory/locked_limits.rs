//! Several shards of limits, locked together.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};

use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;

use super::limit_shard::LimitShard;
use super::live_limit::LiveLimit;
use super::open_leases::LimitPlace;
use crate::key::LimitKey;

/// All limits, in shards that are locked on their own.
#[derive(Debug)]
pub(super) struct Limits {
    shards: Box<[Padded]>,
    hasher: DefaultHashBuilder,
}

/// A shard on cache lines of its own, so that threads on different shards do not slow each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<LimitShard>);

/// A key's hash, and what follows from it. The table of a shard uses the lowest and the highest bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyHash(pub(super) u64);

impl KeyHash {
    pub(super) const fn shard(self) -> u8 {
        self.0.to_le_bytes()[5]
    }

    /// What a lease remembers of the key.
    pub(super) const fn tag(self) -> u32 {
        let bytes = self.0.to_le_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Limits {
    pub(super) fn new() -> Self {
        let shards = (0..LimitPlace::SHARD_COUNT)
            .map(|_| Padded::default())
            .collect();
        Self {
            shards,
            hasher: DefaultHashBuilder::default(),
        }
    }

    pub(super) fn hash(&self, key: &LimitKey) -> KeyHash {
        KeyHash(self.hasher.hash_one(key.as_str()))
    }

    /// Locks one shard.
    pub(super) fn lock_one(&self, shard: u8) -> MutexGuard<'_, LimitShard> {
        let shard = &self.shards[usize::from(shard)].0;
        shard
            .lock()
            .expect("no thread has panicked while it held a lock")
    }

    /// Locks several shards, always in the same order, so that no two threads wait for each other.
    pub(super) fn lock(&self, shards: impl Iterator<Item = u8>) -> LockedLimits<'_> {
        let mut order: SmallVec<[u8; 32]> = shards.collect();
        order.sort_unstable();
        order.dedup();
        let guards = order
            .into_iter()
            .map(|shard| (shard, self.lock_one(shard)))
            .collect();
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

    /// Where the limit of a key is.
    pub(super) fn find(&mut self, hash: KeyHash, key: &LimitKey) -> Option<LimitPlace> {
        let shard = hash.shard();
        let slot = self.shard(shard).find(hash.0, key)?;
        Some(LimitPlace::new(shard, slot))
    }

    /// The limit at a place where one was found under these locks.
    pub(super) fn limit(&mut self, place: LimitPlace) -> &mut LiveLimit {
        self.shard(place.shard()).limit(place.slot())
    }

    /// The limit that gave out a reservation; `None` if it was deleted.
    pub(super) fn limit_of(&mut self, place: LimitPlace, number: u64) -> Option<&mut LiveLimit> {
        let limit = self.shard(place.shard()).limit_at_mut(place.slot())?;
        limit.gave_out(number).then_some(limit)
    }
}
