//! The private cluster of a process that is killed.

use std::env;
use std::io::{Read, Write};
use std::path::Path;

use testkit::postgres::{Durability, TestCluster};
use testkit::{Process, eventually, run, this_program};

/// Set in the process that is killed, which is this binary again.
const HOLD_VARIABLE: &str = "COORDINATION_SQL_TEST_HOLD";

pub fn is_asked_to_hold() -> bool {
    env::var_os(HOLD_VARIABLE).is_some()
}

/// Starts a cluster, says its folder, and waits to be killed.
pub fn hold() {
    let cluster = TestCluster::start(Durability::ServerCrash);
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", cluster.folder().display()).unwrap();
    stdout.flush().unwrap();
    // Nothing is ever written, so this returns when the other process has ended.
    let _ended = std::io::stdin().read(&mut [0]);
}

pub fn with_its_process() {
    let mut command = this_program();
    command.env(HOLD_VARIABLE, "yes");
    let mut holder = Process::start(command);
    let folder = holder.read_line().unwrap();
    let folder = Path::new(&folder);
    assert!(folder.join("data/postmaster.pid").exists(), "a server runs");
    holder.kill();
    run(eventually("the cluster is gone", async || !folder.exists()));
}
