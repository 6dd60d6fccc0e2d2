//! The process of a probe. It does nothing else, so that no memory freed by earlier work is reused.

use std::process::{self, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;

use crate::child::Role;
use crate::cliffs::{days, idle};
use crate::growth::plain_leases;
use crate::in_process::peers::governor_of_keys;
use crate::probe::{MODELS, Probe};
use crate::resident::resident_bytes;
use crate::rounds::float;
use crate::workload::{LIMITS_PER_CALL, PreparedLimiter, limiter_with, usual_limits};

/// How many items a probe makes.
const COUNT_VARIABLE: &str = "BENCH_COUNT";
/// How long an idle probe waits, in milliseconds.
const WAIT_VARIABLE: &str = "BENCH_WAIT_MS";
/// Longer than every window, and than ended leases are remembered.
const LONG_AFTER: Duration = Duration::from_secs(2 * 86_400);
/// How often a limiter is swept after a burst: for a minute, at the usual interval.
const SWEEPS: u32 = 120;
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// Leases that are made, completed and forgotten.
struct Bursts {
    clock: Arc<FakeClock>,
    limiter: PreparedLimiter,
}

impl Probe {
    /// Prints the value.
    pub(crate) fn report(self) -> ExitCode {
        let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
        let count = variable(COUNT_VARIABLE).expect("the parent sets it");
        let wait_ms = variable(WAIT_VARIABLE).expect("the parent sets it");
        let value = self.value(count, Duration::from_millis(wait_ms as u64));
        crate::print(&format!("{value}\n"));
        ExitCode::SUCCESS
    }

    fn value(self, count: usize, wait: Duration) -> f64 {
        let models = count / LIMITS_PER_CALL;
        let bytes = match self {
            Self::Definitions => resident_growth(|| limiter_with(models)),
            Self::GovernorKeys => resident_growth(|| governor_of_keys(models)),
            Self::LiveLeases => {
                let limiter = PreparedLimiter::new(MODELS.min(count));
                resident_growth(|| limiter.filled(count))
            }
            Self::PlainLeases => resident_growth(|| plain_leases(count)),
            Self::DeniedLeases => {
                let mut limiter = PreparedLimiter::full(MODELS.min(count));
                resident_growth(|| (0..count).for_each(|n| limiter.deny(n)))
            }
            Self::EndedLeases => {
                let mut bursts = Bursts::new(count);
                resident_growth(|| bursts.run(count))
            }
            Self::FirstBurst => {
                let mut bursts = Bursts::new(count);
                let before = resident_bytes(process::id());
                bursts.run(count) - before
            }
            Self::SecondBurst => {
                let mut bursts = Bursts::new(count);
                let before = resident_bytes(process::id());
                bursts.run(count);
                bursts.run(count) - before
            }
            Self::DayWindow => {
                resident_growth(|| days::spread_over_a_day(count, days::DAY_SECONDS))
            }
            Self::SecondWindow => resident_growth(|| days::spread_over_a_day(count, 1)),
            Self::IdleLimits => return idle::sweep_percent(models, 0, wait),
            Self::UsedLimits => return idle::sweep_percent(models, 1, wait),
        };
        bytes / float(count)
    }

    /// The value, measured in a new process.
    pub(crate) fn measure(self, count: usize) -> f64 {
        self.measure_for(count, Duration::ZERO)
    }

    /// The same, for probes that wait.
    pub(crate) fn measure_for(self, count: usize, wait: Duration) -> f64 {
        let mut command = Role::Probe(self).command();
        command.env(COUNT_VARIABLE, count.to_string());
        command.env(WAIT_VARIABLE, wait.as_millis().to_string());
        let output = command.output().expect("this program can be started");
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.trim().parse().expect("a probe prints a number")
    }
}

impl Bursts {
    fn new(count: usize) -> Self {
        let clock = Arc::new(FakeClock::new());
        let options = MemoryOptions::for_tests(Arc::clone(&clock));
        let limiter = PreparedLimiter::with(MODELS.min(count), options, usual_limits());
        Self { clock, limiter }
    }

    /// Makes leases, completes them, and sweeps for a minute after they are forgotten. Returns the largest resident set, in bytes.
    fn run(&mut self, count: usize) -> f64 {
        let Self { clock, limiter } = self;
        let leases: Vec<_> = (0..count).map(|n| limiter.reserve(n)).collect();
        let live = resident_bytes(process::id());
        for (n, lease) in leases.into_iter().enumerate() {
            limiter.complete(n, lease);
        }
        let peak = live.max(resident_bytes(process::id()));
        clock.advance(LONG_AFTER);
        for _ in 0..SWEEPS {
            limiter.limiter.sweep();
            clock.advance(SWEEP_EVERY);
        }
        peak
    }
}

/// Growth of the resident set in bytes while something is made, and before it is dropped.
fn resident_growth<T>(make: impl FnOnce() -> T) -> f64 {
    let before = resident_bytes(process::id());
    let made = make();
    let after = resident_bytes(process::id());
    drop(made);
    after - before
}
