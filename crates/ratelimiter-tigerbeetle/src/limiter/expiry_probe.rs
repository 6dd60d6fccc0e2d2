//! The expiry lag, measured with a probe (`TB-14`).
//!
//! TigerBeetle releases expired transfers in the order of their expiry. So a probe is released only
//! after everything that expired before it, and its delay is that of all reservations.

use std::num::NonZeroU32;
use std::time::Duration;

use ratelimiter::clock::Timestamp;

/// Lifetime of a probe: one second, TigerBeetle's shortest timeout.
pub(super) const PROBE_SECONDS: NonZeroU32 = NonZeroU32::MIN;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ExpiryProbe {
    every: Duration,
    /// When the next probe is due.
    due_at: Timestamp,
    /// The number of leases when the last probe was sent.
    leases_seen: u64,
    /// When the probe in flight expires.
    in_flight: Option<Timestamp>,
    lag: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProbeStep {
    Wait,
    Send,
    /// Check whether the probe is still held.
    Check,
}

impl ExpiryProbe {
    pub(super) const fn new(every: Duration) -> Self {
        let due_at = Timestamp::from_unix_nanos(0);
        Self { every, due_at, leases_seen: 0, in_flight: None, lag: Duration::ZERO }
    }

    /// The last measured lag, a lower bound.
    pub(super) const fn lag(&self) -> Duration {
        self.lag
    }

    /// The next step. Without new leases nothing can be late.
    pub(super) fn step(&self, now: Timestamp, leases: u64) -> ProbeStep {
        match self.in_flight {
            Some(expires_at) if expires_at <= now => ProbeStep::Check,
            Some(_) => ProbeStep::Wait,
            None if leases > self.leases_seen && self.due_at <= now => ProbeStep::Send,
            None => ProbeStep::Wait,
        }
    }

    /// Records a probe that was created at `created_at`.
    pub(super) fn sent(&mut self, created_at: Timestamp, leases: u64) {
        self.in_flight = Some(created_at.after_seconds(PROBE_SECONDS.get()));
        self.due_at = created_at.after(self.every);
        self.leases_seen = leases;
    }

    /// Records whether the probe is still held at `now`.
    pub(super) fn record_check(&mut self, now: Timestamp, held: bool) {
        let Some(expires_at) = self.in_flight else {
            return;
        };
        if held {
            self.lag = now.since(expires_at);
        } else {
            self.in_flight = None;
            self.lag = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    /// TB-14
    #[test]
    fn tb_14_the_lag_grows_while_a_probe_is_held_past_its_time_and_ends_with_it() {
        let mut probe = ExpiryProbe::new(Duration::from_secs(5));
        assert_eq!(probe.step(at(10_000), 0), ProbeStep::Wait, "there is no traffic");
        assert_eq!(probe.step(at(10_000), 1), ProbeStep::Send);
        probe.sent(at(10_000), 1);
        assert_eq!(probe.step(at(10_999), 9), ProbeStep::Wait, "it has not expired");
        assert_eq!(probe.step(at(11_000), 9), ProbeStep::Check);
        for (now, lag_ms) in [(11_000, 0), (11_250, 250), (23_000, 12_000)] {
            probe.record_check(at(now), true);
            assert_eq!(probe.lag(), Duration::from_millis(lag_ms));
            assert_eq!(probe.step(at(now), 9), ProbeStep::Check);
        }
        probe.record_check(at(23_250), false);
        assert_eq!(probe.lag(), Duration::ZERO);
        assert_eq!(probe.step(at(23_250), 9), ProbeStep::Send);
    }

    /// TB-14
    #[test]
    fn tb_14_probes_are_rare_and_stop_with_the_traffic() {
        let mut probe = ExpiryProbe::new(Duration::from_secs(5));
        probe.sent(at(10_000), 7);
        probe.record_check(at(11_000), false);
        assert_eq!(probe.step(at(14_999), 8), ProbeStep::Wait);
        assert_eq!(probe.step(at(15_000), 8), ProbeStep::Send);
        assert_eq!(probe.step(at(99_000), 7), ProbeStep::Wait);
    }
}
