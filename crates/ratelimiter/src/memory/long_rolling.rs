//! Reservations of a rolling limit with a long window, in bounded memory.
//!
//! A daily limit sees millions of calls. While a lease is open, its reservation is one of its own. Once it has ended, only its amount
//! and expiry are left. When there are many of these, one joins another that expires in the same slice of the window: both return
//! with the later one, late by less than a slice and never early (`RES-02`).

use std::collections::VecDeque;

use super::open_reservations::OpenReservations;
use super::rolling::Closed;
use crate::clock::Timestamp;

/// Windows of at least this many seconds are long.
pub(super) const LONG_SECONDS_MIN: u32 = 3_600;
/// Slices of a window.
const SLICES: u64 = 4_096;
/// So many amounts of ended leases are never joined.
const EXACT_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct LongRolling {
    pub(super) open: OpenReservations,
    /// The amounts of ended leases, in the order of expiry: at most [`EXACT_MAX`], and one more for each slice.
    closed: VecDeque<ClosedAmount>,
    slice_nanos: u64,
}

#[derive(Debug, Clone, Copy)]
struct ClosedAmount {
    expires_at: Timestamp,
    amount: u64,
}

impl LongRolling {
    pub(super) fn new(window_seconds: u32) -> Self {
        let slice_nanos = u64::from(window_seconds) * 1_000_000_000 / SLICES;
        Self { open: OpenReservations::default(), closed: VecDeque::new(), slice_nanos }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty()
    }

    /// Ends an open reservation with its lease. `kept_of` maps the reserved amount to what stays.
    pub(super) fn close(&mut self, slot: u32, kept_of: impl FnOnce(u64) -> u64) -> Closed {
        let (expires_at, reserved) = self.open.remove(slot);
        let kept = kept_of(reserved);
        if kept > 0 {
            self.add_closed(ClosedAmount { expires_at, amount: kept });
        }
        Closed { reserved, kept }
    }

    fn add_closed(&mut self, added: ClosedAmount) {
        let ClosedAmount { expires_at, amount } = added;
        let is_last = self.closed.back().is_none_or(|last| last.expires_at < expires_at);
        let at = match is_last {
            true => self.closed.len(),
            false => self.closed.partition_point(|other| other.expires_at < expires_at),
        };
        let is_exact = self.closed.len() < EXACT_MAX;
        let slice_of = |moment: Timestamp| moment.unix_nanos() / self.slice_nanos;
        let can_join = |other: &&mut ClosedAmount| match is_exact {
            true => other.expires_at == expires_at,
            false => slice_of(other.expires_at) == slice_of(expires_at),
        };
        if let Some(later) = self.closed.get_mut(at).filter(can_join) {
            later.amount += amount;
            return;
        }
        let before = at.checked_sub(1).and_then(|before| self.closed.get_mut(before));
        if let Some(earlier) = before.filter(can_join) {
            *earlier = ClosedAmount { expires_at, amount: earlier.amount + amount };
            return;
        }
        self.closed.insert(at, added);
    }

    /// Removes what has expired by `now`: `departed` gets the amount and whether it belonged to an open lease.
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(u64, bool)) {
        self.open.expire(now, |amount| departed(amount, true));
        while let Some(one) = self.closed.pop_front_if(|one| one.expires_at <= now) {
            departed(one.amount, false);
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        let closed = self.closed.front().map(|one| one.expires_at);
        self.open.next_expiry().into_iter().chain(closed).min()
    }

    /// When the amounts of ended leases return, in the order of time.
    pub(super) fn closed(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.closed.iter().map(|one| (one.expires_at, one.amount))
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        self.open.shrink_to_fit();
        if self.closed.len() < self.closed.capacity() / 4 {
            self.closed.shrink_to(self.closed.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_SECONDS: u32 = 86_400;
    const WINDOW_NANOS: u64 = 86_400_000_000_000;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_unix_nanos(nanos)
    }

    /// RES-02, MEM-03: calls that end in any order, or never, over three days.
    #[test]
    fn res_02_a_closed_reservation_returns_at_most_a_slice_late_and_never_early() {
        let mut random = fastrand::Rng::with_seed(11);
        for calls in [180_u64, 100_000] {
            let mut long = LongRolling::new(WINDOW_SECONDS);
            let (mut open, mut now, mut used) = (Vec::new(), WINDOW_NANOS, 0);
            // Reservations that have not expired, and those that expired less than a slice ago; and their sums.
            let (mut live, mut late) = (VecDeque::new(), VecDeque::new());
            let (mut live_sum, mut late_sum) = (0, 0);
            for _ in 0..calls {
                now += random.u64(..=6 * WINDOW_NANOS / calls);
                long.expire(at(now), |amount, _| used -= amount);
                open.retain(|(_, expires_at)| *expires_at > now);
                let (expires_at, amount) = (now + WINDOW_NANOS, random.u64(1..10));
                open.push((long.open.push(at(expires_at), amount), expires_at));
                live.push_back((expires_at, amount));
                (used, live_sum) = (used + amount, live_sum + amount);
                // One call in a hundred never ends.
                if open.len() > 100 + live.len() / 100 {
                    let (slot, _) = open.remove(open.len() - 1 - random.usize(..100));
                    long.close(slot, |reserved| reserved);
                }
                while let Some(one) = live.pop_front_if(|(expires_at, _)| *expires_at <= now) {
                    (live_sum, late_sum) = (live_sum - one.1, late_sum + one.1);
                    late.push_back(one);
                }
                let is_gone = |one: &mut (u64, u64)| one.0 + WINDOW_NANOS / 4_096 <= now;
                while let Some((_, amount)) = late.pop_front_if(is_gone) {
                    late_sum -= amount;
                }
                assert!(
                    (live_sum..=live_sum + late_sum).contains(&used),
                    "{live_sum} {used} {late_sum}"
                );
                assert!(long.closed.len() <= EXACT_MAX + usize::try_from(SLICES).unwrap() + 1);
                if calls < 1_000 {
                    assert_eq!(used, live_sum, "few reservations are exact");
                }
            }
        }
    }
}
