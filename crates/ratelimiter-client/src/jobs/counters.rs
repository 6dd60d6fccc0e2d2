//! What a runner has done, in numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coordination::ProviderError;

/// A runner's counters. Clones show the same runner, so one can be kept while the runner runs.
#[derive(Debug, Clone, Default)]
pub struct JobCounters {
    counts: Arc<Counts>,
}

/// Declares the counters once, for the runner and for whoever reads them.
macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident, )*) => {
        /// A runner's counters at one moment. All grow for as long as the runner lives.
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
    /// Times that the limiter was asked.
    asked,
    /// Asked and allowed.
    allowed,
    /// Asked and denied: put off by the hint.
    denied,
    /// Denied because a limit is paused; counted as denied too.
    paused,
    /// Asked and postponed, because something has to be put right first: an unknown key, a token that is not accepted, a
    /// server that is none, a client that was shut down. The job's record says what.
    postponed,
    /// Asked without an answer: asked again with the same lease.
    unanswered,
    /// Jobs put off without asking, because their tenant had just been denied.
    put_off,
    /// Jobs given back untried: another was denied before them, or the runner was told to stop.
    given_back,
    /// Jobs that brought a result.
    succeeded,
    /// Attempts that failed and will be followed by another.
    retried,
    /// Jobs that failed for good, those that the limiter refused included.
    failed,
    /// Jobs that the limiter refused for good: they ask for more than a whole capacity.
    refused,
    /// Attempts that panicked.
    panicked,
    /// Attempts that took too long.
    timed_out,
    /// Jobs whose claim was lost while they were in hand; what came of them here was discarded.
    claims_lost,
    /// Lost claims of any runner that this one made ready again.
    reaped,
    /// Finished messages that this one forgot.
    purged,
    /// Calls that the outbox did not answer.
    outbox_errors,
    /// Leases whose complete was given up. Their holds end by themselves.
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

    pub(super) fn note_no_answer(&self, error: &ProviderError) {
        self.counts.outbox_errors.add(1);
        tracing::warn!(%error, "outbox gave no answer");
    }
}
