//! The private cluster of a process that is killed.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::postgres::{Durability, TestCluster};
use tokio::time::interval;

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
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(HOLD_VARIABLE, "yes").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().unwrap();
    let mut folder = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut folder).unwrap();
    let folder = Path::new(folder.trim());
    assert!(folder.join("data/postmaster.pid").exists(), "a server runs");
    holder.kill().unwrap();
    holder.wait().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut look = interval(Duration::from_millis(10));
        // The test would hang here, not pass, if the cluster stayed.
        while folder.exists() {
            look.tick().await;
        }
    });
}
