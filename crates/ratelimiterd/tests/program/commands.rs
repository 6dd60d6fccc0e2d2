//! Commands that talk to a server.

use std::process::Output;

use expect_test::expect;

use crate::process::{Process, program, run, stderr, stdout};

fn on(server: &Process, arguments: &[&str]) -> Output {
    program().args(arguments).env("RATELIMITER_URL", server.url()).output().unwrap()
}

fn stdout_of(server: &Process, arguments: &[&str]) -> String {
    let output = on(server, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// CMD-03
#[test]
fn limits_are_put_listed_shown_and_deleted_from_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let put = [
        "limits",
        "put",
        "a/b",
        "--kind",
        "rolling",
        "--capacity",
        "7",
        "--window-seconds",
        "60",
        "--unit",
        "tokens",
    ];
    expect![[r#"
        a/b: active
    "#]]
    .assert_eq(&stdout_of(&server, &put));
    let put = [
        "limits",
        "put",
        "c",
        "--kind",
        "concurrency",
        "--capacity",
        "2",
        "--timeout-seconds",
        "30",
    ];
    expect![[r#"
        c: active
    "#]]
    .assert_eq(&stdout_of(&server, &put));
    expect![[r#"
        KEY  KIND             USED  CAPACITY  DEBT  STATUS  UNIT
        a/b  rolling 60s      0     7         0     active  tokens
        c    concurrency 30s  0     2         0     active
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "list"]));
    expect![[r#"
        KEY  KIND             USED  CAPACITY  DEBT  STATUS  UNIT
        c    concurrency 30s  0     2         0     active
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "list", "--prefix", "c"]));
    expect![[r#"
        KEY  KIND         USED  CAPACITY  DEBT  STATUS  UNIT
        a/b  rolling 60s  0     7         0     active  tokens
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "get", "a/b"]));
    expect![[r#"
        a/b: deleted
    "#]]
    .assert_eq(&stdout_of(&server, &["limits", "delete", "a/b"]));
}

#[test]
fn an_error_is_printed_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    stdout_of(
        &server,
        &[
            "limits",
            "put",
            "c",
            "--kind",
            "concurrency",
            "--capacity",
            "2",
            "--timeout-seconds",
            "30",
            "--overage",
            "deny",
        ],
    );
    let gone = on(&server, &["limits", "get", "a/b"]);
    assert_eq!(gone.status.code(), Some(1));
    expect![[r#"
        ratelimiterd: no limit is defined for a/b
    "#]]
    .assert_eq(&stderr(&gone));
    let refused = on(
        &server,
        &["limits", "put", "c", "--kind", "rolling", "--capacity", "2", "--window-seconds", "30"],
    );
    expect![[r#"
        ratelimiterd: c is a concurrency limit and cannot become another kind; delete it first, or take another key
    "#]].assert_eq(&stderr(&refused));
    let invalid = on(&server, &["limits", "put", "c", "--kind", "rolling", "--capacity", "2"]);
    expect![[r#"
        ratelimiterd: invalid_request:window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 0
    "#]].assert_eq(&stderr(&invalid));
}

/// CMD-03
#[test]
fn a_limits_file_is_applied_and_its_difference_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    for (key, capacity) in [("changed", 1), ("same", 1), ("gone", 1)] {
        assert_eq!(server.put(key, capacity).unwrap().0, 200);
    }
    let file = folder.path().join("wanted.json");
    let entry = |key: &str, capacity: u64| {
        format!(r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#)
    };
    std::fs::write(
        &file,
        format!("[{},{},{}]", entry("changed", 9), entry("same", 1), entry("new", 3)),
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let before = server.ask("GET", "/v1/admin/limits", "").unwrap();
    let difference = stdout_of(&server, &["limits", "apply", file, "--dry-run"]);
    expect![[r#"
        ~ changed: capacity 1 -> 9
        - gone
        + new: rolling 60s, capacity 3
    "#]]
    .assert_eq(&difference);
    assert_eq!(
        server.ask("GET", "/v1/admin/limits", "").unwrap(),
        before,
        "a dry run changes nothing"
    );
    assert!(
        !stdout_of(&server, &["limits", "apply", file, "--dry-run", "--keep-others"])
            .contains("gone")
    );
    assert_eq!(stdout_of(&server, &["limits", "apply", file]), difference);
    assert_eq!(stdout_of(&server, &["limits", "apply", file]), "nothing to change\n");
    let written = stdout_of(&server, &["limits", "list", "--json"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("data/limits.json")).unwrap(), written);

    let missing = on(&server, &["limits", "apply", "nowhere.json"]);
    assert_eq!(
        missing.status.code(),
        Some(1),
        "a file that is not there must not delete everything"
    );
    std::fs::write(folder.path().join("invalid.json"), "[{}]").unwrap();
    let faulty =
        on(&server, &["limits", "apply", folder.path().join("invalid.json").to_str().unwrap()]);
    assert_eq!(faulty.status.code(), Some(1));
    assert_eq!(
        stdout_of(&server, &["limits", "list", "--json"]),
        written,
        "nothing of it was applied"
    );
}

/// CMD-03
#[test]
fn an_unreachable_or_unauthorized_server_is_reported() {
    // A port on which no process listens, and which the system does not assign.
    let output = run(&["limits", "list", "--url", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no answer"), "{}", stderr(&output));

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "s3cret\n").unwrap();
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0"]).env("RATELIMITER_AUTH__ADMIN_TOKENS", "file:token");
    let server = Process::start_as(command, folder.path());
    let output = on(&server, &["limits", "list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("does not accept the token"), "{}", stderr(&output));
    let token = format!("file:{}", folder.path().join("token").display());
    assert!(stdout_of(&server, &["limits", "list", "--token", &token]).starts_with("KEY"));
    assert!(stdout_of(&server, &["limits", "list", "--token", "s3cret"]).starts_with("KEY"));
}

/// CMD-05
#[test]
fn a_load_test_reports_its_results_and_deletes_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    let short = ["bench", "--seconds", "1", "--workers", "4", "--models", "2"];
    for target in [&[][..], &["--http2"], &["--in-process"]] {
        let report = stdout_of(&server, &[&short[..], target].concat());
        for word in ["throughput", "allowed", "denied     0", "failed     0", "p50", "p95", "p99"] {
            assert!(report.contains(word), "{word}\n{report}");
        }
        assert!(!report.contains("allowed    0\n"), "{report}");
    }
    let report =
        stdout_of(&server, &[&short[..], &["--capacity", "100", "--reserve-only"]].concat());
    assert!(!report.contains("denied     0\n"), "{report}");
    assert_eq!(server.ask("GET", "/v1/admin/limits", "").unwrap().1, r#"{"limits":[]}"#);
}

/// CMD-04
#[test]
fn the_live_view_shows_how_full_the_limits_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    server.put("half", 2).unwrap();
    server.put("empty", 2).unwrap();
    let body =
        r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"half","amount":1}]}"#;
    server.ask("POST", "/v1/reserve", body).unwrap();
    let body = body.replace("K0D", "K0E").replace("\"amount\":1", "\"amount\":2");
    server.ask("POST", "/v1/reserve", &body).unwrap();
    expect![[r#"
        FILLED                              USED/CAPACITY  CHANGE/S    DENIED  DENIED/S      DEBT  KEY
        [############............]                    1/2        +0         1         0         0  half
        [........................]                    0/2        +0         0         0         0  empty
    "#]]
    .assert_eq(&stdout_of(&server, &["top", "--times", "1"]));
}

/// CMD-06
#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && stdout(&output).contains("ratelimiterd"), "{shell}");
    }
}
