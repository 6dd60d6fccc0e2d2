//! Servers as processes of their own, on one cluster and one limits file.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind,
    LimitState, RegisteredLimit, Requirements, ReserveRequest, Window,
};
use ratelimiter_client::{HttpLimiter, HttpOptions};
use ratelimiter_wire::write_limits_file;
use tempfile::TempDir;
use testkit::tigerbeetle::TestCluster;
use testkit::{Server, eventually, without_settings};

/// How long a request waits for the cluster: usually as long as it takes, since a busy machine is slow and few tests are
/// about that; briefly where it is to be seen what happens then.
const PATIENT_MS: u64 = 60_000;
const BRIEF_MS: u64 = 1_000;
/// Longer than any test waits.
const ENDLESS_MS: u64 = 500_000;
const PROGRAM: &str = env!("CARGO_BIN_EXE_ratelimiterd");
/// Somebody who may not write where only the owner may.
const NOBODY: u32 = 65_534;

/// What the servers of one test share.
pub struct Deployment {
    cluster_id: u128,
    addresses: String,
    folder: TempDir,
    /// What this test's keys begin with, so that tests can share a cluster.
    prefix: String,
    request_timeout_ms: u64,
    sessions: u32,
    /// Nothing can be written where the limits file is.
    is_read_only: bool,
}

/// A server. It is killed when it is dropped.
pub struct ServerProcess {
    server: Server,
    /// Later than the server's own deadline.
    client_timeout: Duration,
}

impl Deployment {
    pub fn on(cluster: &TestCluster) -> Self {
        Self::at(cluster.cluster_id(), cluster.addresses().join(","))
    }

    pub fn at(cluster_id: u128, addresses: String) -> Self {
        let prefix = format!("test:{}:", new_lease());
        let folder = tempfile::tempdir().unwrap();
        let (request_timeout_ms, sessions, is_read_only) = (PATIENT_MS, 1, false);
        Self { cluster_id, addresses, folder, prefix, request_timeout_ms, sessions, is_read_only }
    }

    /// The same, with a limits file that no server can write, beside which nothing can be written either. Root may write
    /// anywhere, so that a server of root becomes somebody else's.
    pub fn with_read_only_limits(self, limits: &[Limit]) -> Self {
        let registered: Vec<_> = limits.iter().cloned().map(RegisteredLimit::in_force).collect();
        std::fs::write(self.limits_path(), write_limits_file(&registered)).unwrap();
        let copy = self.folder.path().join("ratelimiterd");
        testkit::copy_program(PROGRAM, &copy);
        std::fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(self.folder.path(), Permissions::from_mode(0o555)).unwrap();
        Self { is_read_only: true, ..self }
    }

    /// So that the folder can be removed.
    pub fn make_writable(&self) {
        std::fs::set_permissions(self.folder.path(), Permissions::from_mode(0o755)).unwrap();
    }

    fn program(&self) -> Command {
        if !self.is_read_only {
            return without_settings(Command::new(PROGRAM));
        }
        let mut command = without_settings(Command::new(self.folder.path().join("ratelimiterd")));
        let probe = self.folder.path().join("probe");
        if std::fs::write(&probe, "").is_ok() {
            std::fs::remove_file(probe).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// The same, with servers that soon give up on the cluster.
    pub fn with_brief_timeouts(self) -> Self {
        Self { request_timeout_ms: BRIEF_MS, ..self }
    }

    /// The same, with servers that never give up on the cluster.
    pub fn with_endless_timeouts(self) -> Self {
        Self { request_timeout_ms: ENDLESS_MS, ..self }
    }

    /// The same, with servers that have so many sessions for writes.
    pub fn with_sessions(self, sessions: u32) -> Self {
        Self { sessions, ..self }
    }

    pub fn limits_path(&self) -> PathBuf {
        self.folder.path().join("limits.json")
    }

    /// Starts a server on a free port and waits until it listens.
    pub fn listening(&self) -> ServerProcess {
        let mut command = self.program();
        command.args(["--listen", "127.0.0.1:0", "--backend", "tigerbeetle", "--limits"]);
        command.arg(self.limits_path());
        command.env("RATELIMITER_TIGERBEETLE__CLUSTER_ID", self.cluster_id.to_string());
        command.env("RATELIMITER_TIGERBEETLE__ADDRESSES", &self.addresses);
        command.env("RATELIMITER_TIGERBEETLE__SESSIONS", self.sessions.to_string());
        let timeout_ms = self.request_timeout_ms.to_string();
        command.env("RATELIMITER_TIGERBEETLE__REQUEST_TIMEOUT_MS", timeout_ms);
        // The server's own deadline is later, so that it is the cluster's that is met.
        let timeout_ms = (self.request_timeout_ms + 4_000).to_string();
        command.env("RATELIMITER_SERVER__REQUEST_TIMEOUT_MS", timeout_ms);
        let client_timeout = Duration::from_millis(self.request_timeout_ms + 8_000);
        ServerProcess { server: Server::start(command, &self.folder), client_timeout }
    }

    /// Starts a server and waits until it is ready.
    pub async fn server(&self) -> ServerProcess {
        let server = self.listening();
        eventually("the server is ready", async || server.get("/readyz").await.0 == 200).await;
        server
    }

    pub fn key(&self, name: &str) -> LimitKey {
        LimitKey::new(format!("{}{name}", self.prefix)).unwrap()
    }

    pub fn rolling(&self, name: &str, window_seconds: u64, capacity: u64) -> Limit {
        let window = Window::from_seconds(window_seconds).unwrap();
        let kind = LimitKind::Rolling { window };
        Limit::new(self.key(name), kind, Capacity::new(capacity).unwrap())
    }

    pub fn concurrency(&self, name: &str, timeout_seconds: u64, capacity: u64) -> Limit {
        let timeout = HoldTimeout::from_seconds(timeout_seconds).unwrap();
        let kind = LimitKind::Concurrency { timeout };
        Limit::new(self.key(name), kind, Capacity::new(capacity).unwrap())
    }

    pub fn reserve(&self, lease: LeaseId, needs: &[(&str, u64)]) -> ReserveRequest {
        let needs = needs.iter().map(|(name, amount)| (self.key(name), *amount));
        ReserveRequest::new(lease, Requirements::of(needs).unwrap())
    }

    pub fn complete(&self, lease: LeaseId, actuals: &[(&str, u64)]) -> CompleteRequest {
        let actuals = actuals.iter().map(|(name, amount)| (self.key(name), *amount));
        CompleteRequest::new(lease, Actuals::of(actuals).unwrap())
    }

    /// The state, asked for until there is an answer: after an outage the first ones may be late.
    pub async fn state(&self, at: &HttpLimiter, name: &str) -> Option<LimitState> {
        let key = self.key(name);
        let mut state = None;
        eventually("the state is told", async || match at.state(&key).await {
            Ok(told) => {
                state = told;
                true
            }
            Err(_) => false,
        })
        .await;
        state
    }
}

impl ServerProcess {
    /// A client of this server that repeats nothing by itself.
    pub fn limiter(&self) -> HttpLimiter {
        let options = HttpOptions {
            timeout: self.client_timeout,
            repeat_for: Duration::ZERO,
            ..HttpOptions::default()
        };
        HttpLimiter::with_options(&self.server.url(), options).unwrap()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.server.process.kill();
    }

    /// The status and the body of a page; status 0 if nobody answers.
    pub async fn get(&self, path: &'static str) -> (u16, String) {
        let addr = self.server.addr;
        let asking = move || testkit::ask(addr, "GET", path, "");
        tokio::task::spawn_blocking(asking).await.unwrap().unwrap_or_default()
    }
}

pub fn new_lease() -> LeaseId {
    LeaseId::generate(MonotonicClock::new().now())
}
