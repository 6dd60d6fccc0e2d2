//! Metrics of a cluster's sessions, with stable names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ratelimiter_tigerbeetle::ledger::cluster::{Observation, Observer, Operation};

use crate::metrics::{Histogram, Text};

/// The upper bounds of batches: powers of two, up to more than any server takes.
const BATCH_BOUNDS: [u64; 14] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// The metrics of one cluster's sessions.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    /// How many batches had so many events and not fewer; every batch is within a bound.
    batches: [AtomicU64; BATCH_BOUNDS.len()],
    batch_events: AtomicU64,
    requests: [Histogram; Operation::ALL.len()],
    sessions_busy: AtomicU64,
    /// By reason.
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

impl Observer for ClusterMetrics {
    fn observe(&self, observation: &Observation) {
        match observation {
            &Observation::RequestSent { operation: Operation::CreateTransfers, events, .. } => {
                let events = events as u64;
                let bucket = BATCH_BOUNDS.partition_point(|bound| *bound < events);
                self.batches[bucket.min(BATCH_BOUNDS.len() - 1)].fetch_add(1, Ordering::Relaxed);
                self.batch_events.fetch_add(events, Ordering::Relaxed);
            }
            Observation::RequestAnswered { operation, took, .. } => {
                self.requests[*operation as usize].record(*took);
            }
            &Observation::SessionsBusy { count } => {
                self.sessions_busy.store(count as u64, Ordering::Relaxed);
            }
            Observation::CallFailed { error } => self.count_error(error.reason()),
            Observation::SessionTroubled { problem } => self.count_error(problem.reason()),
            Observation::RequestSent { .. }
            | Observation::BatchRefused { .. }
            | Observation::SessionReady
            | _ => {}
        }
    }
}

impl ClusterMetrics {
    fn count_error(&self, reason: &'static str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(reason).or_default() += 1;
    }

    pub(super) fn write(&self, text: &mut Text) {
        self.write_batches(text);
        text.family(
            "ratelimiter_tb_request_seconds",
            "histogram",
            "How long the cluster took to answer.",
        );
        for operation in Operation::ALL {
            let histogram = &self.requests[operation as usize];
            let label = ("operation", operation.label());
            text.histogram("ratelimiter_tb_request_seconds", label, histogram);
        }
        let busy = self.sessions_busy.load(Ordering::Relaxed);
        text.family("ratelimiter_tb_sessions_busy", "gauge", "Sessions with a request in flight.");
        text.sample("ratelimiter_tb_sessions_busy", &[], busy);
        text.family("ratelimiter_tb_errors_total", "counter", "Errors by reason.");
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (reason, count) in errors {
            text.sample("ratelimiter_tb_errors_total", &[("reason", reason)], count);
        }
    }

    fn write_batches(&self, text: &mut Text) {
        let name = "ratelimiter_tb_batch_events";
        text.family(name, "histogram", "How many transfers a request creates.");
        let mut count = 0;
        for (bound, batches) in BATCH_BOUNDS.iter().zip(&self.batches) {
            count += batches.load(Ordering::Relaxed);
            text.sample(&format!("{name}_bucket"), &[("le", &bound.to_string())], count);
        }
        text.sample(&format!("{name}_bucket"), &[("le", "+Inf")], count);
        text.sample(&format!("{name}_sum"), &[], self.batch_events.load(Ordering::Relaxed));
        text.sample(&format!("{name}_count"), &[], count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratelimiter_tigerbeetle::ledger::{LedgerError, SessionProblem};

    use super::*;

    #[test]
    fn observations_are_counted_under_stable_names() {
        let metrics = ClusterMetrics::default();
        let operation = Operation::CreateTransfers;
        for events in [1, 4, 5, 8_189] {
            metrics.observe(&Observation::RequestSent { operation, items: 1, events });
        }
        let took = Duration::from_micros(200);
        metrics.observe(&Observation::RequestAnswered { operation, events: 4, took });
        metrics.observe(&Observation::SessionsBusy { count: 1 });
        let error = LedgerError::NoAnswer { waited: Duration::from_secs(2) };
        metrics.observe(&Observation::CallFailed { error });
        metrics.observe(&Observation::SessionTroubled { problem: SessionProblem::Evicted });
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.into_string();
        for line in [
            "ratelimiter_tb_batch_events_bucket{le=\"1\"} 1",
            "ratelimiter_tb_batch_events_bucket{le=\"4\"} 2",
            "ratelimiter_tb_batch_events_bucket{le=\"8\"} 3",
            "ratelimiter_tb_batch_events_bucket{le=\"8192\"} 4",
            "ratelimiter_tb_batch_events_sum 8199",
            "ratelimiter_tb_request_seconds_count{operation=\"create_transfers\"} 1",
            "ratelimiter_tb_sessions_busy 1",
            "ratelimiter_tb_errors_total{reason=\"no_answer\"} 1",
            "ratelimiter_tb_errors_total{reason=\"evicted\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
