//! Waiting in virtual time, at several servers on one model of TigerBeetle.

mod outages;
mod repeats;

use std::sync::atomic::AtomicU64;

use ratelimiter::{
    Actuals, Backend, Capacity, HoldTimeout, Limit, LimitKind, MemoryLimiter, Requirements,
    ResetSchedule, ResetTime, Wait, Window,
};
use ratelimiter_client::TokioClock;
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountResult, AccountRow, Action, Ledger, LedgerError, NewAccount, TransferId,
    TransferQuery, TransferResult, TransferRow, TransferStatus, WorkItem,
};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::pass;
use tigerbeetle_model::ModelLedger;
use tokio::task::JoinHandle;

use super::*;
use crate::runtime::TokioRuntime;
use crate::tigerbeetle::HostedLedger;

const ROUND_TRIP: Duration = Duration::from_millis(1);
/// After this time a request without an answer fails.
const NO_ANSWER_AFTER: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);

/// A model that takes its time, counts looks, and may lose answers.
struct TestLedger {
    model: ModelLedger,
    round_trip: Mutex<Duration>,
    looks: AtomicUsize,
    lost: Mutex<Lost>,
    /// A write that arrives when the cluster answers again.
    late: Mutex<Option<WorkItem>>,
    /// A gate was created, alone or with the reservation of an attempt.
    gate_created: Notify,
    attempted: Notify,
}

/// Which requests are executed and never answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    None,
    Writes,
    All,
    /// The first write arrives late, and no other one is executed.
    LateWrite,
    /// Nothing is executed, or will be.
    NotSent,
}

impl TestLedger {
    async fn answer<T>(
        &self,
        answer: Result<T, LedgerError>,
        lost_with: Lost,
    ) -> Result<T, LedgerError> {
        let lost = *self.lost.lock().unwrap();
        if lost == Lost::All || lost == lost_with {
            pass(NO_ANSWER_AFTER).await;
            return Err(LedgerError::NoAnswer { waited: NO_ANSWER_AFTER });
        }
        let round_trip = *self.round_trip.lock().unwrap();
        pass(round_trip).await;
        answer
    }
}

impl Ledger for TestLedger {
    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        self.answer(self.model.create_accounts(accounts).await, Lost::Writes).await
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        let waited = NO_ANSWER_AFTER;
        let lost = *self.lost.lock().unwrap();
        if lost == Lost::NotSent {
            return Err(LedgerError::NotSent { waited });
        }
        if lost == Lost::LateWrite {
            self.late.lock().unwrap().get_or_insert(item);
            pass(waited).await;
            return Err(LedgerError::NoAnswer { waited });
        }
        let events = item.events().len();
        let is_gate = matches!(item.events()[0].transfer.action, Action::Posted(_));
        let results = self.model.create_transfers(item).await;
        let is_created = results.as_ref().is_ok_and(|results| {
            results.iter().all(|result| result.status == TransferStatus::Created)
        });
        if is_gate && is_created {
            match events {
                1 => self.gate_created.notify_waiters(),
                _ => self.attempted.notify_waiters(),
            }
        }
        self.answer(results, Lost::Writes).await
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.answer(self.model.lookup_accounts(ids).await, Lost::All).await
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        self.answer(self.model.lookup_transfers(ids).await, Lost::All).await
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        self.answer(self.model.query_transfers(query).await, Lost::All).await
    }
}

impl HostedLedger for Arc<TestLedger> {}

/// Servers on one cluster.
struct Cluster {
    ledger: Arc<TestLedger>,
    clock: Arc<TokioClock>,
    leases: AtomicU64,
}

type Hosted = TigerBeetleLimiter<Arc<TestLedger>>;

struct Server {
    limiter: Arc<Hosted>,
    waiting: Waiting<Hosted>,
}

impl Cluster {
    fn new() -> Self {
        // 30 s before an hour begins.
        let started_at = Timestamp::from_unix_ms((500_000 * 3_600 - 30) * 1_000);
        let clock = Arc::new(TokioClock::starting_at(started_at));
        let ledger = Arc::new(TestLedger {
            model: ModelLedger::new(clock.as_ref().clone()),
            round_trip: Mutex::new(ROUND_TRIP),
            looks: AtomicUsize::new(0),
            lost: Mutex::new(Lost::None),
            late: Mutex::default(),
            gate_created: Notify::new(),
            attempted: Notify::new(),
        });
        Self { ledger, clock, leases: AtomicU64::new(1) }
    }

    /// A server with these limits.
    async fn server(&self, limits: &[(&str, u64)]) -> Arc<Server> {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let options = LimiterOptions { clock: Arc::clone(&clock), ..LimiterOptions::default() };
        let limiter = Arc::new(TigerBeetleLimiter::new(Arc::clone(&self.ledger), options));
        for (name, capacity) in limits {
            let kind = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(600).unwrap() };
            limiter.define(limit(name, kind, *capacity)).await.unwrap();
        }
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
        let changed = Arc::new(Notify::new());
        let waiting = Waiting::new(Arc::clone(&limiter), clock, &runtime, 1_000, changed);
        Arc::new(Server { limiter, waiting })
    }

    fn request(&self, needs: &[(&str, u64)], wait: Option<Duration>) -> ReserveRequest {
        let lease = self.leases.fetch_add(1, Ordering::Relaxed);
        let needs = Requirements::of(needs.iter().map(|(name, amount)| (key(name), *amount)));
        let request = ReserveRequest::new(LeaseId::from_u128(lease.into()), needs.unwrap());
        ReserveRequest { wait: wait.map(|wait| Wait::new(wait, "").unwrap()), ..request }
    }

    /// Takes all slots at a server.
    async fn take(&self, server: &Server, name: &str, amount: u64) -> LeaseId {
        let request = self.request(&[(name, amount)], None);
        assert!(server.reserve(&request).await.is_allowed());
        request.lease
    }

    fn lose(&self, lost: Lost) {
        *self.ledger.lost.lock().unwrap() = lost;
    }

    /// The cluster answers again, and what was late arrives.
    async fn heal(&self) {
        self.lose(Lost::None);
        let late = self.ledger.late.lock().unwrap().take();
        if let Some(late) = late {
            self.ledger.model.create_transfers(late).await.unwrap();
        }
    }

    /// Completes a lease of one slot at a server; returns when the cluster has executed it, before anybody is answered.
    async fn begin_to_complete(&self, server: &Arc<Server>, lease: LeaseId) -> JoinHandle<()> {
        let server = Arc::clone(server);
        let completed = tokio::spawn(async move { server.complete(lease).await });
        let account = ids::limit_account(&key("slots"));
        let used = async || {
            let rows = self.ledger.model.lookup_accounts(vec![account]).await.unwrap();
            rows[0].balances.debits_pending
        };
        while used().await > 0 {
            tokio::task::yield_now().await;
        }
        completed
    }
}

impl Server {
    async fn reserve(&self, request: &ReserveRequest) -> Decision {
        self.waiting.reserve(request).await.unwrap().0
    }

    /// A caller in the background.
    fn ask(self: &Arc<Self>, request: &ReserveRequest) -> JoinHandle<Answered> {
        let (server, request) = (Arc::clone(self), request.clone());
        tokio::spawn(async move { server.waiting.reserve(&request).await })
    }

    /// A caller in the background, which has begun to wait when this returns.
    async fn wait(self: &Arc<Self>, request: &ReserveRequest) -> Asked {
        let (server, request) = (Arc::clone(self), request.clone());
        let before = self.waiting.count();
        let asked = tokio::spawn(async move { server.waiting.reserve(&request).await.unwrap() });
        pass(20 * ROUND_TRIP).await;
        assert_eq!(self.waiting.count(), before + 1);
        asked
    }

    async fn complete(&self, lease: LeaseId) {
        let none = Actuals::new(Vec::new()).unwrap();
        self.waiting.complete(&CompleteRequest::new(lease, none)).await.unwrap();
    }

    async fn used(&self, name: &str) -> u64 {
        self.limiter.state(&key(name)).await.unwrap().unwrap().usage.used
    }
}

type Asked = JoinHandle<TimedDecision>;
type Answered = Result<TimedDecision, ReserveError>;

fn limit(name: &str, kind: LimitKind, capacity: u64) -> Limit {
    Limit::new(key(name), kind, Capacity::new(capacity).unwrap())
}

fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

/// WAIT-01, WAIT-06, TB-17
#[tokio::test(start_paused = true)]
async fn wait_06_a_complete_at_the_same_server_admits_who_waits_at_once() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 1)]).await;
    let held = cluster.take(&server, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = server.wait(&request).await;
    pass(SECOND).await;
    let before = cluster.clock.now();
    server.complete(held).await;
    let (decision, waited) = asked.await.unwrap();
    assert!(decision.is_allowed() && waited.unwrap() > SECOND, "{decision:?}");
    assert!(cluster.clock.now().since(before) <= 5 * ROUND_TRIP);
    assert_eq!((server.used("slots").await, server.waiting.count()), (1, 0));
    server.complete(request.lease).await;
    assert_eq!(server.used("slots").await, 0);
}

/// WAIT-06, TB-17: whenever another server completes, between two looks.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_17_room_that_another_server_freed_is_found_within_250_ms() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let mut held = cluster.take(&second, "slots", 1).await;
    let mut found_after = Vec::new();
    for round in 0..200 {
        let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
        let asked = first.wait(&request).await;
        pass(Duration::from_millis(round * 7 % 331)).await;
        second.complete(held).await;
        let freed_at = cluster.clock.now();
        assert!(asked.await.unwrap().0.is_allowed());
        found_after.push(cluster.clock.now().since(freed_at));
        held = request.lease;
    }
    found_after.sort_unstable();
    let p99 = found_after[found_after.len() * 99 / 100];
    assert!(p99 <= Duration::from_millis(250), "{found_after:?}");
}

/// WAIT-06, TB-17: a look finds room of all limits that a waiter lacks.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_17_room_of_four_limits_is_found_within_250_ms() {
    let cluster = Cluster::new();
    let needs = [("a", 1), ("b", 1), ("c", 1), ("d", 1)];
    let (first, second) = (cluster.server(&needs).await, cluster.server(&needs).await);
    let holder = cluster.request(&needs, None);
    assert!(second.reserve(&holder).await.is_allowed());
    let mut held = holder.lease;
    for round in 0..100 {
        let request = cluster.request(&needs, Some(60 * SECOND));
        let asked = first.wait(&request).await;
        pass(Duration::from_millis(round * 7 % 331)).await;
        second.complete(held).await;
        let freed_at = cluster.clock.now();
        assert!(asked.await.unwrap().0.is_allowed());
        let found_after = cluster.clock.now().since(freed_at);
        assert!(found_after <= Duration::from_millis(250), "{found_after:?}");
        held = request.lease;
    }
}

/// WAIT-06, CAL-03, TB-17: what lapses is found by a look, and a reset at its moment.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_17_what_lapses_or_resets_admits_who_waits() {
    let cluster = Cluster::new();
    let server = cluster.server(&[]).await;
    let started_at = cluster.clock.now();
    let rolling = LimitKind::Rolling { window: Window::from_seconds(10).unwrap() };
    server.limiter.define(limit("rpm", rolling, 1)).await.unwrap();
    let minute = "00:00".parse::<ResetTime>().unwrap().minute();
    let hourly = LimitKind::Calendar { resets: ResetSchedule::Hourly { minute } };
    server.limiter.define(limit("budget", hourly, 1)).await.unwrap();
    for (name, after) in [("rpm", 10 * SECOND), ("budget", 30 * SECOND)] {
        cluster.take(&server, name, 1).await;
        let request = cluster.request(&[(name, 1)], Some(60 * SECOND));
        assert!(server.wait(&request).await.await.unwrap().0.is_allowed());
        let admitted_after = cluster.clock.now().since(started_at);
        assert!(admitted_after >= after, "{name}: {admitted_after:?}");
        assert!(admitted_after <= after + SECOND / 4, "{name}: {admitted_after:?}");
    }
}

/// WAIT-05, WAIT-06: one look for all limits, however many wait.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_17_one_look_in_100_ms_serves_all_limits_and_waiters() {
    let cluster = Cluster::new();
    let names: Vec<String> = (0..20).map(|number| format!("slots:{number}")).collect();
    let limits: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let server = cluster.server(&limits).await;
    for name in &names {
        cluster.take(&server, name, 1).await;
    }
    let mut asked = Vec::new();
    for name in names.iter().cycle().take(100) {
        let request = cluster.request(&[(name, 1)], Some(60 * SECOND));
        asked.push(server.wait(&request).await);
    }
    pass(SECOND).await;
    let before = cluster.ledger.looks.load(Ordering::SeqCst);
    pass(SECOND).await;
    let looks = cluster.ledger.looks.load(Ordering::SeqCst) - before;
    assert!((8..=11).contains(&looks), "{looks} looks");
    assert!(asked.iter().all(|asked| !asked.is_finished()));
}

/// WAIT-05
#[tokio::test(start_paused = true)]
async fn wait_05_tb_17_a_caller_takes_no_more_memory_than_on_the_memory_backend() {
    let cluster = Cluster::new();
    let server = cluster.server(&[]).await;
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
    let (memory, changed) = (Arc::new(MemoryLimiter::new()), Arc::new(Notify::new()));
    let in_memory = Waiting::new(memory, cluster.clock.clone(), &runtime, 1, changed);
    let request = cluster.request(&[("slots", 1)], Some(SECOND));
    let (here, there) = (server.waiting.reserve(&request), in_memory.reserve(&request));
    assert!(size_of_val(&here) <= size_of_val(&there), "{} bytes", size_of_val(&here));
}

/// WAIT-02, TB-17
#[tokio::test(start_paused = true)]
async fn wait_02_queues_take_turns_on_tigerbeetle() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 1)]).await;
    let mut held = cluster.take(&server, "slots", 1).await;
    let mut asked = Vec::new();
    for (queue, name) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")] {
        let wait = Some(Wait::new(60 * SECOND, queue).unwrap());
        let request = ReserveRequest { wait, ..cluster.request(&[("slots", 1)], None) };
        asked.push((name, request.lease, server.wait(&request).await));
    }
    let without = cluster.request(&[("slots", 1)], None);
    assert!(!server.reserve(&without).await.is_allowed());
    let mut order = Vec::new();
    while !asked.is_empty() {
        server.complete(held).await;
        pass(20 * ROUND_TRIP).await;
        let at = asked.iter().position(|(_, _, asked)| asked.is_finished()).unwrap();
        let (name, lease, next) = asked.remove(at);
        assert!(next.await.unwrap().0.is_allowed());
        order.push(name);
        held = lease;
    }
    assert_eq!(order, ["a1", "b1", "c1", "a2"]);
}

/// WAIT-01, RES-05, TB-17
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_who_waited_in_vain_is_denied_for_good() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(5 * SECOND));
    let (decision, waited) = first.wait(&request).await.await.unwrap();
    let Decision::Denied(denial) = decision else { panic!("{decision:?}") };
    assert_eq!(denial.reason, DenialReason::NoRoom { keys: vec![key("slots")] });
    let waited = waited.unwrap();
    assert!(waited >= 5 * SECOND && waited <= 5 * SECOND + 5 * ROUND_TRIP, "{waited:?}");
    second.complete(held).await;
    for server in [&first, &second] {
        assert!(!server.reserve(&request).await.is_allowed());
        let without = ReserveRequest { wait: None, ..request.clone() };
        assert!(!server.reserve(&without).await.is_allowed());
    }
    assert_eq!(first.used("slots").await, 0);
}

/// WAIT-04, TB-17
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_caller_that_goes_away_is_never_admitted() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.wait(&request).await;
    asked.abort();
    assert!(asked.await.is_err());
    pass(5 * ROUND_TRIP).await;
    assert_eq!(first.waiting.count(), 0);
    second.complete(held).await;
    pass(SECOND).await;
    assert_eq!(first.used("slots").await, 0);
    assert!(!second.reserve(&request).await.is_allowed(), "RES-05");
    cluster.take(&first, "slots", 1).await;
}

/// WAIT-04, TB-17
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_shutdown_denies_who_waits_for_good() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.wait(&request).await;
    first.waiting.shut_down();
    let (decision, _) = asked.await.unwrap();
    assert!(!decision.is_allowed());
    second.complete(held).await;
    assert!(!second.reserve(&request).await.is_allowed());
    let next = cluster.request(&[("slots", 2)], Some(60 * SECOND));
    assert!(first.waiting.reserve(&next).await.is_err(), "too much, and nobody waits");
}

/// WAIT-01, TB-10, TB-17: a lease that was admitted without an answer is read back, though a look finds no room any more.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_an_attempt_without_an_answer_is_found() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.wait(&request).await;
    let completed = cluster.begin_to_complete(&second, held).await;
    cluster.lose(Lost::Writes);
    // The next look finds room, and the attempt gets no answer.
    pass(NO_ANSWER_AFTER + SECOND / 4).await;
    assert!(!asked.is_finished());
    cluster.lose(Lost::None);
    completed.await.unwrap();
    assert_eq!(first.used("slots").await, 1);
    let (decision, waited) = asked.await.unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
    assert!(waited.unwrap() <= 3 * SECOND, "{waited:?}");
    assert_eq!(second.reserve(&request).await, decision, "RES-04");
    assert_eq!(first.used("slots").await, 1);
}

/// WAIT-01, TB-10, TB-17: waiters outlast a cluster that does not answer.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_waiting_goes_on_while_the_cluster_does_not_answer() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.wait(&request).await;
    let completed = cluster.begin_to_complete(&second, held).await;
    cluster.lose(Lost::All);
    pass(7 * SECOND).await;
    assert!(!asked.is_finished());
    cluster.lose(Lost::None);
    completed.await.unwrap();
    let healed_at = cluster.clock.now();
    assert!(asked.await.unwrap().0.is_allowed());
    assert!(cluster.clock.now().since(healed_at) <= 2 * NO_ANSWER_AFTER);
    assert_eq!(first.used("slots").await, 1);
}

/// WAIT-01, TB-10, TB-17: the time is over while the cluster does not answer: the caller is told so, and a
/// repeat gets what became of it.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_a_wait_that_ends_without_an_answer_is_settled_by_a_repeat() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(5 * SECOND));
    let asked = tokio::spawn({
        let (first, request) = (Arc::clone(&first), request.clone());
        async move { first.waiting.reserve(&request).await }
    });
    pass(SECOND).await;
    cluster.lose(Lost::All);
    let answer = asked.await.unwrap();
    assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{answer:?}");
    cluster.lose(Lost::None);
    second.complete(held).await;
    // The gate was closed, though nobody was told.
    assert!(!second.reserve(&request).await.is_allowed());
    assert_eq!(second.used("slots").await, 0);
}
