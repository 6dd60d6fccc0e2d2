//! The gateway and its provider as programs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use testkit::{eventually, run, without_settings};

use crate::process::{Process, program, stderr, stdout};

const CALL: &str =
    r#"{"model":"gpt-4o","max_tokens":20,"messages":[{"role":"user","content":"pr0mpt-s3cret"}]}"#;

/// `ratelimiterd mock-provider`; it ends when this is dropped.
pub(crate) struct MockProgram {
    _process: testkit::Process,
    addr: SocketAddr,
}

impl MockProgram {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = program();
        command.args(["mock-provider", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut process = testkit::Process::start(command);
        let line = process.read_line().expect("it says where it is");
        let addr = line.split_once("Anthropic http://").and_then(|(_, addr)| addr.parse().ok());
        Self { addr: addr.expect("an address"), _process: process }
    }

    /// Writes `gateway.example.yaml` into a folder, with this provider.
    pub(crate) fn write_example(&self, folder: &Path) {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../gateway.example.yaml");
        let example = std::fs::read_to_string(example).unwrap();
        let config = example.replace("127.0.0.1:9900", &self.addr.to_string());
        assert_ne!(config, example);
        std::fs::write(folder.join("gateway.example.yaml"), config).unwrap();
    }
}

/// A request with headers, each ended by `\r\n`; returns the whole answer.
fn ask(addr: SocketAddr, line: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// GW-14
#[test]
fn gw_14_a_mock_provider_with_the_same_seed_gives_the_same_answers() {
    let answer = |arguments: &[&str]| {
        let mock = MockProgram::start(arguments);
        let answer = ask(mock.addr, "POST /v1/chat/completions", "", CALL);
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let first = answer(&["--seed", "7"]);
    assert!(first.contains("word word"), "{first}");
    assert_eq!(first, answer(&["--seed", "7"]));
    assert_ne!(first, answer(&["--seed", "8"]));
    assert!(answer(&["--fault", "quota"]).contains("insufficient_quota"));
}

/// GW-11: what callers and providers send is in no log at any level, no metric and no error.
#[test]
fn gw_11_keys_and_bodies_are_in_no_log_and_no_answer_of_the_gateway() {
    const SECRETS: [&str; 7] = [
        "t3nant-s3cret",
        "pr0vider-s3cret",
        "wr0ng-s3cret",
        "pr0mpt-s3cret",
        "word word",
        "pr0xy-s3cret",
        // The same after `user:`, as it is sent.
        "dXNlcjpwcjB4eS1zM2NyZXQ=",
    ];
    let mock = MockProgram::start(&["--api-key", "pr0vider-s3cret"]);
    // The mock is no proxy, and says so.
    let no_proxy = format!("http://user:pr0xy-s3cret@{}", mock.addr);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "pr0vider-s3cret\n").unwrap();
    let provider = |name: &str, more: &str| {
        format!("{{ name: {name}, api: openai, api_key: 'file:key', {more} }}")
    };
    let config = format!(
        "gateway:\n  wait_ms: 0\n  tenants: [ {{ name: acme, key: t3nant-s3cret }} ]\n  providers:\n    - {}\n    - {}\n",
        provider("openai", &format!("base_url: 'http://{}/v1'", mock.addr)),
        provider("gone", &format!("base_url: 'https://127.0.0.1:1/v1', https_proxy: '{no_proxy}'")),
    );
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0", "--config", "config.yaml"]);
    command.env("RATELIMITER_LOG__LEVEL", "trace");
    let server = Process::start_as(command, folder.path());
    let mut statuses = Vec::new();
    let (stream, number) = (CALL.replacen('{', r#"{"stream":true,"#, 1), CALL.replace("20", "x"));
    for (key, of) in [("t3nant-s3cret", "acme"), ("wr0ng-s3cret", "nobody")] {
        for (path, body) in [
            ("openai/v1/chat/completions", CALL),
            ("openai/v1/chat/completions", &stream),
            ("openai/v1/chat/completions", &number),
            ("openai/v1/nowhere", CALL),
            ("gone/v1/chat/completions", CALL),
        ] {
            for header in [format!("authorization: Bearer {key}"), format!("x-api-key: {key}")] {
                let line = format!("POST /{path}?key={key}");
                let answer = ask(server.addr, &line, &format!("{header}\r\n"), body);
                statuses.push(answer[9..12].to_owned());
                if !answer.starts_with("HTTP/1.1 200") {
                    let leak = SECRETS.iter().find(|secret| answer.contains(**secret));
                    assert_eq!(leak, None, "{of}: {answer}");
                }
            }
        }
    }
    for status in ["200", "400", "401", "404", "502"] {
        assert!(statuses.iter().any(|seen| seen == status), "{status} in {statuses:?}");
    }
    let metrics = ask(server.addr, "GET /metrics", "", "");
    assert!(metrics.contains("ratelimiter_gateway_requests_total"), "{metrics}");
    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(log.contains("TRACE") && log.contains("was not sent"), "{log}");
    for secret in SECRETS {
        assert!(!metrics.contains(secret) && !log.contains(secret), "{secret}: {log}");
    }
}

/// GW-11: SIGHUP reads the keys again; the old ones stay if the new are bad.
#[test]
fn gw_11_sighup_reads_the_keys_of_the_gateway_again() {
    let mock = MockProgram::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("tenant", "first-key");
    write("provider", "provider-key");
    let config = format!(
        "gateway: {{ tenants: [ {{ name: acme, key: 'file:tenant' }} ], providers: [ {{ name: openai, api: openai, base_url: 'http://{}/v1', api_key: 'file:provider' }} ] }}",
        mock.addr
    );
    write("config.yaml", &config);
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0", "--config", "config.yaml"]);
    let server = Process::start_as(command, folder.path());
    let status = |key: &str| {
        let header = format!("authorization: Bearer {key}\r\n");
        ask(server.addr, "POST /openai/v1/chat/completions", &header, CALL)[9..12].to_owned()
    };
    assert_eq!((status("first-key"), status("second-key")), ("200".into(), "401".into()));
    write("tenant", "second-key");
    server.signal("HUP");
    assert!(server.wait_for_line("keys of the gateway reloaded").is_some());
    assert_eq!((status("first-key"), status("second-key")), ("401".into(), "200".into()));
    write("config.yaml", &config.replace("tenants:", "wait_ms: 1, tenants:"));
    server.signal("HUP");
    assert!(server.wait_for_line("settings of the gateway other than tenants and keys").is_some());
    write("tenant", "");
    server.signal("HUP");
    assert!(server.wait_for_line("gateway.tenants[0].key: tenant: ").is_some());
    assert_eq!(status("second-key"), "200");
}

/// GW-07: the provider has no request left for the first key, and answers nothing about another.
#[test]
fn gw_07_a_new_key_has_nothing_to_do_with_what_the_earlier_one_used() {
    let mock = MockProgram::start(&["--rpm", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("provider", "first-key");
    write(
        "config.yaml",
        &format!(
            "gateway: {{ providers: [ {{ name: openai, api: openai, base_url: 'http://{}/v1', api_key: 'file:provider' }} ] }}",
            mock.addr
        ),
    );
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0", "--config", "config.yaml"]);
    let server = Process::start_as(command, folder.path());
    let limit = r#"{"key":"global:llm:openai:gpt-4o:rpm","kind":"rolling","capacity":100,"window_seconds":60}"#;
    let defined =
        ask(server.addr, "PUT /v1/admin/limits", "content-type: application/json\r\n", limit);
    assert!(defined.contains("200 OK"), "{defined}");
    ask(server.addr, "POST /openai/v1/chat/completions", "", CALL);
    let is_held_back = |amount| {
        let line = format!(
            "ratelimiter_gateway_held_back{{key=\"global:llm:openai:gpt-4o:rpm\"}} {amount}\n"
        );
        ask(server.addr, "GET /metrics", "", "").contains(&line)
    };
    run(eventually("what others use is held back", async || is_held_back(99)));
    write("provider", "second-key");
    server.signal("HUP");
    run(eventually("it is given back", async || is_held_back(0)));
}

/// GW-11, CFG-02
#[test]
fn gw_11_check_names_what_is_wrong_with_a_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let provider = "name: a, api: openai, base_url: 'http://127.0.0.1:1/v1'";
    for (listen, section, expected) in [
        ("127.0.0.1:0", format!("providers: [ {{ {provider} }} ]"), "config: ok"),
        ("127.0.0.1:0", format!("providers: [ {{ {provider}, api_key: k3y }} ]"), "config: ok"),
        (
            ":8080",
            format!("providers: [ {{ {provider}, api_key: k3y }} ]"),
            "gateway.providers[0].api_key: ",
        ),
        (
            "127.0.0.1:0",
            format!("tenants: [ {{ name: t, key: k3y }} ]\n  providers: [ {{ {provider} }} ]"),
            "gateway.providers[0].api_key: ",
        ),
        (
            "127.0.0.1:0",
            "providers: [ { name: a, api: openai }, { name: b, api: openai, base_url: 'http://h', upstream_timeout_ms: 0 } ]".to_owned(),
            "gateway.providers[1].upstream_timeout_ms: must be 1 to 3600000",
        ),
        (
            "127.0.0.1:0",
            format!("providers: [ {{ {provider}, pass_through_paths: [/files] }} ]"),
            "gateway.providers[0].pass_through_paths[0]: is no path below base_url",
        ),
        ("127.0.0.1:0", "wait_ms: 1".to_owned(), "gateway.providers: "),
        ("127.0.0.1:0", "wait_ms: 60001".to_owned(), "gateway.wait_ms: must be 0 to 60000"),
        (
            "127.0.0.1:0",
            "providers: [ { name: v1, api: openai, base_url: 'http://h/v1' } ]".to_owned(),
            "gateway.providers[0].name: ",
        ),
        (
            "127.0.0.1:0",
            "providers: [ { name: a, api: other, base_url: 'http://h/v1' } ]".to_owned(),
            "gateway.providers[0].api: unknown variant",
        ),
        (
            "127.0.0.1:0",
            "providers: [ { name: a, api: openai, base_url: 'ftp://h' } ]".to_owned(),
            "gateway.providers[0].base_url: ",
        ),
        (
            "127.0.0.1:0",
            format!("providers: [ {{ {provider}, api_key: 'file:nowhere' }} ]"),
            "gateway.providers[0].api_key: ",
        ),
        (
            "127.0.0.1:0",
            format!(
                "providers: [ {{ {provider}, models: {{ m: {{ price: {{ input: 1 }} }} }} }} ]"
            ),
            "gateway.providers[0].models.m.price",
        ),
    ] {
        let config = format!(
            "server: {{ listen_addr: '{listen}' }}\nauth: {{ client_tokens: [t], admin_tokens: [a] }}\ngateway:\n  {section}\n"
        );
        std::fs::write(folder.path().join("config.yaml"), &config).unwrap();
        let mut check = without_settings(program());
        check.current_dir(folder.path()).args(["check", "--config", "config.yaml"]);
        let output = check.output().unwrap();
        let text = stdout(&output) + &stderr(&output);
        assert!(text.contains(expected), "{config}: {text}");
        assert!(!text.contains("k3y"), "{config}: {text}");
        assert_eq!(output.status.success(), expected == "config: ok", "{config}: {text}");
    }
}
