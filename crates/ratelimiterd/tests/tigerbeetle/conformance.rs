//! The conformance suite of all limiters, end to end: an HTTP client, the program as a separate process, and a real
//! TigerBeetle. Without a TigerBeetle binary these count as ignored.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(
    dead_code,
    reason = "the other binary of this folder uses the rest of the servers' module"
)]

use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter_client::HttpLimiter;
use ratelimiter_conformance::suite::{self, FACTS};
use ratelimiter_conformance::{Capabilities, Fixture};
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterConfig, ClusterLedger, NoObserver};
use testkit::tigerbeetle::{self, outlast, suite};

use crate::processes::ServerProcess;
use crate::servers::Deployment;

#[path = "../processes/servers.rs"]
mod processes;
mod servers;

/// A development server takes eight connections. A server has two, one fact needs two servers, and all together need
/// the two of their ledger.
const THREADS: usize = 2;

/// Servers of one limits file, one after another or side by side. They end with the fact.
struct Served {
    deployment: Deployment,
    servers: Mutex<Vec<ServerProcess>>,
    /// For looking whether the cluster is late.
    ledger: Arc<ClusterLedger>,
    clock: MonotonicClock,
}

/// The session that all facts share.
fn ledger(fixture: &tigerbeetle::Fixture) -> Arc<ClusterLedger> {
    static LEDGER: OnceLock<Arc<ClusterLedger>> = OnceLock::new();
    let ledger = LEDGER.get_or_init(|| {
        let config = ClusterConfig::new(&fixture.development().settings()).unwrap();
        Arc::new(ClusterLedger::open(config, NoObserver).unwrap())
    });
    Arc::clone(ledger)
}

impl Served {
    async fn another_server(&self) -> HttpLimiter {
        let server = self.deployment.server().await;
        let limiter = server.limiter();
        self.servers.lock().unwrap().push(server);
        limiter
    }
}

impl Fixture for Served {
    type Limiter = HttpLimiter;

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn limiter(&self) -> HttpLimiter {
        self.another_server().await
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }

    async fn advance(&self, by: Duration) {
        outlast(&*self.ledger, by).await;
    }

    async fn restarted(&self) -> HttpLimiter {
        let before = std::mem::take(&mut *self.servers.lock().unwrap());
        before.into_iter().for_each(ServerProcess::kill);
        self.another_server().await
    }

    async fn another(&self) -> HttpLimiter {
        self.another_server().await
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        // What is later is waited for.
        expiry_lag: Duration::from_millis(100),
        reconciled_expiry_lag: Duration::from_secs(1),
        capacity_max: ratelimiter::CAPACITY_MAX,
        exact_time: Err("it is the cluster's time, which passes by itself"),
        virtual_time: Err("it is the cluster's time, which passes by itself"),
        exact_hints: Err("a hint would need a read; every hint is the backoff"),
        names_every_denied_key: Err("only the first event of a chain without room is named"),
        tells_uncovered: Err("the wire has it in the metrics only"),
        knows_leases_by_id: Err("a lease is recognised by the keys that it came with"),
        forgets_after: Err("the cluster knows a lease for ever"),
        remembers_at_most: Err("the cluster knows a lease for ever"),
        renews: Ok(()),
        waits: Ok(()),
        templates: Ok(()),
        replaces_limits: Err("an account keeps what is reserved on it, and its period"),
        instances_at_most: Err("a million is not worth reaching here"),
        new_instances_per_second: Err("a thousand a second is not worth reaching here"),
        keeps_definitions: Ok(()),
        keeps_leases: Ok(()),
        second_server: Ok(()),
    }
}

fn main() -> ExitCode {
    let mut tests = suite("ratelimiterd-conformance").threads(THREADS);
    // What cannot be shown is left out, so that what is counted was run.
    for fact in FACTS.iter().filter(|fact| fact.skipped_with(&capabilities()).is_none()) {
        tests = tests.test(fact.name, |fixture: &tigerbeetle::Fixture| {
            suite::play(fact.name, async {
                let deployment = Deployment::on(fixture.development());
                Served {
                    deployment,
                    servers: Mutex::default(),
                    ledger: ledger(fixture),
                    clock: MonotonicClock::new(),
                }
            });
        });
    }
    tests.run()
}
