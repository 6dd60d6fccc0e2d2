//! A model of TigerBeetle for tests and simulations.
//!
//! **Never use it in production**: it keeps everything in memory, without a bound, and loses it
//! when the process ends.
//!
//! [`Model`] contains the rules, as a state machine with the time as an argument. [`ModelLedger`]
//! implements the [`Ledger`] trait with it, on any clock. A differential test compares the model
//! with a real server on random batches: every status, timestamp and balance is the same.

#![allow(clippy::doc_markdown, reason = "TigerBeetle is a name, not an item")]

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimiter::clock::Clock;
use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountResult, AccountRow, Ledger, LedgerError, NewAccount, Timestamp, TransferId,
    TransferQuery, TransferResult, TransferRow, WorkItem,
};

mod exists;
mod journal;
mod machine;
mod rules;

pub use machine::Model;

/// The model as a [`Ledger`], for many threads, on any clock.
///
/// **Never use it in production.**
pub struct ModelLedger {
    model: Mutex<Model>,
    clock: Box<dyn Clock>,
    expiry_lag: Duration,
}

impl ModelLedger {
    /// An empty ledger on `clock`.
    pub fn new(clock: impl Clock + 'static) -> Self {
        Self { model: Mutex::default(), clock: Box::new(clock), expiry_lag: Duration::ZERO }
    }

    /// Releases expired amounts only `expiry_lag` after their time, as a real server does (up to
    /// 100 ms when idle). A void between the two answers `PendingTransferExpired` all the same.
    #[must_use]
    pub fn with_expiry_lag(mut self, expiry_lag: Duration) -> Self {
        self.expiry_lag = expiry_lag;
        self
    }

    /// When the next pending transfer expires; a simulation may advance to it.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.lock().next_expiry()
    }

    /// The time and the model, after the expiries whose time and lag have passed.
    fn at_now(&self) -> (Timestamp, MutexGuard<'_, Model>) {
        let mut model = self.lock();
        // Read under the lock, so that no caller applies an earlier time after a later one.
        let now = self.clock.now();
        model.expire(before(now, self.expiry_lag));
        (now, model)
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        // A panic inside the model is a bug that its own test reports; the data is still readable.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The moment `lag` before `now`, or the epoch if that is later.
fn before(now: Timestamp, lag: Duration) -> Timestamp {
    let lag_nanos = u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX);
    Timestamp::from_unix_nanos(now.unix_nanos().saturating_sub(lag_nanos))
}

impl Ledger for ModelLedger {
    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        let (now, mut model) = self.at_now();
        Ok(model.create_accounts(now, &accounts))
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        let (now, mut model) = self.at_now();
        Ok(model.create_transfers(now, &item))
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        let (_, model) = self.at_now();
        Ok(ids.iter().filter_map(|&id| model.account(id).copied()).collect())
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        let (_, model) = self.at_now();
        Ok(ids.iter().filter_map(|&id| model.transfer(id).copied()).collect())
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        let (_, model) = self.at_now();
        Ok(model.query_transfers(&query))
    }
}

impl fmt::Debug for ModelLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelLedger").field("expiry_lag", &self.expiry_lag).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
