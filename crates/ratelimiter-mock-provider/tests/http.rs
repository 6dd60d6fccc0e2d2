//! The provider over real sockets.

#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratelimiter_mock_provider::{CallEnd, Fault, MockOptions, MockProvider, RateCounts};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const EMBEDDINGS: &str = "/v1/embeddings";
const MESSAGES: &str = "/v1/messages";

struct Context {
    provider: MockProvider,
    client: Client<HttpConnector, Full<Bytes>>,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// False if the connection broke before the end.
    is_whole: bool,
}

impl Context {
    async fn new(options: MockOptions) -> Self {
        Self::over(options, false).await
    }

    async fn over(options: MockOptions, http2: bool) -> Self {
        let options = MockOptions { listen: ([127, 0, 0, 1], 0).into(), ..options };
        let provider = MockProvider::start(options).await.expect("a free port");
        let client = Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        Self { provider, client }
    }

    fn request(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
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

    async fn send(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let request = self.request(path, body, headers);
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request)).await;
        answer.expect("an answer in time")
    }

    async fn call_with(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        read(self.send(path, body, headers).await.expect("an answer")).await
    }

    async fn call(&self, path: &str, body: &Value) -> Answer {
        self.call_with(path, body, &[]).await
    }

    async fn faulty(&self, fault: Fault, path: &str, body: &Value) -> Answer {
        self.call_with(path, body, &[("x-mock-fault", fault.name())]).await
    }

    /// How the calls have ended, when all have.
    async fn ends(&self, count: u64) -> Vec<CallEnd> {
        let ended = self.provider.wait_for_ended(count);
        tokio::time::timeout(PATIENCE, ended).await.expect("the calls end in time");
        self.provider.calls().iter().map(|call| call.ended).collect()
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    /// The data of a stream's events, without `[DONE]`. Each event that has a name has that of its data.
    fn events(&self) -> Vec<Value> {
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

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }
}

async fn read(response: Response<Incoming>) -> Answer {
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

fn chat() -> Value {
    json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": "one two three" }] })
}

fn prompt() -> Value {
    json!({ "model": "gpt-3.5-turbo-instruct", "prompt": "one two three" })
}

fn response() -> Value {
    json!({ "model": "gpt-4o", "input": "one two three" })
}

fn messages() -> Value {
    let messages = json!([{ "role": "user", "content": "one two three" }]);
    json!({ "model": "claude", "max_tokens": 100, "messages": messages })
}

fn with(body: Value, name: &str, value: impl Into<Value>) -> Value {
    let mut body = body;
    body[name] = value.into();
    body
}

fn streamed(body: Value) -> Value {
    with(body, "stream", true)
}

/// Every endpoint that streams.
fn streams() -> [(&'static str, Value); 4] {
    [
        (CHAT, streamed(chat())),
        (COMPLETIONS, streamed(prompt())),
        (RESPONSES, streamed(response())),
        (MESSAGES, streamed(messages())),
    ]
}

/// Every call that is limited.
fn every_call() -> Vec<(&'static str, Value)> {
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

/// GW-14
#[tokio::test]
async fn a_chat_answer_has_its_words_and_usage() {
    let context = Context::new(MockOptions { output_tokens: 3, ..MockOptions::default() }).await;
    let answer = context.call(CHAT, &with(chat(), "n", 2)).await;
    let body = answer.json();
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(answer.header("x-request-id").starts_with("req_"));
    assert_eq!(body["created"], 1_700_000_001);
    assert_eq!(body["choices"][1]["message"]["content"], "word word word ");
    assert_eq!(body["choices"][1]["finish_reason"], "stop");
    let usage = &body["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(7), &json!(6)));
}

/// GW-14
#[tokio::test]
async fn the_callers_maximum_cuts_an_answer() {
    let context = Context::new(MockOptions::default()).await;
    for name in ["max_tokens", "max_completion_tokens"] {
        let body = context.call(CHAT, &with(chat(), name, 2)).await.json();
        assert_eq!(body["choices"][0]["message"]["content"], "word word ");
        assert_eq!(body["choices"][0]["finish_reason"], "length");
    }
    let body = context.call(COMPLETIONS, &with(prompt(), "max_tokens", 2)).await.json();
    assert_eq!(body["choices"][0]["text"], "word word ");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    let body = context.call(RESPONSES, &with(response(), "max_output_tokens", 2)).await.json();
    assert_eq!(body["status"], "incomplete");
    assert_eq!(body["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(body["usage"]["output_tokens"], 2);
    let body = context.call(MESSAGES, &with(messages(), "max_tokens", 2)).await.json();
    assert_eq!(body["stop_reason"], "max_tokens");
    assert_eq!(body["content"][0]["text"], "word word ");
    let cut = streamed(with(response(), "max_output_tokens", 2));
    let events = context.call(RESPONSES, &cut).await.events();
    assert_eq!(events.last().expect("events")["type"], "response.incomplete");
}

/// GW-14
#[tokio::test]
async fn a_stream_without_include_usage_has_no_usage() {
    let context = Context::new(MockOptions { output_tokens: 2, ..MockOptions::default() }).await;
    for (path, body) in [(CHAT, streamed(chat())), (COMPLETIONS, streamed(prompt()))] {
        let answer = context.call(path, &body).await;
        assert_eq!(answer.header("content-type"), "text/event-stream; charset=utf-8");
        assert!(answer.text().ends_with("}\n\ndata: [DONE]\n\n"));
        for event in answer.events() {
            assert!(event.get("usage").is_none(), "{event}");
            assert_eq!(event["choices"].as_array().map(Vec::len), Some(1));
        }
    }
}

/// GW-14
#[tokio::test]
async fn a_stream_with_include_usage_has_it_in_its_last_chunk() {
    let context = Context::new(MockOptions { output_tokens: 2, ..MockOptions::default() }).await;
    for body in [chat(), with(chat(), "n", 2)] {
        let choices = body["n"].as_u64().unwrap_or(1);
        let body = with(streamed(body), "stream_options", json!({ "include_usage": true }));
        let events = context.call(CHAT, &body).await.events();
        let (last, others) = events.split_last().expect("events");
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], 2 * choices);
        assert!(others.iter().all(|event| event.get("usage") == Some(&Value::Null)));
        let content =
            |event: &Value| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
        let words = others.iter().filter_map(content).collect::<String>();
        assert_eq!(words, "word word ".repeat(usize::try_from(choices).expect("few")));
        assert_eq!(others[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(others.last().expect("chunks")["choices"][0]["finish_reason"], "stop");
    }
}

/// GW-14
#[tokio::test]
async fn a_stream_of_responses_has_named_and_numbered_events() {
    let context = Context::new(MockOptions { output_tokens: 2, ..MockOptions::default() }).await;
    let answer = context.call(RESPONSES, &streamed(response())).await;
    let events = answer.events();
    let names = events.iter().map(|event| event["type"].as_str().expect("a type"));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers = events.iter().map(|event| event["sequence_number"].as_u64().expect("a number"));
    assert!(numbers.eq(0..10));
    assert!(!answer.text().contains("[DONE]"));
    let usage = &events[9]["response"]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(7), &json!(2)));
}

/// GW-14
#[tokio::test]
async fn a_stream_of_messages_has_its_usage_in_the_first_and_last_event() {
    let context = Context::new(MockOptions { output_tokens: 2, ..MockOptions::default() }).await;
    let events = context.call(MESSAGES, &streamed(messages())).await.events();
    let names = events.iter().map(|event| event["type"].as_str().expect("a type"));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 7);
    assert_eq!(events[0]["message"]["usage"]["output_tokens"], 1);
    assert_eq!(events[6]["usage"]["output_tokens"], 2);
    assert_eq!(events[6]["delta"]["stop_reason"], "end_turn");
}

#[tokio::test]
async fn embeddings_are_numbers_or_base64() {
    let context = Context::new(MockOptions::default()).await;
    let body = json!({ "model": "m", "input": ["one two", "three"], "dimensions": 4 });
    let answer = context.call(EMBEDDINGS, &body).await.json();
    assert_eq!(answer["data"][1]["embedding"].as_array().map(Vec::len), Some(4));
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 3, "total_tokens": 3 }));
    let answer = context.call(EMBEDDINGS, &with(body, "encoding_format", "base64")).await.json();
    // 16 bytes.
    assert_eq!(answer["data"][0]["embedding"].as_str().map(str::len), Some(24));
}

#[tokio::test]
async fn tokens_are_counted_and_models_listed() {
    let context = Context::new(MockOptions::default()).await;
    let answer = context.call("/v1/messages/count_tokens", &messages()).await;
    assert_eq!(answer.json(), json!({ "input_tokens": 7 }));
    for (name, kind) in [("x-none", "object"), ("anthropic-version", "type")] {
        let url = format!("{}/models", context.provider.base_url_openai());
        let request = Request::get(url).header(name, "1").body(Full::default()).expect("valid");
        let answer = read(context.client.request(request).await.expect("an answer")).await;
        assert_eq!(answer.json()["data"][0][kind], "model");
    }
}

#[tokio::test]
async fn http_2_is_spoken_in_cleartext() {
    let context = Context::over(MockOptions::default(), true).await;
    for (path, body) in every_call() {
        let response = context.send(path, &body, &[]).await.expect("an answer");
        assert_eq!(response.version(), Version::HTTP_2);
        let answer = read(response).await;
        assert!(answer.is_whole && answer.status == StatusCode::OK, "{path}");
    }
    assert!(context.ends(9).await.iter().all(|end| *end == CallEnd::Answered));
}

/// GW-14
#[tokio::test]
async fn the_answers_follow_from_the_seed() {
    let mut answers = Vec::new();
    for seed in [5, 5, 6] {
        let context = Context::new(MockOptions { seed, ..MockOptions::default() }).await;
        let mut bodies = Vec::new();
        for (path, body) in every_call() {
            bodies.push(context.call(path, &body).await.body);
        }
        answers.push(bodies);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[1].iter().zip(&answers[2]).all(|(one, other)| one != other));
}

#[tokio::test]
async fn a_caller_can_say_how_many_tokens_there_are() {
    let context = Context::new(MockOptions::default()).await;
    let headers = [("x-mock-output-tokens", "100"), ("x-mock-prompt-tokens", "5000")];
    let usage = &context.call_with(CHAT, &chat(), &headers).await.json()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(5000), &json!(100)));
    context.provider.set_output_tokens(5);
    let usage = &context.call(CHAT, &chat()).await.json()["usage"];
    assert_eq!(usage["completion_tokens"], 5);
    for headers in [("x-mock-output-tokens", "200001"), ("x-mock-fault", "earthquake")] {
        let answer = context.call_with(CHAT, &chat(), &[headers]).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn another_key_is_refused() {
    let api_key = Some("secret".to_owned());
    let context = Context::new(MockOptions { api_key, ..MockOptions::default() }).await;
    let answer = context.call_with(CHAT, &chat(), &[("authorization", "Bearer other")]).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
    let answer = context.call(MESSAGES, &messages()).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.json()["error"]["type"], "authentication_error");
    for header in [("authorization", "Bearer secret"), ("x-api-key", "secret")] {
        let answer = context.call_with(MESSAGES, &messages(), &[header]).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_shape_of_the_api() {
    let context = Context::new(MockOptions { body_bytes_max: 200, ..MockOptions::default() }).await;
    for (path, body, status) in [
        (CHAT, json!([]), 400),
        (CHAT, json!({ "model": "gpt-4o" }), 400),
        (CHAT, json!({ "messages": [{}] }), 400),
        (COMPLETIONS, json!({ "model": "m" }), 400),
        (RESPONSES, json!({ "model": "m" }), 400),
        (EMBEDDINGS, json!({ "model": "m" }), 400),
        (MESSAGES, json!({ "model": "m", "messages": [{}] }), 400),
        (MESSAGES, json!("x".repeat(199)), 413),
        (CHAT, json!("x".repeat(199)), 413),
        (CHAT, json!("x".repeat(198)), 400),
        ("/v1/audio/speech", json!({}), 404),
        ("/v1/messages/batches", json!({}), 404),
        ("/v1/models", json!({}), 405),
    ] {
        let answer = context.call(path, &body).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {body}");
        let is_anthropic = path.starts_with(MESSAGES);
        assert_eq!(answer.json()["type"] == "error", is_anthropic, "{path}");
        assert!(answer.json()["error"]["message"].is_string());
    }
    let url = format!("{}{MESSAGES}", context.provider.base_url_anthropic());
    let request = Request::post(url).body(Full::from(messages().to_string())).expect("valid");
    let answer = read(context.client.request(request).await.expect("an answer")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json()["error"]["message"], "anthropic-version: header is required");
}

/// GW-14
#[tokio::test]
async fn answers_without_limits_have_no_headers_about_them() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let answer = context.call(path, &body).await;
        assert!(!answer.headers.keys().any(|name| name.as_str().contains("ratelimit")), "{path}");
    }
}

/// GW-14
#[tokio::test]
async fn a_used_up_limit_of_requests_is_a_429() {
    let options = MockOptions { requests_per_minute: Some(2), ..MockOptions::default() };
    let context = Context::new(options).await;
    for (path, body) in every_call() {
        context.provider.set_limits(Some(2), None);
        for remaining in ["1", "0"] {
            let answer = context.call(path, &body).await;
            assert_eq!(answer.status, StatusCode::OK);
            if path == MESSAGES {
                assert_eq!(answer.header("anthropic-ratelimit-requests-limit"), "2");
                assert_eq!(answer.header("anthropic-ratelimit-requests-remaining"), remaining);
                assert!(answer.header("anthropic-ratelimit-requests-reset").ends_with('Z'));
            } else {
                assert_eq!(answer.header("x-ratelimit-limit-requests"), "2");
                assert_eq!(answer.header("x-ratelimit-remaining-requests"), remaining);
                assert!(answer.header("x-ratelimit-reset-requests").ends_with('s'));
            }
        }
        let answer = context.call(path, &body).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        let wait = answer.header("retry-after").parse::<u64>().expect("seconds");
        assert!((1..=30).contains(&wait), "{wait}");
    }
}

/// GW-14
#[tokio::test]
async fn actual_tokens_are_counted_when_a_call_ends() {
    let options = MockOptions { tokens_per_minute: Some(60), ..MockOptions::default() };
    let context = Context::new(options).await;
    let answer = context.call(CHAT, &with(chat(), "max_tokens", 50)).await;
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), "37");
    let answer = context.call(MESSAGES, &streamed(messages())).await;
    assert_eq!(answer.status, StatusCode::OK);
    context.ends(2).await;
    let answer = context.call("/v1/messages/count_tokens", &messages()).await;
    let left = answer.header("anthropic-ratelimit-output-tokens-remaining").parse::<u64>();
    // One comes back each second.
    assert!((14..30).contains(&left.expect("a number")));
}

/// GW-14
#[tokio::test]
async fn reserved_tokens_are_counted_when_a_call_starts() {
    let options = MockOptions {
        tokens_per_minute: Some(120),
        rate_counts: RateCounts::Reserved,
        ..MockOptions::default()
    };
    let context = Context::new(options).await;
    let body = with(chat(), "max_tokens", 100);
    let answer = context.call(CHAT, &body).await;
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), "13");
    let answer = context.call(CHAT, &body).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
    assert!(!answer.header("retry-after-ms").is_empty());
    let answer = context.call(CHAT, &with(chat(), "max_tokens", 120)).await;
    assert_eq!(answer.header("retry-after"), "", "it never fits");
}

/// GW-14
#[tokio::test]
async fn refusing_faults_have_their_status() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let answer = context.faulty(Fault::TooManyRequests, path, &body).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!((answer.header("retry-after"), answer.header("retry-after-ms")), ("1", "1000"));
        let answer = context.faulty(Fault::Unavailable, path, &body).await;
        let status = if path == MESSAGES { 529 } else { 503 };
        assert_eq!(answer.status.as_u16(), status);
        let answer = context.faulty(Fault::Quota, path, &body).await;
        if path == MESSAGES {
            assert_eq!(answer.status, StatusCode::PAYMENT_REQUIRED);
            assert_eq!(answer.json()["error"]["type"], "billing_error");
        } else {
            assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(answer.json()["error"]["code"], "insufficient_quota");
        }
        assert_eq!(answer.header("retry-after"), "");
        let asked = with(body.clone(), "stream_options", json!({ "include_usage": true }));
        let answer = context.faulty(Fault::RejectStreamOptions, path, &asked).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let answer = context.faulty(Fault::RejectStreamOptions, path, &body).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
}

/// GW-14
#[tokio::test]
async fn a_cut_answer_breaks_off_after_half_of_its_tokens() {
    for http2 in [false, true] {
        let context = Context::over(MockOptions::default(), http2).await;
        for (path, body) in every_call() {
            let answer = context.faulty(Fault::Cut, path, &body).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert!(!answer.is_whole, "{path}");
            assert!(!answer.body.is_empty(), "{path}");
            if body["stream"] == true {
                let (whole_events, half_event) = answer.text().rsplit_once("\n\n").expect("events");
                assert_eq!(whole_events.matches("\"word \"").count(), 8, "{path}");
                assert!(!half_event.is_empty(), "{path}");
            }
            let answer = context.faulty(Fault::CutUtf8, path, &body).await;
            assert!(!answer.is_whole, "{path}");
            assert!(std::str::from_utf8(&answer.body).is_err(), "{path}");
        }
        assert!(context.ends(18).await.iter().all(|end| *end == CallEnd::Answered));
    }
}

/// GW-14
#[tokio::test]
async fn a_wrong_length_is_never_reached() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let answer = context.faulty(Fault::WrongLength, path, &body).await;
        assert!(!answer.is_whole, "{path}");
        let length = answer.header("content-length").parse::<usize>().expect("a length");
        assert!(answer.body.len() < length, "{path}");
        let is_sent = answer.text().ends_with('}') || answer.text().ends_with("\n\n");
        assert!(is_sent, "{path}: {}", answer.text());
    }
}

/// GW-14
#[tokio::test]
async fn a_reset_call_has_no_answer() {
    for http2 in [false, true] {
        let context = Context::over(MockOptions::default(), http2).await;
        for (path, body) in every_call() {
            let answer = context.send(path, &body, &[("x-mock-fault", "reset")]).await;
            assert!(answer.is_err(), "{path}");
        }
        assert!(context.ends(9).await.iter().all(|end| *end == CallEnd::Answered));
    }
}

/// GW-14
#[tokio::test]
async fn strange_answers_are_whole() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let answer = context.faulty(Fault::Garbage, path, &body).await;
        assert!(answer.is_whole && answer.status == StatusCode::OK);
        assert!(std::str::from_utf8(&answer.body).is_err());
        let answer = context.faulty(Fault::ContentType, path, &body).await;
        assert!(answer.is_whole && answer.status == StatusCode::OK);
        assert_eq!(answer.header("content-type"), "text/html");
        let answer = context.faulty(Fault::Gzip, path, &body).await;
        assert!(answer.is_whole && answer.status == StatusCode::OK);
        assert_eq!(answer.header("content-encoding"), "gzip");
        assert!(answer.body.starts_with(&[0x1f, 0x8b]));
    }
    let answer = context.faulty(Fault::LongLine, CHAT, &streamed(chat())).await;
    assert!(answer.is_whole && answer.body.len() > 100_000_000);
    assert_eq!(answer.body.iter().filter(|byte| **byte == b'\n').count(), 2);
}

/// GW-14
#[tokio::test]
async fn a_provider_can_keep_the_usage_to_itself() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let is_stream = body["stream"] == true;
        let body = if is_stream && path != RESPONSES && path != MESSAGES {
            with(body, "stream_options", json!({ "include_usage": true }))
        } else {
            body
        };
        let answer = context.faulty(Fault::NoUsage, path, &body).await;
        assert_eq!(answer.status, StatusCode::OK);
        let text = answer.text().replace("\"usage\":null", "");
        assert!(!text.contains("usage"), "{path}: {text}");
    }
}

/// GW-14
#[tokio::test]
async fn a_stream_can_end_with_an_error_event() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in streams() {
        let answer = context.faulty(Fault::ErrorEvent, path, &body).await;
        assert!(answer.is_whole);
        let events = answer.events();
        let last = events.last().expect("events");
        match path {
            RESPONSES => {
                assert_eq!(events[events.len() - 2]["type"], "error");
                assert_eq!(last["type"], "response.failed");
                assert_eq!(last["response"]["error"]["code"], "server_error");
            }
            MESSAGES => assert_eq!(last["error"]["type"], "overloaded_error"),
            _ => assert_eq!(last["error"]["type"], "server_error"),
        }
        assert!(!answer.text().contains("[DONE]"));
    }
}

/// GW-14
#[tokio::test]
async fn a_client_that_leaves_is_seen() {
    for http2 in [false, true] {
        let context = Context::over(MockOptions::default(), http2).await;
        let mut left = 0;
        for (path, body) in every_call() {
            for fault in [Fault::Stall, Fault::Endless] {
                let response = context.send(path, &body, &[("x-mock-fault", fault.name())]).await;
                let mut body = response.expect("an answer").into_body();
                let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
                assert!(frame.expect("in time").expect("a frame").is_ok(), "{path} {fault}");
                drop(body);
                left += 1;
                let ends = context.ends(left).await;
                assert_eq!(ends.last(), Some(&CallEnd::ClientGone), "{path} {fault}");
            }
        }
    }
}

/// GW-14
#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_seen() {
    for http2 in [false, true] {
        let options = MockOptions {
            latency: Duration::from_secs(600),
            requests_per_minute: Some(100),
            tokens_per_minute: Some(100),
            ..MockOptions::default()
        };
        let context = Context::over(options, http2).await;
        let call = context.client.request(context.request(CHAT, &chat(), &[]));
        let call = tokio::spawn(call);
        context.provider.wait_for_calls(1).await;
        assert_eq!(context.provider.calls()[0].ended, CallEnd::Open);
        call.abort();
        assert_eq!(context.ends(1).await, [CallEnd::ClientGone]);
    }
}

/// GW-14
#[tokio::test]
async fn answers_are_as_slow_as_they_are_told() {
    let options = MockOptions {
        latency: Duration::from_millis(20),
        chunk_interval: Duration::from_millis(5),
        slow_for: Duration::from_millis(60),
        output_tokens: 4,
        ..MockOptions::default()
    };
    let context = Context::new(options).await;
    let started = tokio::time::Instant::now();
    context.call(CHAT, &chat()).await;
    assert!(started.elapsed() >= Duration::from_millis(20));
    let started = tokio::time::Instant::now();
    context.call(CHAT, &streamed(chat())).await;
    // Seven chunks have six intervals.
    assert!(started.elapsed() >= Duration::from_millis(50));
    let started = tokio::time::Instant::now();
    context.faulty(Fault::Slow, CHAT, &chat()).await;
    assert!(started.elapsed() >= Duration::from_millis(80));
}

/// GW-14
#[tokio::test]
async fn faults_hit_their_share_of_calls() {
    let options =
        MockOptions { faults: vec![Fault::Unavailable], fault_rate: 0.5, ..MockOptions::default() };
    let context = Context::new(options).await;
    let mut statuses = Vec::new();
    for _ in 0..64 {
        statuses.push(context.call(CHAT, &chat()).await.status);
    }
    let hit = statuses.iter().filter(|status| **status != StatusCode::OK).count();
    assert!((16..48).contains(&hit), "{hit}");
    context.provider.set_faults(Vec::new());
    assert_eq!(context.call(CHAT, &chat()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_call_is_seen_as_it_was_sent() {
    let context = Context::new(MockOptions::default()).await;
    let path = format!("{CHAT}?trace=1");
    context.call_with(&path, &chat(), &[("x-trace", "7")]).await;
    let calls = context.provider.calls();
    let [call] = calls.as_slice() else { panic!("one call") };
    assert_eq!((call.number, &call.method, &call.path), (1, &Method::POST, &path));
    assert_eq!(call.headers["x-trace"], "7");
    assert_eq!(call.body, chat().to_string());
}

#[tokio::test]
async fn a_stopped_provider_closes_its_connections() {
    let context = Context::new(MockOptions::default()).await;
    let mut body = {
        let response = context.send(CHAT, &streamed(chat()), &[("x-mock-fault", "stall")]).await;
        response.expect("an answer").into_body()
    };
    context.provider.stop().await;
    let ends = async { while let Some(Ok(_)) = body.frame().await {} };
    tokio::time::timeout(PATIENCE, ends).await.expect("the connection is closed");
}

#[tokio::test]
async fn options_out_of_bounds_are_refused() {
    let options = MockOptions { fault_rate: 2.0, ..MockOptions::default() };
    let error = MockProvider::start(options).await.expect_err("a share above 1");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
