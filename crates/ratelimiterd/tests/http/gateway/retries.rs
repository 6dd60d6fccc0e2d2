//! When a provider is asked again (`GW-09`).

use hyper::Method;
use ratelimiter_mock_provider::Fault;
use serde_json::json;

use super::{GatewayTest, MODEL, Operation};

/// The statuses of an answer after `faults` on the first call only, and how often the provider was asked.
async fn asked(fault: Fault, headers: &[(&str, &str)]) -> (u16, usize) {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    test.mock.set_faults(vec![fault]);
    let call = test.call(Operation::Chat, true, headers);
    let mends = async {
        test.mock.wait_for_calls(1).await;
        test.mock.set_faults(Vec::new());
    };
    let (answer, ()) = tokio::join!(call, mends);
    let asked = test.mock.calls().len();
    let (requests, _, _) = test.settled(Operation::Chat).await;
    assert_eq!(requests, asked as u64, "each attempt is a lease of its own");
    (answer.status, asked)
}

/// GW-09
#[tokio::test]
async fn gw_09_429_and_503_are_asked_again_within_the_wait() {
    for fault in [Fault::TooManyRequests, Fault::Unavailable] {
        assert_eq!(asked(fault, &[]).await, (200, 2), "{fault}");
    }
}

/// GW-09
#[tokio::test]
async fn gw_09_529_of_anthropic_is_asked_again() {
    let test = GatewayTest::start().await;
    test.mock.set_faults(vec![Fault::Unavailable]);
    let retries = [("x-ratelimiter-retries", "1")];
    assert_eq!(test.call(Operation::Messages, false, &retries).await.status, 529);
    assert_eq!(test.mock.calls().len(), 2);
}

/// GW-09
#[tokio::test]
async fn gw_09_a_caller_can_turn_retries_off() {
    for (fault, status) in [(Fault::TooManyRequests, 429), (Fault::Unavailable, 503)] {
        assert_eq!(asked(fault, &[("x-ratelimiter-retries", "0")]).await, (status, 1), "{fault}");
        assert_eq!(asked(fault, &[("x-ratelimiter-wait-ms", "0")]).await, (status, 1), "{fault}");
    }
}

/// GW-09
#[tokio::test]
async fn gw_09_what_a_retry_cannot_help_is_returned_at_once() {
    assert_eq!(asked(Fault::Quota, &[]).await, (429, 1), "no money is left");
    assert_eq!(asked(Fault::Cut, &[]).await, (200, 1), "bytes were sent to the caller");
    assert_eq!(asked(Fault::Reset, &[]).await, (502, 1), "the provider may have made the call");
}

/// GW-09: the gateway reads a 400 of a stream, to see whether it is about the usage that it asks for.
#[tokio::test]
async fn gw_09_a_call_that_is_wrong_is_not_asked_again() {
    let test = GatewayTest::start().await;
    for is_stream in [false, true] {
        let body = json!({"model": MODEL, "stream": is_stream}).to_string();
        let answer = test.request(Method::POST, Operation::Chat.path(), &[], body).await;
        let (kind, message) = answer.error();
        assert_eq!((answer.status, kind.as_str()), (400, "invalid_request_error"), "{message}");
    }
    assert_eq!(test.mock.calls().len(), 2);
}

/// GW-09
#[tokio::test]
async fn gw_09_a_refusal_reaches_its_caller_as_it_is() {
    let test = GatewayTest::start().await;
    let headers = [("x-mock-fault", "429"), ("x-ratelimiter-retries", "0")];
    let answer = test.call(Operation::Chat, false, &headers).await;
    assert_eq!(answer.status, 429);
    assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
    assert!(answer.json()["error"]["message"].is_string());
    let unknown = test
        .request(
            Method::POST,
            "/anthropic/v1/messages",
            &[],
            Operation::Messages.body(false).to_string(),
        )
        .await;
    assert_eq!(unknown.status, 400, "the provider wants anthropic-version: {unknown:?}");
    assert_eq!(unknown.json()["type"], "error");
}

/// GW-09
#[tokio::test]
async fn gw_09_a_provider_that_cannot_be_reached_is_asked_again_within_the_wait() {
    let test = GatewayTest::start_with(|section| {
        section["providers"][0]["base_url"] = json!("http://127.0.0.1:1");
        // Long enough for one retry, after half a second at most.
        section["wait_ms"] = json!(600);
    })
    .await;
    test.define_limits().await;
    let answer = test.call(Operation::Chat, false, &[]).await;
    let (kind, message) = answer.error();
    assert_eq!((answer.status, kind.as_str()), (502, "api_error"), "{message}");
    assert_eq!(test.settled(Operation::Chat).await, (0, 0, 0));
}
