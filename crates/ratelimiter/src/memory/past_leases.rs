//! The leases that have ended or were denied: their IDs are not allowed again for a while.
//!
//! There may be a million of them, and hardly any is asked for again, so they are written once, in the order in which they ended,
//! and no table tells where each is. IDs begin with the time at which they were made: a new one is mostly greater than all that
//! stand here, and for another one the outlines of the chunks tell which few of them it may be in.

use std::collections::VecDeque;
use std::time::Duration;

use super::lease_index::HashedId;
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// How many leases a chunk has.
const CHUNK: usize = 128;
/// So many leases are gathered near the processor, then written to a chunk together: one at a time, each would wait for memory
/// that is far away.
const NEAR: usize = 32;
const _: () = assert!(CHUNK.is_multiple_of(NEAR));
/// How many words of 64 bits an outline has for the hashes: 16 bits a lease, so that one lease in 16 is taken for another.
const OUTLINE_WORDS: usize = CHUNK / 4;
/// Lists of fewer chunks keep their room.
const ROOM_KEPT: usize = 16;

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// It was completed, or all that it had reserved has expired.
    Ended,
    /// It was denied, first for want of room at the limit whose key has this tag.
    Denied(u32),
}

impl Past {
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

/// Where a past lease stands, until it is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PastPlace(u32);

/// A part of the past leases, oldest first: the newest ones, up to a number and an age.
///
/// Threads that end leases write to these fields in turn, and a field is fetched from one processor to the other with the cache line
/// that it is on; so they are few, and what is needed seldom stands elsewhere.
#[derive(Debug)]
pub(super) struct PastLeases {
    /// The greatest ID since there was last none.
    greatest: LeaseId,
    /// One bit for the hash of each ID that is near.
    near_hashes: u128,
    /// The newest leases, fewer than [`NEAR`].
    near: Vec<PastLease>,
    /// How many are remembered.
    count: usize,
    remember_max: usize,
    /// Nothing is old enough to be forgotten before this moment.
    next_forgotten_at: Timestamp,
    far: Box<FarLeases>,
}

/// All but the newest, and what is needed when one is forgotten.
#[derive(Debug)]
struct FarLeases {
    remember_for_nanos: u64,
    /// How many leases are forgotten, modulo 2^32. A place is this plus the position among those that are not, so that it stays the
    /// same while older leases leave.
    forgotten: u32,
    /// How many of those are still there, since whole chunks leave.
    forgotten_here: usize,
    chunks: VecDeque<Chunk>,
    /// The leases after those in the chunks, fewer than [`CHUNK`].
    filling: Vec<PastLease>,
    /// Of those.
    outline: Outline,
}

#[derive(Debug)]
struct Chunk {
    /// No ID in this chunk or in one before it is greater, so that whoever looks for one that is only a little late stops here.
    greatest_until: LeaseId,
    outline: Outline,
    leases: Box<[PastLease]>,
}

#[derive(Debug, Clone, Copy)]
struct PastLease {
    id: LeaseId,
    since: Timestamp,
    hash: u32,
    /// See [`Past::to_bits`].
    past: u32,
}

/// Tells of most IDs that they are not among some.
#[derive(Debug)]
struct Outline {
    least: LeaseId,
    greatest: LeaseId,
    /// One bit for the hash of each ID.
    hashes: Box<[u64; OUTLINE_WORDS]>,
}

impl Outline {
    fn of_none() -> Self {
        let (least, greatest) = (LeaseId::from_u128(u128::MAX), LeaseId::from_u128(0));
        Self { least, greatest, hashes: Box::new([0; OUTLINE_WORDS]) }
    }

    /// The word and the bit of a hash.
    #[inline]
    const fn bit(hash: u32) -> (usize, u64) {
        (hash as usize / 64 % OUTLINE_WORDS, 1 << (hash % 64))
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

impl FarLeases {
    /// How many leases stand here, forgotten ones included.
    fn len(&self) -> usize {
        self.chunks.len() * CHUNK + self.filling.len()
    }

    /// Adds the newest leases.
    fn append(&mut self, near: &mut Vec<PastLease>) {
        for PastLease { id, hash, .. } in &*near {
            self.outline.add(HashedId { id: *id, hash: *hash });
        }
        self.filling.reserve_exact(CHUNK - self.filling.len());
        self.filling.append(near);
        if self.filling.len() == CHUNK {
            let outline = std::mem::replace(&mut self.outline, Outline::of_none());
            let leases = std::mem::take(&mut self.filling).into_boxed_slice();
            let before = self.chunks.back().map_or(outline.greatest, |chunk| chunk.greatest_until);
            let greatest_until = before.max(outline.greatest);
            self.chunks.push_back(Chunk { greatest_until, outline, leases });
        }
    }

    /// The position of a lease, forgotten ones included; the newest first.
    fn position(&self, id: HashedId) -> Option<usize> {
        if self.outline.may_have(id)
            && let Some(at) = position_in(&self.filling, id)
        {
            return Some(self.chunks.len() * CHUNK + at);
        }
        let chunks = self.chunks.iter().enumerate().rev();
        let mut late = chunks.take_while(|(_, chunk)| id.id <= chunk.greatest_until);
        late.find_map(|(n, Chunk { outline, leases, .. })| {
            let at = outline.may_have(id).then(|| position_in(leases, id))??;
            Some(n * CHUNK + at)
        })
    }

    /// When a lease that is past since then may be forgotten.
    const fn old_at(&self, since: Timestamp) -> Timestamp {
        Timestamp::from_unix_nanos(since.unix_nanos().saturating_add(self.remember_for_nanos))
    }
}

fn position_in(leases: &[PastLease], id: HashedId) -> Option<usize> {
    leases.iter().rposition(|lease| lease.hash == id.hash && lease.id == id.id)
}

#[inline]
const fn near_bit(hash: u32) -> u128 {
    1 << (hash % 128)
}

impl PastLeases {
    pub(super) fn new(remember_for: Duration, remember_max: usize) -> Self {
        assert!(remember_max < 1 << 30, "there are places for all");
        Self {
            greatest: LeaseId::from_u128(0),
            near_hashes: 0,
            near: Vec::new(),
            count: 0,
            remember_max,
            next_forgotten_at: Timestamp::from_unix_nanos(0),
            far: Box::new(FarLeases {
                // More than a u64 of nanoseconds is for ever.
                remember_for_nanos: u64::try_from(remember_for.as_nanos()).unwrap_or(u64::MAX),
                forgotten: 0,
                forgotten_here: 0,
                chunks: VecDeque::new(),
                filling: Vec::new(),
                outline: Outline::of_none(),
            }),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// The lease at a position among those that are remembered.
    fn get(&self, at: usize) -> Option<&PastLease> {
        let far = &self.far;
        let at = at + far.forgotten_here;
        if let Some(chunk) = far.chunks.get(at / CHUNK) {
            return chunk.leases.get(at % CHUNK);
        }
        let at = at - far.chunks.len() * CHUNK;
        far.filling.get(at).or_else(|| self.near.get(at - far.filling.len()))
    }

    /// Finds a lease that is remembered.
    #[inline]
    pub(super) fn find(&self, id: HashedId) -> Option<PastPlace> {
        if id.id > self.greatest { None } else { self.search(id) }
    }

    fn search(&self, id: HashedId) -> Option<PastPlace> {
        let Self { near, near_hashes, far, .. } = self;
        let may_be_near = near_hashes & near_bit(id.hash) != 0;
        let near = may_be_near.then(|| position_in(near, id)).flatten();
        let at = near.map(|at| far.len() + at).or_else(|| far.position(id))?;
        let at = at.checked_sub(far.forgotten_here)?;
        let at = u32::try_from(at).expect("at most one above `remember_max`");
        Some(PastPlace(far.forgotten.wrapping_add(at)))
    }

    /// What became of the lease at a place where it was found, if it is not old enough to be forgotten.
    pub(super) fn past_at(&self, PastPlace(place): PastPlace, now: Timestamp) -> Option<Past> {
        let at = place.wrapping_sub(self.far.forgotten) as usize;
        let lease = self.get(at)?;
        (now < self.far.old_at(lease.since)).then_some(Past::from_bits(lease.past))
    }

    /// Adds a lease that is not there, and forgets the oldest if there are too many, or if it is too old.
    #[inline]
    pub(super) fn push(&mut self, now: Timestamp, HashedId { id, hash }: HashedId, past: Past) {
        self.near.push(PastLease { id, since: now, hash, past: past.to_bits() });
        self.near_hashes |= near_bit(hash);
        self.greatest = self.greatest.max(id);
        self.count += 1;
        if self.near.len() == NEAR {
            self.near_hashes = 0;
            self.far.append(&mut self.near);
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
            self.next_forgotten_at = self.far.old_at(oldest.since);
            if now < self.next_forgotten_at {
                return;
            }
            self.forget_oldest();
        }
        // Whatever comes is new.
        self.next_forgotten_at = self.far.old_at(now);
    }

    fn forget_oldest(&mut self) {
        let far = &mut self.far;
        self.count -= 1;
        far.forgotten = far.forgotten.wrapping_add(1);
        far.forgotten_here += 1;
        if far.forgotten_here == CHUNK {
            far.chunks.pop_front().expect("fewer than a chunk are not in one");
            far.forgotten_here = 0;
        }
    }

    pub(super) fn give_room_back(&mut self) {
        let far = &mut self.far;
        if self.count == 0 {
            (self.near, self.near_hashes) = (Vec::new(), 0);
            self.greatest = LeaseId::from_u128(0);
            (far.chunks, far.filling) = (VecDeque::new(), Vec::new());
            far.outline = Outline::of_none();
            far.forgotten_here = 0;
        }
        let count = far.chunks.len();
        if far.chunks.capacity() > ROOM_KEPT && count < far.chunks.capacity() / 4 {
            far.chunks.shrink_to(count + count / 2);
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
                leases.push(at(n.into()), hashed(n), Past::Denied(n + 1));
                for age in [0, 1, 40, 300, 699, 700, 701] {
                    let Some(n) = n.checked_sub(age) else { continue };
                    let found = leases.find(hashed(n));
                    let past = found.and_then(|place| leases.past_at(place, at(9_999)));
                    assert_eq!(past, (age < 700).then_some(Past::Denied(n + 1)), "{n}, {age}");
                }
            }
            assert_eq!(leases.len(), 700);
        }
    }
}
