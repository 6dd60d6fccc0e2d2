//! `check`; a server does not start on what it rejects.

use std::path::Path;
use std::process::{Command, Stdio};

use expect_test::{Expect, expect};

use crate::process::{program, stderr, stdout};

/// Runs `check` in a folder and compares its output.
fn check(folder: &Path, arguments: &[&str], code: i32, expected: &Expect) {
    let output = program().current_dir(folder).arg("check").args(arguments).output().unwrap();
    expected.assert_eq(&stdout(&output));
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    if code != 0 {
        let arguments: Vec<_> = ["--listen", "127.0.0.1:0"].iter().chain(arguments).collect();
        let output =
            program().current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "a server does not start on it");
        assert!(stderr(&output).starts_with("ratelimiterd: "), "{}", stderr(&output));
    }
}

/// CMD-02
#[test]
fn a_valid_config_is_reported_as_valid() {
    let folder = tempfile::tempdir().unwrap();
    check(
        folder.path(),
        &[],
        0,
        &expect![[r#"
        config: ok
        ./data/limits.json: ok, 0 limits
    "#]],
    );
    std::fs::write(
        folder.path().join("limits.json"),
        r#"[{"key":"k","kind":"rolling","capacity":1,"window_seconds":60}]"#,
    )
    .unwrap();
    check(
        folder.path(),
        &["--limits", "limits.json"],
        0,
        &expect![[r#"
        config: ok
        limits.json: ok, 1 limits
    "#]],
    );
}

/// CFG-02
#[test]
fn a_config_typo_is_reported_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        "server: { listen_adr: ':8080' }\ntigerbeetle: { sessions: 0, max_batch_events: 8190 }\n";
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    check(
        folder.path(),
        &["--config", "config.yaml"],
        1,
        &expect![[r#"
            config.yaml: server.listen_adr: unknown field `listen_adr`, expected one of `listen_addr`, `backend`, `request_timeout_ms`, `header_read_timeout_ms`, `write_timeout_ms`, `shutdown_timeout_ms`, `connections_max`, `waiters_max`, `tls`
            config.yaml: tigerbeetle.max_batch_events: must be 1 to 8189, not 8190
            config.yaml: tigerbeetle.sessions: must be 1 to 16, not 0
        "#]],
    );
    check(
        folder.path(),
        &["--config", "nowhere.yaml"],
        1,
        &expect![[r#"
        nowhere.yaml: cannot be read: No such file or directory (os error 2)
    "#]],
    );
}

/// CMD-02
#[test]
fn errors_of_config_and_limits_file_are_reported_together() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yaml"), "log: { level: loud }\n").unwrap();
    std::fs::write(
        folder.path().join("limits.json"),
        "[{\"key\":\"k\",\n\"kind\":\"rolling\",\n\"capacity\":-1}]",
    )
    .unwrap();
    check(
        folder.path(),
        &["--config", "config.yaml", "--limits", "limits.json"],
        1,
        &expect![[r#"
            config.yaml: log.level: unknown variant `loud`, expected one of `error`, `warn`, `info`, `debug`, `trace`
            limits.json: line 3: k: capacity: invalid value: integer `-1`, expected a whole number from 0 to 9223372036854775807
        "#]],
    );
}

/// CMD-02
#[test]
fn errors_of_a_limits_file_are_reported_with_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limits.json");
    let arguments = ["--limits", "limits.json"];
    let entry = |key: &str| {
        format!("{{\"key\":\"{key}\",\"kind\":\"rolling\",\"capacity\":1,\"window_seconds\":60}}")
    };

    std::fs::write(&limits, format!("[\n{},\n{{\"key\":\"b\",", entry("a"))).unwrap();
    check(
        folder.path(),
        &arguments,
        1,
        &expect![[r#"
        limits.json: line 3: EOF while parsing an object at line 3 column 11, after the limit a
    "#]],
    );

    std::fs::write(&limits, format!("[\n{},\n{},\n{}\n]", entry("a"), entry("b"), entry("a")))
        .unwrap();
    check(
        folder.path(),
        &arguments,
        1,
        &expect![[r#"
        limits.json: line 4: a: key: the key is listed twice, first on line 2
    "#]],
    );

    std::fs::write(&limits, b"[\n\xff\xfe]").unwrap();
    check(
        folder.path(),
        &arguments,
        1,
        &expect![[r#"
        limits.json: line 2: the file is not UTF-8
    "#]],
    );
}

#[test]
fn a_limits_file_with_more_limits_than_allowed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let entry = |key| {
        format!("{{\"key\":\"{key}\",\"kind\":\"rolling\",\"capacity\":1,\"window_seconds\":60}}")
    };
    let text = format!("[{},{}]", entry("a"), entry("b"));
    std::fs::write(folder.path().join("limits.json"), text).unwrap();
    for (limits_max, expected, code) in [
        (
            "1",
            "limits.json: has 2 limits, and registry.limits_max allows 1; raise it, or delete some\n",
            1,
        ),
        ("2", "config: ok\nlimits.json: ok, 2 limits\n", 0),
    ] {
        let mut command = program();
        command.current_dir(folder.path()).args(["check", "--limits", "limits.json"]);
        let output = command.env("RATELIMITER_REGISTRY__LIMITS_MAX", limits_max).output().unwrap();
        assert_eq!((stdout(&output).as_str(), output.status.code()), (expected, Some(code)));
    }
}

/// TPL-07
#[test]
fn tpl_07_a_limits_file_with_more_templates_than_allowed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let check = |count: usize| {
        let entry = |n: usize| {
            format!(r#"{{"key":"t{n}:*","kind":"rolling","capacity":1,"window_seconds":60}}"#)
        };
        let entries: Vec<_> = (0..count).map(entry).collect();
        let text = format!(r#"{{"version":2,"limits":[{}]}}"#, entries.join(","));
        std::fs::write(folder.path().join("limits.json"), text).unwrap();
        let mut command = program();
        command.current_dir(folder.path()).args(["check", "--limits", "limits.json"]);
        stdout(&command.output().unwrap())
    };
    assert_eq!(check(1_000), "config: ok\nlimits.json: ok, 1000 limits\n");
    assert_eq!(
        check(1_001),
        "limits.json: has 1001 templates, and at most 1000 are allowed; delete some\n"
    );
}

#[test]
fn a_directory_or_pipe_is_refused_as_a_limits_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("limits.json")).unwrap();
    check(
        folder.path(),
        &["--limits", "limits.json"],
        1,
        &expect![[r#"
        limits.json: is a directory, not a limits file
    "#]],
    );
    std::fs::write(folder.path().join("file"), "").unwrap();
    check(
        folder.path(),
        &["--limits", "file/limits.json"],
        1,
        &expect![[r#"
        file/limits.json: cannot be read: Not a directory (os error 20)
    "#]],
    );
    let made = Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(made.success());
    check(
        folder.path(),
        &["--limits", "pipe"],
        1,
        &expect![[r#"
        pipe: is a pipe, a socket or a device, not a limits file
    "#]],
    );
}
