//! Servers as processes of their own, and what tests ask them for.

use std::process::Command;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteRequest, Decision, HoldTimeout, LeaseId, Limit, LimitKey,
    LimitKind, LimitState, Limiter, Requirements, ReserveRequest, Wait, Window,
};
use ratelimiter_client::{HttpLimiter, HttpOptions};
use tempfile::TempDir;
use testkit::{Server, eventually, without_settings};
use tokio::task::JoinHandle;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_ratelimiterd");

/// Limits and requests of one test, whose keys no other test has, so that tests can share a backend.
#[derive(Clone)]
pub struct TestKeys {
    prefix: String,
}

/// A server. It is killed when it is dropped.
pub struct ServerProcess {
    pub server: Server,
    /// Later than the server's own deadline.
    client_timeout: Duration,
}

/// The program on a free port, whose own deadline is later than that of its backend.
pub fn program_on(program: Command, backend: &str, backend_timeout_ms: u64) -> Command {
    let mut command = without_settings(program);
    command.args(["--listen", "127.0.0.1:0", "--backend", backend]);
    let timeout_ms = (backend_timeout_ms + 4_000).to_string();
    command.env("RATELIMITER_SERVER__REQUEST_TIMEOUT_MS", timeout_ms);
    command
}

impl TestKeys {
    pub fn new() -> Self {
        Self { prefix: format!("test:{}:", new_lease()) }
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
    /// Starts a server and waits until it listens.
    pub fn start(command: Command, folder: &TempDir, backend_timeout_ms: u64) -> Self {
        let client_timeout = Duration::from_millis(backend_timeout_ms + 8_000);
        Self { server: Server::start(command, folder), client_timeout }
    }

    /// Waits until it is ready.
    pub async fn ready(self) -> Self {
        eventually("the server is ready", async || self.get("/readyz").await.0 == 200).await;
        self
    }

    /// How many requests wait.
    pub async fn waiters(&self) -> u64 {
        let (_, metrics) = self.get("/metrics").await;
        let line = metrics.lines().find_map(|line| line.strip_prefix("ratelimiter_waiters "));
        line.unwrap().parse().unwrap()
    }

    /// Sends a reserve in the background, and returns when it waits.
    pub async fn wait(&self, request: &ReserveRequest) -> JoinHandle<Decision> {
        let (limiter, request) = (self.limiter(), request.clone());
        let answer = tokio::spawn(async move { limiter.reserve(&request).await.unwrap() });
        let is_waiting = async || self.waiters().await == 1;
        eventually("it waits", is_waiting).await;
        answer
    }

    /// A client of this server that repeats nothing by itself.
    pub fn limiter(&self) -> HttpLimiter {
        self.limiter_within(self.client_timeout)
    }

    /// As [`ServerProcess::limiter`], with another timeout.
    pub fn limiter_within(&self, timeout: Duration) -> HttpLimiter {
        let options = HttpOptions { timeout, repeat_for: Duration::ZERO, ..HttpOptions::default() };
        HttpLimiter::with_options(&self.server.url(), options).unwrap()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.server.process.kill();
    }

    /// The status and the body of a page; status 0 if nobody answers.
    pub async fn get(&self, path: &'static str) -> (u16, String) {
        self.ask("GET", path, String::new()).await
    }

    /// The status and the body of an answer; status 0 if nobody answers.
    pub async fn ask(
        &self,
        method: &'static str,
        path: &'static str,
        body: String,
    ) -> (u16, String) {
        let addr = self.server.addr;
        let asking = move || testkit::ask(addr, method, path, &body);
        tokio::task::spawn_blocking(asking).await.unwrap().unwrap_or_default()
    }
}

pub fn new_lease() -> LeaseId {
    LeaseId::generate(MonotonicClock::new().now())
}

pub fn waits(request: ReserveRequest, wait: Duration) -> ReserveRequest {
    ReserveRequest { wait: Some(Wait::new(wait, "").unwrap()), ..request }
}
