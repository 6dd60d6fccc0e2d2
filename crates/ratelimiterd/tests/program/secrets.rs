//! Tokens and keys are in no log, no response and no error.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::process::{Process, program, stderr, stdout};

const ADMIN: &str = "adm1n-s3cret";
const CLIENT: &str = "cl1ent-s3cret";
const NAMED: &str = "n4med-s3cret";
const WRONG: &str = "wr0ng-s3cret";

fn ask(server: &Process, line: &str, authorization: &str) -> String {
    let mut stream = TcpStream::connect(server.addr).unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: {authorization}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn is_free_of_secrets(text: &str) -> bool {
    [ADMIN, CLIENT, NAMED, WRONG].iter().all(|secret| !text.contains(secret))
}

/// HTTP-16
#[test]
fn secrets_are_in_no_log_and_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("client"), CLIENT).unwrap();
    let mut command = program();
    command
        .args(["--listen", "127.0.0.1:0"])
        .env("RATELIMITER_LOG__LEVEL", "trace")
        .env("RATELIMITER_AUTH__ADMIN_TOKENS", ADMIN)
        .env("RATELIMITER_AUTH__CLIENT_TOKENS", "file:client")
        .env("RATELIMITER_AUTH__TOKENS", format!("[{{name: named, token: {NAMED}, may: [read]}}]"));
    let server = Process::start_as(command, folder.path());
    let mut statuses = Vec::new();
    for token in [ADMIN, CLIENT, NAMED, WRONG] {
        for line in ["GET /v1/admin/limits", "POST /v1/reserve", "GET /nowhere", "GET /metrics"] {
            for scheme in ["Bearer", "Basic", "Bearer Bearer"] {
                let answer = ask(&server, line, &format!("{scheme} {token}"));
                assert!(is_free_of_secrets(&answer), "{answer}");
                statuses.push(answer[9..12].to_owned());
            }
        }
    }
    for status in ["200", "400", "401", "403", "404"] {
        assert!(statuses.iter().any(|seen| seen == status), "{status} in {statuses:?}");
    }
    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(is_free_of_secrets(&log), "{log}");
}

/// HTTP-16: an operator may show an error of the config to others.
#[test]
fn secrets_are_in_no_error_of_a_config() {
    let folder = tempfile::tempdir().unwrap();
    for (config, expected) in [
        (format!("auth: {{ client_tokens: {ADMIN} }}"), "auth.client_tokens: must be a list"),
        (format!("auth: {{ admin_tokens: {{ a: {ADMIN} }} }}"), "auth.admin_tokens"),
        (format!("auth: {{ admin_tokens: [['{ADMIN}']] }}"), "auth.admin_tokens: a secret is text"),
        (
            format!("auth: {{ admin_tokens: ['{ADMIN} x'] }}"),
            "auth.admin_tokens: a secret has 1 to",
        ),
        (format!("auth: {{ admin_tokens: ['{ADMIN}'"), "line 1"),
        (format!("auth: {ADMIN}"), "auth: "),
        (format!("auth: {{ tokens: {ADMIN} }}"), "auth.tokens: must be a list"),
        (format!("auth: {{ tokens: ['{ADMIN}'] }}"), "auth.tokens[0]: must be an object"),
        (format!("auth: {{ tokens: {{ token: {ADMIN} }} }}"), "auth.tokens: must not be a section"),
        (format!("auth: {{ admin_tokens: {{ '{ADMIN}': 1 }} }}"), "auth.admin_tokens: must not be"),
        (format!("auth: {{ 'admin_tokens {ADMIN}': 1 }}"), "auth: has an unknown field; it has"),
        (
            format!("auth: {{ tokens: [{{ name: a, 'token {ADMIN}': , may: [call] }}] }}"),
            "auth.tokens[0]: has an unknown field; a caller has",
        ),
        (
            format!(
                "auth: {{ tokens: [{{ name: a, token: a, may: [call], keys: ['{ADMIN}*'] }}] }}"
            ),
            "auth.tokens[0].keys[0]: `*` and `**` must be whole segments",
        ),
        (
            format!("auth: {{ tokens: [{{ token: ['{ADMIN}'] }}] }}"),
            "auth.tokens[0].token: must be text",
        ),
        (
            format!("auth: {{ tokens: [{{ token: '{ADMIN} x' }}] }}"),
            "auth.tokens[0].token: a secret has",
        ),
        (
            format!("auth: {{ tokens: [{{ name: '{ADMIN} x', token: a, may: {ADMIN} }}] }}"),
            "auth.tokens[0].may: ",
        ),
        (
            format!("auth: {{ tokens: [{{ token: '{ADMIN}', may: ['{ADMIN}'] }}] }}"),
            "auth.tokens[0].may[0]: ",
        ),
        (
            format!(
                "auth: {{ admin_tokens: ['{ADMIN}'], tokens: [{{ name: a, token: '{ADMIN}', may: [call] }}] }}"
            ),
            "auth.tokens[0].token: is the same token as auth.admin_tokens",
        ),
    ] {
        std::fs::write(folder.path().join("config.yaml"), &config).unwrap();
        let mut check = program();
        check.current_dir(folder.path()).args(["check", "--config", "config.yaml"]);
        let output = check.output().unwrap();
        let text = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{config}: {text}");
        assert!(is_free_of_secrets(&text), "{config}: {text}");
    }
}
