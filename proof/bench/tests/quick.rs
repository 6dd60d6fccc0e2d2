//! A quick run: every section works, and the report is complete.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use std::process::{Command, Stdio};

use testkit::{redis, tigerbeetle};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bench");

#[test]
fn a_quick_run_of_everything_fills_the_tables_and_the_chart() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["all", "--quick", "--out"]).arg(folder.path()).stdin(Stdio::null());
    command.env_remove("LIMITADOR_REDIS_BIN").env_remove("LITELLM_BIN");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let tables = std::fs::read_to_string(folder.path().join("results.md")).unwrap();
    assert_eq!(tables, String::from_utf8_lossy(&output.stdout), "the report is also printed");
    let section = |title| {
        let (_, section) = tables.split_once(&format!("\n## {title}\n")).unwrap();
        section.split("\n## ").next().unwrap()
    };
    for title in ["In process", "HTTP", "Gateway", "Utilisation", "Memory", "Growth", "Cliffs"] {
        assert!(section(title).contains("| --- |"), "{title} has a table:\n{tables}\n{said}");
    }
    // Without a server its thresholds are listed as not measured. limitador on Redis and LiteLLM are programs that are not there.
    let of_tigerbeetle = if tigerbeetle::find_binary().is_some() { 0 } else { 8 };
    let of_redis = if redis::find_binary().is_some() { 2 } else { 8 };
    let unmeasured = tables.matches("| not measured |").count();
    assert_eq!(unmeasured, of_tigerbeetle + of_redis + 1, "{tables}\n{said}");
    let is_threshold = |line: &&str| line.contains("| ≤ ") || line.contains("| ≥ ");
    assert_eq!(section("Thresholds").lines().filter(is_threshold).count(), 48, "{tables}");
    let chart = std::fs::read_to_string(folder.path().join("results.svg")).unwrap();
    for text in ["In process, 1 thread", "HTTP, single", "Growth", "</svg>"] {
        assert!(chart.contains(text), "{text}");
    }
}

#[test]
fn one_section_can_run_alone_and_an_unknown_one_is_an_error() {
    let output = Command::new(PROGRAM).args(["growth", "--quick"]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("\n## Growth\n"));
    let output = Command::new(PROGRAM).arg("grwth").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("invalid value 'grwth'"));
}
