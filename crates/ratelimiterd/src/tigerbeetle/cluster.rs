//! A cluster whose work is counted.

use std::io;
use std::sync::Arc;

use ratelimiter_tigerbeetle::ledger::cluster::{ClusterConfig, ClusterLedger};
use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountResult, AccountRow, Ledger, LedgerError, NewAccount, SessionProblem,
    TransferId, TransferQuery, TransferResult, TransferRow, WorkItem,
};

use super::Figures;

/// A TigerBeetle cluster, and the figures of the work with it.
#[derive(Debug)]
pub struct Cluster {
    ledger: ClusterLedger,
    figures: Figures,
}

impl Cluster {
    pub(super) fn open(config: ClusterConfig) -> io::Result<Self> {
        let figures = Figures::default();
        let ledger = ClusterLedger::open(config, Arc::clone(&figures))?;
        Ok(Self { ledger, figures })
    }

    /// Whether the cluster answers, as far as is known.
    ///
    /// # Errors
    /// What is probably wrong.
    pub fn health(&self) -> Result<(), SessionProblem> {
        self.ledger.health()
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }
}

impl Ledger for Cluster {
    fn events_max(&self) -> usize {
        self.ledger.events_max()
    }

    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        self.ledger.create_accounts(accounts).await
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        self.ledger.create_transfers(item).await
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        self.ledger.lookup_accounts(ids).await
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        self.ledger.lookup_transfers(ids).await
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        self.ledger.query_transfers(query).await
    }
}
