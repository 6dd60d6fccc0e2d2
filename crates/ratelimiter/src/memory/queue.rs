//! What is reserved of one limit for one lifetime, in the order of expiry.

use super::holds::Holds;
use super::rolling::{Closed, Rolling};
use crate::clock::Timestamp;
use crate::limit::LimitKind;

/// For how long a reservation lasts, and whether it is a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime(u32);

/// What is reserved of one limit for one lifetime, in the order of expiry.
#[derive(Debug)]
pub(super) enum Queue {
    Rolling(Rolling),
    Holds(Box<Holds>),
}

/// A reservation that has left its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Departed {
    pub(super) amount: u64,
    /// Whether its lease had not ended.
    pub(super) is_open: bool,
}

impl Lifetime {
    /// A lifetime needs no more than so many bits: 31 days need 22, and one is for the kind.
    pub(super) const BITS: u32 = 23;

    pub(super) const fn of(kind: LimitKind) -> Self {
        Self(kind.lifetime_seconds() << 1 | kind.is_concurrency() as u32)
    }

    /// The lifetime as its [`Lifetime::BITS`] bits, and back.
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

    /// Adds a reservation of an open lease. Answers with its number, by which it is found until it has expired.
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

    /// The lease of a reservation has ended, and `kept_of` tells how much stays of what was reserved: of a hold, nothing.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept_of: impl FnOnce(u64) -> u64) -> Closed {
        match self {
            Self::Rolling(rolling) => rolling.close(number, kept_of),
            Self::Holds(holds) => Closed { reserved: holds.release(number), kept: 0 },
        }
    }

    /// Takes out what has expired by `now`, and hands it to `departed`.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Departed)) {
        match self {
            Self::Rolling(rolling) => rolling.expire(now, |held| {
                departed(Departed { amount: held.amount(), is_open: held.is_open() });
            }),
            Self::Holds(holds) => {
                holds.expire(now, |amount| departed(Departed { amount, is_open: true }));
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

    pub(super) fn give_room_back(&mut self) {
        match self {
            Self::Rolling(rolling) => rolling.give_room_back(),
            Self::Holds(holds) => holds.give_room_back(),
        }
    }

    /// The rolling reservations, if it has such.
    pub(super) const fn rolling_mut(&mut self) -> Option<&mut Rolling> {
        match self {
            Self::Rolling(rolling) => Some(rolling),
            Self::Holds(_) => None,
        }
    }
}
