//! Three backends that are asked the same, one after another.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Backend, Decision, Denial, DenialReason, LeaseId, LimitState, Limiter, MemoryLimiter, Page,
    ReserveError, Usage,
};
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterConfig, ClusterLedger, NoObserver};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::eventually;
use testkit::tigerbeetle::Fixture;
use tigerbeetle_model::ModelLedger;

use crate::script::{Script, Step};

/// A busy machine is slow, and no answer here is about that.
const ANSWER_MS: u64 = 120_000;
const LAG_MAX: Duration = Duration::from_secs(3_600);

pub struct ThreeBackends {
    clock: MonotonicClock,
    prefix: String,
    memory: MemoryLimiter,
    on_model: TigerBeetleLimiter<Arc<ModelLedger>>,
    on_server: TigerBeetleLimiter<Arc<ClusterLedger>>,
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
            clock,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Plays a step on all three; they answer alike and show the same figures.
    pub async fn play(&mut self, step: &Step, script: &mut Script, at: &str) {
        let at = format!("{at}: {step:?}");
        match step {
            Step::Define(limit) => {
                let expected = self.memory.define(limit.clone()).await;
                assert_eq!(self.on_model.define(limit.clone()).await, expected, "model, {at}");
                assert_eq!(self.on_server.define(limit.clone()).await, expected, "server, {at}");
            }
            Step::Reserve(request) => {
                let memory = self.memory.reserve(request).await;
                let model = self.on_model.reserve(request).await;
                let server = self.on_server.reserve(request).await;
                let was_denied = script.was_denied(request.lease);
                assert!(agree(&memory, &model, was_denied), "{at}\n{memory:?}\nmodel {model:?}");
                assert!(agree(&memory, &server, was_denied), "{at}\n{memory:?}\nserver {server:?}");
                assert_eq!(reason(&model), reason(&server), "{at}");
                script.heard(request.lease, &memory);
            }
            Step::Complete(request) => {
                let expected = self.memory.complete(request).await;
                assert_eq!(self.on_model.complete(request).await, expected, "model, {at}");
                assert_eq!(self.on_server.complete(request).await, expected, "server, {at}");
            }
        }
        self.upkeep().await;
        let expected = self.memory.states(&Page::default()).await.unwrap();
        assert_eq!(self.on_model.states(&Page::default()).await.unwrap(), expected, "model, {at}");
        assert_eq!(
            self.on_server.states(&Page::default()).await.unwrap(),
            expected,
            "server, {at}"
        );
    }

    /// Plays a step whose answer does not depend on when it is asked, without looking at figures that do.
    pub async fn play_anywhen(&self, step: &Step, at: &str) {
        match step {
            Step::Define(limit) => {
                let expected = self.memory.define(limit.clone()).await;
                assert_eq!(self.on_model.define(limit.clone()).await, expected, "model, {at}");
                assert_eq!(self.on_server.define(limit.clone()).await, expected, "server, {at}");
            }
            Step::Reserve(request) => {
                assert!(self.memory.reserve(request).await.unwrap().is_allowed(), "{at}");
                assert!(self.on_model.reserve(request).await.unwrap().is_allowed(), "{at}");
                assert!(self.on_server.reserve(request).await.unwrap().is_allowed(), "{at}");
            }
            Step::Complete(_) => panic!("what is completed does not expire"),
        }
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
fn reason(answer: &Result<Decision, ReserveError>) -> Result<Option<DenialReason>, ReserveError> {
    let answer = answer.clone()?;
    Ok(answer.denial().map(|denial| denial.reason.clone()))
}

/// Whether both said the same, but for what is documented: TigerBeetle names one key, that for which the lease was
/// denied first.
fn agree(
    memory: &Result<Decision, ReserveError>,
    tigerbeetle: &Result<Decision, ReserveError>,
    was_denied: bool,
) -> bool {
    use Decision::{Allowed, Denied};
    use DenialReason::NoRoom;
    match (memory, tigerbeetle) {
        (Ok(Allowed { .. }), Ok(Allowed { .. })) => true,
        (
            Ok(Denied(Denial { reason: NoRoom { keys: memory }, .. })),
            Ok(Denied(Denial { reason: NoRoom { keys: tigerbeetle }, .. })),
        ) => tigerbeetle.len() == 1 && (memory.contains(&tigerbeetle[0]) || was_denied),
        (memory, tigerbeetle) => memory == tigerbeetle,
    }
}
