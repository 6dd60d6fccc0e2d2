//! Runs the program and talks to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The binary that cargo built.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ratelimiterd");

/// Long enough that only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server as a child process; killed on drop.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) addr: String,
    log: Option<JoinHandle<()>>,
    output: Arc<CapturedOutput>,
}

/// The log of a server so far.
#[derive(Default)]
struct CapturedOutput {
    text: Mutex<String>,
    more: Condvar,
}

/// The program without the settings of our own environment.
pub(crate) fn program() -> Command {
    without_settings(Command::new(PROGRAM))
}

pub(crate) fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RATELIMITER_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    program().args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

impl Process {
    /// Starts a server in a folder, on a free port, and waits until it listens.
    pub(crate) fn start(folder: &Path) -> Self {
        let mut command = program();
        command.args(["--listen", "127.0.0.1:0"]);
        Self::start_as(command, folder)
    }

    pub(crate) fn start_as(mut command: Command, folder: &Path) -> Self {
        let mut child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut output = String::new();
        let addr = loop {
            let mut line = String::new();
            let count = log.read_line(&mut line).unwrap();
            assert!(count > 0, "it ended instead of listening: {output}");
            output += &line;
            if let Some((_, rest)) = line.split_once("listening addr=") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        let output = Arc::new(CapturedOutput { text: Mutex::new(output), more: Condvar::new() });
        // Keep reading, or the server would block on a full pipe.
        let log = std::thread::spawn({
            let output = Arc::clone(&output);
            move || {
                for line in log.lines() {
                    output.text.lock().unwrap().push_str(&(line.unwrap() + "\n"));
                    output.more.notify_all();
                }
            }
        });
        Self { child, addr, log: Some(log), output }
    }

    /// Waits until the log contains a text.
    pub(crate) fn wait_for_log(&self, what: &str) {
        let output = self.output.text.lock().unwrap();
        let wait =
            self.output.more.wait_timeout_while(output, PATIENCE, |text| !text.contains(what));
        let (output, waited) = wait.unwrap();
        assert!(!waited.timed_out(), "it did not log {what:?}: {output}");
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// One request; the status and the body, or `None` if the connection failed.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.addr).ok()?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    pub(crate) fn put(&self, key: &str, capacity: u64) -> Option<(u16, String)> {
        let body = format!(
            r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#
        );
        self.ask("PUT", "/v1/admin/limits", &body)
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits for its end; returns the exit status and the whole log.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        self.log.take().unwrap().join().unwrap();
        let log = self.output.text.lock().unwrap().clone();
        (status, log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
