//! Live reservations of one limit with the same lifetime.

use std::iter::Peekable;

use super::long_rolling::{LONG_SECONDS_MIN, LongRolling};
use super::open_reservations::OpenReservations;
use super::rolling::{Closed, Rolling};
use crate::clock::Timestamp;
use crate::limit::LimitKind;

/// Live reservations of one limit with the same lifetime.
#[derive(Debug)]
pub(super) enum Queue {
    Rolling(Rolling),
    /// With a window of an hour or more.
    LongRolling(Box<LongRolling>),
    Holds(Box<OpenReservations>),
}

/// A reservation that has left its queue because it expired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Departed {
    pub(super) amount: u64,
    /// Whether its lease had not ended.
    pub(super) is_open: bool,
}

impl Queue {
    pub(super) fn new(kind: LimitKind) -> Self {
        let seconds = kind.lifetime_seconds();
        match kind {
            LimitKind::Concurrency { .. } => Self::Holds(Box::default()),
            LimitKind::Rolling { .. } if seconds >= LONG_SECONDS_MIN => {
                Self::LongRolling(Box::new(LongRolling::new(seconds)))
            }
            LimitKind::Rolling { .. } => Self::Rolling(Rolling::default()),
        }
    }

    /// True if there are none. A queue of released reservations may be empty only after the next `expire`.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Rolling(rolling) => rolling.is_empty(),
            Self::LongRolling(long) => long.is_empty(),
            Self::Holds(holds) => holds.is_empty(),
        }
    }

    /// Adds a reservation of an open lease, and returns its number, which is valid until it expires.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        match self {
            Self::Rolling(rolling) => rolling.push(expires_at, amount),
            Self::LongRolling(long) => long.open.push(expires_at, amount),
            Self::Holds(holds) => holds.push(expires_at, amount),
        }
    }

    /// The amount of a reservation whose lease is open.
    pub(super) fn amount_of(&self, number: u32) -> u64 {
        match self {
            Self::Rolling(rolling) => rolling.amount_of(number),
            Self::LongRolling(long) => long.open.amount_of(number),
            Self::Holds(holds) => holds.amount_of(number),
        }
    }

    /// Ends a reservation with its lease. `kept_of` maps the reserved amount to what stays; of a hold, nothing stays.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept_of: impl FnOnce(u64) -> u64) -> Closed {
        match self {
            Self::Rolling(rolling) => rolling.close(number, kept_of),
            Self::LongRolling(long) => long.close(number, kept_of),
            Self::Holds(holds) => Closed { reserved: holds.remove(number).1, kept: 0 },
        }
    }

    /// Removes what has expired by `now`, and passes it to `departed`.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Departed)) {
        match self {
            Self::Rolling(rolling) => rolling.expire(now, |held| {
                departed(Departed { amount: held.amount(), is_open: held.is_open() });
            }),
            Self::LongRolling(long) => {
                long.expire(now, |amount, is_open| departed(Departed { amount, is_open }));
            }
            Self::Holds(holds) => {
                holds.expire(now, |amount| departed(Departed { amount, is_open: true }));
            }
        }
    }

    /// No reservation expires before this moment.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        match self {
            Self::Rolling(rolling) => rolling.next_expiry(),
            Self::LongRolling(long) => long.next_expiry(),
            Self::Holds(holds) => holds.next_expiry(),
        }
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        match self {
            Self::Rolling(rolling) => rolling.shrink_to_fit(),
            Self::LongRolling(long) => long.shrink_to_fit(),
            Self::Holds(holds) => holds.shrink_to_fit(),
        }
    }
}

/// When `amount` will be free over all queues of a limit, if nothing else changes and that moment is in time. `None` for holds, which
/// end when their calls do.
pub(super) fn freed_at<'a>(
    queues: impl Iterator<Item = &'a Queue> + Clone,
    amount: u64,
    is_in_time: impl Fn(Timestamp) -> bool,
) -> Option<Timestamp> {
    let mut alone = queues.clone();
    if let (Some(Queue::Rolling(rolling)), None) = (alone.next(), alone.next()) {
        return rolling.freed_at(amount).filter(|moment| is_in_time(*moment));
    }
    let mut parts = Vec::new();
    for queue in queues {
        match queue {
            Queue::Rolling(rolling) => parts.push(boxed(rolling.iter())),
            Queue::LongRolling(long) => {
                parts.extend([boxed(long.open.iter()), boxed(long.closed())]);
            }
            Queue::Holds(_) => return None,
        }
    }
    let mut freed = 0;
    loop {
        let fronts = parts.iter_mut().filter_map(|part| Some((*part.peek()?, part)));
        let ((moment, amount_then), part) = fronts.min_by_key(|((moment, _), _)| *moment)?;
        if !is_in_time(moment) {
            return None;
        }
        freed += amount_then;
        if freed >= amount {
            return Some(moment);
        }
        part.next();
    }
}

type Amounts<'a> = Box<dyn Iterator<Item = (Timestamp, u64)> + 'a>;

fn boxed<'a>(amounts: impl Iterator<Item = (Timestamp, u64)> + 'a) -> Peekable<Amounts<'a>> {
    (Box::new(amounts) as Amounts<'a>).peekable()
}
