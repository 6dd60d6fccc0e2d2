//! A part of the leases: open and past ones whose IDs fall into one shard.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};

use hashbrown::DefaultHashBuilder;

use super::MemoryOptions;
use super::open_leases::{LimitPlace, OpenLease, OpenLeases};
use super::past_leases::{Past, PastLeases};
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// The most shards that leases are spread over.
const SHARD_COUNT_MAX: usize = 64;
/// A shard remembers at least this many past leases, so that "the oldest first" holds exactly for a small memory and
/// nearly for a large one.
const REMEMBERED_PER_SHARD_MIN: usize = 4_096;

/// All leases, in shards that are locked on their own.
#[derive(Debug)]
pub(super) struct Leases {
    shards: Box<[Padded]>,
    hasher: DefaultHashBuilder,
}

/// A shard on cache lines of its own, so that threads on different shards do not slow each other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<LeaseShard>);

/// A part of the leases.
#[derive(Debug)]
pub(super) struct LeaseShard {
    open: OpenLeases,
    past: PastLeases,
    hasher: DefaultHashBuilder,
    /// Where the jitter of hints comes from.
    pub(super) random: fastrand::Rng,
}

/// A lease ID with its hash, which is made once a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashedId {
    pub(super) id: LeaseId,
    hash: u64,
}

/// What is known of a lease.
#[derive(Debug)]
pub(super) enum Known<'a> {
    Open(&'a OpenLease),
    Past(Past),
}

impl Leases {
    pub(super) fn new(options: &MemoryOptions) -> Self {
        // A power of two, so that some bits of the hash tell the shard.
        let wanted = options.remember_max / REMEMBERED_PER_SHARD_MIN;
        let count = 1 << wanted.clamp(1, SHARD_COUNT_MAX).ilog2();
        let hasher = DefaultHashBuilder::default();
        let mut seeds = fastrand::Rng::with_seed(options.seed);
        let shard = |number| {
            // The shares add up to the whole, so the bound over all shards is the one that was chosen.
            let share = options.remember_max / count;
            let rest = usize::from(number < options.remember_max % count);
            Padded(Mutex::new(LeaseShard {
                open: OpenLeases::default(),
                past: PastLeases::new(options.remember_for, share + rest),
                hasher: hasher.clone(),
                random: seeds.fork(),
            }))
        };
        let shards = (0..count).map(shard).collect();
        Self { shards, hasher }
    }

    /// Locks the shard of a lease.
    pub(super) fn lock(&self, id: LeaseId) -> (HashedId, MutexGuard<'_, LeaseShard>) {
        let hash = hash_by(&self.hasher, id);
        // The tables of a shard use the lowest and the highest bits.
        let part = usize::from(hash.to_le_bytes()[5]);
        let shard = &self.shards[part & (self.shards.len() - 1)];
        (HashedId { id, hash }, lock(shard))
    }

    /// Locks every shard in turn.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, LeaseShard>> {
        self.shards.iter().map(lock)
    }
}

/// Lease IDs are chosen by clients, so their hash is keyed at random.
fn hash_by(hasher: &DefaultHashBuilder, id: LeaseId) -> u64 {
    hasher.hash_one(id.as_u128())
}

fn lock(shard: &Padded) -> MutexGuard<'_, LeaseShard> {
    shard.0.lock().expect("no thread has panicked while it held a lock")
}

impl LeaseShard {
    /// What is known of a lease.
    pub(super) fn known(&mut self, now: Timestamp, id: HashedId) -> Option<Known<'_>> {
        let Self { open, past, hasher, .. } = self;
        if let Some(past) = past.get(now, id.hash, id.id, |id| hash_by(hasher, id)) {
            return Some(Known::Past(past));
        }
        open.find(id.hash, id.id).map(|at| Known::Open(open.at(at)))
    }

    /// Where an open lease stands.
    pub(super) fn find_open(&self, id: HashedId) -> Option<u32> {
        self.open.find(id.hash, id.id)
    }

    /// The open lease that stands here.
    pub(super) fn open_at(&self, at: u32) -> &OpenLease {
        self.open.at(at)
    }

    /// Adds a lease that was allowed.
    pub(super) fn add(&mut self, id: HashedId, lease: OpenLease, ends_at: Timestamp) {
        let hasher = &self.hasher;
        self.open.insert(id.hash, lease, ends_at, |id| hash_by(hasher, id));
    }

    /// Remembers a lease that was denied for want of room, first at this limit.
    pub(super) fn deny(&mut self, now: Timestamp, id: HashedId, first: LimitPlace) {
        let hasher = &self.hasher;
        let past = Past::Denied(first);
        self.past.remember(now, id.hash, id.id, past, |id| hash_by(hasher, id));
    }

    /// Ends the open lease that stands here.
    pub(super) fn end(&mut self, now: Timestamp, id: HashedId, at: u32) {
        let hasher = &self.hasher;
        let hash_of = |id| hash_by(hasher, id);
        self.open.remove(id.hash, at, hash_of);
        self.past.remember(now, id.hash, id.id, Past::Ended, hash_of);
    }

    /// Ends the leases of which nothing is live any more, and forgets what is too old.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let Self { open, past, hasher, .. } = self;
        let hash_of = |id| hash_by(hasher, id);
        past.forget_old(now, hash_of);
        open.expire(now, hash_of, |hash, id| {
            past.remember(now, hash, id, Past::Ended, hash_of);
        });
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    pub(super) fn past_count(&self) -> usize {
        self.past.len()
    }
}
