//! Load on a server: the same for every contestant, and cheap, because it shares the machine with the server.
//!
//! One thread sends prepared requests and reads no more of a reply than its end and whether it is the expected one.
//! [`closed`] sends the next request when the last one is answered; [`open`] sends on a schedule.

pub(crate) mod closed;
pub(crate) mod open;
pub(crate) mod reply;
pub(crate) mod request;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ratelimiterd::load::Latencies;
use testkit::Process;

use self::reply::{ALLOWED, BATCH_ALLOWED, ExpectedReply};
use self::request::Template;
use crate::rounds::float;
use crate::workload::{batches, models};

/// A server and the requests for it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) addr: SocketAddr,
    /// Sent one after another, then again from the first.
    pub(crate) templates: Arc<[Template]>,
    pub(crate) reply: ExpectedReply,
    pub(crate) reserves_per_request: usize,
}

impl Target {
    /// Single reserves, to one model after another.
    pub(crate) fn single(addr: SocketAddr, model_count: usize) -> Self {
        let templates = models(model_count).into_iter().map(Template::reserve).collect();
        Self { addr, templates, reply: ALLOWED, reserves_per_request: 1 }
    }

    /// Batches of reserves; see [`batches`].
    pub(crate) fn batch(
        addr: SocketAddr,
        model_count: usize,
        reserves_per_request: usize,
        step: usize,
    ) -> Self {
        let batches = batches(model_count, reserves_per_request, step);
        let templates = batches.map(Template::reserve_batch).collect();
        Self { addr, templates, reply: BATCH_ALLOWED, reserves_per_request }
    }
}

/// One measurement of a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measurement {
    /// Reserves per second.
    pub(crate) rate: f64,
    /// Latency of a request in microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// Processor time of the server per request in microseconds.
    pub(crate) server_micros: f64,
}

impl Measurement {
    pub(crate) fn new(
        latencies: &Latencies,
        reserves_per_request: usize,
        took: Duration,
        server_seconds: f64,
    ) -> Self {
        let requests = usize::try_from(latencies.count()).expect("fewer than memory has bytes");
        assert!(requests > 0, "a measurement is long enough for a request");
        let [p50, p99, p999] =
            [50.0, 99.0, 99.9].map(|percent| latencies.percentile(percent).as_secs_f64() * 1e6);
        Self {
            rate: float(requests * reserves_per_request) / took.as_secs_f64(),
            p50,
            p99,
            p999,
            server_micros: server_seconds * 1e6 / float(requests),
        }
    }
}

/// Does some work; also returns the processor time that the server used meanwhile, in seconds.
fn with_cpu_seconds<T>(server: &Process, work: impl FnOnce() -> T) -> (T, f64) {
    let before = server.cpu_seconds();
    let done = work();
    (done, server.cpu_seconds() - before)
}

pub(crate) fn one_thread() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts")
}
