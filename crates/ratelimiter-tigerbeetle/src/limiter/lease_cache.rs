//! A bounded cache of open leases, used by Complete.
//!
//! Correctness does not depend on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use foldhash::fast::RandomState;
use ratelimiter::{JobId, LeaseId};

use super::lease::Lease;
use crate::lock::lock;

/// Callers contend only when their leases are in the same shard.
const SHARDS: usize = 16;

/// Open leases that were allowed here; the oldest are evicted first.
#[derive(Debug)]
pub(super) struct LeaseCache {
    shards: Vec<Mutex<Shard>>,
    leases_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    leases: HashMap<LeaseId, Lease, RandomState>,
    /// Their IDs, oldest first, including some removed ones; at most twice the bound on leases.
    order: VecDeque<LeaseId>,
}

impl LeaseCache {
    /// A cache of about `leases_max` leases.
    pub(super) fn new(leases_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, leases_max: leases_max.div_ceil(SHARDS) }
    }

    pub(super) fn get(&self, id: LeaseId) -> Option<Lease> {
        self.shard(id).leases.get(&id).cloned()
    }

    pub(super) fn insert(&self, lease: Lease) {
        if self.leases_max == 0 {
            return;
        }
        let id = lease.id;
        let mut shard = self.shard(id);
        if shard.leases.insert(id, lease).is_none() {
            shard.order.push_back(id);
        }
        shard.keep_within(self.leases_max);
    }

    pub(super) fn has(&self, id: LeaseId) -> bool {
        self.shard(id).leases.contains_key(&id)
    }

    pub(super) fn remove(&self, id: LeaseId) {
        self.shard(id).leases.remove(&id);
    }

    /// Sets the job ID of a lease, if it is here.
    pub(super) fn set_job(&self, id: LeaseId, job: &JobId) {
        if let Some(lease) = self.shard(id).leases.get_mut(&id) {
            lease.job = Some(Box::new(job.clone()));
        }
    }

    /// The IDs of all leases, shard by shard. Some may be gone, and some be there twice.
    pub(super) fn ids(&self) -> impl Iterator<Item = Vec<LeaseId>> {
        self.shards.iter().map(|shard| lock(shard).order.iter().copied().collect())
    }

    /// Passes those of the leases that are here to `look`, all under one lock. They are of one shard.
    pub(super) fn look_at(&self, ids: &[LeaseId], look: impl FnMut(&Lease)) {
        let Some(first) = ids.first() else { return };
        let shard = self.shard(*first);
        ids.iter().filter_map(|id| shard.leases.get(id)).for_each(look);
    }

    pub(super) fn len(&self) -> usize {
        let lens = self.shards.iter().map(|shard| lock(shard).leases.len());
        lens.sum()
    }

    fn shard(&self, id: LeaseId) -> MutexGuard<'_, Shard> {
        // The low bits of a ULID are random.
        let low = id.as_u128().to_le_bytes()[0];
        lock(&self.shards[usize::from(low) % SHARDS])
    }
}

impl Shard {
    fn keep_within(&mut self, leases_max: usize) {
        while self.leases.len() > leases_max {
            let oldest = self.order.pop_front().expect("every lease is in the order");
            self.leases.remove(&oldest);
        }
        if self.order.len() > 2 * leases_max {
            self.order.retain(|id| self.leases.contains_key(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use ratelimiter::clock::Timestamp;
    use smallvec::SmallVec;

    use super::*;
    use crate::limiter::lease::Claim;

    fn lease(id: u128) -> Lease {
        let reserved_at = Timestamp::from_unix_ms(1);
        let id = LeaseId::from_u128(id);
        let claim = Claim::Kept;
        let reservations = SmallVec::new();
        Lease { id, reserved_at, job: None, claim, reservations, renewed: None }
    }

    #[test]
    fn tb_04_the_oldest_leases_go_first_and_the_bound_holds() {
        let cache = LeaseCache::new(SHARDS * 3);
        for id in 0..1_000 {
            cache.insert(lease(id));
            assert!(cache.len() <= SHARDS * 3);
        }
        let known = (0..1_000).filter(|id| cache.get(LeaseId::from_u128(*id)).is_some());
        assert_eq!(known.collect::<Vec<_>>(), (952..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn leases_that_ended_leave_nothing_behind() {
        let cache = LeaseCache::new(SHARDS * 3);
        cache.insert(lease(0));
        for id in 1..1_000 {
            cache.insert(lease(id * SHARDS as u128));
            cache.remove(LeaseId::from_u128(id * SHARDS as u128));
        }
        assert_eq!(cache.len(), 1, "the one that is open");
        assert!(lock(&cache.shards[0]).order.len() <= 6);
    }

    #[test]
    fn tb_04_a_cache_may_be_empty() {
        let cache = LeaseCache::new(0);
        cache.insert(lease(1));
        assert_eq!(cache.len(), 0);
    }
}
