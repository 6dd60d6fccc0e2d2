//! One server process with its data file.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A development server listens after 2 s, three of them on two cores after 6 s.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The server's log message when another program has its port.
const PORT_TAKEN: &str = "AddressInUse";
/// Lines of the server's log to show when it does not start.
const LOG_LINES_SHOWN: usize = 20;

/// How a server is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// `--development`: 1.5 GB of memory, 253 events a request, 8 connections.
    Development,
    /// As in production, with a small cache: 2.3 GB of memory, 8189 events a request, 32
    /// connections.
    Production,
}

/// One server process; it is killed when this is dropped.
pub(super) struct Replica {
    binary: PathBuf,
    data_file: PathBuf,
    mode: Mode,
    process: Option<Child>,
    log: Arc<Mutex<VecDeque<String>>>,
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
        let log = Arc::default();
        Self { binary: binary.to_owned(), data_file, mode, process: None, log }
    }

    /// Starts the server and waits until it listens; `None` if another program has its port.
    /// Returns the port if `addresses` is `0`.
    ///
    /// With `0` the server chooses a free port, and exits when this process does.
    pub(super) fn start(&mut self, addresses: &str) -> Option<Option<u16>> {
        assert!(self.process.is_none(), "the server is stopped");
        let mut command = Command::new(&self.binary);
        command.arg("start").args(self.mode.start_flags());
        command.arg(format!("--addresses={addresses}")).arg(&self.data_file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the server's binary can be run");
        let stdout = process.stdout.take().expect("it is piped");
        let stderr = process.stderr.take().expect("it is piped");
        self.process = Some(process);
        if !self.wait_until_listening(stderr) {
            self.kill();
            return None;
        }
        if addresses != "0" {
            return Some(None);
        }
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("the server prints its port");
        Some(Some(line.trim().parse().expect("the server prints its port")))
    }

    /// Waits until the server listens, or ends because it cannot.
    fn wait_until_listening(&self, stderr: impl std::io::Read + Send + 'static) -> bool {
        let (sender, receiver) = mpsc::channel();
        let log = Arc::clone(&self.log);
        // Read to the end: a server whose log is not read blocks when the pipe is full.
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let listens = line.contains("listening on");
                let is_taken = line.contains(PORT_TAKEN);
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_back(line);
                if log.len() > LOG_LINES_SHOWN {
                    log.pop_front();
                }
                if listens || is_taken {
                    // Only the first such line is received.
                    let _later = sender.send(listens);
                }
            }
        });
        let listens = receiver.recv_timeout(START_TIMEOUT);
        assert!(listens.is_ok(), "the server does not listen:\n{self:?}");
        listens == Ok(true)
    }

    /// Stops its clock and its connections without closing them.
    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it as a power cut would.
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the process is our child");
            process.wait().expect("the process is our child");
        }
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the server is running");
        let pid = Pid::from_child(process);
        kill_process(pid, signal).expect("the process is our child");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} with {}:", self.binary.display(), self.data_file.display())?;
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
