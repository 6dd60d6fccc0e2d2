//! Calls wait for room, and are told when there is none (`GW-06`).

use std::time::Duration;

use hyper::Method;
use serde_json::json;
use testkit::eventually;

use super::{GatewayTest, MODEL, Operation};
use crate::harness::complete_body;

const NO_WAIT: (&str, &str) = ("x-ratelimiter-wait-ms", "0");

/// GW-06
#[tokio::test]
async fn gw_06_without_room_the_answer_is_the_providers_429() {
    let test = GatewayTest::start().await;
    for operation in [Operation::Chat, Operation::Messages] {
        let key = operation.key("rpm");
        test.server.define_rolling(&key, 1).await;
        assert_eq!(test.call(operation, false, &[NO_WAIT]).await.status, 200);
        let denied = test.call(operation, false, &[NO_WAIT]).await;
        let (kind, message) = denied.error();
        assert_eq!((denied.status, kind.as_str()), (429, "rate_limit_error"), "{denied:?}");
        assert!(message.contains(&key), "{message}");
        assert_eq!(denied.header("retry-after"), "60");
        assert_eq!(denied.header("retry-after-ms"), "60000");
        assert_eq!(denied.header("x-should-retry"), "true");
    }
    assert_eq!(test.mock.calls().len(), 2);
}

/// GW-06: the window ends in a minute, and the call waits for at most 30 s.
#[tokio::test]
async fn gw_06_a_wait_that_is_known_to_be_in_vain_is_not_begun() {
    let test = GatewayTest::start().await;
    test.server.define_rolling(&Operation::Chat.key("rpm"), 1).await;
    assert_eq!(test.call(Operation::Chat, false, &[]).await.status, 200);
    let denied = test.call(Operation::Chat, false, &[]).await;
    assert_eq!(denied.status, 429);
    let waiting = test.server.get("/metrics").await;
    assert!(waiting.body.contains("ratelimiter_waiters 0"));
}

/// GW-06
#[tokio::test]
async fn gw_06_a_call_waits_for_room() {
    let test = GatewayTest::start().await;
    test.server.define_concurrency(&Operation::Chat.key("concurrency"), 1).await;
    let held = test.server.reserve(1, &[(&Operation::Chat.key("concurrency"), 1)]).await;
    assert_eq!(held.status, 200);
    let waits = test.call(Operation::Chat, false, &[]);
    let frees = async {
        eventually("it waits", async || {
            test.server.get("/metrics").await.body.contains("ratelimiter_waiters 1")
        })
        .await;
        assert!(test.mock.calls().is_empty());
        test.server.post("/v1/complete", &complete_body(1, &[])).await
    };
    let (answer, _) = tokio::join!(waits, frees);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!answer.header("x-ratelimiter-lease").is_empty());
    assert!(answer.header("x-ratelimiter-waited-ms").parse::<u64>().is_ok());
    let metrics = test.server.get("/metrics").await.body;
    let answered = format!(
        "ratelimiter_gateway_requests_total{{provider=\"openai\",model=\"{MODEL}\",outcome=\"answered\"}} 1"
    );
    assert!(metrics.contains(&answered), "{metrics}");
}

/// GW-05, GW-06: whoever leaves the queue holds nothing.
#[tokio::test]
async fn gw_06_a_caller_that_leaves_the_queue_is_forgotten() {
    let test = GatewayTest::start().await;
    let key = Operation::Chat.key("concurrency");
    test.server.define_concurrency(&key, 1).await;
    test.server.reserve(1, &[(&key, 1)]).await;
    let has_waiters = async |count: u32| {
        let line = format!("ratelimiter_waiters {count}\n");
        test.server.get("/metrics").await.body.contains(&line)
    };
    tokio::select! {
        answer = test.call(Operation::Chat, false, &[]) => panic!("{answer:?}"),
        () = eventually("it waits", async || has_waiters(1).await) => {}
    }
    eventually("it is forgotten", async || has_waiters(0).await).await;
    test.server.complete(1, &[]).await;
    assert_eq!(test.used(&key), 0);
    assert!(test.mock.calls().is_empty());
    let gone = format!(
        "ratelimiter_gateway_requests_total{{provider=\"openai\",model=\"{MODEL}\",outcome=\"caller_gone\"}} 1"
    );
    assert!(test.server.get("/metrics").await.body.contains(&gone));
}

/// GW-06
#[tokio::test]
async fn gw_06_what_can_never_fit_is_400() {
    let test = GatewayTest::start().await;
    test.server.define_rolling(&Operation::Chat.key("tpm"), 49).await;
    let answer = test.call(Operation::Chat, false, &[]).await;
    let (kind, message) = answer.error();
    assert_eq!((answer.status, kind.as_str()), (400, "invalid_request_error"));
    assert!(message.contains(&Operation::Chat.key("tpm")), "{message}");
    assert!(message.contains("49"), "{message}");
}

/// GW-02
#[tokio::test]
async fn gw_02_templates_govern_and_aliases_count_as_the_model() {
    let test = GatewayTest::start_with(|section| {
        section["providers"][0]["models"][MODEL]["aliases"] = json!(["gpt-4o-2024-08-06"]);
    })
    .await;
    test.server.define_rolling("tenant:*:llm:rpm", 10).await;
    test.server.define_rolling(&Operation::Chat.key("rpm"), 10).await;
    let body = Operation::Chat.body(false).to_string().replace(MODEL, "gpt-4o-2024-08-06");
    let headers = [("x-ratelimiter-tenant", "acme")];
    let answer = test.request(Method::POST, Operation::Chat.path(), &headers, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(test.used(&Operation::Chat.key("rpm")), 1);
    assert_eq!(test.used("tenant:acme:llm:rpm"), 1);
    let sent = String::from_utf8(test.mock.calls()[0].body.to_vec()).unwrap();
    assert!(sent.contains("gpt-4o-2024-08-06"), "the provider gets the caller's name");
}

/// GW-02
#[tokio::test]
async fn gw_02_a_call_that_no_limit_governs_goes_through_and_is_counted() {
    let test = GatewayTest::start().await;
    assert_eq!(test.call(Operation::Chat, false, &[]).await.status, 200);
    let metrics = test.server.get("/metrics").await.body;
    assert!(metrics.contains("outcome=\"ungoverned\"} 1"), "{metrics}");
}

/// GW-02
#[tokio::test]
async fn gw_02_a_limit_in_dollars_needs_a_price() {
    let test = GatewayTest::start_with(|section| {
        section["providers"][0]["models"][MODEL] = json!({});
    })
    .await;
    test.server.define_rolling(&Operation::Chat.key("daily_cost"), 1_000_000).await;
    let answer = test.call(Operation::Chat, false, &[]).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["code"], "no_price");
    assert!(answer.error().1.starts_with("no_price:gpt-4o"), "{answer:?}");
}

/// GW-02: a limit that is defined while the server runs governs the next call, and one that is deleted governs none.
#[tokio::test]
async fn gw_02_a_change_of_limits_holds_for_the_next_call() {
    let test = GatewayTest::start().await;
    let key = Operation::Chat.key("rpm");
    for _ in 0..2 {
        assert_eq!(test.call(Operation::Chat, false, &[NO_WAIT]).await.status, 200);
        test.server.define_rolling(&key, 1).await;
        assert_eq!(test.call(Operation::Chat, false, &[NO_WAIT]).await.status, 200);
        assert_eq!(test.call(Operation::Chat, false, &[NO_WAIT]).await.status, 429);
        test.server.clock.advance(Duration::from_mins(1));
        let path = format!("/v1/admin/limits/{key}");
        let deleted = test.server.request("DELETE", &path, "", "").await;
        assert_eq!(deleted.status, 200);
    }
}
