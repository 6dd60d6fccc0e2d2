//! The [`Ledger`] implementation on a TigerBeetle cluster.
//!
//! Callers put work items into a bounded queue. An idle session takes everything that is queued, up
//! to the largest request, so batches grow while sessions are busy and no caller waits for a batch
//! to fill (`TB-09`). Queries have their own queue and session, which sends them in waves
//! (`TB-23`), so that writes do not wait behind them. The sessions enforce deadlines themselves
//! (`TB-10`). An evicted session is replaced and its items are sent again (`TB-11`). A session that
//! cannot work reports the probable cause while it keeps trying (`TB-12`).

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;

use self::request::{Reply, Request};
use self::session::Session;
use self::session_pool::{SessionPool, SessionRole};
use super::{
    AccountId, AccountResult, AccountRow, Ledger, LedgerError, NewAccount, SessionProblem,
    TransferId, TransferQuery, TransferResult, TransferRow, WorkItem,
};

mod address;
mod batch_limit;
mod config;
mod observer;
mod queue;
mod request;
mod session;
mod session_pool;
mod wave;
mod wire;

pub use config::{
    ADDRESSES_MAX, ClusterConfig, ClusterSettings, ConfigError, FLUSH_INTERVAL_MICROS_MAX,
    MAX_BATCH_EVENTS_MAX, REQUEST_TIMEOUT_MS_MAX, SESSIONS_MAX, WAVE_QUERIES_MAX,
};
pub use observer::{NoObserver, Observation, Observer, Operation};

/// A TigerBeetle cluster, and who observes it. Dropping it closes its sessions in the background.
pub struct ClusterLedger<O = NoObserver> {
    writing: Arc<SessionPool>,
    reading: Arc<SessionPool>,
    observer: Arc<O>,
}

impl<O: Observer> ClusterLedger<O> {
    /// Starts the sessions. They open in the background and reopen whenever they are lost, so the
    /// cluster need not be running yet.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub fn open(config: ClusterConfig, observer: O) -> io::Result<Self> {
        let observer = Arc::new(observer);
        let observing: Arc<dyn Observer> = observer.clone();
        let ledger = Self {
            writing: Arc::new(SessionPool::new(
                config.clone(),
                SessionRole::Write,
                Arc::clone(&observing),
            )),
            reading: Arc::new(SessionPool::new(config, SessionRole::Read, observing)),
            observer,
        };
        for (pool, name) in [(&ledger.writing, "tb-session"), (&ledger.reading, "tb-reader")] {
            for index in 0..pool.sessions() {
                let pool = Arc::clone(pool);
                let thread = thread::Builder::new().name(format!("{name}-{index}"));
                thread.spawn(move || Session::run(pool, index))?;
            }
        }
        Ok(ledger)
    }
}

impl<O> ClusterLedger<O> {
    /// Who observes it.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Waits until every session works.
    ///
    /// # Errors
    /// Returns as soon as a session cannot work, with the probable cause. The session keeps trying.
    pub async fn warm_up(&self) -> Result<(), SessionProblem> {
        self.writing.warm_up().await?;
        self.reading.warm_up().await
    }

    /// Waits, without a deadline, until a session for writes and one for queries work.
    pub async fn ready(&self) {
        self.writing.ready().await;
        self.reading.ready().await;
    }

    /// Whether the cluster answers, as far as is known: a session for writes and the session for
    /// queries work, and no caller has timed out since the last answer.
    ///
    /// # Errors
    /// The probable cause.
    pub fn health(&self) -> Result<(), SessionProblem> {
        self.writing.health()?;
        self.reading.health()
    }

    /// Closes the sessions and waits until they have ended. Queued requests fail; requests in
    /// flight fail with an unknown outcome.
    pub async fn close(&self) {
        self.writing.close();
        self.reading.close();
        self.writing.ended().await;
        self.reading.ended().await;
    }

    /// Sends a request, unless it has no events, and converts what is answered.
    async fn ask<T, R>(
        &self,
        request: Request,
        answer: impl FnOnce(Reply) -> Option<Vec<T>>,
        convert: impl Fn(&T) -> R,
    ) -> Result<Vec<R>, LedgerError> {
        if request.events() == 0 {
            return Ok(Vec::new());
        }
        let pool = match request.operation() {
            Operation::QueryTransfers => &self.reading,
            Operation::CreateAccounts
            | Operation::CreateTransfers
            | Operation::LookupAccounts
            | Operation::LookupTransfers => &self.writing,
        };
        let asked_at = pool.now();
        let Ok(reply) = pool.submit(request)?.await else {
            // The session's thread ended without an answer, which only a bug can cause.
            let waited = pool.now().since(asked_at);
            return Err(LedgerError::NoAnswer { waited });
        };
        let rows = answer(reply?).expect("a session answers in kind");
        Ok(rows.iter().map(convert).collect())
    }
}

impl<O: Observer> Ledger for ClusterLedger<O> {
    fn events_max(&self) -> usize {
        self.writing.config.max_batch_events
    }

    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        let request = Request::CreateAccounts(accounts.iter().map(wire::account).collect());
        self.ask(request, Reply::account_results, wire::account_result).await
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        let request = Request::CreateTransfers(item.events().iter().map(wire::transfer).collect());
        self.ask(request, Reply::transfer_results, wire::transfer_result).await
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        let request = Request::LookupAccounts(ids.into_iter().map(AccountId::get).collect());
        self.ask(request, Reply::accounts, wire::account_row).await
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        let request = Request::LookupTransfers(ids.into_iter().map(TransferId::get).collect());
        self.ask(request, Reply::transfers, wire::transfer_row).await
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        let request = Request::QueryTransfers(wire::query(&query));
        self.ask(request, Reply::transfers, wire::transfer_row).await
    }
}

impl<O> Drop for ClusterLedger<O> {
    fn drop(&mut self) {
        self.writing.close();
        self.reading.close();
    }
}

impl<O> fmt::Debug for ClusterLedger<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterLedger")
            .field("config", &self.writing.config)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
