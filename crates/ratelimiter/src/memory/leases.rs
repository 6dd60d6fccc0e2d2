//! All leases, open and past, in shards.

use std::sync::MutexGuard;

use hashbrown::HashTable;

use super::MemoryOptions;
use super::groups::GroupPlace;
use super::live_limit::ReservationRef;
use super::past_leases::{HashedId, PastLeases, PastOutcome, hash_of};
use super::shards::Shards;
use crate::clock::Timestamp;
use crate::decision::Renewal;
use crate::key::LimitKey;
use crate::lease::LeaseId;
use crate::request::{JobId, RenewNumber};

/// The most shards that leases are spread over.
const SHARD_COUNT_MAX: usize = 64;
/// A shard remembers at least this many past leases, so that "the oldest first" holds exactly for a small memory and
/// nearly for a large one.
const REMEMBERED_PER_SHARD_MIN: usize = 4_096;

#[derive(Debug)]
pub(super) struct Leases {
    pub(super) shards: Shards<LeaseShard>,
}

#[derive(Debug)]
pub(super) struct LeaseShard {
    pub(super) open: HashTable<OpenLease>,
    pub(super) details: LeaseTable<LeaseDetails>,
    pub(super) renewed: LeaseTable<RenewedLease>,
    pub(super) past: PastLeases,
    /// Where the jitter of hints comes from.
    pub(super) random: fastrand::Rng,
}

/// A lease that was allowed, not completed, and may have live reservations.
#[derive(Debug)]
pub(super) struct OpenLease {
    pub(super) id: LeaseId,
    pub(super) reserved_at: Timestamp,
    /// When its last reservation expires.
    lapses_at: Timestamp,
    pub(super) reservations: Box<[Reservation]>,
}

/// What few open leases have.
#[derive(Debug)]
pub(super) struct LeaseDetails {
    pub(super) id: LeaseId,
    pub(super) job: Option<JobId>,
    /// What its reserve required of each limit, if one amount is too large for a [`ShortAmount`].
    pub(super) amounts: Option<Box<[u64]>>,
}

/// What only a lease has that was renewed.
#[derive(Debug)]
pub(super) struct RenewedLease {
    pub(super) id: LeaseId,
    /// The number of its last renew, and the answer.
    pub(super) number: RenewNumber,
    pub(super) answer: Renewal,
    /// One of its renews was not denied.
    pub(super) is_renewed: bool,
    /// Something has lapsed, so that a repeated reserve is denied.
    pub(super) has_lapsed: bool,
    /// What it has had of each limit.
    pub(super) amounts: Box<[RenewedAmount]>,
    /// The parts of its reservations that expire before the last part, in the order of expiry.
    pub(super) earlier: Vec<EarlierPart>,
}

/// What a renewed lease has had of one limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct RenewedAmount {
    /// By its reserve.
    pub(super) required: u64,
    /// By its reserve and its renews, without what it gave back. What is not live of it has lapsed, and has counted.
    pub(super) reserved: u128,
}

/// A part of a reservation. Its last part is the lease's reservation itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct EarlierPart {
    /// The index of the reservation.
    pub(super) at: usize,
    pub(super) part: Reservation,
}

/// What some open leases have, by lease.
#[derive(Debug)]
pub(super) struct LeaseTable<T>(HashTable<T>);

/// An entry of a [`LeaseTable`].
pub(super) trait OfLease {
    fn lease(&self) -> LeaseId;
}

/// What a lease has beside its reservations, if anything.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseExtras<'a> {
    pub(super) details: Option<&'a LeaseDetails>,
    pub(super) renewed: Option<&'a RenewedLease>,
}

impl<T> Default for LeaseTable<T> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl OfLease for LeaseDetails {
    fn lease(&self) -> LeaseId {
        self.id
    }
}

impl OfLease for RenewedLease {
    fn lease(&self) -> LeaseId {
        self.id
    }
}

impl<T: OfLease> LeaseTable<T> {
    #[inline]
    pub(super) fn of(&self, HashedId { id, hash }: HashedId) -> Option<&T> {
        if self.0.is_empty() {
            return None;
        }
        self.0.find(hash, |entry| entry.lease() == id)
    }

    /// Adds the entry of a lease that has none.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, entry: T) {
        self.0.insert_unique(hash, entry, |entry| hash_of(entry.lease()));
    }

    #[inline]
    pub(super) fn remove(&mut self, HashedId { id, hash }: HashedId) -> Option<T> {
        if self.0.is_empty() {
            return None;
        }
        let found = self.0.find_entry(hash, |entry| entry.lease() == id).ok()?;
        Some(found.remove().0)
    }

    /// Releases memory that is mostly unused.
    fn shrink_to_fit(&mut self) {
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len() * 2, |entry| hash_of(entry.lease()));
        }
    }
}

impl<'a> LeaseExtras<'a> {
    /// The parts that expire before the last part of their reservation, in the order of expiry.
    #[inline]
    pub(super) fn earlier(self) -> &'a [EarlierPart] {
        self.renewed.map_or(&[], |renewed| &renewed.earlier)
    }
}

/// A lease's reservation of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) group: GroupPlace,
    /// The limit's slot in the group. While the reservation is live, no other limit is there.
    pub(super) slot: u32,
    /// A hash of the limit's key, to recognise the key after the limit was deleted.
    pub(super) key_tag: u32,
    pub(super) reference: ReservationRef,
    /// What the lease's reserve required.
    pub(super) required: ShortAmount,
    pub(super) expires_at: Timestamp,
}

/// An amount in 32 bits. The details of a lease have those that are too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShortAmount(u32);

impl ShortAmount {
    const TOO_LARGE: Self = Self(u32::MAX);

    #[inline]
    pub(super) fn new(amount: u64) -> Self {
        u32::try_from(amount).map_or(Self::TOO_LARGE, Self)
    }

    #[inline]
    pub(super) fn is_too_large(self) -> bool {
        self == Self::TOO_LARGE
    }
}

impl OpenLease {
    /// True if one of its reservations is live.
    #[inline]
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.lapses_at > now
    }

    /// Until when it can be renewed: the end of its last hold or, without holds, of its last reservation.
    pub(super) fn renewable_until(&self) -> Timestamp {
        let holds = self.reservations.iter().filter(|held| held.reference.is_hold());
        holds.map(|held| held.expires_at).max().unwrap_or(self.lapses_at)
    }

    /// What its reserve required of the limit of one of its reservations.
    pub(super) fn required(&self, at: usize, details: Option<&LeaseDetails>) -> u64 {
        let short = self.reservations[at].required;
        let amounts = details.and_then(|details| details.amounts.as_ref());
        match short.is_too_large() {
            true => amounts.expect("a large amount is in the details")[at],
            false => short.0.into(),
        }
    }

    /// Its reservations have changed.
    pub(super) fn update_lapse(&mut self) {
        let expiries = self.reservations.iter().map(|held| held.expires_at);
        self.lapses_at = expiries.max().unwrap_or(self.lapses_at);
    }

    /// True if it has a reservation of the key, or of another with the same tag.
    pub(super) fn may_hold(&self, key: &LimitKey) -> bool {
        self.reservations.iter().any(|held| held.key_tag == key.hashes().text)
    }
}

impl Reservation {
    #[inline]
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at > now
    }

    /// True if an actual for the key may apply to it: keys with one tag are nearly always equal.
    #[inline]
    pub(super) const fn may_take(&self, key: &LimitKey) -> bool {
        self.key_tag == key.hashes().text && !self.reference.is_hold()
    }
}

impl Leases {
    pub(super) fn new(options: &MemoryOptions) -> Self {
        assert!(options.remember_max <= 1 << 30, "a position in the queue fits 32 bits");
        // A power of two, so that some bits of the hash select the shard.
        let wanted = options.remember_max / REMEMBERED_PER_SHARD_MIN;
        let count = 1 << wanted.clamp(1, SHARD_COUNT_MAX).ilog2();
        let mut seeds = fastrand::Rng::with_seed(options.seed);
        let shard = |number| {
            // The shares add up to `remember_max`, so the total over all shards is bounded by it.
            let share =
                options.remember_max / count + usize::from(number < options.remember_max % count);
            LeaseShard {
                open: HashTable::new(),
                details: LeaseTable::default(),
                renewed: LeaseTable::default(),
                past: PastLeases::new(options.remember_for, share),
                random: seeds.fork(),
            }
        };
        Self { shards: Shards::new((0..count).map(shard)) }
    }

    /// Locks the shard of a lease.
    #[inline]
    pub(super) fn lock(&self, id: LeaseId) -> (HashedId, MutexGuard<'_, LeaseShard>) {
        let hash = hash_of(id);
        // A table uses the lowest and the highest bits.
        let [_, _, _, _, a, b, _, _] = hash.to_le_bytes();
        (HashedId { id, hash }, self.shards.lock(usize::from(u16::from_le_bytes([a, b]))))
    }
}

impl LeaseShard {
    #[inline]
    pub(super) fn find_open(&self, HashedId { id, hash }: HashedId) -> Option<&OpenLease> {
        self.open.find(hash, |lease| lease.id == id)
    }

    /// What a lease has beside its reservations.
    #[inline]
    pub(super) fn extras(&self, id: HashedId) -> LeaseExtras<'_> {
        LeaseExtras { details: self.details.of(id), renewed: self.renewed.of(id) }
    }

    /// Adds a lease that was allowed and is not known.
    #[inline]
    pub(super) fn allow(
        &mut self,
        now: Timestamp,
        id: HashedId,
        reservations: Box<[Reservation]>,
        details: Option<LeaseDetails>,
    ) {
        let lapses_at = reservations.iter().map(|held| held.expires_at).max().unwrap_or(now);
        let lease = OpenLease { id: id.id, reserved_at: now, lapses_at, reservations };
        self.open.insert_unique(id.hash, lease, |lease| hash_of(lease.id));
        if let Some(details) = details {
            self.details.insert(id.hash, details);
        }
    }

    /// Remembers that a lease which is no longer open has ended.
    #[inline]
    pub(super) fn record_end(&mut self, now: Timestamp, id: HashedId, reserved_at: Timestamp) {
        self.details.remove(id);
        self.renewed.remove(id);
        self.past.push(now, id.id, PastOutcome::ended(reserved_at, now));
    }

    /// The open leases whose reservations have all expired.
    pub(super) fn lapsed(&self, now: Timestamp) -> Vec<LeaseId> {
        let lapsed = self.open.iter().filter(|lease| !lease.is_live(now));
        lapsed.map(|lease| lease.id).collect()
    }

    /// Ends a lease if it is open and all its reservations have expired.
    pub(super) fn end_if_lapsed(&mut self, now: Timestamp, id: LeaseId) {
        let hash = hash_of(id);
        let is_it = |lease: &OpenLease| lease.id == id && !lease.is_live(now);
        if let Ok(found) = self.open.find_entry(hash, is_it) {
            let (OpenLease { reserved_at, .. }, _) = found.remove();
            self.record_end(now, HashedId { id, hash }, reserved_at);
        }
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        self.past.shrink_to_fit();
        if self.open.len() < self.open.capacity() / 4 {
            self.open.shrink_to(self.open.len() * 2, |lease| hash_of(lease.id));
        }
        self.details.shrink_to_fit();
        self.renewed.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn leases(remember_max: usize, remember_for: Duration) -> Leases {
        Leases::new(&MemoryOptions { remember_max, remember_for, ..MemoryOptions::default() })
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    fn allow(leases: &Leases, lapses_at: Timestamp, id: u128) {
        let (id, mut shard) = leases.lock(LeaseId::from_u128(id));
        shard.allow(lapses_at, id, Box::default(), None);
    }

    /// Ends the leases that have lapsed, and forgets the old ones.
    fn sweep(leases: &Leases, now: Timestamp) {
        for shard in leases.shards.each() {
            let mut shard = shard.lock();
            let lapsed = shard.lapsed(now);
            lapsed.into_iter().for_each(|id| shard.end_if_lapsed(now, id));
            while shard.past.forget_old(now, 10) {}
            shard.shrink_to_fit();
        }
    }

    /// The first hundred IDs that are remembered.
    fn past(leases: &Leases, now: Timestamp) -> Vec<u128> {
        let is_past = |id: &u128| {
            let (id, mut shard) = leases.lock(LeaseId::from_u128(*id));
            shard.past.find(now, id).is_some()
        };
        (0..100).filter(is_past).collect()
    }

    fn past_count(leases: &Leases) -> usize {
        leases.shards.each().map(|shard| shard.lock().past.len()).sum()
    }

    /// RES-09
    #[test]
    fn res_09_the_oldest_are_forgotten_first_by_number() {
        let leases = leases(3, Duration::from_secs(600));
        for n in 0..10 {
            allow(&leases, at(0), n);
            sweep(&leases, at(0));
            assert_eq!(past(&leases, at(0)), (n.saturating_sub(2)..=n).collect::<Vec<_>>());
        }
    }

    /// RES-09
    #[test]
    fn res_09_a_large_memory_is_nearly_full_and_never_has_too_many() {
        let leases = leases(8_000, Duration::from_secs(600));
        for n in 0..30_000 {
            let (id, mut shard) = leases.lock(LeaseId::from_u128(n));
            shard.past.push(at(0), id.id, PastOutcome::Denied { key_tag: 1 });
            drop(shard);
            assert!(past_count(&leases) <= 8_000);
        }
        assert!(past_count(&leases) > 7_900);
    }

    /// RES-09
    #[test]
    fn res_09_the_oldest_are_forgotten_first_by_age() {
        let leases = leases(100, Duration::from_millis(10));
        for n in 0..20 {
            allow(&leases, at(n), n.into());
            sweep(&leases, at(n));
        }
        assert_eq!(past(&leases, at(19)), (10..20).collect::<Vec<_>>());
        assert_eq!(past(&leases, at(28)), [19]);
        assert_eq!(past(&leases, at(29)), [0; 0]);
        sweep(&leases, at(29));
        assert_eq!(past_count(&leases), 0);
    }

    #[test]
    fn nothing_is_remembered_with_a_bound_of_0() {
        let leases = leases(0, Duration::from_secs(600));
        allow(&leases, at(0), 1);
        sweep(&leases, at(0));
        assert_eq!(past(&leases, at(0)), [0; 0]);
    }

    #[test]
    fn a_lease_lapses_at_its_moment_and_a_completed_one_never() {
        let leases = leases(1_000_000, Duration::MAX);
        let mut random = fastrand::Rng::with_seed(3);
        let mut open = std::collections::BTreeMap::new();
        for now in 0..2_000 {
            for n in 0..10 {
                let (id, lapses_at) = (u128::from(now * 10 + n), now + random.u64(1..500));
                allow(&leases, at(lapses_at), id);
                open.insert(id, lapses_at);
            }
            if let Some((&id, _)) = open.iter().nth(random.usize(..open.len())) {
                let (hashed, mut shard) = leases.lock(LeaseId::from_u128(id));
                let is_it = |lease: &OpenLease| lease.id == hashed.id;
                shard.open.find_entry(hashed.hash, is_it).unwrap().remove();
                open.remove(&id);
            }
            sweep(&leases, at(now));
            open.retain(|_, lapses_at| *lapses_at > now);
            let count: usize = leases.shards.each().map(|shard| shard.lock().open.len()).sum();
            assert_eq!(count, open.len());
        }
        for (id, _) in open {
            let (id, shard) = leases.lock(LeaseId::from_u128(id));
            assert!(shard.find_open(id).is_some());
        }
    }
}
