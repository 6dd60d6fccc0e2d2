//! What ended leases keep of a long window, in bounded memory.
//!
//! A daily limit sees millions of calls. Once a lease has ended, only its amount and expiry are left. When there are many of these,
//! one joins another that expires in the same slice of the window: both return with the later one, late by less than a slice and
//! never early (`RES-02`).

use std::collections::VecDeque;

use super::reservations::Held;
use crate::clock::Timestamp;

/// Slices of a window.
pub(super) const SLICES: u64 = 4_096;
/// So many amounts are never joined.
pub(super) const EXACT_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct JoinedAmounts {
    /// When each amount expires, in that order: at most [`EXACT_MAX`], and one more for each slice.
    amounts: VecDeque<(Timestamp, u64)>,
    slice_nanos: u64,
}

impl JoinedAmounts {
    pub(super) fn new(window_seconds: u32) -> Self {
        let slice_nanos = u64::from(window_seconds) * 1_000_000_000 / SLICES;
        Self { amounts: VecDeque::new(), slice_nanos }
    }

    pub(super) fn add(&mut self, expires_at: Timestamp, amount: u64) {
        let amounts = &mut self.amounts;
        // Most calls are short, so the place is near the end.
        let at = amounts.iter().rposition(|other| other.0 < expires_at).map_or(0, |at| at + 1);
        let is_exact = amounts.len() < EXACT_MAX;
        let slice_of = |moment: Timestamp| moment.unix_nanos() / self.slice_nanos;
        let can_join = |other: &&mut (Timestamp, u64)| {
            other.0 == expires_at || !is_exact && slice_of(other.0) == slice_of(expires_at)
        };
        if let Some(later) = amounts.get_mut(at).filter(can_join) {
            later.1 += amount;
        } else if let Some(earlier) = amounts.get_mut(at.wrapping_sub(1)).filter(can_join) {
            *earlier = (expires_at, earlier.1 + amount);
        } else {
            amounts.insert(at, (expires_at, amount));
        }
    }

    /// Removes what has expired by `now`, and passes it to `departed`.
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Held)) {
        while let Some((_, amount)) = self.amounts.pop_front_if(|one| one.0 <= now) {
            departed(Held::new(amount, false));
        }
    }

    /// When each amount expires, in that order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.amounts.iter().copied()
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        if self.amounts.len() < self.amounts.capacity() / 4 {
            self.amounts.shrink_to(self.amounts.len() * 2);
        }
    }
}
