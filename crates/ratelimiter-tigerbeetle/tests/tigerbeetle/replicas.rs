//! A cluster of three replicas, of which one may be lost.

use std::sync::Arc;

use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use testkit::within;

use crate::load::Load;
use crate::setup::{config, open, run};
use crate::tally::Tally;

pub fn a_cluster_of_three_goes_on_without_one(_: &Fixture) {
    run(async {
        let mut cluster = TestCluster::start_three(Mode::Development);
        let tally = Tally::default();
        let ledger = Arc::new(open(config(&cluster.settings()), tally.clone()).await);
        let load = Load::start(&ledger, 64).await;
        for replica in 0..3 {
            within("progress", load.progress(500)).await;
            cluster.kill(replica);
            within("progress without it", load.progress(500)).await;
            cluster.restart(replica);
        }
        let done = load.finish(&*ledger).await;
        eprintln!("{done} leases, {:?}", tally.counts().failures);
        ledger.close().await;
    });
}
