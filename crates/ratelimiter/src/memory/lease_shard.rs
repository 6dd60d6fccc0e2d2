//! A part of the leases: open and past ones whose IDs fall into one shard.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};

use hashbrown::DefaultHashBuilder;

use super::MemoryOptions;
use super::open_leases::{OpenLease, OpenLeases};
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

/// What is known of a lease.
#[derive(Debug)]
pub(super) enum Known<'a> {
    Open(&'a OpenLease),
    Past(Past),
}

impl Leases {
    pub(super) fn new(options: &MemoryOptions) -> Self {
        let wanted = options.remember_max / REMEMBERED_PER_SHARD_MIN;
        let count = prev_power_of_two(wanted.clamp(1, SHARD_COUNT_MAX));
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
    pub(super) fn lock(&self, id: LeaseId) -> MutexGuard<'_, LeaseShard> {
        // The tables of a shard use the lowest and the highest bits.
        let part = self.hasher.hash_one(id.as_u128()).to_le_bytes()[5];
        lock(&self.shards[usize::from(part) % self.shards.len()])
    }

    /// Locks every shard in turn.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, LeaseShard>> {
        self.shards.iter().map(lock)
    }
}

fn lock(shard: &Padded) -> MutexGuard<'_, LeaseShard> {
    shard
        .0
        .lock()
        .expect("no thread has panicked while it held a lock")
}

fn prev_power_of_two(number: usize) -> usize {
    1 << number.ilog2()
}

impl LeaseShard {
    /// What is known of a lease, after what is too old was forgotten.
    pub(super) fn known(&mut self, now: Timestamp, id: LeaseId) -> Option<Known<'_>> {
        self.forget_old(now);
        let hash = self.hasher.hash_one(id.as_u128());
        if let Some(lease) = self.open.get(hash, id) {
            return Some(Known::Open(lease));
        }
        self.past.get(hash, id).map(Known::Past)
    }

    /// An open lease.
    pub(super) fn open(&self, id: LeaseId) -> Option<&OpenLease> {
        self.open.get(self.hasher.hash_one(id.as_u128()), id)
    }

    /// Adds a lease that was allowed.
    pub(super) fn add(&mut self, lease: OpenLease, ends_at: Timestamp) {
        let hasher = &self.hasher;
        self.open
            .insert(lease, ends_at, |id| hasher.hash_one(id.as_u128()));
    }

    /// Remembers a lease that was denied.
    pub(super) fn deny(&mut self, now: Timestamp, id: LeaseId, past: Past) {
        let hasher = &self.hasher;
        self.past
            .remember(now, id, past, |id| hasher.hash_one(id.as_u128()));
    }

    /// Ends an open lease.
    pub(super) fn end(&mut self, now: Timestamp, id: LeaseId) {
        let hasher = &self.hasher;
        let hash_of = |id: LeaseId| hasher.hash_one(id.as_u128());
        self.open.remove(id, hash_of);
        self.past.remember(now, id, Past::Ended, hash_of);
    }

    fn forget_old(&mut self, now: Timestamp) {
        let hasher = &self.hasher;
        self.past
            .forget_old(now, |id| hasher.hash_one(id.as_u128()));
    }

    /// Ends the leases of which nothing is live any more, and forgets what is too old.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.forget_old(now);
        let Self {
            open, past, hasher, ..
        } = self;
        let hash_of = |id: LeaseId| hasher.hash_one(id.as_u128());
        open.expire(now, hash_of, |id| {
            past.remember(now, id, Past::Ended, hash_of);
        });
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    pub(super) fn past_count(&self) -> usize {
        self.past.len()
    }
}
