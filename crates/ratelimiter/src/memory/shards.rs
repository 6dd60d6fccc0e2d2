//! Data in shards with one lock each, so that threads rarely wait for each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shards, whose number is a power of two.
#[derive(Debug)]
pub(super) struct Shards<T>(Box<[Shard<T>]>);

/// A shard on its own cache lines, to avoid false sharing.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard<T>(Mutex<T>);

impl<T> Shards<T> {
    pub(super) fn new(shards: impl Iterator<Item = T>) -> Self {
        Self(shards.map(|shard| Shard(Mutex::new(shard))).collect())
    }

    /// Locks a shard by its number, of which the lowest bits count.
    #[inline]
    pub(super) fn lock(&self, number: usize) -> MutexGuard<'_, T> {
        self.0[number & (self.0.len() - 1)].lock()
    }

    /// Every shard, to be locked.
    pub(super) fn each(&self) -> impl Iterator<Item = &Shard<T>> {
        self.0.iter()
    }
}

impl<T> Shard<T> {
    /// Locks the shard, even if a thread panicked while it held the lock: [`PoisonFlag`](super::poison::PoisonFlag) decides whether
    /// the state can be trusted.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
