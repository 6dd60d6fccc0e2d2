//! Live reservations of one limit with the same lifetime, whatever its length.

use std::iter::Peekable;

use super::joined_amounts::JoinedAmounts;
use super::reservations::{Closed, Held, Reservations};
use crate::clock::Timestamp;
use crate::limit::LimitKind;

/// Windows of at least this many seconds are long.
const LONG_SECONDS_MIN: u32 = 3_600;

/// Live reservations of one limit with the same lifetime.
#[derive(Debug)]
pub(super) struct Queue {
    /// Those of open leases, and of a short window also those of ended ones.
    pub(super) reservations: Reservations,
    /// What ended leases keep of a long window or a calendar period.
    joined: Option<Box<JoinedAmounts>>,
}

impl Queue {
    pub(super) fn new(kind: LimitKind) -> Self {
        let joined_seconds = match kind {
            LimitKind::Rolling { window } => Some(window.seconds()),
            LimitKind::Concurrency { .. } => None,
            // All expire at one moment, so that joining them delays none.
            LimitKind::Calendar { .. } => Some(LONG_SECONDS_MIN),
        };
        let joined_seconds = joined_seconds.filter(|seconds| *seconds >= LONG_SECONDS_MIN);
        let joined = joined_seconds.map(|seconds| Box::new(JoinedAmounts::new(seconds)));
        Self { reservations: Reservations::default(), joined }
    }

    /// What ended leases keep of a long window.
    fn joined(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.joined.iter().flat_map(|joined| joined.iter())
    }

    /// Ends a reservation with its lease. `kept_of` maps the reserved amount to what stays.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept_of: impl FnOnce(u64) -> u64) -> Closed {
        let Some(joined) = &mut self.joined else {
            return self.reservations.close(number, kept_of);
        };
        let released = self.reservations.close(number, |_| 0);
        let closed = Closed { kept: kept_of(released.reserved), ..released };
        if closed.kept > 0 {
            joined.add(closed.expires_at, closed.kept);
        }
        closed
    }

    /// Removes what has expired by `now`, and passes it to `departed`.
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Held)) {
        self.reservations.expire(now, &mut departed);
        if let Some(joined) = &mut self.joined {
            joined.expire(now, departed);
        }
    }

    /// When the next reservation expires, if there are any.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        let first = self.reservations.iter().next().into_iter().chain(self.joined().next());
        first.map(|(expires_at, _)| expires_at).min()
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        self.reservations.shrink_to_fit();
        if let Some(joined) = &mut self.joined {
            joined.shrink_to_fit();
        }
    }
}

/// When `amount` will be free over all queues of a limit, if nothing else changes and that moment is in time.
pub(super) fn freed_at<'a>(
    queues: impl Iterator<Item = &'a Queue> + Clone,
    amount: u64,
    mut is_in_time: impl FnMut(Timestamp) -> bool,
) -> Option<Timestamp> {
    let mut alone = queues.clone();
    if let (Some(Queue { reservations, joined: None }), None) = (alone.next(), alone.next()) {
        return reservations.freed_at(amount).filter(|moment| is_in_time(*moment));
    }
    let parts = queues.flat_map(|queue| [boxed(queue.reservations.iter()), boxed(queue.joined())]);
    let mut parts: Vec<_> = parts.collect();
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::joined_amounts::{EXACT_MAX, SLICES};
    use super::*;
    use crate::limit::Window;

    const WINDOW_SECONDS: u64 = 86_400;
    const WINDOW_NANOS: u64 = 86_400_000_000_000;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_unix_nanos(nanos)
    }

    /// RES-02, MEM-03: calls that end in any order, or never, over three days.
    #[test]
    fn res_02_a_closed_reservation_returns_at_most_a_slice_late_and_never_early() {
        let mut random = fastrand::Rng::with_seed(11);
        for calls in [180_u64, 100_000] {
            let window = Window::from_seconds(WINDOW_SECONDS).unwrap();
            let mut queue = Queue::new(LimitKind::Rolling { window });
            let (mut open, mut now, mut used) = (Vec::new(), WINDOW_NANOS, 0);
            // Reservations that have not expired, and those that expired less than a slice ago; and their sums.
            let (mut live, mut late) = (VecDeque::new(), VecDeque::new());
            let (mut live_sum, mut late_sum) = (0, 0);
            for _ in 0..calls {
                now += random.u64(..=6 * WINDOW_NANOS / calls);
                queue.expire(at(now), |held| used -= held.amount());
                open.retain(|(_, expires_at)| *expires_at > now);
                let (expires_at, amount) = (now + WINDOW_NANOS, random.u64(1..10));
                open.push((queue.reservations.push(at(expires_at), amount), expires_at));
                live.push_back((expires_at, amount));
                (used, live_sum) = (used + amount, live_sum + amount);
                // One call in a hundred never ends.
                if open.len() > 100 + live.len() / 100 {
                    let (slot, _) = open.remove(open.len() - 1 - random.usize(..100));
                    queue.close(slot, |reserved| reserved);
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
                assert!(queue.joined().count() <= EXACT_MAX + usize::try_from(SLICES).unwrap() + 1);
                if calls < 1_000 {
                    assert_eq!(used, live_sum, "few reservations are exact");
                }
            }
        }
    }
}
