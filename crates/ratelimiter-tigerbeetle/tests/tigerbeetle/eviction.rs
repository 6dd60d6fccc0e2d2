//! `TB-11`: a cluster has 64 sessions and evicts the oldest.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter_tigerbeetle::ledger::cluster::ClusterConfig;
use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use testkit::within;
use tigerbeetle as tb;
use tokio::task::JoinSet;

use crate::load::Load;
use crate::reading::{are_found, leases, read_all};
use crate::setup::{NEVER, config, open, run};
use crate::tally::Tally;

const OTHERS: usize = 70;
/// With those of the tests, below the 8 connections of a development server.
const OTHERS_AT_A_TIME: usize = 3;

/// A development server on a busy disk pauses for seconds at a checkpoint. `TB-10` covers that;
/// here no caller may fail.
fn patient(cluster: &TestCluster) -> ClusterConfig {
    let mut settings = cluster.settings();
    settings.request_timeout_ms = 30_000;
    config(&settings)
}

/// Opens other sessions, each for one request.
async fn others_come_and_go(cluster: &TestCluster) {
    let mut others = JoinSet::new();
    for count in 0..OTHERS {
        if count >= OTHERS_AT_A_TIME {
            others.join_next().await.unwrap().unwrap();
        }
        let (cluster_id, address) = (cluster.cluster_id(), cluster.addresses()[0].clone());
        others.spawn(async move {
            let client = tb::Client::new(cluster_id, &address).unwrap();
            within("a session", client.lookup_accounts(&[1])).await.unwrap();
            client.close().await.unwrap();
        });
    }
    while let Some(other) = others.join_next().await {
        other.unwrap();
    }
}

pub fn tb_11_an_evicted_session_is_replaced_and_a_kept_alive_one_stays(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let (idle, kept) = (Tally::default(), Tally::default());
        let quiet = patient(&cluster).with_keep_alive_interval(NEVER);
        let quiet = Arc::new(open(quiet, idle.clone()).await);
        let often = Duration::from_millis(200);
        let kept_alive = patient(&cluster).with_keep_alive_interval(often);
        let kept_alive = Arc::new(open(kept_alive, kept.clone()).await);

        others_come_and_go(&cluster).await;

        // All these callers are queued when the first call learns of the eviction.
        let load = Load::start(&quiet, 256).await;
        within("progress", load.progress(2_000)).await;
        load.finish(&*quiet).await;
        assert_eq!(idle.counts().evictions, 1);
        assert!(idle.counts().failures.is_empty(), "no caller failed: {:?}", idle.counts());

        let load = Load::start(&kept_alive, 16).await;
        within("progress", load.progress(200)).await;
        load.finish(&*kept_alive).await;
        assert_eq!(kept.counts().evictions, 0, "it was never the oldest");
        quiet.close().await;
        kept_alive.close().await;
    });
}

/// TB-11, TB-23: the first of many queries learns of the eviction. If the others had been submitted
/// with it, the process would abort.
pub fn tb_23_an_evicted_reader_is_replaced_without_errors(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let tally = Tally::default();
        let quiet = patient(&cluster).with_keep_alive_interval(NEVER);
        let ledger = Arc::new(open(quiet, tally.clone()).await);
        let leases = leases(&*ledger).await;
        others_come_and_go(&cluster).await;
        are_found(read_all(&ledger, &leases), &leases).await;
        assert_eq!(tally.counts().evictions, 1);
        assert!(tally.counts().failures.is_empty(), "{:?}", tally.counts());
        ledger.close().await;
    });
}

pub fn tb_11_seventy_sessions_under_load_fail_no_caller(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let tally = Tally::default();
        let ledger = Arc::new(open(patient(&cluster), tally.clone()).await);
        let load = Load::start(&ledger, 64).await;
        within("progress", load.progress(500)).await;
        let leases = leases(&*ledger).await;
        let mut others = pin!(others_come_and_go(&cluster));
        // Waves continue in the meantime, one at a time.
        while futures::poll!(&mut others).is_pending() {
            are_found(read_all(&ledger, &leases), &leases).await;
        }
        within("progress", load.progress(500)).await;
        let done = load.finish(&*ledger).await;
        assert!(tally.counts().failures.is_empty(), "{:?}", tally.counts());
        eprintln!("{done} leases, the longest request took {:?}", tally.counts().took_max);
        ledger.close().await;
    });
}
