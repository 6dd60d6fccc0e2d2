//! The `Ledger` trait between the limiter and TigerBeetle.
//!
//! The [`cluster`] implements it, and so does the model that tests and simulations run on
//! (`proof/tigerbeetle-model`). All types here are our own. They cannot express an open chain, an
//! ID of 0 or a void with an amount, so these need no status and no test.

use std::future::Future;
use std::sync::Arc;

pub use ratelimiter::clock::Timestamp;

mod account;
pub mod cluster;
mod error;
mod id;
mod query;
mod status;
mod transfer;
mod work_item;

pub use account::{AccountResult, AccountRow, Balances, NewAccount};
pub use error::{ItemTooLarge, LedgerError, SessionProblem};
pub use id::{AccountId, TransferId};
pub use query::{Order, QUERY_ROWS_MAX, TransferQuery};
pub use status::{AccountStatus, TransferStatus};
pub use transfer::{Action, Movement, PostAmount, RowKind, Transfer, TransferResult, TransferRow};
pub use work_item::{Event, WorkItem};

/// The ledger number of every account and transfer of this crate.
pub const LEDGER_LIMITS: u32 = 1;

/// Data that TigerBeetle stores with an account or a transfer and does not interpret.
///
/// A void or post inherits every part that is 0 from its pending transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UserData {
    /// The part that [`Ledger::query_transfers`] searches by, unless it is 0.
    pub data_128: u128,
    /// For the caller's use.
    pub data_64: u64,
    /// For the caller's use.
    pub data_32: u32,
}

/// A future of a ledger's answer. Implementers write `async fn`.
pub trait Answer<T>: Future<Output = Result<T, LedgerError>> + Send {}

impl<T, F: Future<Output = Result<T, LedgerError>> + Send> Answer<T> for F {}

/// A ledger that takes batches. Every call returns one result per event, in order.
///
/// Dropping a returned future does not cancel the request. A call that failed with
/// [`LedgerError::NoAnswer`] may have been applied, or may still be; repeating it with the same IDs
/// is always safe.
pub trait Ledger: Send + Sync + 'static {
    /// Creates accounts independently: a refused one does not affect the others.
    fn create_accounts(&self, accounts: Vec<NewAccount>) -> impl Answer<Vec<AccountResult>>;

    /// The most events per call, as far as this is known before anything is sent.
    fn events_max(&self) -> usize {
        usize::MAX
    }

    /// Creates the transfers of one work item in one request, possibly together with other items.
    fn create_transfers(&self, item: WorkItem) -> impl Answer<Vec<TransferResult>>;

    /// The accounts that exist among `ids`, in the order of `ids`.
    fn lookup_accounts(&self, ids: Vec<AccountId>) -> impl Answer<Vec<AccountRow>>;

    /// The transfers that exist among `ids`, in the order of `ids`.
    fn lookup_transfers(&self, ids: Vec<TransferId>) -> impl Answer<Vec<TransferRow>>;

    /// The transfers that carry the query's user data, voids and posts included.
    fn query_transfers(&self, query: TransferQuery) -> impl Answer<Vec<TransferRow>>;
}

impl<L: Ledger> Ledger for Arc<L> {
    fn events_max(&self) -> usize {
        (**self).events_max()
    }

    fn create_accounts(&self, accounts: Vec<NewAccount>) -> impl Answer<Vec<AccountResult>> {
        (**self).create_accounts(accounts)
    }

    fn create_transfers(&self, item: WorkItem) -> impl Answer<Vec<TransferResult>> {
        (**self).create_transfers(item)
    }

    fn lookup_accounts(&self, ids: Vec<AccountId>) -> impl Answer<Vec<AccountRow>> {
        (**self).lookup_accounts(ids)
    }

    fn lookup_transfers(&self, ids: Vec<TransferId>) -> impl Answer<Vec<TransferRow>> {
        (**self).lookup_transfers(ids)
    }

    fn query_transfers(&self, query: TransferQuery) -> impl Answer<Vec<TransferRow>> {
        (**self).query_transfers(query)
    }
}
