//! The private cluster of a process that is killed.

use std::io::Read;
use std::path::Path;

use coordination_sql::testing::{Durability, TestCluster};
use tokio::time::{Duration, interval};

use crate::child::{Role, runtime, say};

/// Starts a cluster, says its folder, and waits to be killed.
pub fn hold() {
    let cluster = TestCluster::start(Durability::ServerCrash);
    say(cluster.folder().display());
    // Nothing is ever written, so this returns when the other process has ended.
    let _ended = std::io::stdin().read(&mut [0]);
    drop(cluster);
}

pub fn ends_with_its_process() {
    runtime().block_on(async {
        let mut holder = Role::HoldCluster.start(None);
        let folder = holder.next_line().await.expect("the cluster starts");
        let lock_file = Path::new(&folder).join("data/postmaster.pid");
        assert!(lock_file.exists(), "a server runs");
        holder.kill().await;
        let mut look = interval(Duration::from_millis(10));
        // The test would hang here, not pass, if the cluster stayed.
        while Path::new(&folder).exists() {
            look.tick().await;
        }
    });
}
