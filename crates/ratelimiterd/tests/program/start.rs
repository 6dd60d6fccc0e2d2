//! Start and stop of the server.

use std::process::Command;

use testkit::without_settings;

use crate::process::{PROGRAM, Process, program, run, stderr};

/// CFG-03
#[test]
fn without_a_file_it_serves_from_memory_and_keeps_its_limits_in_data() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    assert_eq!(server.ask("GET", "/healthz", "").unwrap(), (200, "ok\n".into()));
    assert_eq!(server.put("k", 7).unwrap().0, 200);
    assert!(folder.path().join("data/limits.json").exists());
}

/// CMD-01
#[test]
fn a_signal_stops_it_with_exit_code_0() {
    for signal in ["TERM", "INT"] {
        let folder = tempfile::tempdir().unwrap();
        let server = Process::start(folder.path());
        server.put("k", 7).unwrap();
        server.signal(signal);
        let (status, log) = server.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(
            log.contains(&format!("shutting down signal=\"SIG{signal}\""))
                && log.ends_with("stopped\n"),
            "{log}"
        );
    }
}

/// CFG-01
#[test]
fn a_config_file_the_environment_and_flags_are_read_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    let config = "server: { listen_addr: '127.0.0.1:1' }\nregistry: { path: from-file.json }\nlog: { format: json }\n";
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    let mut command = program();
    command.args(["serve", "--config", "config.yaml", "--limits", "from-flag.json"]);
    command
        .env("RATELIMITER_SERVER__LISTEN_ADDR", "127.0.0.1:0")
        .env("RATELIMITER_REGISTRY__PATH", "from-env.json");
    command.env("RATELIMITER_LOG__FORMAT", "text");
    let server = Process::start_as(command, folder.path());
    assert_eq!(server.put("k", 7).unwrap().0, 200);
    assert!(folder.path().join("from-flag.json").exists());
}

#[test]
fn logs_can_be_json() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command
        .current_dir(folder.path())
        .args(["--listen", "127.0.0.1:0"])
        .env("RATELIMITER_LOG__FORMAT", "json");
    let line = testkit::Process::start(command).wait_for_line("").unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&event["message"], &event["level"]),
        (&"listening".into(), &"INFO".into()),
        "{line}"
    );
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let output = run(&["--listen", &addr]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        format!(
            "ratelimiterd: {addr} is in use by another program; stop it, or listen elsewhere (--listen)\n"
        )
    );
}

/// HTTP-16
#[test]
fn an_address_that_others_can_reach_needs_tokens() {
    let output = run(&["--listen", ":0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output)
            .contains("--listen: server.listen_addr: 0.0.0.0:0 can be reached by others"),
        "{}",
        stderr(&output)
    );
}

/// DEF-08: `ulimit -f 0` makes every write fail, like a full disk.
#[test]
fn def_08_a_full_disk_refuses_a_put_and_the_old_definition_stays() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    assert_eq!(server.put("k", 7).unwrap().0, 200);
    server.signal("TERM");
    server.wait();
    let path = folder.path().join("data/limits.json");
    let before = std::fs::read(&path).unwrap();

    let mut shell = without_settings(Command::new("bash"));
    let script = format!("trap '' XFSZ; ulimit -f 0; exec {PROGRAM} --listen 127.0.0.1:0");
    shell.args(["-c", &script]);
    let server = Process::start_as(shell, folder.path());
    for (key, capacity) in [("k", 8), ("new", 1)] {
        let (status, body) = server.put(key, capacity).unwrap();
        assert_eq!(status, 503, "{body}");
        assert!(
            body.contains("\"error\":\"backend_error\"") && body.contains("cannot be written"),
            "{body}"
        );
    }
    let (_, state) = server.ask("GET", "/v1/admin/limits", "").unwrap();
    assert!(state.contains("\"capacity\":7") && !state.contains("\"new\""), "in force: {state}");
    assert_eq!(std::fs::read(&path).unwrap(), before, "on disk");
    let names = std::fs::read_dir(folder.path().join("data")).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["limits.json", "limits.json.owner"], "no staged file is left");
}
