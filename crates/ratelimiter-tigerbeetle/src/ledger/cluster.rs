//! The real thing: a TigerBeetle cluster behind the [`Ledger`] trait.
//!
//! Callers put work items into a bounded queue. A free session takes all that is queued at once, up
//! to the largest request, so batches grow by themselves while sessions are busy and nobody waits
//! for a batch to fill (`TB-09`). Queries have a queue and a session of their own, which sends them
//! in waves (`TB-23`), so that writes do not wait behind them. Deadlines are ours (`TB-10`), an
//! evicted session is replaced and its items sent again (`TB-11`), and a session that cannot work
//! says what is probably wrong while it goes on trying (`TB-12`).

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;

use self::request::{Reply, Request};
use self::session::Session;
use self::shared::{Duty, Shared};
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
mod shared;
mod wave;
mod wire;

pub use config::{
    ADDRESSES_MAX, ClusterConfig, ClusterSettings, ConfigError, FLUSH_INTERVAL_MICROS_MAX,
    MAX_BATCH_EVENTS_MAX, REQUEST_TIMEOUT_MS_MAX, SESSIONS_MAX, WAVE_QUERIES_MAX,
};
pub use observer::{Observation, Observer, Operation, Unobserved};

/// A TigerBeetle cluster, and who observes it. Dropping it closes its sessions in the background.
pub struct ClusterLedger<O = Unobserved> {
    writing: Arc<Shared>,
    reading: Arc<Shared>,
    observer: Arc<O>,
}

impl<O: Observer> ClusterLedger<O> {
    /// Starts the sessions. They open in the background, and open again whenever they are lost, so
    /// the cluster need not be there yet.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn open(config: ClusterConfig, observer: O) -> io::Result<Self> {
        let observer = Arc::new(observer);
        let told: Arc<dyn Observer> = observer.clone();
        let ledger = Self {
            writing: Arc::new(Shared::new(config.clone(), Duty::Write, Arc::clone(&told))),
            reading: Arc::new(Shared::new(config, Duty::Read, told)),
            observer,
        };
        for (shared, name) in [(&ledger.writing, "tb-session"), (&ledger.reading, "tb-reader")] {
            for index in 0..shared.sessions() {
                let shared = Arc::clone(shared);
                let thread = thread::Builder::new().name(format!("{name}-{index}"));
                thread.spawn(move || Session::run(shared, index))?;
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
    /// As soon as a session is in trouble, with the probable cause. It goes on trying.
    pub async fn warm_up(&self) -> Result<(), SessionProblem> {
        self.writing.warm_up().await?;
        self.reading.warm_up().await
    }

    /// Waits, without end, until there is a session that works for writes, and one for queries.
    pub async fn ready(&self) {
        self.writing.ready().await;
        self.reading.ready().await;
    }

    /// Whether the cluster answers, as far as is known: a session for writes and the one for queries
    /// work, and since the last answer no caller has waited in vain.
    ///
    /// # Errors
    /// What is probably wrong.
    pub fn health(&self) -> Result<(), SessionProblem> {
        self.writing.health()?;
        self.reading.health()
    }

    /// Closes the sessions and waits until they are. What is queued fails, what is under way is
    /// given up with an unknown outcome.
    pub async fn close(&self) {
        self.writing.close();
        self.reading.close();
        self.writing.ended().await;
        self.reading.ended().await;
    }

    async fn ask<T>(
        &self,
        request: Request,
        answer: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<T, LedgerError> {
        let shared = match request.operation() {
            Operation::QueryTransfers => &self.reading,
            Operation::CreateAccounts
            | Operation::CreateTransfers
            | Operation::LookupAccounts
            | Operation::LookupTransfers => &self.writing,
        };
        let asked_at = shared.now();
        let Ok(reply) = shared.submit(request)?.await else {
            // The session's thread has gone without an answer, which only a bug can do.
            let waited = shared.now().since(asked_at);
            return Err(LedgerError::NoAnswer { waited });
        };
        Ok(answer(reply?).expect("a session answers in kind"))
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
        if accounts.is_empty() {
            return Ok(Vec::new());
        }
        let events = accounts.iter().map(wire::account).collect();
        let results = self.ask(Request::CreateAccounts(events), Reply::account_results).await?;
        Ok(results.iter().map(wire::account_result).collect())
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        if item.is_empty() {
            return Ok(Vec::new());
        }
        let events = item.events().iter().map(wire::transfer).collect();
        let results = self.ask(Request::CreateTransfers(events), Reply::transfer_results).await?;
        Ok(results.iter().map(wire::transfer_result).collect())
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.into_iter().map(AccountId::get).collect();
        let rows = self.ask(Request::LookupAccounts(ids), Reply::accounts).await?;
        Ok(rows.iter().map(wire::account_row).collect())
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.into_iter().map(TransferId::get).collect();
        let rows = self.ask(Request::LookupTransfers(ids), Reply::transfers).await?;
        Ok(rows.iter().map(wire::transfer_row).collect())
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        let request = Request::QueryTransfers(wire::query(&query));
        let rows = self.ask(request, Reply::transfers).await?;
        Ok(rows.iter().map(wire::transfer_row).collect())
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
