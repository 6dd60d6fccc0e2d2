//! A Redis that is a cluster.

use testkit::redis::{Fixture, TestCluster};
use testkit::{eventually, run};

use crate::deployment::Deployment;
use crate::faults::{BACK, LIMITS, SOON_MS};
use crate::load::{Load, short_or_long};

const MOVING: &str = "the slot of the keys is being moved";
/// So many keys are moved at a time.
const CHUNK: usize = 200;

/// RDS-04, RES-01: the slot of the keys moves to another node, and back, while leases go through.
pub fn rds_04_the_slot_of_the_keys_moves_under_load(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(2).await;
        let url = TestCluster::url(&cluster.nodes);
        let on = Deployment::at(url).with_request_timeout(SOON_MS);
        let key = format!("{{{}}}:meta", on.prefix());
        let servers = on.two_servers().await;
        let load = Load::start(&on, LIMITS, &servers).await;
        let count = short_or_long(2, 40);
        for _ in 0..count {
            load.progress(BACK).await;
            let before = load.unanswered_for(MOVING);
            let moving = cluster.begin_move(&key);
            eventually("the reason is told", async || load.unanswered_for(MOVING) > before).await;
            while moving.move_keys(CHUNK) {}
            let _nodes = moving.finish();
        }
        load.progress(BACK).await;
        let report = load.finish(&servers[0], &format!("{count} moves")).await;
        report.expect_known_reasons();
    });
}
