//! Three backends that are asked the same, one after another.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Backend, DenialReason, LeaseId, LimitKey, LimitState, MemoryLimiter, Page, ReserveError, Usage,
};
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterConfig, ClusterLedger, NoObserver};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::eventually;
use testkit::script::{self, Answer, Call, History};
use testkit::tigerbeetle::Fixture;
use tigerbeetle_model::ModelLedger;

/// A busy machine is slow, and no answer here is about that.
const ANSWER_MS: u64 = 120_000;
const LAG_MAX: Duration = Duration::from_secs(3_600);

pub struct ThreeBackends {
    clock: MonotonicClock,
    prefix: String,
    memory: MemoryLimiter,
    on_model: TigerBeetleLimiter<Arc<ModelLedger>>,
    on_server: TigerBeetleLimiter<Arc<ClusterLedger>>,
    history: History,
}

/// The one session that all scripts share.
pub async fn connect(fixture: &Fixture) -> Arc<ClusterLedger> {
    static LEDGER: OnceLock<Arc<ClusterLedger>> = OnceLock::new();
    let ledger = LEDGER.get_or_init(|| {
        let mut settings = fixture.development().settings();
        settings.request_timeout_ms = ANSWER_MS;
        let config = ClusterConfig::new(&settings).unwrap();
        Arc::new(ClusterLedger::open(config, NoObserver).unwrap())
    });
    ledger.ready().await;
    Arc::clone(ledger)
}

impl ThreeBackends {
    pub fn new(server: &Arc<ClusterLedger>, seed: u64) -> Self {
        let clock = MonotonicClock::new();
        let prefix = format!("three_backends:{}:", LeaseId::generate(clock.now()));
        let options = || LimiterOptions {
            clock: Arc::new(clock.clone()),
            expiry_lag_max: LAG_MAX,
            leases_cached_max: if seed.is_multiple_of(2) { 1_000 } else { 0 },
            ..LimiterOptions::default()
        };
        let model = Arc::new(ModelLedger::new(clock.clone()));
        Self {
            prefix,
            memory: MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone())),
            on_model: TigerBeetleLimiter::new(model, options()),
            on_server: TigerBeetleLimiter::new(Arc::clone(server), options()),
            history: History::default(),
            clock,
        }
    }

    /// A lease that the cluster does not know.
    pub fn lease(&self) -> LeaseId {
        LeaseId::generate(self.clock.now())
    }

    /// A key that the cluster does not know.
    pub fn key(&self, name: &str) -> LimitKey {
        LimitKey::new(format!("{}{name}", self.prefix)).unwrap()
    }

    /// Makes a call of all three; they answer alike and show the same usage.
    pub async fn check(&mut self, call: &Call) -> Result<(), String> {
        let [memory, model, server] = self.play(call).await;
        let agrees = |answer| self.history.agree(call, &memory, answer, Duration::MAX);
        if !agrees(&model) || !agrees(&server) || reason(&model) != reason(&server) {
            return Err(format!("memory: {memory:?}\nmodel:  {model:?}\nserver: {server:?}"));
        }
        self.history.note(call, &memory);
        self.upkeep().await;
        let memory = self.memory.states(&Page::default()).await;
        let model = self.on_model.states(&Page::default()).await;
        let server = self.on_server.states(&Page::default()).await;
        match memory.is_ok() && model == memory && server == memory {
            true => Ok(()),
            false => Err(format!("memory: {memory:?}\nmodel:  {model:?}\nserver: {server:?}")),
        }
    }

    /// Makes a call of all three.
    pub async fn play(&self, call: &Call) -> [Answer; 3] {
        [
            script::play(&self.memory, call).await,
            script::play(&self.on_model, call).await,
            script::play(&self.on_server, call).await,
        ]
    }

    pub async fn until_nothing_is_used(&self) {
        eventually("everything returns", async || {
            self.upkeep().await;
            let mut states = self.memory.states(&Page::default()).await.unwrap();
            states.extend(self.on_model.states(&Page::default()).await.unwrap());
            states.extend(self.on_server.states(&Page::default()).await.unwrap());
            states.iter().all(|LimitState { usage: Usage { used, .. }, .. }| *used == 0)
        })
        .await;
    }

    async fn upkeep(&self) {
        self.memory.sweep();
        self.on_model.tick().await;
        self.on_server.tick().await;
    }
}

/// What was decided, without when and for how long.
fn reason(answer: &Answer) -> Option<Result<Option<&DenialReason>, &ReserveError>> {
    let Answer::Decided(decided) = answer else {
        return None;
    };
    let decided = decided.as_ref();
    Some(decided.map(|decision| decision.denial().map(|denial| &denial.reason)))
}
