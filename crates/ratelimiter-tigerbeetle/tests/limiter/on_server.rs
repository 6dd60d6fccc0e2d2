//! The limiter on a real TigerBeetle, in real time.
//!
//! Runs the conformance suite and the scenarios with several limiters. Without a server binary the
//! tests count as ignored.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratelimiter_conformance::suite::{self, FACTS};
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterConfig, ClusterLedger, NoObserver};
use testkit::tigerbeetle::{Fixture, suite};

use crate::context::{TestContext, run};
use crate::fixture::OnLedger;
use crate::scenarios::{
    anywhere, calendar, capacity, complete, once, operate, renew, renew_waited, replay, shadow,
    start, templates, wait,
};

mod context;
mod fixture;
#[allow(dead_code, reason = "no faults are injected into a real server")]
mod recording_ledger;
mod scenarios;

/// Most of a test's time is spent waiting for a second to pass.
const THREADS: usize = 4;

/// A context on the server that all tests share, through one session.
async fn on_server(fixture: &Fixture) -> TestContext<Arc<ClusterLedger>> {
    static LEDGER: OnceLock<Arc<ClusterLedger>> = OnceLock::new();
    let ledger = LEDGER.get_or_init(|| {
        let config = ClusterConfig::new(&fixture.development().settings()).unwrap();
        Arc::new(ClusterLedger::open(config, NoObserver).unwrap())
    });
    ledger.ready().await;
    TestContext::new(Arc::clone(ledger), None)
}

macro_rules! with_scenarios {
    ($($module:ident :: $scenario:ident,)*) => {
        |suite: testkit::Suite<Fixture>| suite$(.test(stringify!($scenario), |fixture| {
            run(async { $module::$scenario(on_server(fixture).await).await });
        }))*
    };
}

fn main() -> ExitCode {
    let mut tests = suite("limiter").threads(THREADS);
    // Skipped facts are left out, so that every counted test ran; the model's test lists them.
    let powers = fixture::capabilities(Duration::ZERO);
    for fact in FACTS.iter().filter(|fact| fact.skipped_with(&powers).is_none()) {
        tests = tests.test(fact.name, |fixture| {
            suite::play(fact.name, async { OnLedger::new(on_server(fixture).await) });
        });
    }
    let with_scenarios = crate::scenarios::all! { with_scenarios };
    with_scenarios(tests).run()
}
