//! The gateway over real sockets: a client, the server, and a provider.

mod access;
mod admission;
mod bad_input;
mod deployments;
mod provider_word;
mod retries;
mod seen;
mod settling;
mod shutdown;
mod streams;
mod transports;

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratelimiter::LimitKey;
use ratelimiter_mock_provider::{MockOptions, MockProvider};
use ratelimiterd::config::Config;
use serde_json::{Value, json};
use testkit::eventually;

use crate::harness::TestServer;

/// A server with a gateway, and the provider behind it.
pub(super) struct GatewayTest {
    pub(super) server: TestServer,
    pub(super) mock: MockProvider,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An operation with its path at the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Chat,
    Responses,
    Embeddings,
    Messages,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct WholeAnswer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

pub(super) const MODEL: &str = "gpt-4o";
/// The most output of every call of these tests.
pub(super) const MAX_TOKENS: u64 = 50;

impl Operation {
    pub(super) const ALL: [Self; 4] =
        [Self::Chat, Self::Responses, Self::Embeddings, Self::Messages];

    pub(super) const fn can_stream(self) -> bool {
        !matches!(self, Self::Embeddings)
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/openai/v1/chat/completions",
            Self::Responses => "/openai/v1/responses",
            Self::Embeddings => "/openai/v1/embeddings",
            Self::Messages => "/anthropic/v1/messages",
        }
    }

    pub(super) const fn provider(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses | Self::Embeddings => "openai",
            Self::Messages => "anthropic",
        }
    }

    pub(super) fn body(self, is_stream: bool) -> Value {
        let messages = json!([{"role": "user", "content": "how are you"}]);
        match self {
            Self::Chat => json!({
                "model": MODEL, "max_tokens": MAX_TOKENS, "messages": messages, "stream": is_stream
            }),
            Self::Responses => json!({
                "model": MODEL, "max_output_tokens": MAX_TOKENS, "input": "how are you", "stream": is_stream
            }),
            Self::Embeddings => json!({"model": MODEL, "input": "how are you"}),
            Self::Messages => json!({
                "model": MODEL, "max_tokens": MAX_TOKENS, "messages": messages, "stream": is_stream
            }),
        }
    }

    /// The key of one of the model's limits.
    pub(super) fn key(self, dimension: &str) -> String {
        format!("global:llm:{}:{MODEL}:{dimension}", self.provider())
    }
}

impl GatewayTest {
    pub(super) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// Starts with a change of the section `gateway`.
    pub(super) async fn start_with(change: impl FnOnce(&mut Value)) -> Self {
        Self::start_at(mock().await, change).await
    }

    /// Starts with a provider that takes so long to answer.
    pub(super) async fn start_slow(latency: Duration) -> Self {
        Self::start_at(mock_with(latency).await, |_| ()).await
    }

    async fn start_at(mock: MockProvider, change: impl FnOnce(&mut Value)) -> Self {
        let mut section = section(&mock);
        change(&mut section);
        let server = TestServer::start_with(|config| set_gateway(config, section)).await;
        Self { server, mock, client: client() }
    }

    /// Starts a server that cuts what is open when it stops.
    pub(super) async fn start_stopping_at_once() -> Self {
        let mock = mock().await;
        let change = |config: &mut Config| {
            set_gateway(config, section(&mock));
            config.server.shutdown_timeout_ms = 1;
        };
        let server = TestServer::start_with(change).await;
        Self { server, mock, client: client() }
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let uri = format!("http://{}{path}", self.server.addr());
        send(&self.client, method, &uri, headers, body.into()).await
    }

    /// A request and its whole answer.
    pub(super) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> WholeAnswer {
        whole(self.send(method, path, headers, body).await).await
    }

    /// A call of an operation and its whole answer.
    pub(super) async fn call(
        &self,
        operation: Operation,
        is_stream: bool,
        headers: &[(&str, &str)],
    ) -> WholeAnswer {
        whole(self.begin(operation, is_stream, headers).await).await
    }

    /// A call of an operation, up to the head of its answer.
    pub(super) async fn begin(
        &self,
        operation: Operation,
        is_stream: bool,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        self.begin_with(operation, operation.body(is_stream), headers).await
    }

    /// A call of an operation with a body of its own, up to the head of its answer.
    pub(super) async fn begin_with(
        &self,
        operation: Operation,
        body: Value,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        let version = ("anthropic-version", "2023-06-01");
        let version = (operation == Operation::Messages).then_some(version);
        let headers: Vec<_> = headers.iter().copied().chain(version).collect();
        self.send(Method::POST, operation.path(), &headers, body.to_string()).await
    }

    /// Defines limits of requests, tokens, cost and concurrency of the model at both providers.
    pub(super) async fn define_limits(&self) {
        for operation in [Operation::Chat, Operation::Messages] {
            for dimension in ["rpm", "tpm", "otpm", "daily_cost"] {
                let answer = self.server.define_rolling(&operation.key(dimension), 1_000_000).await;
                assert_eq!(answer.status, 200, "{answer:?}");
            }
            self.server.define_concurrency(&operation.key("concurrency"), 100).await;
        }
    }

    pub(super) fn used(&self, key: &str) -> u64 {
        let state = self.server.memory.state_now(&LimitKey::new(key).unwrap());
        state.unwrap_or_else(|| panic!("{key} is not defined")).usage.used
    }

    /// Waits until no call holds anything, and returns the requests, tokens and micro-dollars that are counted.
    pub(super) async fn settled(&self, operation: Operation) -> (u64, u64, u64) {
        eventually("the calls are settled", async || self.server.memory.open_leases() == 0).await;
        assert_eq!(self.used(&operation.key("concurrency")), 0);
        let used = |dimension| self.used(&operation.key(dimension));
        (used("rpm"), used("tpm"), used("daily_cost"))
    }
}

/// A provider on a free port.
pub(super) async fn mock() -> MockProvider {
    mock_with(Duration::ZERO).await
}

async fn mock_with(latency: Duration) -> MockProvider {
    let options = MockOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        latency,
        output_tokens: 7,
        retry_after: Duration::from_millis(20),
        ..MockOptions::default()
    };
    MockProvider::start(options).await.unwrap()
}

/// The section `gateway` for both APIs of a provider.
pub(super) fn section(mock: &MockProvider) -> Value {
    let models = json!({MODEL: {"price": {"input": 1.0, "output": 2.0}}});
    json!({"providers": [
        {"name": "openai", "api": "openai", "base_url": mock.base_url_openai(), "models": models},
        {"name": "anthropic", "api": "anthropic", "base_url": mock.base_url_anthropic(), "models": models},
    ]})
}

pub(super) fn set_gateway(config: &mut Config, section: Value) {
    config.gateway = serde_json::from_value(section).unwrap();
}

pub(super) fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(super) async fn send(
    client: &Client<HttpConnector, Full<Bytes>>,
    method: Method,
    uri: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Response<Incoming> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.request(request.body(Full::new(body)).unwrap()).await.unwrap()
}

/// Reads an answer as far as it comes.
pub(super) async fn whole(response: Response<Incoming>) -> WholeAnswer {
    let (parts, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    let body = String::from_utf8_lossy(&bytes).into_owned();
    WholeAnswer { status: parts.status.as_u16(), headers: parts.headers, body }
}

impl WholeAnswer {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The `type` of an error in either shape, and its message.
    pub(super) fn error(&self) -> (String, String) {
        let error = self.json()["error"].clone();
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        (text("type"), text("message"))
    }
}
