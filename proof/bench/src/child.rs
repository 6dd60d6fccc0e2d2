//! The processes that a run starts of itself, so that a contestant has memory and threads of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::probe::Probe;

/// Tells a process of this program that it is not the one that the user started.
const ROLE_VARIABLE: &str = "BENCH_ROLE";
/// Names a `ratelimiterd` to measure instead of the one in this program.
const SERVER_VARIABLE: &str = "RATELIMITERD_BIN";
/// What a server says when it can be reached.
const LISTENING: &str = "listening addr=";
/// What the kernel counts the time of processes in.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process of this program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Our server, whose arguments and environment are those of the program itself.
    Ratelimiterd,
    /// A server that decides nothing.
    Bare,
    /// Takes memory and tells how much.
    Memory(Probe),
}

/// A server that runs as a process of its own. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    pub(crate) addr: SocketAddr,
}

impl Role {
    const SERVERS: [Self; 2] = [Self::Ratelimiterd, Self::Bare];

    /// What this process was started for, if a run started it.
    pub(crate) fn of_this_process() -> Option<Self> {
        let name = std::env::var(ROLE_VARIABLE).ok()?;
        let probes = Probe::ALL.into_iter().map(Self::Memory);
        let role = Self::SERVERS.into_iter().chain(probes).find(|role| role.name() == name);
        Some(role.expect("a run starts processes for roles that there are"))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ratelimiterd => "ratelimiterd",
            Self::Bare => "bare",
            Self::Memory(probe) => probe.name(),
        }
    }

    /// A command that starts a process for this, with nothing of our environment that is meant for a server.
    pub(crate) fn command(self) -> Command {
        let server = std::env::var_os(SERVER_VARIABLE).filter(|_| self == Self::Ratelimiterd);
        let this = || std::env::current_exe().expect("this program knows where it is").into();
        let mut command = Command::new(server.unwrap_or_else(this));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RATELIMITER_") {
                command.env_remove(name);
            }
        }
        command.env(ROLE_VARIABLE, self.name()).stdin(Stdio::null());
        command
    }
}

impl Server {
    /// Starts a server in a folder and waits until it listens.
    pub(crate) fn start(mut command: Command, folder: &Path) -> Self {
        command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the program can be started");
        let mut log = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut said = String::new();
        let addr = loop {
            let mut line = String::new();
            let count = log.read_line(&mut line).expect("a server's log is text");
            assert!(count > 0, "a server ended instead of listening: {said}");
            said += &line;
            if let Some((_, rest)) = line.split_once(LISTENING) {
                let addr = rest.split_whitespace().next().unwrap_or_default();
                break addr.parse().expect("a server says its address");
            }
        };
        // The pipe must be read on, or the server would wait for it to have room.
        std::thread::spawn(move || drop(log.read_to_end(&mut Vec::new())));
        Self { process, addr }
    }

    /// A server of another kind, which listens at an address that it was told.
    pub(crate) const fn listening(process: Child, addr: SocketAddr) -> Self {
        Self { process, addr }
    }

    /// The processor time that it has used so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.process.id());
        let stat = fs::read_to_string(path).expect("the server is running");
        // The name in the second field may have blanks in it; behind it the third field begins.
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        let ticks = |at: usize| {
            let field = fields.split(' ').nth(at - 3).expect("a stat has 52 fields");
            field.parse::<f64>().expect("a number of ticks")
        };
        (ticks(14) + ticks(15)) / TICKS_PER_SECOND
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// What a server says on stderr when it can be reached.
pub(crate) fn announce(addr: SocketAddr) {
    crate::complain(&format!("{LISTENING}{addr}\n"));
}
