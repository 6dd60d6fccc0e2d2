//! Four backends that are asked the same, one after another.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Backend, Capacity, Decision, DenialReason, LeaseId, LimitKey, LimitState, MemoryLimiter, Page,
    Renewal, ReserveError, Usage,
};
use ratelimiter_redis::{CAPACITY_MAX, RedisConfig, RedisLimiter, RedisOptions, RedisSettings};
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterConfig, ClusterLedger, NoObserver};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::script::{self, Answer, Call, History};
use testkit::{eventually, redis, tigerbeetle};
use tigerbeetle_model::ModelLedger;

/// A busy machine is slow, and no answer here is about that.
const ANSWER_MS: u64 = 60_000;
const LAG_MAX: Duration = Duration::from_secs(3_600);

/// Both servers.
#[derive(Debug, Default)]
pub struct Servers {
    /// The one session that all scripts share. It ends before its server does.
    session: OnceLock<Arc<ClusterLedger>>,
    tigerbeetle: tigerbeetle::Fixture,
    redis: redis::Fixture,
}

pub struct FourBackends {
    clock: MonotonicClock,
    prefix: String,
    memory: MemoryLimiter,
    on_model: TigerBeetleLimiter<Arc<ModelLedger>>,
    on_tigerbeetle: TigerBeetleLimiter<Arc<ClusterLedger>>,
    on_redis: RedisLimiter,
    history: History,
}

impl Servers {
    async fn session(&self) -> Arc<ClusterLedger> {
        let ledger = self.session.get_or_init(|| {
            let mut settings = self.tigerbeetle.development().settings();
            settings.request_timeout_ms = ANSWER_MS;
            let config = ClusterConfig::new(&settings).unwrap();
            Arc::new(ClusterLedger::open(config, NoObserver).unwrap())
        });
        ledger.ready().await;
        Arc::clone(ledger)
    }
}

impl FourBackends {
    pub async fn on(servers: &Servers, seed: u64) -> Self {
        let clock = MonotonicClock::new();
        let prefix = format!("four_backends:{}", LeaseId::generate(clock.now()));
        let options = || LimiterOptions {
            clock: Arc::new(clock.clone()),
            expiry_lag_max: LAG_MAX,
            leases_cached_max: if seed.is_multiple_of(2) { 1_000 } else { 0 },
            ..LimiterOptions::default()
        };
        let model = Arc::new(ModelLedger::new(clock.clone()));
        let settings = RedisSettings {
            prefix: prefix.clone(),
            request_timeout_ms: ANSWER_MS,
            ..RedisSettings::new(servers.redis.shared().url())
        };
        let config = RedisConfig::new(&settings).unwrap();
        Self {
            prefix,
            memory: MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone())),
            on_model: TigerBeetleLimiter::new(model, options()),
            on_tigerbeetle: TigerBeetleLimiter::new(servers.session().await, options()),
            on_redis: RedisLimiter::new(config, RedisOptions::default()),
            history: History::default(),
            clock,
        }
    }

    /// A lease that no server knows.
    pub fn lease(&self) -> LeaseId {
        LeaseId::generate(self.clock.now())
    }

    /// A key that no server knows.
    pub fn key(&self, name: &str) -> LimitKey {
        LimitKey::new(format!("{}:{name}", self.prefix)).unwrap()
    }

    /// Makes a call of all four; they answer alike and show the same usage.
    pub async fn check(&mut self, call: &Call) -> Result<(), String> {
        let answers = self.play(call).await;
        let [memory, model, tigerbeetle, redis] = &answers;
        let agrees = |answer| self.history.agree(call, memory, answer, Duration::MAX);
        if !agrees(model)
            || !agrees(tigerbeetle)
            || reason(model) != reason(tigerbeetle)
            || without_times(redis) != without_times(memory)
        {
            return Err(four(&answers));
        }
        self.history.note(call, memory);
        self.upkeep().await;
        let states = self.states().await;
        let [memory, model, tigerbeetle, redis] = &states;
        let as_on_redis: Vec<_> = memory.iter().cloned().map(counted_as_redis_does).collect();
        match model == memory && tigerbeetle == memory && *redis == as_on_redis {
            true => Ok(()),
            false => Err(four(&states)),
        }
    }

    /// Makes a call of all four.
    pub async fn play(&self, call: &Call) -> [Answer; 4] {
        [
            script::play(&self.memory, call).await,
            script::play(&self.on_model, call).await,
            script::play(&self.on_tigerbeetle, call).await,
            script::play(&self.on_redis, call).await,
        ]
    }

    pub async fn until_nothing_is_used(&self) {
        eventually("everything returns", async || {
            self.upkeep().await;
            let states = self.states().await;
            let mut states = states.iter().flatten();
            states.all(|LimitState { usage: Usage { used, .. }, .. }| *used == 0)
        })
        .await;
    }

    async fn states(&self) -> [Vec<LimitState>; 4] {
        let all = Page::default();
        [
            self.memory.states(&all).await.unwrap(),
            self.on_model.states(&all).await.unwrap(),
            self.on_tigerbeetle.states(&all).await.unwrap(),
            self.on_redis.states(&all).await.unwrap(),
        ]
    }

    async fn upkeep(&self) {
        self.memory.sweep();
        self.on_model.tick().await;
        self.on_tigerbeetle.tick().await;
        self.on_redis.tick().await;
    }
}

fn four<T: std::fmt::Debug>([memory, model, tigerbeetle, redis]: &[T; 4]) -> String {
    format!(
        "memory: {memory:?}\nmodel:  {model:?}\nTigerBeetle: {tigerbeetle:?}\nRedis:  {redis:?}"
    )
}

/// What was decided, without when and for how long.
fn reason(answer: &Answer) -> Option<Result<Option<&DenialReason>, &ReserveError>> {
    let Answer::Decided(decided) = answer else {
        return None;
    };
    let decided = decided.as_ref();
    Some(decided.map(|decision| decision.denial().map(|denial| &denial.reason)))
}

/// An answer without moments, which differ in real time, and hints, which follow from them. Redis names every key without room, as memory does.
fn without_times(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    let never = Timestamp::from_unix_ms(0);
    match &mut answer {
        Answer::Decided(Ok(Decision::Allowed { reserved_at, .. })) => *reserved_at = never,
        Answer::Renewed(Ok(Renewal::Renewed { renewed_at, lapses_at, .. })) => {
            (*renewed_at, *lapses_at) = (never, never);
        }
        Answer::Decided(Ok(Decision::Denied(denial)))
        | Answer::Renewed(Ok(Renewal::Denied(denial))) => denial.retry_after = Duration::ZERO,
        Answer::Decided(Err(_))
        | Answer::Renewed(Err(_))
        | Answer::Defined(_)
        | Answer::Deleted(_)
        | Answer::Completed(_)
        | Answer::State(_)
        | Answer::Swept { .. } => {}
    }
    answer
}

/// What has been in shadow mode has as much capacity as can be counted.
fn counted_as_redis_does(mut state: LimitState) -> LimitState {
    if state.limit.capacity == Capacity::MAX {
        state.limit.capacity = Capacity::new(CAPACITY_MAX).unwrap();
        state.usage.available = CAPACITY_MAX - state.usage.used;
    }
    state
}
