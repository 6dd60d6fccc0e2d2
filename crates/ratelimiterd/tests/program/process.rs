//! Runs the program and talks to it.

use std::ops::Deref;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

use testkit::{Server, without_settings};

/// The binary that cargo built.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ratelimiterd");

/// A server as a child process.
pub(crate) struct Process(Server);

/// The program without the settings of our own environment.
pub(crate) fn program() -> Command {
    without_settings(Command::new(PROGRAM))
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

/// The text with every moment such as `2026-12-01T00:00:00Z` replaced by this one.
pub(crate) fn with_one_moment(text: &str) -> String {
    let is_moment = |word: &&str| word.len() == 20 && word.starts_with("20") && word.ends_with('Z');
    text.split_whitespace()
        .filter(is_moment)
        .fold(text.to_owned(), |text, word| text.replace(word, "2026-12-01T00:00:00Z"))
}

impl Process {
    /// Starts a server in a folder, on a free port, and waits until it listens.
    pub(crate) fn start(folder: &Path) -> Self {
        let mut command = program();
        command.args(["--listen", "127.0.0.1:0"]);
        Self::start_as(command, folder)
    }

    pub(crate) fn start_as(command: Command, folder: &Path) -> Self {
        Self(Server::start(command, folder))
    }

    pub(crate) fn put(&self, key: &str, capacity: u64) -> Option<(u16, String)> {
        let body = format!(
            r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#
        );
        self.ask("PUT", "/v1/admin/limits", &body)
    }

    /// Waits for its end; returns the exit status and the whole log.
    pub(crate) fn wait(self) -> (ExitStatus, String) {
        self.0.process.wait()
    }
}

impl Deref for Process {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}
