//! Named callers: reload on SIGHUP, the log of changes, and the errors that `check` reports.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use expect_test::expect;

use crate::process::{Process, program, stdout};

/// A server with `config.yaml` in a folder.
fn start(folder: &Path) -> Process {
    let mut command = program();
    command.args(["serve", "--config", "config.yaml", "--listen", "127.0.0.1:0"]);
    Process::start_as(command, folder)
}

fn write_config(folder: &Path, auth: &str) {
    std::fs::write(folder.join("config.yaml"), format!("auth:\n{auth}")).unwrap();
}

/// Sends a request with a token; returns the status and the body.
fn ask(server: &Process, token: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.addr).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn put(server: &Process, token: &str, capacity: u64) -> u16 {
    let body = format!(
        r#"{{"key":"tenant:acme:tpm","kind":"rolling","capacity":{capacity},"window_seconds":60,"description":"two\nlines"}}"#
    );
    ask(server, token, "PUT", "/v1/admin/limits", &body).0
}

/// OPS-04, CMD-01
#[test]
fn ops_04_sighup_reads_the_tokens_again_and_keeps_the_old_ones_when_the_new_are_bad() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("token"), "first-s3cret\n").unwrap();
    let from_file = "  tokens:\n    - { name: ops, token: 'file:token', may: [admin] }\n";
    write_config(folder, from_file);
    let server = start(folder);
    let status = |token: &str| ask(&server, token, "GET", "/v1/admin/limits", "").0;
    assert_eq!([status("first-s3cret"), status("second-s3cret")], [200, 401]);

    // A new token in the same file.
    std::fs::write(folder.join("token"), "second-s3cret\n").unwrap();
    assert_eq!(status("second-s3cret"), 401, "not before the signal");
    server.signal("HUP");
    server.wait_for_line("tokens reloaded tokens=1").unwrap();
    assert_eq!([status("first-s3cret"), status("second-s3cret")], [401, 200]);

    // Another caller in the config.
    let two = format!("{from_file}    - {{ name: reader, token: third-s3cret, may: [read] }}\n");
    write_config(folder, &two);
    server.signal("HUP");
    server.wait_for_line("tokens reloaded tokens=2").unwrap();
    assert_eq!([status("second-s3cret"), status("third-s3cret")], [200, 200]);

    // A bad config, a config that is no YAML, and a token file that is not there.
    for (config, error) in [
        (
            two.replace("[read]", "[raed]"),
            "config.yaml: auth.tokens[1].may[0]: must be call, read or admin",
        ),
        (format!("{two}  - ["), "config.yaml: while parsing a block mapping"),
        (two.replace("file:token", "file:nowhere"), "config.yaml: auth.tokens[0].token: nowhere: "),
        (
            two.replace("tokens", "allow_anonymous: x\n  tokens"),
            "config.yaml: auth.allow_anonymous: ",
        ),
    ] {
        write_config(folder, &config);
        server.signal("HUP");
        let line = format!("tokens not reloaded; the old ones stay valid error=\"{error}");
        server.wait_for_line(&line).unwrap();
        assert_eq!([status("second-s3cret"), status("third-s3cret")], [200, 200]);
    }

    // On loopback a server may lose its last token.
    write_config(folder, "  tokens: []\n");
    server.signal("HUP");
    server.wait_for_line("tokens reloaded tokens=0").unwrap();
    assert_eq!(status("unknown"), 200);
    server.signal("TERM");
    let (exit, log) = server.wait();
    assert_eq!(exit.code(), Some(0), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
    assert!(!log.contains("nothing to reload"), "{log}");
}

/// OPS-04: a server that others can reach does not lose its last token.
#[test]
fn ops_04_sighup_does_not_open_a_server_that_others_can_reach() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_config(folder, "  admin_tokens: [s3cret]\n");
    let mut command = program();
    command.args(["serve", "--config", "config.yaml", "--listen", "0.0.0.0:0"]);
    let server = Process::start_as(command, folder);
    write_config(folder, "  admin_tokens: []\n");
    server.signal("HUP");
    server.wait_for_line("tokens not reloaded; the old ones stay valid").unwrap();
    let status = |token: &str| ask(&server, token, "GET", "/v1/admin/limits", "").0;
    assert_eq!([status("s3cret"), status("unknown")], [200, 401]);
}

/// OPS-04: the address of a config that is read again does not apply, so it does not tell who can reach the server.
#[test]
fn ops_04_sighup_does_not_open_a_server_because_of_another_address() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |text: &str| std::fs::write(folder.join("config.yaml"), text).unwrap();
    for text in ["", "server: { listen_addr: \"127.0.0.1:0\" }\n"] {
        write("server: { listen_addr: \"0.0.0.0:0\" }\nauth: { admin_tokens: [s3cret] }\n");
        let mut command = program();
        command.args(["serve", "--config", "config.yaml"]);
        let server = Process::start_as(command, folder);
        write(text);
        server.signal("HUP");
        server.wait_for_line("tokens not reloaded; the old ones stay valid").unwrap();
        let status = |token: &str| ask(&server, token, "GET", "/v1/admin/limits", "").0;
        assert_eq!([status("s3cret"), status("unknown")], [200, 401], "{text:?}");
    }
}

/// OPS-04
#[test]
fn ops_04_a_change_is_one_log_line_with_caller_old_and_new_value() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_config(
        folder,
        "  tokens: [{ name: ops, token: a, may: [admin] }, { name: reader, token: r, may: [read] }]\n  admin_tokens: [b]\n",
    );
    let server = start(folder);
    assert_eq!([put(&server, "a", 5), put(&server, "b", 7), put(&server, "r", 9)], [200, 200, 403]);
    let path = "/v1/admin/limits/tenant:acme:tpm";
    assert_eq!(ask(&server, "a", "DELETE", path, "").0, 200);
    assert_eq!(ask(&server, "a", "DELETE", path, "").0, 404, "no change");
    server.signal("TERM");
    let log = server.wait().1;
    let changes = log.lines().filter_map(|line| line.split_once("change{"));
    let changes: String = changes.map(|(_, change)| format!("change{{{change}\n")).collect();
    expect![[r#"
        change{caller="ops"}: limit defined key=tenant:acme:tpm old=none new={"key":"tenant:acme:tpm","kind":"rolling","capacity":5,"window_seconds":60,"timeout_seconds":0,"unit":"","description":"two\nlines","overage":"debt"} status=Active
        change{caller="admin_tokens"}: limit defined key=tenant:acme:tpm old={"key":"tenant:acme:tpm","kind":"rolling","capacity":5,"window_seconds":60,"timeout_seconds":0,"unit":"","description":"two\nlines","overage":"debt"} new={"key":"tenant:acme:tpm","kind":"rolling","capacity":7,"window_seconds":60,"timeout_seconds":0,"unit":"","description":"two\nlines","overage":"debt"} status=Active
        change{caller="ops"}: limit deleted key=tenant:acme:tpm old={"key":"tenant:acme:tpm","kind":"rolling","capacity":7,"window_seconds":60,"timeout_seconds":0,"unit":"","description":"two\nlines","overage":"debt"} new=none
    "#]].assert_eq(&changes);
}

/// OPS-04
#[test]
fn ops_04_a_change_of_a_server_without_tokens_is_anonymous_and_json_has_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command.current_dir(folder.path()).args(["--listen", "127.0.0.1:0"]);
    command.env("RATELIMITER_LOG__FORMAT", "json");
    let server = testkit::Process::start(command);
    let line = server.wait_for_line("listening").unwrap();
    let listening: serde_json::Value = serde_json::from_str(&line).unwrap();
    let addr = listening["addr"].as_str().unwrap().parse().unwrap();
    let body = r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":60}"#;
    assert_eq!(testkit::ask(addr, "PUT", "/v1/admin/limits", body).unwrap().0, 200);
    let line = server.wait_for_line("limit defined").unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["span"]["caller"], "anonymous", "{line}");
    assert_eq!((&event["key"], &event["old"]), (&"k".into(), &"none".into()), "{line}");
    let new: serde_json::Value = serde_json::from_str(event["new"].as_str().unwrap()).unwrap();
    assert_eq!(new["capacity"], 1, "{line}");
}

/// OPS-04, CMD-02
#[test]
fn ops_04_check_reports_every_error_of_the_callers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_config(
        folder,
        "  tokens:\n    - { name: a, token: s3cret, may: [call, write] }\n    - { name: a b, token: s3cret, may: [call], keys: ['tenant:a*'] }\n",
    );
    let output = program().current_dir(folder).args(["check", "--config", "config.yaml"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    expect![[r#"
        config.yaml: auth.tokens[0].may[1]: must be call, read or admin
        config.yaml: auth.tokens[1].name: a name has 1 to 64 characters, without white space or control characters
        config.yaml: auth.tokens[1].keys[0]: `*` and `**` must be whole segments between `:`
    "#]].assert_eq(&stdout(&output));
}
