//! One server process with its data file.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Process;

/// The server's log message when it listens.
const LISTENING: &str = "listening on";
/// The server's log message when another program has its port.
const PORT_TAKEN: &str = "AddressInUse";

/// How a server is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// `--development`: 1.5 GB of memory, 253 events a request, 8 connections.
    Development,
    /// As in production, with a small cache: 2.3 GB of memory, 8189 events a request, 32
    /// connections.
    Production,
}

/// One server with its data file.
#[derive(Debug)]
pub(super) struct Replica {
    binary: PathBuf,
    data_file: PathBuf,
    mode: Mode,
    /// `None` while it is stopped.
    process: Option<Process>,
}

impl Mode {
    fn format_flags(self) -> &'static [&'static str] {
        match self {
            Self::Development => &["--development"],
            Self::Production => &[],
        }
    }

    fn start_flags(self) -> &'static [&'static str] {
        match self {
            Self::Development => &["--development"],
            Self::Production => &["--cache-grid=256MiB"],
        }
    }
}

impl Replica {
    /// Formats a data file in `directory`.
    pub(super) fn format(
        binary: &Path,
        directory: &Path,
        mode: Mode,
        cluster_id: u128,
        index: usize,
        count: usize,
    ) -> Self {
        let data_file = directory.join(format!("{cluster_id}_{index}.tigerbeetle"));
        let mut command = Command::new(binary);
        command.arg("format");
        command.args([format!("--cluster={cluster_id}"), format!("--replica={index}")]);
        command.arg(format!("--replica-count={count}"));
        command.args(mode.format_flags()).arg(&data_file);
        let output = command.output().expect("the server's binary can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { binary: binary.to_owned(), data_file, mode, process: None }
    }

    /// Starts the server and waits until it listens; `None` if another program has its port.
    /// Returns the port if `addresses` is `0`.
    pub(super) fn start(&mut self, addresses: &str) -> Option<Option<u16>> {
        assert!(self.process.is_none(), "the server is stopped");
        let mut command = Command::new(&self.binary);
        command.arg("start").args(self.mode.start_flags());
        command.arg(format!("--addresses={addresses}")).arg(&self.data_file);
        let mut process = Process::start(command);
        if process.wait_for_line(LISTENING).is_none() {
            let (_, log) = process.wait();
            assert!(log.contains(PORT_TAKEN), "the server does not listen:\n{log}");
            return None;
        }
        let port = || process.read_line()?.trim().parse().ok();
        let port =
            (addresses == "0").then(port).map(|port| port.expect("the server prints its port"));
        self.process = Some(process);
        Some(port)
    }

    /// The running process.
    pub(super) fn process(&self) -> &Process {
        self.process.as_ref().expect("the server is running")
    }

    /// Kills it as a power cut would.
    pub(super) fn kill(&mut self) {
        drop(self.process.take());
    }
}
