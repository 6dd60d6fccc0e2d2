//! Servers with different settings on one cluster.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use tempfile::TempDir;
use testkit::tigerbeetle::TestCluster;

use crate::child::{Role, Server};
use crate::http::write_limits;
use crate::report::SkipReason;
use crate::rounds::float;
use crate::workload::{LIMITS_PER_CALL, workload};

/// Windows and timeouts are longer than a run: expiry is work that the client crate alone would not have.
pub(super) const SECONDS_MIN: u64 = 3_600;
/// Events per request with batching on.
const BATCH_EVENTS: usize = 8_000;
/// A server opens sessions and provisions limits before it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Servers with batching, by their number of sessions, and one without batching.
pub(super) struct Servers {
    batched: Vec<(u32, Server)>,
    unbatched: Server,
    _folder: TempDir,
}

/// Requests of a server to the cluster so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sent {
    requests: f64,
    transfers: f64,
}

impl Servers {
    pub(super) fn start(
        cluster: &TestCluster,
        model_count: usize,
        sessions: &[u32],
    ) -> Result<Self, SkipReason> {
        let folder = tempfile::tempdir()
            .map_err(|error| SkipReason(format!("no temporary folder: {error}")))?;
        let workload = workload(SECONDS_MIN);
        let start = |sessions, batch_events| {
            let file = folder.path().join(format!("limits-{sessions}-{batch_events}.json"));
            write_limits(&file, (0..model_count).flat_map(|model| workload.limits(model)));
            start(cluster, folder.path(), &file, sessions, batch_events)
        };
        let batched =
            sessions.iter().map(|&sessions| Ok((sessions, start(sessions, BATCH_EVENTS)?)));
        let batched = batched.collect::<Result<_, _>>()?;
        let unbatched = start(1, LIMITS_PER_CALL)?;
        Ok(Self { batched, unbatched, _folder: folder })
    }

    pub(super) fn with_sessions(&self, sessions: u32) -> &Server {
        let found = self.batched.iter().find(|(count, _)| *count == sessions);
        found.map(|(_, server)| server).expect("it was started")
    }

    pub(super) const fn unbatched(&self) -> &Server {
        &self.unbatched
    }
}

fn start(
    cluster: &TestCluster,
    folder: &Path,
    limits: &Path,
    sessions: u32,
    batch_events: usize,
) -> Result<Server, SkipReason> {
    let mut command = Role::Ratelimiterd.command();
    command.args(["--listen", "127.0.0.1:0", "--backend", "tigerbeetle", "--limits"]).arg(limits);
    for (name, value) in [
        ("TIGERBEETLE__CLUSTER_ID", cluster.cluster_id().to_string()),
        ("TIGERBEETLE__ADDRESSES", cluster.addresses().join(",")),
        ("TIGERBEETLE__SESSIONS", sessions.to_string()),
        ("TIGERBEETLE__MAX_BATCH_EVENTS", batch_events.to_string()),
        // An overloaded server answers late instead of refusing.
        ("TIGERBEETLE__REQUEST_TIMEOUT_MS", "60000".to_owned()),
        ("SERVER__REQUEST_TIMEOUT_MS", "60000".to_owned()),
    ] {
        command.env(format!("RATELIMITER_{name}"), value);
    }
    let server = Server::start(command, folder);
    let clock = MonotonicClock::new();
    let until = clock.now().after(READY_TIMEOUT);
    while get(server.addr, "/readyz").is_empty() {
        if clock.now() >= until {
            return Err(SkipReason(format!("ratelimiterd was not ready within {READY_TIMEOUT:?}")));
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Ok(server)
}

/// From the metrics of the server.
pub(super) fn batches_sent(server: &Server) -> Sent {
    let metrics = get(server.addr, "/metrics");
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).expect("a metric with a stable name")
    };
    Sent {
        requests: value("ratelimiter_tb_batch_events_count"),
        transfers: value("ratelimiter_tb_batch_events_sum"),
    }
}

impl Sent {
    /// Average chains per request, rounded, at least one.
    #[expect(clippy::cast_possible_truncation, reason = "a request has at most 8 189 transfers")]
    #[expect(clippy::cast_sign_loss, reason = "counters do not go back")]
    pub(super) fn chains_each_since(self, before: Self) -> usize {
        let transfers = self.transfers - before.transfers;
        let requests = (self.requests - before.requests).max(1.0);
        (transfers / requests / float(LIMITS_PER_CALL)).round().max(1.0) as usize
    }
}

/// Sends one request and returns the response.
fn get(addr: SocketAddr, path: &str) -> String {
    // Of a page with another status, nothing.
    let answer = testkit::ask(addr, "GET", path, "");
    answer.filter(|(status, _)| *status == 200).map(|(_, body)| body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_counted_in_chains() {
        let sent = |requests, transfers| Sent { requests, transfers };
        assert_eq!(sent(20.0, 1_000.0).chains_each_since(sent(10.0, 200.0)), 20);
        assert_eq!(sent(10.0, 200.0).chains_each_since(sent(10.0, 200.0)), 1);
    }
}
