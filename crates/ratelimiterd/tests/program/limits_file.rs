//! Ownership of the limits file, read-only files, and files of a newer version.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use testkit::without_settings;

use crate::process::{PROGRAM, Process, program, run, stderr, stdout};

/// An unprivileged user.
const NOBODY: u32 = 65_534;

fn serving(folder: &Path, backend: &str) -> Command {
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0", "--backend", backend, "--limits", "limits.json"]);
    command.current_dir(folder);
    command
}

/// Starts a server that must fail, and returns its error.
fn refused(folder: &Path, backend: &str) -> String {
    refused_as(serving(folder, backend))
}

fn refused_as(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    stderr(&output)
}

/// OPS-06
#[test]
fn ops_06_a_second_memory_server_is_refused_until_the_first_is_gone_however_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let first = Process::start_as(serving(folder.path(), "memory"), folder.path());
    let (pid, addr) = (first.id(), first.addr);
    let reason = "stop that, or give this server a file of its own (--limits)";
    assert_eq!(
        refused(folder.path(), "memory"),
        format!(
            "ratelimiterd: the limits file limits.json is in use by the server with PID {pid} on {addr}; {reason}\n"
        )
    );
    assert_eq!(first.put("k", 7).unwrap().0, 200, "the first one goes on");
    first.signal("KILL");
    first.wait();
    let second = Process::start_as(serving(folder.path(), "memory"), folder.path());
    assert_eq!(second.put("l", 7).unwrap().0, 200);
    let (_, limits) = second.ask("GET", "/v1/admin/limits", "").unwrap();
    assert!(limits.contains("\"k\"") && limits.contains("\"l\""), "{limits}");
}

/// OPS-06: servers on TigerBeetle share their file only with each other. No cluster is needed to listen.
#[test]
fn ops_06_servers_on_tigerbeetle_share_a_file_and_a_memory_server_keeps_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let shared =
        [(); 2].map(|()| Process::start_as(serving(folder.path(), "tigerbeetle"), folder.path()));
    let text = refused(folder.path(), "memory");
    assert!(text.contains("is in use by servers with server.backend: tigerbeetle"), "{text}");
    drop(shared);
    let memory = Process::start_as(serving(folder.path(), "memory"), folder.path());
    let text = refused(folder.path(), "tigerbeetle");
    assert!(text.contains(&format!("the server with PID {}", memory.id())), "{text}");
}

/// A program that may not write into the folder. Root could, so the program runs as another user then.
fn without_permission(folder: &Path) -> Command {
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    let copy = folder.join("ratelimiterd");
    testkit::copy_program(PROGRAM, &copy);
    std::fs::set_permissions(&copy, mode(0o755)).unwrap();
    std::fs::set_permissions(folder, mode(0o555)).unwrap();
    let mut command = without_settings(Command::new(copy));
    command.args(["--listen", "127.0.0.1:0", "--limits", "limits.json"]);
    let probe = folder.join("probe");
    if std::fs::write(&probe, "").is_ok() {
        std::fs::remove_file(probe).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

const ONE_LIMIT: &str = r#"[{"key":"k","kind":"rolling","capacity":7,"window_seconds":60}]"#;

/// A read-only folder, such as a `ConfigMap`: the server serves, and reports why a limit cannot be changed.
#[test]
fn a_limits_file_in_a_read_only_folder_is_served_and_a_put_reports_why_it_cannot_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("limits.json"), ONE_LIMIT).unwrap();
    let server = Process::start_as(without_permission(folder.path()), folder.path());
    assert_eq!(server.ask("GET", "/readyz", "").unwrap().0, 200);
    let lease = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D";
    let body = format!(r#"{{"lease_id":"{lease}","requirements":[{{"key":"k","amount":1}}]}}"#);
    assert!(server.ask("POST", "/v1/reserve", &body).unwrap().1.contains("\"allowed\":true"));
    for answer in [server.put("k", 8), server.ask("DELETE", "/v1/admin/limits/k", "")] {
        let (status, body) = answer.unwrap();
        assert_eq!(status, 409, "{body}");
        assert!(body.contains("\"error\":\"limits_read_only\""), "{body}");
        assert!(body.contains("Permission denied"), "{body}");
    }
    server.wait_for_line("the registry cannot be locked; it is read-only here").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// OPS-06: the server of another user, or one with a read-only volume, can still read the owner.
#[test]
fn ops_06_a_memory_server_that_may_not_write_is_refused_a_file_that_another_one_has() {
    let folder = tempfile::tempdir().unwrap();
    let first = Process::start_as(serving(folder.path(), "memory"), folder.path());
    assert_eq!(first.put("k", 7).unwrap().0, 200);
    let mut second = without_permission(folder.path());
    second.current_dir(folder.path());
    let text = refused_as(second);
    let by = format!("the server with PID {} on {}", first.id(), first.addr);
    assert!(text.contains(&by), "{text}");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

const NEWER: &str = r#"{
  "version": 3,
  "limits": [
    {"key": "budget", "kind": "sliding", "steps": 7, "capacity": 9},
    {"key": "k", "kind": "rolling", "capacity": 7, "window_seconds": 60, "owner": "search"}
  ]
}
"#;

/// OPS-05
#[test]
fn ops_05_a_file_of_a_newer_version_is_served_as_far_as_known_and_preserved() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("limits.json"), NEWER).unwrap();
    let server = Process::start_as(serving(folder.path(), "memory"), folder.path());
    server.wait_for_line("line 4: budget: kind: \"sliding\" is unknown to this version").unwrap();
    server.wait_for_line("line 5: k: owner: unknown to this version").unwrap();
    assert_eq!(server.ask("GET", "/v1/admin/limits/k", "").unwrap().0, 200);
    assert_eq!(server.ask("GET", "/v1/admin/limits/budget", "").unwrap().0, 404);
    let (status, body) = server.put("budget", 5).unwrap();
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("kind_conflict:budget"), "{body}");
    assert_eq!(server.put("k", 8).unwrap().0, 200);
    assert_eq!(server.put("new", 1).unwrap().0, 200);
    let text = std::fs::read_to_string(folder.path().join("limits.json")).unwrap();
    for kept in [
        "\"version\": 3",
        r#"{"key": "budget", "kind": "sliding", "steps": 7, "capacity": 9}"#,
        "\"owner\": \"search\"",
        "\"capacity\": 8",
        "\"key\": \"new\"",
    ] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
}

/// OPS-05: `apply` defines and deletes by the file, so it must understand all of it.
#[test]
fn ops_05_check_reports_unknown_fields_and_apply_refuses_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.json");
    std::fs::write(&path, NEWER).unwrap();
    let path = path.to_str().unwrap();
    let checked = run(&["check", "--limits", path]);
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
    let text = stdout(&checked);
    assert!(text.contains("ok, 1 limits"), "{text}");
    assert!(text.contains("line 4: budget: kind: \"sliding\" is unknown"), "{text}");
    let applied = run(&["limits", "apply", path, "--url", "http://127.0.0.1:1"]);
    assert_eq!(applied.status.code(), Some(1));
    assert!(stderr(&applied).contains("cannot apply the file"), "{}", stderr(&applied));
}
