//! Reservations of one limit with the same lifetime, in the order of expiry.

use super::holds::Holds;
use super::rolling::{ClosedEntry, Rolling};
use crate::clock::Timestamp;
use crate::limit::LimitKind;

/// How long a reservation lasts, and whether it is a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime(u32);

/// Reservations of one limit with the same lifetime, in the order of expiry.
#[derive(Debug)]
pub(super) enum Queue {
    Rolling(Rolling),
    Holds(Box<Holds>),
}

/// A reservation that has left its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpiredEntry {
    pub(super) amount: u64,
    /// Whether its lease had not ended.
    pub(super) is_open: bool,
}

impl Lifetime {
    /// Number of bits of a lifetime: 22 for 31 days, and one for the kind.
    pub(super) const BITS: u32 = 23;

    pub(super) const fn of(kind: LimitKind) -> Self {
        Self(kind.lifetime_seconds() << 1 | kind.is_concurrency() as u32)
    }

    /// The lifetime in [`Lifetime::BITS`] bits.
    #[inline]
    pub(super) const fn to_bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline]
    pub(super) const fn seconds(self) -> u32 {
        self.0 >> 1
    }

    #[inline]
    pub(super) const fn is_hold(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Queue {
    pub(super) fn new(lifetime: Lifetime) -> Self {
        if lifetime.is_hold() {
            Self::Holds(Box::default())
        } else {
            Self::Rolling(Rolling::default())
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Rolling(rolling) => rolling.is_empty(),
            Self::Holds(holds) => holds.is_empty(),
        }
    }

    /// Adds a reservation of an open lease, and returns its number, which is valid until it expires.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        match self {
            Self::Rolling(rolling) => rolling.push(expires_at, amount),
            Self::Holds(holds) => holds.push(expires_at, amount),
        }
    }

    /// The amount of a reservation whose lease is open.
    #[inline]
    pub(super) fn amount_of(&self, number: u32) -> u64 {
        match self {
            Self::Rolling(rolling) => rolling.amount_of(number),
            Self::Holds(holds) => holds.amount_of(number),
        }
    }

    /// Ends a reservation with its lease. `kept_of` maps the reserved amount to what stays; of a hold, nothing stays.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept_of: impl FnOnce(u64) -> u64) -> ClosedEntry {
        match self {
            Self::Rolling(rolling) => rolling.close(number, kept_of),
            Self::Holds(holds) => ClosedEntry { reserved: holds.release(number), kept: 0 },
        }
    }

    /// Removes what has expired by `now`, and passes it to `departed`.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(ExpiredEntry)) {
        match self {
            Self::Rolling(rolling) => rolling.expire(now, |held| {
                departed(ExpiredEntry { amount: held.amount(), is_open: held.is_open() });
            }),
            Self::Holds(holds) => {
                holds.expire(now, |amount| departed(ExpiredEntry { amount, is_open: true }));
            }
        }
    }

    /// When the first reservation expires.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        match self {
            Self::Rolling(rolling) => rolling.next_expiry(),
            Self::Holds(holds) => holds.next_expiry(),
        }
    }

    pub(super) fn shrink_to_fit(&mut self) {
        match self {
            Self::Rolling(rolling) => rolling.shrink_to_fit(),
            Self::Holds(holds) => holds.shrink_to_fit(),
        }
    }

    pub(super) const fn rolling_mut(&mut self) -> Option<&mut Rolling> {
        match self {
            Self::Rolling(rolling) => Some(rolling),
            Self::Holds(_) => None,
        }
    }
}
