//! Servers on a registry: on a shared ledger in this process, or with the memory backend as a process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use ratelimiterd::config::{Config, ListenAddr};
use ratelimiterd::{RegistryUrl, Server};
use testkit::{eventually, without_settings};

use super::ledger::SharedLedger;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ratelimiterd");
/// How long servers wait for Redis, where the registry is there, and for a change: longer than by default, since a busy machine is slow.
const TIMEOUT_MS: u64 = 60_000;
/// The first of these where a test waits for it.
const SHORT_TIMEOUT_MS: u64 = 3_000;

/// A server on the shared ledger.
pub struct SharedServer {
    server: Server,
}

/// A memory server.
pub struct MemoryServer {
    process: testkit::Server,
}

impl SharedServer {
    /// Starts a server and waits until it is ready.
    pub async fn start(url: &str, ledger: &SharedLedger) -> Self {
        let server = Self::bind(url.to_owned(), ledger.clone()).await;
        server.wait_until_ready().await;
        server
    }

    /// The same for one that soon gives up on a Redis that hangs.
    pub async fn start_impatient(url: &str, ledger: &SharedLedger) -> Self {
        let server = Self::bind_impatient(url.to_owned(), ledger.clone()).await;
        server.wait_until_ready().await;
        server
    }

    /// Its locks end soon, if it dies.
    pub async fn bind_impatient(url: String, ledger: SharedLedger) -> Self {
        Self::bind_with(&url, ledger, SHORT_TIMEOUT_MS).await
    }

    pub async fn bind(url: String, ledger: SharedLedger) -> Self {
        Self::bind_with(&url, ledger, TIMEOUT_MS).await
    }

    async fn bind_with(url: &str, ledger: SharedLedger, redis_timeout_ms: u64) -> Self {
        let mut config = Config::default();
        config.server.listen_addr = ListenAddr::free_port();
        config.registry.url = Some(RegistryUrl::new(url).unwrap());
        config.server.request_timeout_ms = TIMEOUT_MS;
        config.redis.request_timeout_ms = redis_timeout_ms;
        let backend = TigerBeetleLimiter::new(ledger, LimiterOptions::default());
        Self { server: Server::bind(&config, backend).await.unwrap() }
    }

    pub async fn wait_until_ready(&self) {
        let is_ready = async || self.get("/readyz").await.0 == 200;
        eventually("the server is ready", is_ready).await;
    }

    pub async fn stop(self) {
        self.server.stop().await;
    }
}

impl MemoryServer {
    pub fn start(url: &str, folder: &Path) -> Self {
        Self::start_as(serving(url), folder)
    }

    pub fn start_as(command: Command, folder: &Path) -> Self {
        Self { process: testkit::Server::start(command, folder) }
    }

    /// Stops it, and returns its log.
    pub fn stop(self) -> String {
        self.process.signal("TERM");
        self.process.process.wait().1
    }

    pub fn description(&self) -> String {
        format!("the server with PID {} on {}", self.process.id(), self.process.addr)
    }

    pub fn kill(mut self) {
        self.process.process.kill();
    }

    pub fn wait_for_line(&self, what: &str) {
        self.process.wait_for_line(what).unwrap();
    }

    pub fn url(&self) -> String {
        self.process.url()
    }
}

/// What tests ask of either.
pub trait Asked {
    fn addr(&self) -> SocketAddr;

    async fn ask(&self, method: &'static str, path: &str, body: String) -> (u16, String) {
        let (addr, path) = (self.addr(), path.to_owned());
        let asking = move || testkit::ask(addr, method, &path, &body);
        tokio::task::spawn_blocking(asking).await.unwrap().unwrap()
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, String::new()).await
    }

    async fn put(&self, key: &str, capacity: u64) -> (u16, String) {
        self.ask("PUT", "/v1/admin/limits", definition(key, capacity)).await
    }

    /// Makes a change that nothing keeps from its success.
    async fn define(&self, key: &str, capacity: u64) {
        let (status, body) = self.put(key, capacity).await;
        assert_eq!(status, 200, "{body}");
    }

    /// Repeats a change that another server's change or an outage keeps from beginning.
    async fn insist_on_put(&self, key: &str, capacity: u64) {
        eventually("it is defined", async || match self.put(key, capacity).await {
            (200, _) => true,
            (503, _) => false,
            other => panic!("{other:?}"),
        })
        .await;
    }

    async fn delete(&self, key: &str) -> (u16, String) {
        self.ask("DELETE", &format!("/v1/admin/limits/{key}"), String::new()).await
    }

    /// The capacity of a limit, if it is defined here.
    async fn capacity(&self, key: &str) -> Option<u64> {
        let (status, body) = self.get(&format!("/v1/admin/limits/{key}")).await;
        let state: serde_json::Value = serde_json::from_str(&body).unwrap();
        (status == 200).then(|| state["limit"]["capacity"].as_u64().unwrap())
    }

    async fn reserve(&self, lease: u128, key: &str) -> (u16, String) {
        let lease = ratelimiter::LeaseId::from_u128(lease);
        let body =
            format!(r#"{{"lease_id":"{lease}","requirements":[{{"key":"{key}","amount":1}}]}}"#);
        self.ask("POST", "/v1/reserve", body).await
    }

    async fn is_connected(&self) -> bool {
        let (_, metrics) = self.get("/metrics").await;
        let line =
            metrics.lines().find_map(|line| line.strip_prefix("ratelimiter_registry_connected "));
        line.unwrap() == "1"
    }
}

impl Asked for SharedServer {
    fn addr(&self) -> SocketAddr {
        self.server.local_addr()
    }
}

impl Asked for MemoryServer {
    fn addr(&self) -> SocketAddr {
        self.process.addr
    }
}

pub fn definition(key: &str, capacity: u64) -> String {
    format!(r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#)
}

/// Waits until a server has this capacity of a limit.
pub async fn expect_capacity(at: &impl Asked, key: &str, capacity: Option<u64>) {
    let is_here = async || at.capacity(key).await == capacity;
    eventually(&format!("{key} has {capacity:?}"), is_here).await;
}

pub fn program() -> Command {
    let mut command = without_settings(Command::new(PROGRAM));
    for part in ["SERVER", "REDIS"] {
        command.env(format!("RATELIMITER_{part}__REQUEST_TIMEOUT_MS"), TIMEOUT_MS.to_string());
    }
    command
}

pub fn serving(url: &str) -> Command {
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0"]).env("RATELIMITER_REGISTRY__URL", url);
    command
}

/// Starts a memory server that must fail, and returns its error.
pub fn refused(url: &str) -> String {
    let process = testkit::Process::start(serving(url));
    if let Some(line) = process.wait_for_line("listening addr=") {
        panic!("it started: {line}");
    }
    let (status, error) = process.wait();
    assert_eq!(status.code(), Some(1), "{error}");
    error
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}
