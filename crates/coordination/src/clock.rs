//! Clocks. Nothing else in this crate reads the system time (`PRIM-GEN-A`).

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::Timestamp;

/// The longest sleep before a clock reads the system time again, so that a step of the wall clock
/// or a suspension of the machine is noticed.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A smaller difference is attributed to the time between the readings of two clocks.
const SUSPENDED_MICROS_MIN: i64 = 10_000;

/// A wait for a moment. Boxed, because clocks are shared as `Arc<dyn Clock>`.
pub type Wait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A source of time, and a way to wait for a moment of it.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// Completes when [`now`](Clock::now) is `at` or later. The default sleeps with tokio's timers
    /// and checks again.
    fn wait_until(&self, at: Timestamp) -> Wait<'_> {
        Box::pin(async move {
            loop {
                let remaining = at.since(self.now());
                if remaining.is_zero() {
                    return;
                }
                // Tokio's timers have a resolution of a millisecond, so one may fire slightly early
                // and the loop sleeps again. They do not advance in suspend.
                tokio::time::sleep_until(Instant::now() + remaining.min(LOOK_AGAIN_AFTER)).await;
            }
        })
    }
}

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

/// Reads the wall clock once, then follows the monotonic clock.
///
/// Steps of the wall clock do not affect it, so a process uses it to decide whether a lease from a
/// remote provider has expired. On Linux it includes the time in suspend, which
/// [`std::time::Instant`] does not: a lease expires in that time too. In a paused tokio runtime it
/// is paused too.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    started_at: Timestamp,
    started: Instant,
    /// Total time in suspend, from an arbitrary start.
    suspended_micros: fn() -> i64,
    suspended_micros_before: i64,
}

/// A clock that moves only when it is set, for tests. Clones share the time.
///
/// ```
/// use std::time::Duration;
/// use coordination::{Clock, FakeClock, Timestamp};
///
/// let clock = FakeClock::at("2026-01-01T00:00:00Z".parse().unwrap());
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now().to_string(), "2026-01-01T00:00:05Z");
/// ```
#[derive(Debug, Clone)]
pub struct FakeClock {
    now: watch::Sender<Timestamp>,
}

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let since_epoch =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::MIN.after(since_epoch)
    }
}

impl MonotonicClock {
    /// A clock that starts at the current wall clock time.
    pub fn new() -> MonotonicClock {
        MonotonicClock::starting_at(WallClock.now())
    }

    /// A clock that starts at `started_at`.
    pub fn starting_at(started_at: Timestamp) -> MonotonicClock {
        MonotonicClock::on_machine(started_at, suspended_micros)
    }

    pub(crate) fn on_machine(
        started_at: Timestamp,
        suspended_micros: fn() -> i64,
    ) -> MonotonicClock {
        let suspended_micros_before = suspended_micros();
        let started = Instant::now();
        MonotonicClock { started_at, started, suspended_micros, suspended_micros_before }
    }

    fn suspended(&self) -> Duration {
        let micros = (self.suspended_micros)() - self.suspended_micros_before;
        match u64::try_from(micros) {
            Ok(suspended) if micros >= SUSPENDED_MICROS_MIN => Duration::from_micros(suspended),
            Ok(_) | Err(_) => Duration::ZERO,
        }
    }
}

/// The difference between the clock that includes time in suspend and the one that does not.
#[cfg(target_os = "linux")]
fn suspended_micros() -> i64 {
    use rustix::time::{ClockId, clock_gettime};
    const READS_MAX: usize = 10;
    const CLOSE_MICROS: i64 = 1000;
    let micros = |clock: ClockId| {
        let time = clock_gettime(clock);
        time.tv_sec * 1_000_000 + time.tv_nsec / 1000
    };
    let mut ahead_by = 0;
    for _ in 0..READS_MAX {
        let before = micros(ClockId::Monotonic);
        let boottime = micros(ClockId::Boottime);
        let after = micros(ClockId::Monotonic);
        ahead_by = boottime - after;
        if after - before < CLOSE_MICROS {
            break;
        }
    }
    ahead_by
}

#[cfg(not(target_os = "linux"))]
fn suspended_micros() -> i64 {
    0
}

impl Default for MonotonicClock {
    fn default() -> MonotonicClock {
        MonotonicClock::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Timestamp {
        self.started_at.after(self.started.elapsed() + self.suspended())
    }
}

impl FakeClock {
    /// A clock that shows `now` until it is advanced or set.
    pub fn at(now: Timestamp) -> FakeClock {
        FakeClock { now: watch::Sender::new(now) }
    }

    /// Advances the clock and wakes waiters whose time has come.
    pub fn advance(&self, span: Duration) {
        self.now.send_modify(|now| *now = now.after(span));
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.now.send_replace(now);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    fn wait_until(&self, at: Timestamp) -> Wait<'_> {
        let mut now = self.now.subscribe();
        Box::pin(async move {
            now.wait_for(|now| at <= *now).await.expect("the sender lives in the borrowed clock");
        })
    }
}

/// A simulated suspension of the machine, per thread.
#[cfg(test)]
pub(crate) mod suspension {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local!(static MICROS: Cell<i64> = const { Cell::new(0) });

    pub(crate) fn micros() -> i64 {
        MICROS.get()
    }

    pub(crate) fn add(span: Duration) {
        MICROS.set(MICROS.get() + i64::try_from(span.as_micros()).unwrap());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fake_clock_wakes_its_waiter_at_the_moment_itself() {
        let clock = FakeClock::at(Timestamp::MIN);
        let at = Timestamp::MIN.after(Duration::from_secs(10));
        let waiter = tokio::spawn({
            let clock = clock.clone();
            async move { clock.wait_until(at).await }
        });
        clock.advance(Duration::from_secs(9));
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        clock.advance(Duration::from_secs(1));
        waiter.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_monotonic_clock_follows_the_runtime() {
        let clock = MonotonicClock::starting_at(Timestamp::MIN);
        let at = Timestamp::MIN.after(Duration::from_secs(3600));
        clock.wait_until(at).await;
        assert!(clock.now() >= at);
        assert!(clock.now() < at.after(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_monotonic_clock_counts_the_time_in_suspend() {
        let clock = MonotonicClock::on_machine(Timestamp::MIN, suspension::micros);
        let at = |seconds| Timestamp::MIN.after(Duration::from_secs(seconds));
        let waiter = tokio::spawn(async move { clock.wait_until(at(3600)).await });
        tokio::time::sleep_until(Instant::now() + Duration::from_secs(5)).await;
        assert_eq!((clock.now(), waiter.is_finished()), (at(5), false));
        suspension::add(Duration::from_secs(3600));
        assert_eq!(clock.now(), at(3605));
        waiter.await.unwrap();
        assert!(clock.now() <= at(3606), "noticed within a second");
    }

    #[test]
    fn the_time_in_suspend_does_not_grow_while_the_machine_runs() {
        let before = suspended_micros();
        let grown = (0..1000).map(|_| suspended_micros() - before).max();
        assert!(grown < Some(SUSPENDED_MICROS_MIN), "{grown:?}");
    }

    #[tokio::test]
    async fn a_wait_for_the_past_is_over() {
        WallClock.wait_until(Timestamp::MIN).await;
        assert!(WallClock.now() > "2026-01-01T00:00:00Z".parse().unwrap());
    }
}
