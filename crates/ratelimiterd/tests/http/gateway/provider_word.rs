//! What a provider says about its own limits (`GW-07`).

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use ratelimiter_mock_provider::Fault;
use serde_json::json;
use testkit::eventually;

use super::{GatewayTest, MODEL, Operation, WholeAnswer};

const RPM: &str = "global:llm:openai:gpt-4o:rpm";
const TPM: &str = "global:llm:openai:gpt-4o:tpm";

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::try_from(*value).unwrap())
    };
    list.iter().map(pair).collect()
}

async fn chat(test: &GatewayTest) -> WholeAnswer {
    test.call(Operation::Chat, false, &[]).await
}

async fn is_held_back(test: &GatewayTest, key: &str, amount: u64) {
    shows(test, &format!("{}{amount}\n", held_back(key))).await;
}

fn held_back(key: &str) -> String {
    format!("ratelimiter_gateway_held_back{{key=\"{key}\"}} ")
}

/// Waits until the metrics have this.
async fn shows(test: &GatewayTest, text: &str) {
    eventually(text, async || test.server.get("/metrics").await.body.contains(text)).await;
}

/// GW-07
#[tokio::test]
async fn gw_07_what_others_use_of_the_same_key_is_held_back() {
    let test = GatewayTest::start().await;
    // Nothing comes back within the test.
    test.server.define_rolling(RPM, 100).await;
    test.server.define_rolling(TPM, 1_000_000).await;
    test.mock.set_headers(headers(&[
        ("x-ratelimit-limit-requests", "100"),
        ("x-ratelimit-remaining-requests", "60"),
        ("x-ratelimit-reset-requests", "59s"),
        ("x-ratelimit-remaining-tokens", "900000"),
        ("x-ratelimit-reset-tokens", "59s"),
    ]));
    let answer = chat(&test).await;
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "60", "the caller sees it too");
    is_held_back(&test, RPM, 39).await;
    assert_eq!(test.used(RPM), 40, "the call and 39 of others");
    // What was reserved for the call was not room either.
    let tokens = test.used(TPM);
    assert!((99_800..=100_000).contains(&tokens), "{tokens}");
}

/// GW-07
#[tokio::test]
async fn gw_07_calls_that_are_sent_meanwhile_do_not_hide_what_others_use() {
    let test = GatewayTest::start_slow(Duration::from_millis(300)).await;
    test.server.define_rolling(RPM, 100).await;
    test.mock.set_headers(headers(&[
        ("x-ratelimit-remaining-requests", "60"),
        ("x-ratelimit-reset-requests", "59s"),
    ]));
    let meanwhile = async {
        eventually("the provider has the first", async || test.mock.calls().len() == 1).await;
        futures::future::join_all((0..10).map(|_| chat(&test))).await
    };
    let (first, others) = tokio::join!(chat(&test), meanwhile);
    assert_eq!(first.status, 200, "{first:?}");
    assert!(others.iter().all(|answer| answer.status == 200), "{others:?}");
    is_held_back(&test, RPM, 39).await;
    assert_eq!(test.used(RPM), 50, "11 calls and 39 of others");
}

/// GW-07
#[tokio::test]
async fn gw_07_it_is_given_back_when_the_provider_resets() {
    let test = GatewayTest::start().await;
    test.server.define_rolling(RPM, 10).await;
    let none_left = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1s")];
    test.mock.set_headers(headers(&none_left));
    chat(&test).await;
    // However much: it may be over when it is looked at.
    shows(&test, &held_back(RPM)).await;
    test.mock.set_headers(HeaderMap::new());
    let answer = chat(&test).await;
    assert_eq!(answer.status, 200, "the window of a minute is not over: {answer:?}");
    is_held_back(&test, RPM, 0).await;
    assert_eq!(test.used(RPM), 2);
}

/// GW-07
#[tokio::test]
async fn gw_07_the_providers_figures_never_raise_a_limit() {
    let test = GatewayTest::start().await;
    test.server.define_rolling(RPM, 1).await;
    test.mock.set_headers(headers(&[
        ("x-ratelimit-limit-requests", "500"),
        ("x-ratelimit-remaining-requests", "499"),
        ("x-ratelimit-reset-requests", "120ms"),
    ]));
    chat(&test).await;
    let differs = |of: &str, capacity: u64| {
        format!("ratelimiter_gateway_differing_limit{{key=\"{RPM}\",of=\"{of}\"}} {capacity}\n")
    };
    eventually("the difference is shown", async || {
        let metrics = test.server.get("/metrics").await.body;
        metrics.contains(&differs("ours", 1)) && metrics.contains(&differs("provider", 500))
    })
    .await;
    let answer = test.call(Operation::Chat, false, &[("x-ratelimiter-wait-ms", "0")]).await;
    assert_eq!((answer.status, test.used(RPM)), (429, 1), "{answer:?}");
}

/// GW-07
#[tokio::test]
async fn gw_07_a_429_closes_the_key_and_model_for_the_time_that_it_names() {
    let test = GatewayTest::start().await;
    test.mock.set_headers(headers(&[("retry-after-ms", "30000"), ("retry-after", "30")]));
    let refused = [("x-mock-fault", "429"), ("x-ratelimiter-wait-ms", "0")];
    assert_eq!(test.call(Operation::Chat, false, &refused).await.status, 429);
    // The next does not reach the provider.
    let answer = test.call(Operation::Chat, false, &[("x-ratelimiter-wait-ms", "1000")]).await;
    let (kind, message) = answer.error();
    assert_eq!((answer.status, kind.as_str()), (429, "rate_limit_error"));
    let expected = format!("the provider openai has no room for calls of {MODEL} with this key");
    assert!(message.starts_with(&expected), "{message}");
    assert!(answer.header("retry-after-ms").parse::<u64>().unwrap() > 1_000, "{answer:?}");
    assert_eq!(answer.header("x-should-retry"), "true");
    assert_eq!(test.mock.calls().len(), 1);
    // Another key of the same model is another matter.
    test.mock.set_headers(HeaderMap::new());
    let other = [("authorization", "Bearer other")];
    assert_eq!(test.call(Operation::Chat, false, &other).await.status, 200);
    let metrics = test.server.get("/metrics").await.body;
    let refusals =
        "ratelimiter_gateway_provider_429s_total{provider=\"openai\",model=\"gpt-4o\"} 1\n";
    assert!(metrics.contains(refusals), "{metrics}");
}

/// GW-07
#[tokio::test]
async fn gw_07_calls_wait_for_a_key_to_open_again_and_hold_nothing_meanwhile() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    test.mock.set_headers(headers(&[("retry-after-ms", "1000")]));
    let refused = [("x-mock-fault", "429"), ("x-ratelimiter-wait-ms", "0")];
    assert_eq!(test.call(Operation::Chat, false, &refused).await.status, 429);
    let answers = futures::future::join_all((0..5).map(|_| chat(&test))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    let (requests, _, _) = test.settled(Operation::Chat).await;
    assert_eq!((requests, test.mock.calls().len()), (6, 6), "one attempt each");
}

/// GW-07
#[tokio::test]
async fn gw_07_without_money_left_nothing_is_closed() {
    let test = GatewayTest::start().await;
    test.mock.set_faults(vec![Fault::Quota]);
    assert_eq!(chat(&test).await.status, 429);
    test.mock.set_faults(Vec::new());
    let answer = test.call(Operation::Chat, false, &[("x-ratelimiter-wait-ms", "0")]).await;
    assert_eq!(answer.status, 200);
}

/// GW-07
#[tokio::test]
async fn gw_07_a_limit_that_resets_now_holds_nothing_back() {
    let test = GatewayTest::start().await;
    test.server.define_rolling(RPM, 100).await;
    test.server.define_rolling(TPM, 1_000_000).await;
    test.mock.set_headers(headers(&[
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "1000"),
        ("x-ratelimit-reset-tokens", "0s"),
        ("x-ratelimit-remaining-requests", "1"),
        ("x-ratelimit-reset-requests", "50s"),
    ]));
    chat(&test).await;
    is_held_back(&test, RPM, 98).await;
    assert!(test.used(TPM) < 1_000, "both were compared: {}", test.used(TPM));
}

/// GW-07
#[tokio::test]
async fn gw_07_nothing_is_held_back_after_shutdown() {
    let test = GatewayTest::start_with(|section| section["wait_ms"] = json!(0)).await;
    test.server.define_rolling(RPM, 100).await;
    test.mock.set_headers(headers(&[("x-ratelimit-remaining-requests", "1")]));
    chat(&test).await;
    is_held_back(&test, RPM, 98).await;
    let GatewayTest { server, .. } = test;
    let memory = server.memory.clone();
    server.server.stop().await;
    assert_eq!(memory.open_leases(), 0);
}
