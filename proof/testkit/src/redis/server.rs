//! A temporary server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::binary::find_binary;
use super::certificates::Certificates;
use super::resp;
use crate::Process;

/// The server's log message when it has loaded its data and listens.
const READY: &str = "Ready to accept connections";
/// The server's log message when another program has its port.
const PORT_TAKEN: &str = "Address already in use";
/// The most attempts to find a free port. Another program may take it before the server does.
const PORT_ATTEMPTS_MAX: usize = 20;

/// What the server writes to its folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// Nothing: a restart forgets everything.
    None,
    /// The append-only file, synced to the disk before each answer.
    AofAlways,
    /// The append-only file, synced to the disk once a second.
    AofEverySecond,
}

/// A temporary server; its process and files are removed on drop.
#[derive(Debug)]
pub struct TestRedis {
    // Drop order: first the server, then its files.
    /// `None` while it is killed.
    process: Option<Process>,
    binary: PathBuf,
    addr: SocketAddr,
    /// A second address where it listens, and the arguments for it: for TLS, or for other nodes of a cluster.
    second: Option<(SocketAddr, Vec<String>)>,
    persistence: Persistence,
    arguments: Vec<String>,
    folder: TempDir,
}

impl Persistence {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::None => &["--appendonly", "no"],
            Self::AofAlways => &["--appendonly", "yes", "--appendfsync", "always"],
            Self::AofEverySecond => &["--appendonly", "yes", "--appendfsync", "everysec"],
        }
    }
}

impl TestRedis {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// There is no server binary, or the server does not start.
    pub fn start(persistence: Persistence) -> Self {
        Self::start_with(persistence, &[])
    }

    /// Starts a server on a free port, with further arguments, such as `["--maxmemory", "10mb"]`.
    ///
    /// # Panics
    /// There is no server binary, or the server does not start.
    pub fn start_with(persistence: Persistence, arguments: &[&str]) -> Self {
        Self::start_listening(persistence, arguments, None)
    }

    /// As [`TestRedis::start_with`]; it listens for TLS too, at [`TestRedis::tls_url`].
    ///
    /// # Panics
    /// There is no server binary, or the server does not start.
    pub fn start_tls(
        persistence: Persistence,
        arguments: &[&str],
        certificates: &Certificates,
    ) -> Self {
        Self::start_listening(persistence, arguments, Some(&|port| certificates.arguments(port)))
    }

    /// `second` makes the arguments for a second port.
    pub(super) fn start_listening(
        persistence: Persistence,
        arguments: &[&str],
        second: Option<&dyn Fn(u16) -> Vec<String>>,
    ) -> Self {
        let mut server = Self {
            process: None,
            binary: find_binary().expect("a suite runs its tests only with a server binary"),
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            second: None,
            persistence,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            folder: tempfile::tempdir().expect("there is room for a server's files"),
        };
        let has_started = (0..PORT_ATTEMPTS_MAX).any(|_| {
            server.addr = free_addr();
            server.second = second.map(|arguments| {
                let addr = free_addr();
                (addr, arguments(addr.port()))
            });
            server.try_restart()
        });
        assert!(has_started, "all ports are taken: {server:?}");
        server
    }

    /// Its address, which stays the same when it is restarted.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its URL, without user and password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// The address where it listens for TLS.
    ///
    /// # Panics
    /// It does not.
    pub fn tls_addr(&self) -> SocketAddr {
        self.second_addr().expect("it was started with certificates")
    }

    pub(super) fn second_addr(&self) -> Option<SocketAddr> {
        self.second.as_ref().map(|(addr, _)| *addr)
    }

    /// Its URL with TLS, without user and password.
    ///
    /// # Panics
    /// It does not listen for TLS.
    pub fn tls_url(&self) -> String {
        format!("rediss://{}", self.tls_addr())
    }

    /// Sends a command as the default user, on a connection of its own. An error comes back as `-ERR …`, an array as
    /// lines, what is missing as `(nil)`.
    ///
    /// # Panics
    /// The server cannot be reached, or closes the connection without a reply.
    pub fn command(&self, words: &[&str]) -> String {
        let reply = resp::ask(self.addr, words);
        reply.unwrap_or_else(|error| panic!("{words:?} at {}: {error}", self.addr))
    }

    /// `SIGSTOP`: the server neither answers nor closes connections.
    pub fn pause(&self) {
        self.process().signal("STOP");
    }

    /// `SIGCONT`.
    pub fn resume(&self) {
        self.process().signal("CONT");
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Starts a killed server on the same port, with the files that it had. Waits until it has loaded them.
    ///
    /// # Panics
    /// It was not killed, it does not start, or another program has its port.
    pub fn restart(&mut self) {
        assert!(self.try_restart(), "the port is taken: {self:?}");
    }

    /// As [`TestRedis::restart`]; false if another program has its port.
    ///
    /// # Panics
    /// It was not killed, or it does not start for another reason.
    #[must_use]
    pub fn try_restart(&mut self) -> bool {
        assert!(self.process.is_none(), "the server was killed");
        let mut command = Command::new(&self.binary);
        command.args(["--bind", "127.0.0.1", "--port", &self.addr.port().to_string()]);
        command.args(["--enable-debug-command", "local", "--save", ""]);
        // A replica that asks for everything gets it at once.
        command.args(["--repl-diskless-sync-delay", "0"]);
        command.args(self.persistence.arguments());
        command.args(self.second.iter().flat_map(|(_, arguments)| arguments)).args(&self.arguments);
        command.current_dir(self.folder.path());
        let process = Process::start(command);
        if process.wait_for_line(READY).is_none() {
            let (_, log) = process.wait();
            assert!(log.contains(PORT_TAKEN), "the server does not start:\n{log}");
            return false;
        }
        self.process = Some(process);
        true
    }

    /// The running process.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the server is running")
    }
}

/// An address that is free at the moment.
pub(super) fn free_addr() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("ports are free");
    listener.local_addr().expect("it is bound")
}
