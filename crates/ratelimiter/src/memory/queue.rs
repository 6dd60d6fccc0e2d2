//! What is reserved of one limit for one lifetime.

use super::holds::Holds;
use super::rolling::Rolling;
use crate::clock::Timestamp;
use crate::limit::LimitKind;

/// For how long a reservation lasts, and whether it is a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime(u32);

/// What is reserved of one limit for one lifetime, in the order of expiry.
#[derive(Debug)]
pub(super) struct Queue {
    lifetime: Lifetime,
    reserved: Reserved,
}

#[derive(Debug)]
enum Reserved {
    Rolling(Rolling),
    Holds(Holds),
}

/// A reservation that has left its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Departed {
    pub(super) amount: u64,
    /// Whether its lease had not ended.
    pub(super) is_open: bool,
}

impl Lifetime {
    pub(super) const fn of(kind: LimitKind) -> Self {
        // A lifetime is at most 31 days, which need 22 bits.
        Self(kind.lifetime_seconds() << 1 | kind.is_concurrency() as u32)
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
        let reserved = if lifetime.is_hold() {
            Reserved::Holds(Holds::default())
        } else {
            Reserved::Rolling(Rolling::default())
        };
        Self { lifetime, reserved }
    }

    #[inline]
    pub(super) const fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.reserved {
            Reserved::Rolling(rolling) => rolling.is_empty(),
            Reserved::Holds(holds) => holds.is_empty(),
        }
    }

    /// Adds a reservation of an open lease. Answers with its number, by which it is found until it has expired.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        match &mut self.reserved {
            Reserved::Rolling(rolling) => rolling.push(expires_at, amount),
            Reserved::Holds(holds) => holds.push(expires_at, amount),
        }
    }

    /// The amount of a reservation whose lease is open.
    #[inline]
    pub(super) fn amount_of(&self, number: u32) -> u64 {
        match &self.reserved {
            Reserved::Rolling(rolling) => rolling.amount_of(number),
            Reserved::Holds(holds) => holds.amount_of(number),
        }
    }

    /// The lease of a reservation has ended, and so much of it stays: of a hold, nothing.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept: u64) {
        match &mut self.reserved {
            Reserved::Rolling(rolling) => rolling.close(number, kept),
            Reserved::Holds(holds) => holds.release(number),
        }
    }

    /// Takes out what has expired by `now`, and hands it to `departed`.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Departed)) {
        match &mut self.reserved {
            Reserved::Rolling(rolling) => rolling.expire(now, |held| {
                departed(Departed { amount: held.amount(), is_open: held.is_open() });
            }),
            Reserved::Holds(holds) => {
                holds.expire(now, |amount| departed(Departed { amount, is_open: true }));
            }
        }
    }

    /// When the first reservation expires.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        match &self.reserved {
            Reserved::Rolling(rolling) => rolling.next_expiry(),
            Reserved::Holds(holds) => holds.next_expiry(),
        }
    }

    pub(super) fn give_room_back(&mut self) {
        match &mut self.reserved {
            Reserved::Rolling(rolling) => rolling.give_room_back(),
            Reserved::Holds(holds) => holds.give_room_back(),
        }
    }

    /// The rolling reservations, if it has such.
    pub(super) const fn rolling_mut(&mut self) -> Option<&mut Rolling> {
        match &mut self.reserved {
            Reserved::Rolling(rolling) => Some(rolling),
            Reserved::Holds(_) => None,
        }
    }
}
