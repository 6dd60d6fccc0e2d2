//! What drives a server: lean, because it shares the machine with it, and the same for every contestant.
//!
//! One thread, requests that were made before, and no more reading of replies than to find their ends and whether they say
//! yes. [`closed`] sends the next request when the last one is answered; [`open`] sends by the clock, whatever the server
//! does.

pub(crate) mod closed;
pub(crate) mod open;
pub(crate) mod reply;
pub(crate) mod request;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use self::reply::Replies;
use self::request::Template;
use crate::child::Server;
use crate::rounds::float;

/// What is sent, and where to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) addr: SocketAddr,
    /// One for each model; sent in turn.
    pub(crate) templates: Arc<[Template]>,
    pub(crate) replies: Replies,
    /// How many reserves a request has.
    pub(crate) reserves_each: usize,
}

/// What one turn measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Turn {
    /// Reserves per second.
    pub(crate) rate: f64,
    /// Of a request, in microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// Processor time of the server for each request, in microseconds.
    pub(crate) server_micros: f64,
}

/// Latencies from a microsecond to a minute, to three digits.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    const NANOS_MIN: u64 = 1_000;
    const NANOS_MAX: u64 = 60_000_000_000;

    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(Self::NANOS_MIN, Self::NANOS_MAX, 3);
        Self(histogram.expect("the bounds are in order"))
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    fn micros_at(&self, quantile: f64) -> f64 {
        Duration::from_nanos(self.0.value_at_quantile(quantile)).as_secs_f64() * 1e6
    }

    fn count(&self) -> usize {
        usize::try_from(self.0.len()).expect("fewer than memory has bytes")
    }

    /// What a turn of this length measured.
    pub(crate) fn turn(&self, reserves_each: usize, took: Duration, server_seconds: f64) -> Turn {
        assert!(self.count() > 0, "a turn is long enough for a request");
        Turn {
            rate: float(self.count() * reserves_each) / took.as_secs_f64(),
            p50: self.micros_at(0.5),
            p99: self.micros_at(0.99),
            p999: self.micros_at(0.999),
            server_micros: server_seconds * 1e6 / float(self.count()),
        }
    }
}

/// Processor time that a server uses while something is done.
fn with_cpu_seconds<T>(server: &Server, work: impl FnOnce() -> T) -> (T, f64) {
    let before = server.cpu_seconds();
    let done = work();
    (done, server.cpu_seconds() - before)
}
