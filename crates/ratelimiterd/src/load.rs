//! Load generator: callers that make one call after another, and their results.
//!
//! `ratelimiterd bench` and the benchmarks of this repository use it. The loop is closed: a caller makes its next call
//! when the last one is answered.

mod caller;
mod latencies;
mod results;
mod workload;

use std::sync::{Arc, Mutex, PoisonError};

use ratelimiter::clock::{MonotonicClock, Timestamp};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

pub use self::caller::LimiterCaller;
pub use self::latencies::Latencies;
pub(crate) use self::latencies::micros;
pub use self::results::{Recorder, Results};
pub use self::workload::{Call, LIMITS_PER_CALL_MAX, Workload};

/// The most sets of results of one run. With at most this many callers, each has its own and none waits for a lock.
const RESULTS_MAX: usize = 64;

/// One of many concurrent callers.
pub trait Caller: Send + 'static {
    /// Makes one call and records its requests. Returns the time of the last answer, or `None` if this caller has no
    /// more calls to make.
    ///
    /// `started_at` is the end of the last call, for a caller that need not read the clock again.
    fn call(
        &mut self,
        started_at: Timestamp,
        recorder: &Recorder,
    ) -> impl Future<Output = Option<Timestamp>> + Send;
}

/// Running callers. Dropping this stops them.
#[derive(Debug)]
pub struct ClosedLoop<C> {
    results: Vec<Arc<Mutex<Results>>>,
    running: JoinSet<C>,
    ended: Vec<C>,
}

impl<C: Caller> ClosedLoop<C> {
    /// Starts the callers on the current runtime. Each makes calls until one ends after `until`, but at least one.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(callers: Vec<C>, clock: &MonotonicClock, until: Timestamp) -> Self {
        // Callers on one thread never wait for each other's lock, and one set of histograms stays in the cache.
        let is_one_thread = Handle::current().metrics().num_workers() == 1;
        let set_count = if is_one_thread { 1 } else { callers.len().min(RESULTS_MAX) };
        let results: Vec<Arc<Mutex<Results>>> = (0..set_count).map(|_| Arc::default()).collect();
        let mut running = JoinSet::new();
        for (mut caller, results) in callers.into_iter().zip(results.iter().cycle()) {
            let recorder = Recorder::new(clock.clone(), Arc::clone(results));
            running.spawn(async move {
                let mut now = recorder.now();
                while let Some(ended_at) = caller.call(now, &recorder).await {
                    now = ended_at;
                    if now >= until {
                        break;
                    }
                }
                caller
            });
        }
        Self { results, running, ended: Vec::new() }
    }

    /// Waits for all callers and returns them. After a cancelled wait, the next one goes on.
    ///
    /// # Errors
    /// A caller panicked.
    pub async fn join(&mut self) -> Result<Vec<C>, JoinError> {
        while let Some(caller) = self.running.join_next().await {
            self.ended.push(caller?);
        }
        Ok(std::mem::take(&mut self.ended))
    }

    /// The results so far.
    pub fn results(&self) -> Results {
        let mut sum = Results::default();
        for results in &self.results {
            sum.add(&results.lock().unwrap_or_else(PoisonError::into_inner));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratelimiter::Decision;
    use ratelimiter::clock::Clock;

    use super::*;

    /// Has this many calls left, none of which takes time.
    struct CountedCaller(usize);

    impl Caller for CountedCaller {
        async fn call(&mut self, started_at: Timestamp, recorder: &Recorder) -> Option<Timestamp> {
            self.0 = self.0.checked_sub(1)?;
            let decision = Decision::allowed_at(started_at);
            Some(recorder.reserved(started_at, &Ok::<_, String>(decision)))
        }
    }

    fn run(runtime: &tokio::runtime::Runtime, seconds: u64) -> (u64, usize) {
        runtime.block_on(async {
            let clock = MonotonicClock::new();
            let until = clock.now().after(Duration::from_secs(seconds));
            let callers = vec![CountedCaller(1), CountedCaller(200), CountedCaller(0)];
            let mut running = ClosedLoop::start(callers, &clock, until);
            let callers = running.join().await.unwrap();
            (running.results().allowed, callers.len())
        })
    }

    #[test]
    fn results_of_all_callers_count_on_one_thread_and_on_several() {
        let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let several =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        for runtime in [one, several] {
            assert_eq!(run(&runtime, 3_600), (201, 3), "each makes the calls it has");
            assert_eq!(run(&runtime, 0), (2, 3), "the time is up: each makes one call at most");
        }
    }
}
