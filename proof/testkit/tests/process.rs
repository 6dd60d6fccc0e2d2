//! Child processes: their output, their end, and the end of their test program.

#![allow(clippy::unwrap_used, missing_docs, reason = "a failed unwrap is a failed test")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::{PATIENCE, Process, this_program};

/// Set in a process that is killed while it has a child.
const PARENT_VARIABLE: &str = "TESTKIT_PARENT";

fn shell(script: &str) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::start(command)
}

#[test]
fn the_lines_of_stdout_are_read_in_order_and_all_output_can_be_searched() {
    let mut process =
        shell("echo one; echo two >&2; echo three; read line; echo \"$line\"; exit 3");
    assert_eq!(process.read_line().as_deref(), Some("one"));
    assert_eq!(process.wait_for_line("tw").as_deref(), Some("two"));
    process.write_line("four");
    assert_eq!(process.finish(), ["three", "four"]);
    assert_eq!(process.wait_for_line("five"), None, "it has ended");
    let (status, output) = process.wait();
    assert_eq!(status.code(), Some(3));
    assert_eq!(output.lines().count(), 4, "{output}");
}

#[test]
fn output_that_nobody_asks_for_does_not_block_the_process() {
    let process = shell("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo done >&2");
    assert!(process.wait_for_line("done").is_some());
}

#[test]
fn a_signal_ends_it() {
    let process = shell("echo ready; exec sleep 1000");
    assert!(process.wait_for_line("ready").is_some());
    process.signal("TERM");
    assert!(!process.wait().0.success());
}

/// Not a fact: the parent in the test below.
#[test]
fn parent() {
    if std::env::var_os(PARENT_VARIABLE).is_some() {
        let stopped = shell("echo ready; exec sleep 1000");
        let ended = shell("exit 0");
        assert!(stopped.wait_for_line("ready").is_some());
        stopped.signal("STOP");
        let id = stopped.id();
        drop(ended);
        println!("child {id}");
        // Nothing is ever written, so this returns when the test process has ended.
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
}

#[test]
fn a_process_ends_with_its_killed_parent() {
    let mut command = this_program();
    command.args(["--exact", "parent", "--nocapture"]).env(PARENT_VARIABLE, "yes");
    let mut parent = Process::start(command);
    let child = parent.wait_for_line("child ").unwrap();
    let child = child.split_once("child ").unwrap().1.to_owned();
    assert!(is_alive(&child), "its parent is");
    parent.kill();
    let pause = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if !is_alive(&child) {
            return;
        }
        std::thread::park_timeout(pause);
    }
    panic!("the child {child} outlives its parent");
}

/// A process that has ended may wait for its parent, in the state `Z`.
fn is_alive(id: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
