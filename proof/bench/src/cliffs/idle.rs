//! Processor time of the background sweep when there is nothing to do.

use std::fs;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::memory::MemoryOptions;

use super::wait_until;
use crate::workload::{PreparedLimiter, usual_limits};

/// What this process uses while the limits of so many models are idle, in percent of a core. Before, each model has some calls.
pub(crate) fn sweep_percent(models: usize, calls_each: usize, wait: Duration) -> f64 {
    let mut limiter = PreparedLimiter::with(models, MemoryOptions::default(), usual_limits());
    (0..models * calls_each).for_each(|n| limiter.reserve_and_complete(n));
    let clock = MonotonicClock::new();
    let (started_at, before) = (clock.now(), processor_time());
    wait_until(&clock, started_at.after(wait));
    let used = processor_time() - before;
    used.as_secs_f64() / clock.now().since(started_at).as_secs_f64() * 100.0
}

/// Of all threads of this process. `/proc/self/stat` would round it to hundredths of a second.
fn processor_time() -> Duration {
    let threads = fs::read_dir("/proc/self/task").expect("Linux has it");
    let nanos = threads.map(|thread| {
        let path = thread.expect("a thread that runs").path().join("schedstat");
        let schedstat = fs::read_to_string(path).expect("a thread that does not end");
        let nanos = schedstat.split(' ').next().expect("the first field");
        nanos.parse::<u64>().expect("nanoseconds")
    });
    Duration::from_nanos(nanos.sum())
}
