//! A provider, and a client that calls it.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratelimiter_mock_provider::{CallEnd, Fault, MockOptions, MockProvider};
use serde_json::{Value, json};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const CHAT: &str = "/v1/chat/completions";
pub(super) const COMPLETIONS: &str = "/v1/completions";
pub(super) const RESPONSES: &str = "/v1/responses";
pub(super) const EMBEDDINGS: &str = "/v1/embeddings";
pub(super) const MESSAGES: &str = "/v1/messages";

pub(super) struct Context {
    pub(super) provider: MockProvider,
    pub(super) client: Client<HttpConnector, Full<Bytes>>,
}

pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// False if the connection broke before the end.
    pub(super) is_whole: bool,
}

impl Context {
    pub(super) async fn new(options: MockOptions) -> Self {
        Self::over(options, false).await
    }

    pub(super) async fn over(options: MockOptions, http2: bool) -> Self {
        let options = MockOptions { listen: ([127, 0, 0, 1], 0).into(), ..options };
        let provider = MockProvider::start(options).await.expect("a free port");
        let client = Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        Self { provider, client }
    }

    pub(super) fn request(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Request<Full<Bytes>> {
        let url = format!("{}{path}", self.provider.base_url_anthropic());
        let mut request = Request::post(url);
        if path.starts_with(MESSAGES) {
            request = request.header("anthropic-version", "2023-06-01");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::from(body.to_string())).expect("a request")
    }

    pub(super) async fn send(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let request = self.request(path, body, headers);
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request)).await;
        answer.expect("an answer in time")
    }

    pub(super) async fn call_with(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        read(self.send(path, body, headers).await.expect("an answer")).await
    }

    pub(super) async fn call(&self, path: &str, body: &Value) -> Answer {
        self.call_with(path, body, &[]).await
    }

    pub(super) async fn faulty(&self, fault: Fault, path: &str, body: &Value) -> Answer {
        self.call_with(path, body, &[("x-mock-fault", fault.name())]).await
    }

    /// How the calls have ended, when all have.
    pub(super) async fn ends(&self, count: u64) -> Vec<CallEnd> {
        let ended = self.provider.wait_for_ended(count);
        tokio::time::timeout(PATIENCE, ended).await.expect("the calls end in time");
        self.provider.calls().iter().map(|call| call.ended).collect()
    }
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    /// The data of a stream's events, without `[DONE]`. Each event that has a name has that of its data.
    pub(super) fn events(&self) -> Vec<Value> {
        let event = |event: &str| {
            let (name, data) = match event.split_once('\n') {
                Some((name, data)) => (name.strip_prefix("event: "), data),
                None => (None, event),
            };
            let data = data.strip_prefix("data: ").expect("data");
            let data: Value = serde_json::from_str(data).expect("JSON");
            if let Some(name) = name {
                assert_eq!(data["type"], name);
            }
            data
        };
        let text = self.text().strip_suffix("\n\n").expect("whole events");
        text.split("\n\n").filter(|event| *event != "data: [DONE]").map(event).collect()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }
}

pub(super) async fn read(response: Response<Incoming>) -> Answer {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    let mut is_whole = true;
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
        match frame.expect("the body ends in time") {
            Some(Ok(frame)) => bytes.extend(frame.into_data().expect("data")),
            Some(Err(_)) => {
                is_whole = false;
                break;
            }
            None => break,
        }
    }
    Answer { status: head.status, headers: head.headers, body: bytes.into(), is_whole }
}

pub(super) fn chat() -> Value {
    json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": "one two three" }] })
}

pub(super) fn prompt() -> Value {
    json!({ "model": "gpt-3.5-turbo-instruct", "prompt": "one two three" })
}

pub(super) fn response() -> Value {
    json!({ "model": "gpt-4o", "input": "one two three" })
}

pub(super) fn messages() -> Value {
    let messages = json!([{ "role": "user", "content": "one two three" }]);
    json!({ "model": "claude", "max_tokens": 100, "messages": messages })
}

pub(super) fn with(body: Value, name: &str, value: impl Into<Value>) -> Value {
    let mut body = body;
    body[name] = value.into();
    body
}

pub(super) fn streamed(body: Value) -> Value {
    with(body, "stream", true)
}

/// Every endpoint that streams.
pub(super) fn streams() -> [(&'static str, Value); 4] {
    [
        (CHAT, streamed(chat())),
        (COMPLETIONS, streamed(prompt())),
        (RESPONSES, streamed(response())),
        (MESSAGES, streamed(messages())),
    ]
}

/// Every call that is limited.
pub(super) fn every_call() -> Vec<(&'static str, Value)> {
    let embeddings = json!({ "model": "text-embedding-3-small", "input": "one two three" });
    let plain = [
        (CHAT, chat()),
        (COMPLETIONS, prompt()),
        (RESPONSES, response()),
        (MESSAGES, messages()),
        (EMBEDDINGS, embeddings),
    ];
    plain.into_iter().chain(streams()).collect()
}
