//! The examples in the documents are correct.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{ResetDay, ResetSchedule, ResetTime, TimeZone};
use ratelimiterd::LimitsFile;
use ratelimiterd::config::{Config, Layers};

use testkit::without_settings;

use crate::gateway::MockProgram;
use crate::process::{PROGRAM, Process, program, with_one_moment};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The code blocks after each `<!-- session -->`: the commands, and their output.
fn session(document: &str) -> Vec<(String, String)> {
    let parts = document.split("<!-- session -->\n").skip(1);
    let block = |part: &str, languages: &[&str]| {
        let (_, after) = part.split_once("```").expect("a block of code");
        let (language, after) = after.split_once('\n').expect("a block of code");
        assert!(languages.contains(&language), "{language}: {part}");
        let (code, rest) = after.split_once("```").expect("the block's end");
        (code.to_owned(), rest.to_owned())
    };
    parts
        .map(|part| {
            let (commands, rest) = block(part, &["sh"]);
            (commands, block(&rest, &["json", "text"]).0)
        })
        .collect()
}

#[test]
fn the_readme_shows_what_its_commands_print() {
    run_session("README.md", 6);
}

#[test]
fn the_quick_start_shows_what_its_commands_print() {
    run_session("docs/guide/quick-start.md", 4);
}

/// GW-14
#[test]
fn gw_14_the_page_about_the_gateway_shows_what_its_commands_print() {
    run_session("docs/gateway.md", 2);
}

/// CAL-01, CAL-03, TPL-02, TPL-03, TPL-04
#[test]
fn cal_01_the_page_about_budgets_shows_what_its_commands_print() {
    let zone = TimeZone::new("Europe/Sofia").unwrap();
    let month = ResetSchedule::Monthly { day: ResetDay::FIRST, at: ResetTime::MIDNIGHT, zone };
    let now = MonotonicClock::new().now();
    let rest = month.next_reset(now).since(now);
    // The budget must not reset between the commands.
    if rest < Duration::from_secs(60) {
        #[expect(clippy::disallowed_methods, reason = "the real clock says when the month ends")]
        std::thread::sleep(rest);
    }
    run_session("docs/guide/monthly-budget.md", 7);
}

/// WAIT-01
#[test]
fn wait_01_the_page_about_waiting_shows_what_its_commands_print() {
    run_session("docs/guide/wait-instead-of-retry.md", 3);
}

/// REN-01, REN-02, REN-03
#[test]
fn ren_01_the_page_about_renewing_shows_what_its_commands_print() {
    run_session("docs/guide/leases-that-live.md", 3);
}

/// SHD-01, SHD-02
#[test]
fn shd_01_shd_02_the_page_about_shadow_mode_shows_what_its_commands_print() {
    run_session("docs/guide/try-before-you-enforce.md", 7);
}

/// Runs the commands of a document against a new server with the gateway's example, and compares what they print.
fn run_session(document: &str, blocks: usize) {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    assert!(has_curl, "{document} uses curl, which this machine does not have");
    let folder = tempfile::tempdir().unwrap();
    let mock = MockProgram::start(&[]);
    mock.write_example(folder.path());
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0", "--config", "gateway.example.yaml"]);
    let server = Process::start_as(command, folder.path());
    let session = session(&std::fs::read_to_string(root().join(document)).unwrap());
    assert_eq!(session.len(), blocks, "blocks of {document}");
    let (path, programs) = (std::env::var("PATH").unwrap(), Path::new(PROGRAM).parent().unwrap());
    let path = format!("{}:{path}", programs.display());
    for (commands, shown) in session {
        let is_curl = commands.contains("http://127.0.0.1:8080/");
        assert!(is_curl || commands.contains("ratelimiterd "), "{commands}");
        let commands = commands
            .replace("127.0.0.1:8080", &server.addr.to_string())
            .replace("curl ", "curl -sS -w '\\n' ");
        let mut bash = without_settings(Command::new("bash"));
        bash.args(["-euc", &commands]).current_dir(folder.path());
        bash.env("PATH", &path).env("RATELIMITER_URL", server.url());
        let output = bash.output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert_eq!(without_moments(&output), without_moments(&shown), "{commands}\n{output}");
    }
}

/// Removes timestamps and hints, which differ from run to run; the documents show them as `…`.
fn without_moments(text: &str) -> String {
    let mut shown = with_one_moment(text);
    for field in [
        "\"reserved_at_unix_ms\":",
        "\"renewed_at_unix_ms\":",
        "\"lapses_at_unix_ms\":",
        "\"retry_after_ms\":",
        "\"waited_ms\":",
    ] {
        let parts: Vec<_> = shown.split(field).map(str::to_owned).collect();
        let value = |part: &String| {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '…');
            let value = if part.starts_with("0") { "0" } else { "…" };
            format!("{field}{value}{rest}")
        };
        shown = parts[0].clone() + &parts[1..].iter().map(value).collect::<String>();
    }
    shown
}

/// CFG-03
#[test]
fn the_example_config_shows_every_default() {
    let mut layers = Layers::new();
    layers.add_file(&root().join("config.example.yaml"));
    assert_eq!(layers.config().unwrap(), Config::default());
}

#[test]
fn the_example_limits_load() {
    let document = LimitsFile::new(root().join("limits.example.json")).load_existing().unwrap();
    assert_eq!(document.registry.len(), 5);
    assert!(document.notes.is_empty(), "{:?}", document.notes);
}
