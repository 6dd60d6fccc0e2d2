//! Ended and denied leases, whose IDs are not allowed again for a while.
//!
//! There may be a million of them and few are requested again, so they are appended to chunks in the order in which they ended,
//! without an index. IDs begin with their creation time: a new one is usually greater than all IDs here. For any other, each chunk has
//! an ID range and a Bloom filter.

use std::collections::VecDeque;
use std::time::Duration;

use super::lease_index::HashedId;
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// Leases per chunk.
const CHUNK: usize = 128;
/// Leases are appended to a chunk in batches of this size: batching turns one cache miss per lease into one per batch.
const RECENT_MAX: usize = 32;
const _: () = assert!(CHUNK.is_multiple_of(RECENT_MAX));
/// 64-bit words of a filter: 16 bits per lease, so that one lease in 16 is a false positive.
const FILTER_WORDS: usize = CHUNK / 4;
/// Lists with at most this capacity are not shrunk.
const ROOM_KEPT: usize = 16;

/// The outcome of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PastOutcome {
    /// It was completed, or all its reservations have expired.
    Ended,
    /// It was denied; the first limit without room has a key with this tag.
    Denied(u32),
}

impl PastOutcome {
    /// A denied lease's tag, or 0 for one that has ended. A tag of 0 is taken for 1: tags need not be exact.
    const fn to_bits(self) -> u32 {
        match self {
            Self::Ended => 0,
            Self::Denied(0) => 1,
            Self::Denied(tag) => tag,
        }
    }

    const fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Ended,
            tag => Self::Denied(tag),
        }
    }
}

/// The place of a past lease, valid until it is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PastPlace(u32);

/// The past leases of one shard, oldest first, bounded in number and age.
///
/// Threads that end leases write to these fields in turn, so their cache lines move between processors; so they are few, and rarely
/// used fields are in [`OlderLeases`].
#[derive(Debug)]
pub(super) struct PastLeases {
    /// The greatest ID since it was last empty.
    greatest: LeaseId,
    /// One bit for the hash of each ID in `recent`.
    recent_hashes: u128,
    /// The newest leases, fewer than [`RECENT_MAX`].
    recent: Vec<PastLease>,
    /// Number of remembered leases.
    count: usize,
    remember_max: usize,
    /// No lease is old enough to be forgotten before this moment.
    next_forgotten_at: Timestamp,
    older: Box<OlderLeases>,
}

/// All but the newest leases, and the fields that are rarely used.
#[derive(Debug)]
struct OlderLeases {
    remember_for_nanos: u64,
    /// Number of forgotten leases, modulo 2^32. A place is this plus the position among the remembered ones, so that it stays valid
    /// while older leases are forgotten.
    forgotten: u32,
    /// Number of forgotten leases in the first chunk, which is dropped as a whole.
    forgotten_here: usize,
    chunks: VecDeque<Chunk>,
    /// The leases after those in the chunks, fewer than [`CHUNK`].
    filling: Vec<PastLease>,
    /// The filter of `filling`.
    filter: ChunkFilter,
}

#[derive(Debug)]
struct Chunk {
    /// No ID in this or an earlier chunk is greater, so that the search for a slightly late ID stops here.
    greatest_until: LeaseId,
    filter: ChunkFilter,
    leases: Box<[PastLease]>,
}

#[derive(Debug, Clone, Copy)]
struct PastLease {
    id: LeaseId,
    since: Timestamp,
    hash: u32,
    /// See [`PastOutcome::to_bits`].
    past: u32,
}

/// A Bloom filter: `false` means that the ID is not in the chunk.
#[derive(Debug)]
struct ChunkFilter {
    least: LeaseId,
    greatest: LeaseId,
    /// One bit for the hash of each ID.
    hashes: Box<[u64; FILTER_WORDS]>,
}

impl ChunkFilter {
    fn empty() -> Self {
        let (least, greatest) = (LeaseId::from_u128(u128::MAX), LeaseId::from_u128(0));
        Self { least, greatest, hashes: Box::new([0; FILTER_WORDS]) }
    }

    #[inline]
    const fn bit(hash: u32) -> (usize, u64) {
        (hash as usize / 64 % FILTER_WORDS, 1 << (hash % 64))
    }

    #[inline]
    fn add(&mut self, HashedId { id, hash }: HashedId) {
        self.least = self.least.min(id);
        self.greatest = self.greatest.max(id);
        let (word, bit) = Self::bit(hash);
        self.hashes[word] |= bit;
    }

    fn may_have(&self, HashedId { id, hash }: HashedId) -> bool {
        let (word, bit) = Self::bit(hash);
        self.least <= id && id <= self.greatest && self.hashes[word] & bit != 0
    }
}

impl OlderLeases {
    /// Number of stored leases, forgotten ones included.
    fn len(&self) -> usize {
        self.chunks.len() * CHUNK + self.filling.len()
    }

    /// Adds the newest leases.
    fn append(&mut self, recent: &mut Vec<PastLease>) {
        for PastLease { id, hash, .. } in &*recent {
            self.filter.add(HashedId { id: *id, hash: *hash });
        }
        self.filling.reserve_exact(CHUNK - self.filling.len());
        self.filling.append(recent);
        if self.filling.len() == CHUNK {
            let filter = std::mem::replace(&mut self.filter, ChunkFilter::empty());
            let leases = std::mem::take(&mut self.filling).into_boxed_slice();
            let before = self.chunks.back().map_or(filter.greatest, |chunk| chunk.greatest_until);
            let greatest_until = before.max(filter.greatest);
            self.chunks.push_back(Chunk { greatest_until, filter, leases });
        }
    }

    /// The position of a lease, forgotten ones included; the newest first.
    fn position(&self, id: HashedId) -> Option<usize> {
        if self.filter.may_have(id)
            && let Some(at) = position_in(&self.filling, id)
        {
            return Some(self.chunks.len() * CHUNK + at);
        }
        let chunks = self.chunks.iter().enumerate().rev();
        let mut late = chunks.take_while(|(_, chunk)| id.id <= chunk.greatest_until);
        late.find_map(|(n, Chunk { filter, leases, .. })| {
            let at = filter.may_have(id).then(|| position_in(leases, id))??;
            Some(n * CHUNK + at)
        })
    }

    /// When a lease that ended at `since` may be forgotten.
    const fn old_at(&self, since: Timestamp) -> Timestamp {
        Timestamp::from_unix_nanos(since.unix_nanos().saturating_add(self.remember_for_nanos))
    }
}

fn position_in(leases: &[PastLease], id: HashedId) -> Option<usize> {
    leases.iter().rposition(|lease| lease.hash == id.hash && lease.id == id.id)
}

#[inline]
const fn recent_bit(hash: u32) -> u128 {
    1 << (hash % 128)
}

impl PastLeases {
    pub(super) fn new(remember_for: Duration, remember_max: usize) -> Self {
        assert!(remember_max < 1 << 30, "a place fits 32 bits");
        Self {
            greatest: LeaseId::from_u128(0),
            recent_hashes: 0,
            recent: Vec::new(),
            count: 0,
            remember_max,
            next_forgotten_at: Timestamp::from_unix_nanos(0),
            older: Box::new(OlderLeases {
                // More than a u64 of nanoseconds means forever.
                remember_for_nanos: u64::try_from(remember_for.as_nanos()).unwrap_or(u64::MAX),
                forgotten: 0,
                forgotten_here: 0,
                chunks: VecDeque::new(),
                filling: Vec::new(),
                filter: ChunkFilter::empty(),
            }),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// The lease at a position among the remembered ones.
    fn get(&self, at: usize) -> Option<&PastLease> {
        let older = &self.older;
        let at = at + older.forgotten_here;
        if let Some(chunk) = older.chunks.get(at / CHUNK) {
            return chunk.leases.get(at % CHUNK);
        }
        let at = at - older.chunks.len() * CHUNK;
        older.filling.get(at).or_else(|| self.recent.get(at - older.filling.len()))
    }

    /// Finds a lease that is remembered.
    #[inline]
    pub(super) fn find(&self, id: HashedId) -> Option<PastPlace> {
        if id.id > self.greatest { None } else { self.search(id) }
    }

    fn search(&self, id: HashedId) -> Option<PastPlace> {
        let Self { recent, recent_hashes, older, .. } = self;
        let may_be_recent = recent_hashes & recent_bit(id.hash) != 0;
        let recent = may_be_recent.then(|| position_in(recent, id)).flatten();
        let at = recent.map(|at| older.len() + at).or_else(|| older.position(id))?;
        let at = at.checked_sub(older.forgotten_here)?;
        let at = u32::try_from(at).expect("at most one above `remember_max`");
        Some(PastPlace(older.forgotten.wrapping_add(at)))
    }

    /// The outcome of the lease at a place where it was found, unless it is old enough to be forgotten.
    pub(super) fn past_at(
        &self,
        PastPlace(place): PastPlace,
        now: Timestamp,
    ) -> Option<PastOutcome> {
        let at = place.wrapping_sub(self.older.forgotten) as usize;
        let lease = self.get(at)?;
        (now < self.older.old_at(lease.since)).then_some(PastOutcome::from_bits(lease.past))
    }

    /// Adds a new lease, and forgets the oldest ones if there are too many or they are too old.
    #[inline]
    pub(super) fn push(
        &mut self,
        now: Timestamp,
        HashedId { id, hash }: HashedId,
        past: PastOutcome,
    ) {
        self.recent.push(PastLease { id, since: now, hash, past: past.to_bits() });
        self.recent_hashes |= recent_bit(hash);
        self.greatest = self.greatest.max(id);
        self.count += 1;
        if self.recent.len() == RECENT_MAX {
            self.recent_hashes = 0;
            self.older.append(&mut self.recent);
        }
        if self.count > self.remember_max || self.next_forgotten_at <= now {
            self.forget_excess(now);
        }
    }

    #[cold]
    fn forget_excess(&mut self, now: Timestamp) {
        while self.count > self.remember_max {
            self.forget_oldest();
        }
        if self.next_forgotten_at <= now {
            self.forget_old(now);
        }
    }

    /// Forgets all that are too old.
    pub(super) fn forget_old(&mut self, now: Timestamp) {
        while let Some(oldest) = self.get(0) {
            self.next_forgotten_at = self.older.old_at(oldest.since);
            if now < self.next_forgotten_at {
                return;
            }
            self.forget_oldest();
        }
        // It is empty: nothing that is added from now on is forgotten before then.
        self.next_forgotten_at = self.older.old_at(now);
    }

    fn forget_oldest(&mut self) {
        let older = &mut self.older;
        self.count -= 1;
        older.forgotten = older.forgotten.wrapping_add(1);
        older.forgotten_here += 1;
        if older.forgotten_here == CHUNK {
            older.chunks.pop_front().expect("a whole chunk of leases is in `chunks`");
            older.forgotten_here = 0;
        }
    }

    pub(super) fn shrink_to_fit(&mut self) {
        let older = &mut self.older;
        if self.count == 0 {
            (self.recent, self.recent_hashes) = (Vec::new(), 0);
            self.greatest = LeaseId::from_u128(0);
            (older.chunks, older.filling) = (VecDeque::new(), Vec::new());
            older.filter = ChunkFilter::empty();
            older.forgotten_here = 0;
        }
        let count = older.chunks.len();
        if older.chunks.capacity() > ROOM_KEPT && count < older.chunks.capacity() / 4 {
            older.chunks.shrink_to(count + count / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    /// Whether IDs grow, fall, or come in no order.
    #[test]
    fn leases_are_found_whatever_the_order_of_their_ids() {
        for order in 0..3 {
            let hashed = |n: u32| {
                let id = match order {
                    0 => n + 1,
                    1 => u32::MAX - n,
                    _ => n.wrapping_mul(0x9e37_79b9),
                };
                HashedId { id: LeaseId::from_u128(id.into()), hash: n.wrapping_mul(0x85eb_ca6b) }
            };
            let mut leases = PastLeases::new(Duration::MAX, 700);
            for n in 0..3_000_u32 {
                assert_eq!(leases.find(hashed(n)), None, "{n}");
                leases.push(at(n.into()), hashed(n), PastOutcome::Denied(n + 1));
                for age in [0, 1, 40, 300, 699, 700, 701] {
                    let Some(n) = n.checked_sub(age) else { continue };
                    let found = leases.find(hashed(n));
                    let past = found.and_then(|place| leases.past_at(place, at(9_999)));
                    assert_eq!(
                        past,
                        (age < 700).then_some(PastOutcome::Denied(n + 1)),
                        "{n}, {age}"
                    );
                }
            }
            assert_eq!(leases.len(), 700);
        }
    }
}
