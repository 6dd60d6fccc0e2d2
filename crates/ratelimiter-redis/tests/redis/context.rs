//! Limiters on one Redis, with control over time.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ratelimiter::LeaseId;
use ratelimiter::clock::{Clock, FakeClock, MonotonicClock};
use ratelimiter_redis::{RedisConfig, RedisLimiter, RedisOptions, RedisSettings, TimeSource};
use testkit::redis::TestRedis;

/// A busy machine is slow, and no answer here is about that.
pub const ANSWER_MS: u64 = 60_000;

/// Whose time a test runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    Simulated,
    Real,
}

/// An installation of its own, and the limiters on it.
pub struct TestContext {
    url: String,
    prefix: String,
    /// The clock that says what time it is; `None` in real time.
    pub clock: Option<Arc<FakeClock>>,
    /// Writes the time.
    now: Mutex<Option<redis::Connection>>,
    limiters: Mutex<Vec<Weak<RedisLimiter>>>,
}

impl Time {
    pub fn name(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Real => "real",
        }
    }
}

impl TestContext {
    pub fn new(redis: &TestRedis, time: Time) -> Self {
        let clock = (time == Time::Simulated).then(|| Arc::new(FakeClock::new()));
        Self::with_clock(redis, clock)
    }

    pub fn with_clock(redis: &TestRedis, clock: Option<Arc<FakeClock>>) -> Self {
        let prefix = format!("test:{}", LeaseId::generate(MonotonicClock::new().now()));
        let client = redis::Client::open(redis.url()).unwrap();
        let now = clock.is_some().then(|| client.get_connection().unwrap());
        let context = Self {
            url: redis.url(),
            prefix,
            clock,
            now: Mutex::new(now),
            limiters: Mutex::default(),
        };
        context.tell_time();
        context
    }

    pub fn limiter(&self) -> Arc<RedisLimiter> {
        self.limiter_with(|_| {})
    }

    pub fn limiter_with(&self, change: impl FnOnce(&mut RedisOptions)) -> Arc<RedisLimiter> {
        self.new_limiter(&self.url, change)
    }

    /// With another user.
    pub fn limiter_at(&self, url: &str) -> Arc<RedisLimiter> {
        self.new_limiter(url, |_| {})
    }

    fn new_limiter(&self, url: &str, change: impl FnOnce(&mut RedisOptions)) -> Arc<RedisLimiter> {
        let settings = RedisSettings {
            prefix: self.prefix.clone(),
            request_timeout_ms: ANSWER_MS,
            ..RedisSettings::new(url)
        };
        let time = match self.clock {
            Some(_) => TimeSource::Simulated,
            None => TimeSource::Server,
        };
        let mut options = RedisOptions { time, ..RedisOptions::default() };
        change(&mut options);
        let limiter = Arc::new(RedisLimiter::new(RedisConfig::new(&settings).unwrap(), options));
        self.limiters.lock().unwrap().push(Arc::downgrade(&limiter));
        limiter
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The names of all keys of this installation, sorted.
    pub fn names(&self, redis: &TestRedis) -> Vec<String> {
        let pattern = format!("{{{}}}:*", self.prefix);
        let mut names: Vec<_> =
            redis.command(&["KEYS", &pattern]).lines().map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    /// Lets time pass while limiters tick as on a server.
    pub async fn pass(&self, by: Duration) {
        match &self.clock {
            None => testkit::pass(by).await,
            Some(clock) => {
                clock.advance(by);
                self.tell_time();
            }
        }
        self.tick().await;
    }

    /// Tells Redis what time it is.
    pub fn tell_time(&self) {
        if let (Some(clock), Some(connection)) = (&self.clock, &mut *self.now.lock().unwrap()) {
            let name = format!("{{{}}}:now", self.prefix);
            let micros = clock.now().unix_nanos() / 1_000;
            let () = redis::cmd("SET").arg(name).arg(micros).query(connection).unwrap();
        }
    }

    pub async fn tick(&self) {
        let limiters = self.limiters.lock().unwrap().clone();
        for limiter in limiters.iter().filter_map(Weak::upgrade) {
            limiter.tick().await;
        }
    }
}
