//! A sentinel that watches a server.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use tempfile::TempDir;

use super::binary::find_binary;
use super::certificates::Certificates;
use super::resp;
use super::server::{TestRedis, free_addr};
use crate::{Process, eventually};

/// The name under which sentinels know the server.
pub const SERVICE: &str = "mymaster";

/// The sentinel's log message when it watches the server.
const READY: &str = "+monitor master";
const PORT_ATTEMPTS_MAX: usize = 20;
/// How long a server is silent before it counts as down. Longer than a busy machine takes to answer.
const DOWN_AFTER_MS: u64 = 10_000;

/// A sentinel; its process and files are removed on drop.
#[derive(Debug)]
pub struct TestSentinel {
    // Drop order: first the process, then its files.
    process: Process,
    addr: SocketAddr,
    _folder: TempDir,
}

impl TestSentinel {
    /// Starts a sentinel that watches the server at an address as [`SERVICE`]. `quorum` sentinels agree before they replace it.
    ///
    /// # Panics
    /// There is no server binary, or the sentinel does not start.
    pub fn start(watched: SocketAddr, quorum: usize) -> Self {
        Self::start_with(watched, quorum, "", None)
    }

    /// As [`TestSentinel::start`], with further lines of configuration; with certificates it talks TLS only, to servers too.
    ///
    /// # Panics
    /// There is no server binary, or the sentinel does not start.
    pub fn start_with(
        watched: SocketAddr,
        quorum: usize,
        lines: &str,
        certificates: Option<&Certificates>,
    ) -> Self {
        let (host, port) = (watched.ip(), watched.port());
        let watching = format!(
            "sentinel monitor {SERVICE} {host} {port} {quorum}\n\
             sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {SERVICE} 10000\n{lines}\n"
        );
        for _ in 0..PORT_ATTEMPTS_MAX {
            let addr = free_addr();
            let listening = match certificates {
                None => format!("port {}\n", addr.port()),
                Some(certificates) => {
                    let arguments = certificates.arguments(addr.port()).join(" ");
                    let lines = arguments.replace(" --", "\n").replace("--", "");
                    format!("port 0\ntls-replication yes\n{lines}\n")
                }
            };
            // Sentinels rewrite their configuration.
            let folder = tempfile::tempdir().expect("there is room for a configuration");
            let file = folder.path().join("sentinel.conf");
            let text = format!("bind 127.0.0.1\n{listening}{watching}");
            fs::write(&file, text).expect("there is room for a configuration");
            let binary = find_binary().expect("a suite runs its tests only with a server binary");
            let mut command = Command::new(binary);
            command.arg(&file).arg("--sentinel").current_dir(folder.path());
            let process = Process::start(command);
            if process.wait_for_line(READY).is_some() {
                return Self { process, addr, _folder: folder };
            }
            let (_, log) = process.wait();
            assert!(log.contains("Address already in use"), "no sentinel starts:\n{log}");
        }
        panic!("all ports are taken");
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sends a command, as [`TestRedis::command`](super::TestRedis::command).
    ///
    /// # Panics
    /// It cannot be reached, or closes the connection without a reply.
    pub fn command(&self, words: &[&str]) -> String {
        let reply = resp::ask(self.addr, words);
        reply.unwrap_or_else(|error| panic!("{words:?} at {}: {error}", self.addr))
    }

    /// `SIGSTOP`: it neither answers nor closes connections.
    pub fn pause(&self) {
        self.process.signal("STOP");
    }

    /// Starts three sentinels that watch a server, of which two agree before they replace it. Waits until they know each other and its replica.
    ///
    /// # Panics
    /// As [`TestSentinel::start`].
    pub async fn start_three(primary: &TestRedis, replica: &TestRedis) -> [Self; 3] {
        let sentinels = [(); 3].map(|()| Self::start(primary.addr(), 2));
        let port = replica.addr().port().to_string();
        for sentinel in &sentinels {
            eventually("the sentinels know each other and the replica", async || {
                let others = sentinel.command(&["SENTINEL", "SENTINELS", SERVICE]);
                let replicas = sentinel.command(&["SENTINEL", "REPLICAS", SERVICE]);
                let names = others.lines().filter(|line| *line == "runid");
                names.count() == 2 && replicas.lines().any(|line| line == port)
            })
            .await;
        }
        sentinels
    }

    /// The URL of the service that these sentinels watch.
    pub fn url(sentinels: &[Self]) -> String {
        let addrs: Vec<_> = sentinels.iter().map(|one| one.addr.to_string()).collect();
        format!("redis+sentinel://{}/{SERVICE}", addrs.join(","))
    }
}
