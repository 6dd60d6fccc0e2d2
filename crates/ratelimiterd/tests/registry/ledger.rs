//! One ledger for all servers of a test, which can be made to hang or to give no answer.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::MonotonicClock;
use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountResult, AccountRow, Ledger, LedgerError, NewAccount, TransferId,
    TransferQuery, TransferResult, TransferRow, WorkItem,
};
use ratelimiterd::tigerbeetle::HostedLedger;
use tigerbeetle_model::ModelLedger;
use tokio::sync::watch;

/// What the ledger does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    AtOnce,
    /// When it is told to do something else.
    Later,
    Never,
}

/// A server's connection to the ledger.
#[derive(Debug, Clone)]
pub struct SharedLedger {
    model: Arc<ModelLedger>,
    answers: watch::Sender<Answers>,
}

impl SharedLedger {
    pub fn new() -> Self {
        let model = Arc::new(ModelLedger::new(MonotonicClock::new()));
        Self { model, answers: watch::Sender::new(Answers::AtOnce) }
    }

    pub fn set(&self, answers: Answers) {
        self.answers.send_replace(answers);
    }

    async fn turn(&self) -> Result<(), LedgerError> {
        let mut answers = self.answers.subscribe();
        let turn = *answers.wait_for(|answers| *answers != Answers::Later).await.unwrap();
        match turn {
            Answers::Never => Err(LedgerError::NoAnswer { waited: Duration::from_secs(1) }),
            Answers::AtOnce | Answers::Later => Ok(()),
        }
    }
}

impl HostedLedger for SharedLedger {}

impl Ledger for SharedLedger {
    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        self.turn().await?;
        self.model.create_accounts(accounts).await
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        self.turn().await?;
        self.model.create_transfers(item).await
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        self.turn().await?;
        self.model.lookup_accounts(ids).await
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        self.turn().await?;
        self.model.lookup_transfers(ids).await
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        self.turn().await?;
        self.model.query_transfers(query).await
    }
}
