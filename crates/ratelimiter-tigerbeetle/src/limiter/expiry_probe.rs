//! How late reservations lapse, seen on a small one of this server's own (`TB-14`).
//!
//! TigerBeetle releases what has expired in the order of its time. So a probe is released only
//! after everything that expired before it, and its delay is everybody's.

use std::time::Duration;

use ratelimiter::clock::Timestamp;

/// How long a probe is held: the least that TigerBeetle knows.
pub(super) const PROBE_SECONDS: u32 = 1;

/// The state of the watch over the expiry lag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ExpiryProbe {
    every: Duration,
    /// When the next probe is due.
    due_at: Timestamp,
    /// How many leases there had been when the last probe was sent.
    leases_seen: u64,
    /// When the probe under way expires.
    under_way: Option<Timestamp>,
    lag: Duration,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProbeStep {
    /// Nothing.
    Wait,
    /// Send a probe.
    Send,
    /// Look whether the one that was sent is still held.
    Look,
}

impl ExpiryProbe {
    pub(super) const fn new(every: Duration) -> Self {
        let due_at = Timestamp::from_unix_nanos(0);
        Self { every, due_at, leases_seen: 0, under_way: None, lag: Duration::ZERO }
    }

    /// The lag as last seen: at least this late was what expired.
    pub(super) const fn lag(&self) -> Duration {
        self.lag
    }

    /// What to do now. Without leases there is nothing that could be late.
    pub(super) fn step(&self, now: Timestamp, leases: u64) -> ProbeStep {
        match self.under_way {
            Some(expires_at) if expires_at <= now => ProbeStep::Look,
            Some(_) => ProbeStep::Wait,
            None if leases > self.leases_seen && self.due_at <= now => ProbeStep::Send,
            None => ProbeStep::Wait,
        }
    }

    /// A probe was taken at `created_at`.
    pub(super) fn sent(&mut self, created_at: Timestamp, leases: u64) {
        self.under_way = Some(created_at.after_seconds(PROBE_SECONDS));
        self.due_at = created_at.after(self.every);
        self.leases_seen = leases;
    }

    /// The probe was looked at, at `now`: it is still held, or it is not.
    pub(super) fn looked(&mut self, now: Timestamp, held: bool) {
        let Some(expires_at) = self.under_way else {
            return;
        };
        if held {
            self.lag = now.since(expires_at);
        } else {
            self.under_way = None;
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
        assert_eq!(probe.step(at(11_000), 9), ProbeStep::Look);
        for (now, lag_ms) in [(11_000, 0), (11_250, 250), (23_000, 12_000)] {
            probe.looked(at(now), true);
            assert_eq!(probe.lag(), Duration::from_millis(lag_ms));
            assert_eq!(probe.step(at(now), 9), ProbeStep::Look);
        }
        probe.looked(at(23_250), false);
        assert_eq!(probe.lag(), Duration::ZERO);
        assert_eq!(probe.step(at(23_250), 9), ProbeStep::Send);
    }

    /// TB-14
    #[test]
    fn tb_14_probes_are_rare_and_stop_with_the_traffic() {
        let mut probe = ExpiryProbe::new(Duration::from_secs(5));
        probe.sent(at(10_000), 7);
        probe.looked(at(11_000), false);
        assert_eq!(probe.step(at(14_999), 8), ProbeStep::Wait);
        assert_eq!(probe.step(at(15_000), 8), ProbeStep::Send);
        assert_eq!(probe.step(at(99_000), 7), ProbeStep::Wait);
    }
}
