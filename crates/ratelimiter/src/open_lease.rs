//! Open leases, as an operator sees them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::key::LimitKey;
use crate::lease::LeaseId;
use crate::request::JobId;

/// The most leases of one page.
pub const LEASE_PAGE_MAX: usize = 1_000;
/// The leases of a page that does not say how many.
pub const LEASE_PAGE_DEFAULT: usize = 100;

/// No open lease is as old: 32 days. A month has at most 31, and some hours more if clocks go back in it.
pub const LEASE_AGE_SECONDS_MAX: u32 = 2_764_800;

/// A lease that was allowed and not completed, and of which something has not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLease {
    /// The lease.
    pub lease: LeaseId,
    /// The caller's ID for its work, if it gave one and the backend still knows it.
    pub job: Option<JobId>,
    /// When its reservations began.
    pub reserved_at: Timestamp,
    /// How long ago that was.
    pub age: Duration,
    /// What it has of each limit, sorted by key. Without what has expired, and without limits that are not defined.
    pub amounts: Vec<HeldAmount>,
}

/// What an open lease has of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldAmount {
    /// The limit.
    pub key: LimitKey,
    /// Units; never 0.
    pub amount: u64,
    /// When they return if the lease is not completed before.
    pub lapses_at: Timestamp,
}

/// Which open leases to list.
///
/// They are sorted by [`OpenLease::reserved_at`] in whole milliseconds, then by ID. A page with fewer leases than it may have is the
/// last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasePage {
    /// Only leases that have something of this limit.
    pub key: Option<LimitKey>,
    /// Only leases of at least this age.
    pub older_than: Duration,
    /// Only leases that sort after this one. It may have ended since it was listed.
    pub after: Option<LeaseId>,
    /// At most this many, and never more than [`LEASE_PAGE_MAX`].
    pub count_max: usize,
}

/// Where a lease is in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeasePosition {
    /// When it was reserved, in whole milliseconds.
    pub reserved_at_ms: u64,
    /// Its ID.
    pub lease: LeaseId,
}

/// The first leases of a list, found in any order, each with what is known of it.
#[derive(Debug)]
pub struct FirstLeases<T> {
    after: Option<LeasePosition>,
    count_max: usize,
    /// At most `count_max`.
    found: BTreeMap<LeasePosition, T>,
}

impl Default for LeasePage {
    fn default() -> Self {
        let (key, after) = (None, None);
        Self { key, older_than: Duration::ZERO, after, count_max: LEASE_PAGE_DEFAULT }
    }
}

impl LeasePage {
    /// The most leases of this page.
    pub fn len_max(&self) -> usize {
        self.count_max.min(LEASE_PAGE_MAX)
    }

    /// True if a lease with these amounts has something, of the page's limit if it names one.
    pub fn has(&self, amounts: &[HeldAmount]) -> bool {
        amounts.iter().any(|held| self.key.as_ref().is_none_or(|key| held.key == *key))
    }
}

impl LeasePosition {
    /// The position of a lease that was reserved then.
    pub const fn of(reserved_at: Timestamp, lease: LeaseId) -> Self {
        Self { reserved_at_ms: reserved_at.unix_ms(), lease }
    }
}

impl<T> FirstLeases<T> {
    /// None yet; at most `count_max`, after this position.
    pub const fn new(after: Option<LeasePosition>, count_max: usize) -> Self {
        Self { after, count_max, found: BTreeMap::new() }
    }

    /// True if a lease at this position would be one of the first.
    pub fn admits(&self, position: LeasePosition) -> bool {
        let is_after = self.after.is_none_or(|after| position > after);
        is_after
            && (self.found.len() < self.count_max
                || self.found.last_key_value().is_some_and(|(last, _)| position < *last))
    }

    /// Adds a lease, if it is one of the first.
    pub fn add(&mut self, position: LeasePosition, lease: T) {
        if self.admits(position) {
            self.found.insert(position, lease);
        }
        if self.found.len() > self.count_max {
            self.found.pop_last();
        }
    }

    /// The first leases, in order.
    pub fn into_sorted(self) -> Vec<T> {
        self.found.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(n: u64) -> LeasePosition {
        LeasePosition { reserved_at_ms: n / 4, lease: LeaseId::from_u128(u128::from(n % 4)) }
    }

    /// OPS-01
    #[test]
    fn ops_01_the_first_leases_after_a_position_are_found_in_any_order() {
        let mut random = fastrand::Rng::with_seed(5);
        for count_max in [0, 1, 7, 100] {
            for after in [None, Some(0), Some(13), Some(99)] {
                let mut numbers: Vec<u64> = (0..100).collect();
                random.shuffle(&mut numbers);
                let mut first = FirstLeases::new(after.map(position), count_max);
                numbers.iter().for_each(|n| first.add(position(*n), *n));
                let expected = (after.map_or(0, |n| n + 1)..100).take(count_max);
                assert_eq!(first.into_sorted(), expected.collect::<Vec<_>>());
            }
        }
    }

    /// OPS-01
    #[test]
    fn ops_01_a_page_is_bounded() {
        assert_eq!(LeasePage::default().len_max(), 100);
        for (count_max, expected) in [(0, 0), (1_000, 1_000), (1_001, 1_000)] {
            assert_eq!(LeasePage { count_max, ..LeasePage::default() }.len_max(), expected);
        }
    }
}
