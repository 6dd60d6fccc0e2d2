//! Metrics of a cluster's sessions, with stable names.

use prometheus::{
    Histogram, HistogramOpts, IntCounterVec, IntGauge, Registry, exponential_buckets,
};
use ratelimiter_tigerbeetle::ledger::cluster::{Observation, Observer, Operation};

use crate::metrics::{counters, number, register, timings};

/// The metrics of one cluster's sessions.
#[derive(Debug)]
pub struct ClusterMetrics {
    pub(super) registry: Registry,
    batches: Histogram,
    requests: [Histogram; Operation::ALL.len()],
    sessions_busy: IntGauge,
    /// By reason.
    errors: IntCounterVec,
}

impl Default for ClusterMetrics {
    fn default() -> Self {
        let registry = Registry::new();
        // Powers of two, up to more than any server accepts.
        let bounds = exponential_buckets(1.0, 2.0, 14).expect("constants");
        let batches = HistogramOpts::new(
            "ratelimiter_tb_batch_events",
            "How many transfers a request creates.",
        );
        let batches = register(&registry, Histogram::with_opts(batches.buckets(bounds)));
        let name = "ratelimiter_tb_request_seconds";
        let help = "How long the cluster took to answer.";
        let requests = timings(&registry, name, help, "operation");
        let busy =
            IntGauge::new("ratelimiter_tb_sessions_busy", "Sessions with a request under way.");
        let name = "ratelimiter_tb_errors_total";
        Self {
            batches,
            requests: Operation::ALL
                .map(|operation| requests.with_label_values(&[operation.label()])),
            sessions_busy: register(&registry, busy),
            errors: counters(&registry, name, "What went wrong, by its reason.", "reason"),
            registry,
        }
    }
}

impl Observer for ClusterMetrics {
    fn observe(&self, observation: &Observation) {
        match observation {
            &Observation::RequestSent { operation: Operation::CreateTransfers, events, .. } => {
                self.batches.observe(number(events as u128));
            }
            Observation::RequestAnswered { operation, took, .. } => {
                self.requests[*operation as usize].observe(took.as_secs_f64());
            }
            &Observation::SessionsBusy { count } => {
                self.sessions_busy.set(i64::try_from(count).unwrap_or(i64::MAX));
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
        self.errors.with_label_values(&[reason]).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratelimiter_tigerbeetle::ledger::{LedgerError, SessionProblem};

    use super::*;
    use crate::tigerbeetle::append;

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
        let mut text = String::new();
        append(&metrics.registry, &mut text);
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
