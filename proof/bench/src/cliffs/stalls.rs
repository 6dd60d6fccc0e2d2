//! Stalls of a caller while other leases of its model lapse.

use std::thread;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiterd::load::Latencies;

use super::wait_until;
use crate::workload::{PreparedLimiter, limits_lasting};

/// Windows and timeouts, so that a lease that is not completed lapses after this time.
const LAPSE_SECONDS: u64 = 2;
/// One lease per 20 µs: 50 000 a second.
const LEASE_EVERY: Duration = Duration::from_micros(20);
/// How often the leases that are due are made.
const BURST_EVERY: Duration = Duration::from_micros(200);
const CALL_EVERY: Duration = Duration::from_micros(100);
/// How long the control reads the clock: about as long as a call takes.
const CONTROL_CALL: Duration = Duration::from_micros(2);

/// What happens to the other leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    Lapse,
    /// Each is completed at once.
    Complete,
}

/// The time of a measurement: some parts of equal length, each long enough for a sweep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub(super) warm_up: Duration,
    pub(super) part: Duration,
    pub(super) part_count: usize,
}

/// Latencies of the caller in milliseconds.
#[derive(Debug)]
pub(super) struct Stalls {
    /// The longest call of the part in which it is shortest: a sweep is in every part, a hiccup of the machine only in some.
    pub(super) in_every_part: f64,
    pub(super) longest: f64,
    pub(super) p999: f64,
}

impl Schedule {
    fn duration(self) -> Duration {
        self.warm_up + self.part * u32::try_from(self.part_count).expect("a few parts")
    }
}

/// One thread makes leases at a steady rate; another one calls the same model.
pub(super) fn with_others(schedule: Schedule, others: Others) -> Stalls {
    let limits = limits_lasting(LAPSE_SECONDS);
    let limiter = PreparedLimiter::with(1, MemoryOptions::default(), limits);
    let [mut caller, mut other_caller] = limiter.shared();
    let clock = MonotonicClock::new();
    let started_at = clock.now();
    thread::scope(|scope| {
        scope.spawn(|| {
            make_leases(&clock, started_at.after(schedule.duration()), || {
                let lease = other_caller.reserve(0);
                if others == Others::Complete {
                    other_caller.complete(0, lease);
                }
            });
        });
        observe(&clock, schedule, || caller.reserve_and_complete(0))
    })
}

/// The same schedule without a limiter: what the machine itself does.
pub(super) fn without_limiter(schedule: Schedule) -> Stalls {
    let clock = MonotonicClock::new();
    observe(&clock, schedule, || {
        let until = clock.now().after(CONTROL_CALL);
        while clock.now() < until {}
    })
}

/// A late lease is made as soon as possible, so that the rate holds.
fn make_leases(clock: &MonotonicClock, until: Timestamp, mut make_lease: impl FnMut()) {
    let started_at = clock.now();
    let mut made = 0;
    loop {
        let now = clock.now();
        if now >= until {
            return;
        }
        let due = now.since(started_at).as_nanos() / LEASE_EVERY.as_nanos();
        (made..due).for_each(|_| make_lease());
        made = due;
        wait_until(clock, now.after(BURST_EVERY));
    }
}

fn observe(clock: &MonotonicClock, schedule: Schedule, mut call: impl FnMut()) -> Stalls {
    let Schedule { warm_up, part, part_count } = schedule;
    let measured_from = clock.now().after(warm_up);
    let mut parts: Vec<_> = (0..part_count).map(|_| Latencies::default()).collect();
    loop {
        let called_at = clock.now();
        call();
        let took = clock.now().since(called_at);
        if called_at >= measured_from {
            let number = called_at.since(measured_from).as_nanos() / part.as_nanos();
            let number = usize::try_from(number).expect("a few parts");
            let Some(latencies) = parts.get_mut(number) else { break };
            latencies.record(took);
        }
        wait_until(clock, called_at.after(CALL_EVERY));
    }
    let milliseconds =
        |latencies: &Latencies, percent| latencies.percentile(percent).as_secs_f64() * 1e3;
    let longest = parts.iter().map(|latencies| milliseconds(latencies, 100.0));
    let in_every_part = longest.fold(f64::INFINITY, f64::min);
    let mut all = Latencies::default();
    parts.iter().for_each(|latencies| all.add(latencies));
    let [longest, p999] = [100.0, 99.9].map(|percent| milliseconds(&all, percent));
    Stalls { in_every_part, longest, p999 }
}
