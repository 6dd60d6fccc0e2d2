//! An in-process server, and a client that works on raw bytes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ratelimiter::MemoryLimiter;
use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiterd::config::{Config, ListenAddr};
use ratelimiterd::{HostedBackend, Server};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A key that needs no quoting.
pub(crate) const KEY: &str = "global:llm:openai:gpt-4o:rpm";

/// A server with its clock and its folder.
pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) memory: MemoryLimiter,
    pub(crate) folder: TempDir,
}

/// A raw HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A config for a test: a free port, a separate limits file, and long timeouts.
pub(crate) fn config_in(folder: &TempDir) -> Config {
    let mut config = Config::default();
    config.server.listen_addr = ListenAddr::free_port();
    config.registry.path = limits_path(folder);
    // A busy machine is slow, and few tests are about timeouts.
    config.server.request_timeout_ms = 60_000;
    config.server.header_read_timeout_ms = 60_000;
    config.server.write_timeout_ms = 60_000;
    config.server.shutdown_timeout_ms = 60_000;
    config
}

pub(crate) fn limits_path(folder: &TempDir) -> PathBuf {
    folder.path().join("data/limits.json")
}

pub(crate) fn memory_on(clock: &Arc<FakeClock>) -> MemoryLimiter {
    MemoryLimiter::with_options(MemoryOptions::for_tests(Arc::clone(clock)))
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_on(|memory| memory, change).await
    }

    /// Starts a server on a backend that may wrap the memory backend.
    pub(crate) async fn start_on<B: HostedBackend>(
        backend: impl FnOnce(MemoryLimiter) -> B,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(FakeClock::new());
        let memory = memory_on(&clock);
        let mut config = config_in(&folder);
        change(&mut config);
        let server = Server::bind(&config, backend(memory.clone())).await.unwrap();
        Self { server, clock, memory, folder }
    }

    /// Stops the server and starts another one on the same limits file.
    pub(crate) async fn restart(self) -> Self {
        let Self { server, clock, memory: _, folder } = self;
        server.stop().await;
        let memory = memory_on(&clock);
        let server = Server::bind(&config_in(&folder), memory.clone()).await.unwrap();
        Self { server, clock, memory, folder }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Answer {
        request(self.addr(), method, path, headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.request("POST", path, "", body).await
    }

    pub(crate) async fn put(&self, body: &str) -> Answer {
        self.request("PUT", "/v1/admin/limits", "", body).await
    }

    /// Defines a rolling limit of a minute.
    pub(crate) async fn define_rolling(&self, key: &str, capacity: u64) -> Answer {
        self.put(&format!(
            r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#
        ))
        .await
    }

    /// Defines a concurrency limit with a timeout of a minute.
    pub(crate) async fn define_concurrency(&self, key: &str, capacity: u64) -> Answer {
        self.put(&format!(
            r#"{{"key":"{key}","kind":"concurrency","capacity":{capacity},"timeout_seconds":60}}"#
        ))
        .await
    }

    pub(crate) async fn reserve(&self, lease: u128, needs: &[(&str, u64)]) -> Answer {
        self.post("/v1/reserve", &reserve_body(lease, needs)).await
    }

    pub(crate) async fn complete(&self, lease: u128, used: &[(&str, u64)]) -> Answer {
        self.post("/v1/complete", &complete_body(lease, used)).await
    }
}

pub(crate) fn lease(number: u128) -> String {
    ratelimiter::LeaseId::from_u128(number).to_string()
}

pub(crate) fn reserve_body(number: u128, needs: &[(&str, u64)]) -> String {
    let need = |(key, amount): &(&str, u64)| format!(r#"{{"key":"{key}","amount":{amount}}}"#);
    let needs: Vec<_> = needs.iter().map(need).collect();
    format!(r#"{{"lease_id":"{}","requirements":[{}]}}"#, lease(number), needs.join(","))
}

pub(crate) fn complete_body(number: u128, used: &[(&str, u64)]) -> String {
    let actual =
        |(key, amount): &(&str, u64)| format!(r#"{{"key":"{key}","actual_amount":{amount}}}"#);
    let actuals: Vec<_> = used.iter().map(actual).collect();
    format!(r#"{{"lease_id":"{}","actuals":[{}]}}"#, lease(number), actuals.join(","))
}

/// One request on a new connection.
pub(crate) async fn request(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Answer {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    // The server may answer and close before it has read everything; only its response matters.
    drop(stream.write_all(format!("{head}{body}").as_bytes()).await);
    read_answer(&mut stream).await
}

/// Reads until the server closes the connection.
pub(crate) async fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A reset after the response is as good as an end.
    drop(stream.read_to_end(&mut bytes).await);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (header, value) = line.split_once(':')?;
            header.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }

    /// The status and the body without `message`.
    pub(crate) fn line(&self) -> String {
        let mut json = self.json();
        if let Value::Object(fields) = &mut json {
            fields.remove("message");
        }
        format!("{} {json}", self.status)
    }
}
