//! Streams pass chunk by chunk (`GW-04`), whatever the provider does to them (`GW-10`).

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use testkit::eventually;

use super::{GatewayTest, Operation, client, send, whole};

const PROMPT_HEADER: (&str, &str) = ("x-mock-prompt-tokens", "11");

fn chat(fields: &Value) -> String {
    let mut body = Operation::Chat.body(true);
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

/// The bytes of an answer without what differs from call to call.
fn without_ids(body: &str) -> String {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let words = body.split_inclusive(|c: char| !c.is_alphanumeric());
    let kept = words.filter(|word| {
        !(word.len() > 8 && word.trim_end_matches(|c| !is_hex(c)).chars().all(is_hex))
    });
    kept.collect()
}

/// GW-04
#[tokio::test]
async fn gw_04_usage_is_read_and_withheld_from_callers_that_did_not_ask() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let body = chat(&json!({}));
    let answer = test.request(Method::POST, Operation::Chat.path(), &[PROMPT_HEADER], body).await;
    assert_eq!(answer.header("content-type").split(';').next(), Some("text/event-stream"));
    assert!(!answer.body.contains(r#""choices":[]"#), "{}", answer.body);
    assert!(answer.body.contains(r#""usage":null"#), "all other bytes pass as sent");
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    assert_eq!(test.settled(Operation::Chat).await.1, 11 + 7);
    let sent: Value = serde_json::from_slice(&test.mock.calls()[0].body).unwrap();
    assert_eq!(sent["stream_options"], json!({"include_usage": true}));
    assert_eq!(test.mock.calls()[0].headers["accept-encoding"], "identity");
}

/// GW-04
#[tokio::test]
async fn gw_04_whoever_asks_for_usage_gets_every_byte() {
    let test = GatewayTest::start().await;
    let asks = chat(&json!({"stream_options": {"include_usage": true}}));
    let responses = Operation::Responses.body(true).to_string();
    let messages = Operation::Messages.body(true).to_string();
    for (operation, body) in [
        (Operation::Chat, asks),
        (Operation::Responses, responses),
        (Operation::Messages, messages),
    ] {
        let headers = [PROMPT_HEADER, ("anthropic-version", "2023-06-01")];
        let passed = test.request(Method::POST, operation.path(), &headers, body.clone()).await;
        let path = operation.path().trim_start_matches("/openai").trim_start_matches("/anthropic");
        let uri = format!("{}{path}", test.mock.base_url_anthropic());
        let direct = whole(send(&client(), Method::POST, &uri, &headers, body.into()).await).await;
        assert!(!direct.body.is_empty());
        assert_eq!(without_ids(&passed.body), without_ids(&direct.body), "{operation:?}");
    }
}

/// GW-04
#[tokio::test]
async fn gw_04_a_provider_that_rejects_stream_options_is_asked_once_without() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let headers = [("x-mock-fault", "reject-stream-options")];
    for _ in 0..2 {
        let answer = test.call(Operation::Chat, true, &headers).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.ends_with("data: [DONE]\n\n"));
    }
    assert_eq!(test.mock.calls().len(), 3, "that is remembered");
    assert_eq!(test.settled(Operation::Chat).await.0, 3, "each attempt is a request");
    let asks = chat(&json!({"stream_options": {"include_usage": true}}));
    let refused = test.request(Method::POST, Operation::Chat.path(), &headers, asks).await;
    assert_eq!(refused.status, 400, "whoever asks for it gets the provider's answer");
}

/// GW-04
#[tokio::test]
async fn gw_04_chunks_pass_before_the_stream_ends() {
    let test = GatewayTest::start().await;
    for operation in [Operation::Chat, Operation::Responses, Operation::Messages] {
        let mut answer = test.begin(operation, true, &[("x-mock-fault", "stall")]).await;
        let first = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first.windows(4).any(|bytes| bytes == b"data"), "{operation:?}");
    }
}

/// GW-10
#[tokio::test]
async fn gw_10_whatever_a_provider_sends_harms_its_own_call_only() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let other = test.begin(Operation::Messages, true, &[("x-mock-fault", "stall")]).await;
    for operation in [Operation::Chat, Operation::Responses, Operation::Messages] {
        for is_stream in [false, true] {
            for fault in
                ["garbage", "wrong-length", "gzip", "content-type", "cut-utf8", "long-line"]
            {
                let answer = test.call(operation, is_stream, &[("x-mock-fault", fault)]).await;
                assert_eq!(answer.status, 200, "{operation:?} {fault}: {answer:?}");
                eventually("the call is settled", async || test.server.memory.open_leases() == 1)
                    .await;
            }
        }
    }
    assert_eq!(test.call(Operation::Chat, true, &[]).await.status, 200);
    assert_eq!(test.used(&Operation::Messages.key("concurrency")), 1, "the other call goes on");
    drop(other);
    test.settled(Operation::Messages).await;
}

/// GW-10: it costs no memory, and ends with its caller.
#[tokio::test]
async fn gw_10_an_endless_stream_passes_until_its_caller_goes() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let mut answer = test.begin(Operation::Chat, true, &[("x-mock-fault", "endless")]).await;
    let mut bytes = 0;
    while bytes < 20_000_000 {
        bytes += answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
    drop(answer);
    let (requests, tokens, _) = test.settled(Operation::Chat).await;
    assert_eq!(requests, 1);
    assert!(tokens < 1_000, "what is not known is bounded by what was reserved: {tokens}");
}

/// GW-10: the provider is read only as fast as its caller reads.
#[tokio::test]
async fn gw_10_a_slow_reader_holds_up_nobody_else() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let slow = test.begin(Operation::Chat, true, &[("x-mock-fault", "endless")]).await;
    let mut last = None;
    let unchanged = async |last: &mut Option<u64>| {
        let sent = test.call(Operation::Chat, true, &[]).await;
        assert_eq!(sent.status, 200, "others are served");
        let now = Some(test.used(&Operation::Chat.key("concurrency")));
        std::mem::replace(last, now) == now
    };
    eventually("others come and go", async || unchanged(&mut last).await).await;
    assert!(test.used(&Operation::Chat.key("concurrency")) >= 1);
    drop(slow);
    test.settled(Operation::Chat).await;
}

/// GW-16: its holds have a timeout of a second, and it lasts longer.
#[tokio::test]
async fn gw_16_an_open_call_keeps_its_holds() {
    let test = GatewayTest::start().await;
    let key = Operation::Chat.key("concurrency");
    let limit =
        format!(r#"{{"key":"{key}","kind":"concurrency","capacity":1,"timeout_seconds":1}}"#);
    assert_eq!(test.server.put(&limit).await.status, 200);
    let answer = test.begin(Operation::Chat, true, &[("x-mock-fault", "stall")]).await;
    for _ in 0..4 {
        // The clock of the limits moves on by less than the timeout, after a renew each time.
        let before = test.server.memory.leases_now(&ratelimiter::LeasePage::default()).unwrap();
        let lapses_at = before[0].amounts[0].lapses_at;
        test.server.clock.advance(Duration::from_millis(700));
        eventually("the lease is renewed", async || {
            let now = test.server.memory.leases_now(&ratelimiter::LeasePage::default()).unwrap();
            now[0].amounts[0].lapses_at > lapses_at
        })
        .await;
    }
    assert_eq!(test.used(&key), 1);
    drop(answer);
    eventually("it is given back", async || test.used(&key) == 0).await;
}
