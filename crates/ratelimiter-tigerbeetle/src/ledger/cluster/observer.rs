//! What a cluster tells whoever keeps the metrics.

use std::time::Duration;

use crate::ledger::{LedgerError, SessionProblem};

/// What a request asks TigerBeetle to do; a request has one operation.
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

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Observation {
    /// A batch, or a wave of queries, went to the client.
    RequestSent {
        /// Which one.
        operation: Operation,
        /// From how many callers.
        items: usize,
        /// How many events.
        events: usize,
    },
    /// Its results came.
    RequestAnswered {
        /// Which one.
        operation: Operation,
        /// How many events.
        events: usize,
        /// Since it was sent.
        took: Duration,
    },
    /// The client would not take so many events; they go again in smaller batches.
    BatchRefused {
        /// Which one.
        operation: Operation,
        /// How many events.
        events: usize,
    },
    /// How many sessions have a request under way now; the one for queries does not count.
    SessionsBusy {
        /// At most the configured number.
        count: usize,
    },
    /// A session works, or works again.
    SessionReady,
    /// A session does not work.
    SessionTroubled {
        /// Why.
        problem: SessionProblem,
    },
    /// A caller got an error.
    CallFailed {
        /// Which one.
        error: LedgerError,
    },
}

/// Takes note of what happens. Called from the sessions' threads, so it must not block.
pub trait Observer: Send + Sync + 'static {
    /// Takes note.
    fn observe(&self, observation: &Observation);
}

/// Takes no note.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
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

    /// The word for logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CreateAccounts => "create_accounts",
            Self::CreateTransfers => "create_transfers",
            Self::LookupAccounts => "lookup_accounts",
            Self::LookupTransfers => "lookup_transfers",
            Self::QueryTransfers => "query_transfers",
        }
    }
}
