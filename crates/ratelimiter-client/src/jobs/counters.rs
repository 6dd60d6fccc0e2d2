//! Counters of a runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coordination::ProviderError;

/// A runner's counters. Clones share them, so one can be read while the runner runs.
#[derive(Debug, Clone, Default)]
pub struct JobCounters {
    counts: Arc<Counts>,
}

/// Declares the counters once, for the runner and for readers.
macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident, )*) => {
        /// A runner's counters at one moment. They only grow.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct JobCountersSnapshot {
            $( $(#[$doc])* pub $name: u64, )*
        }

        #[derive(Debug, Default)]
        pub(super) struct Counts {
            $( pub(super) $name: Count, )*
        }

        impl JobCounters {
            /// The counters now.
            pub fn snapshot(&self) -> JobCountersSnapshot {
                JobCountersSnapshot { $( $name: self.counts.$name.get(), )* }
            }
        }
    };
}

counters! {
    /// Jobs claimed.
    claimed,
    /// Reserve requests.
    asked,
    /// Reserve requests that were allowed.
    allowed,
    /// Reserve requests that were denied: the job is put off by the hint.
    denied,
    /// Denials because of a paused limit; counted in `denied` too.
    paused,
    /// Jobs postponed until something is fixed: an unknown key, a token that is not accepted, a URL of another server, a client
    /// that was shut down. The job's record has the reason.
    postponed,
    /// Reserve requests without an answer: repeated with the same lease.
    unanswered,
    /// Jobs put off without a reserve, because their tenant has no budget.
    put_off,
    /// Jobs given back without an attempt: another was denied before them, or the runner stops.
    given_back,
    /// Jobs that ended with a result.
    succeeded,
    /// Failed attempts that are followed by another.
    retried,
    /// Jobs that failed permanently, including those that the limiter refused.
    failed,
    /// Jobs that the limiter refused permanently: an amount above the capacity, or an invalid request.
    refused,
    /// Attempts that panicked.
    panicked,
    /// Attempts that timed out.
    timed_out,
    /// Jobs whose claim was lost while they were in flight; their result was discarded.
    claims_lost,
    /// Expired claims of any runner that this one made ready again.
    reaped,
    /// Finished messages that this one purged.
    purged,
    /// Outbox calls without an answer.
    outbox_errors,
    /// Leases whose complete failed. Their holds time out.
    completes_given_up,
}

#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl JobCounters {
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(super) fn record_outbox_error(&self, error: &ProviderError) {
        self.counts.outbox_errors.add(1);
        tracing::warn!(%error, "outbox gave no answer");
    }
}
