//! Events for metrics.

use std::time::Duration;

use crate::ledger::{LedgerError, SessionProblem};

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// [`Ledger::create_accounts`](crate::ledger::Ledger::create_accounts)
    CreateAccounts,
    /// [`Ledger::create_transfers`](crate::ledger::Ledger::create_transfers)
    CreateTransfers,
    /// [`Ledger::lookup_accounts`](crate::ledger::Ledger::lookup_accounts), and keep-alives
    LookupAccounts,
    /// [`Ledger::lookup_transfers`](crate::ledger::Ledger::lookup_transfers)
    LookupTransfers,
    /// [`Ledger::query_transfers`](crate::ledger::Ledger::query_transfers)
    QueryTransfers,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Observation {
    /// A batch, or a wave of queries, was handed to the client; each item is one caller's.
    RequestSent { operation: Operation, items: usize, events: usize },
    /// Its results arrived, this long after it was sent.
    RequestAnswered { operation: Operation, events: usize, took: Duration },
    /// The client refused a batch of this size; its items are sent again in smaller batches.
    BatchRefused { operation: Operation, events: usize },
    /// The number of sessions with a request in flight, without the one for queries.
    SessionsBusy { count: usize },
    /// A session works, for the first time or again.
    SessionReady,
    /// A session does not work.
    SessionTroubled { problem: SessionProblem },
    /// A caller got an error.
    CallFailed { error: LedgerError },
}

/// Receives events. Called from the sessions' threads, so it must not block.
pub trait Observer: Send + Sync + 'static {
    /// Handles one event.
    fn observe(&self, observation: &Observation);
}

/// An observer that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn observe(&self, _: &Observation) {}
}

impl<O: Observer + ?Sized> Observer for std::sync::Arc<O> {
    fn observe(&self, observation: &Observation) {
        (**self).observe(observation);
    }
}

impl Operation {
    /// Every operation, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::CreateAccounts,
        Self::CreateTransfers,
        Self::LookupAccounts,
        Self::LookupTransfers,
        Self::QueryTransfers,
    ];

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// The label for logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::CreateAccounts => "create_accounts",
            Self::CreateTransfers => "create_transfers",
            Self::LookupAccounts => "lookup_accounts",
            Self::LookupTransfers => "lookup_transfers",
            Self::QueryTransfers => "query_transfers",
        }
    }
}
