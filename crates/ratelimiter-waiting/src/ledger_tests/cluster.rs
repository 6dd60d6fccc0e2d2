//! Servers on one model of TigerBeetle, in virtual time.

use std::sync::atomic::AtomicU64;

use ratelimiter::{
    Actuals, Backend, Capacity, HoldTimeout, Limit, LimitKind, NewAmounts, RenewNumber,
    Requirements, Wait,
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

use crate::*;

pub(super) const ROUND_TRIP: Duration = Duration::from_millis(1);
/// After this time a request without an answer fails.
pub(super) const NO_ANSWER_AFTER: Duration = Duration::from_secs(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// A model that takes its time, counts looks, and may lose answers.
pub(super) struct TestLedger {
    pub(super) model: ModelLedger,
    pub(super) round_trip: Mutex<Duration>,
    pub(super) looks: AtomicUsize,
    pub(super) lost: Mutex<Lost>,
    /// A write that arrives when the cluster answers again.
    pub(super) late: Mutex<Option<WorkItem>>,
    /// A gate was created, alone or with the reservation of an attempt.
    pub(super) gate_created: Notify,
    pub(super) attempted: Notify,
}

/// Which requests are executed and never answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    None,
    Writes,
    All,
    /// The first write arrives late, and no other one is executed.
    LateWrite,
    /// Nothing is executed, or will be.
    NotSent,
}

impl TestLedger {
    /// The units of a limit that are in use, without a round trip.
    pub(super) async fn pending(&self, name: &str) -> u128 {
        let account = ids::limit_account(&key(name));
        let rows = self.model.lookup_accounts(vec![account]).await.unwrap();
        rows[0].balances.debits_pending
    }

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

/// Servers on one cluster.
pub(super) struct Cluster {
    pub(super) ledger: Arc<TestLedger>,
    pub(super) clock: Arc<TokioClock>,
    pub(super) leases: AtomicU64,
}

pub(super) type Hosted = TigerBeetleLimiter<Arc<TestLedger>>;

pub(super) struct Server {
    pub(super) limiter: Arc<Hosted>,
    pub(super) waiting: Waiting<Hosted>,
}

impl Cluster {
    pub(super) fn new() -> Self {
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

    /// The same cluster, for servers whose clock is ahead.
    pub(super) fn with_clock_ahead_by(&self, skew: Duration) -> Self {
        let clock = Arc::new(TokioClock::starting_at(self.clock.now().after(skew)));
        Self { ledger: Arc::clone(&self.ledger), clock, leases: AtomicU64::new(1_000) }
    }

    /// A server with these limits.
    pub(super) async fn server(&self, limits: &[(&str, u64)]) -> Arc<Server> {
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

    pub(super) fn request(&self, needs: &[(&str, u64)], wait: Option<Duration>) -> ReserveRequest {
        let lease = self.leases.fetch_add(1, Ordering::Relaxed);
        let needs = Requirements::of(needs.iter().map(|(name, amount)| (key(name), *amount)));
        let request = ReserveRequest::new(LeaseId::from_u128(lease.into()), needs.unwrap());
        ReserveRequest { wait: wait.map(|wait| Wait::new(wait, "").unwrap()), ..request }
    }

    /// Takes all slots at a server.
    pub(super) async fn take(&self, server: &Server, name: &str, amount: u64) -> LeaseId {
        let request = self.request(&[(name, amount)], None);
        assert!(server.reserve(&request).await.is_allowed());
        request.lease
    }

    pub(super) fn lose(&self, lost: Lost) {
        *self.ledger.lost.lock().unwrap() = lost;
    }

    /// The cluster answers again, and what was late arrives.
    pub(super) async fn heal(&self) {
        self.lose(Lost::None);
        let late = self.ledger.late.lock().unwrap().take();
        if let Some(late) = late {
            self.ledger.model.create_transfers(late).await.unwrap();
        }
    }

    /// Completes a lease of one slot at a server; returns when the cluster has executed it, before anybody is answered.
    pub(super) async fn begin_to_complete(
        &self,
        server: &Arc<Server>,
        lease: LeaseId,
    ) -> JoinHandle<()> {
        let server = Arc::clone(server);
        let completed = tokio::spawn(async move { server.complete(lease).await });
        while self.ledger.pending("slots").await > 0 {
            tokio::task::yield_now().await;
        }
        completed
    }
}

impl Server {
    pub(super) async fn reserve(&self, request: &ReserveRequest) -> Decision {
        self.waiting.reserve(request).await.unwrap().0
    }

    /// A caller in the background.
    pub(super) fn ask(self: &Arc<Self>, request: &ReserveRequest) -> JoinHandle<Answered> {
        let (server, request) = (Arc::clone(self), request.clone());
        tokio::spawn(async move { server.waiting.reserve(&request).await })
    }

    /// A caller in the background, which has begun to wait when this returns.
    pub(super) async fn wait(self: &Arc<Self>, request: &ReserveRequest) -> Asked {
        let (server, request) = (Arc::clone(self), request.clone());
        let before = self.waiting.count();
        let asked = tokio::spawn(async move { server.waiting.reserve(&request).await.unwrap() });
        pass(20 * ROUND_TRIP).await;
        assert_eq!(self.waiting.count(), before + 1);
        asked
    }

    pub(super) async fn complete(&self, lease: LeaseId) {
        let none = Actuals::new(Vec::new()).unwrap();
        self.waiting.complete(&CompleteRequest::new(lease, none)).await.unwrap();
    }

    pub(super) async fn renew(
        &self,
        lease: LeaseId,
        number: u64,
        amounts: &[(&str, u64)],
    ) -> Result<Renewal, RenewError> {
        let amounts = amounts.iter().map(|(name, amount)| (key(name), *amount));
        let (number, amounts) =
            (RenewNumber::new(number).unwrap(), NewAmounts::of(amounts).unwrap());
        self.waiting.renew(&RenewRequest::new(lease, number, amounts)).await
    }

    pub(super) async fn used(&self, name: &str) -> u64 {
        self.limiter.state(&key(name)).await.unwrap().unwrap().usage.used
    }
}

pub(super) type Asked = JoinHandle<TimedDecision>;
pub(super) type Answered = Result<TimedDecision, ReserveError>;

pub(super) fn limit(name: &str, kind: LimitKind, capacity: u64) -> Limit {
    Limit::new(key(name), kind, Capacity::new(capacity).unwrap())
}

pub(super) fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}
