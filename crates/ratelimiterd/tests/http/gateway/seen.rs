//! What operators and callers see of calls (`GW-12`).

use http_body_util::BodyExt;
use hyper::Method;
use serde_json::json;

use super::{GatewayTest, Operation, whole};

/// GW-12
#[tokio::test]
async fn gw_12_calls_are_counted_by_listed_model_and_outcome() {
    let test = GatewayTest::start_with(|section| {
        section["providers"][1].as_object_mut().unwrap().remove("models");
    })
    .await;
    for (operation, dimension) in
        [(Operation::Chat, "rpm"), (Operation::Chat, "daily_cost"), (Operation::Messages, "tpm")]
    {
        test.server.define_rolling(&operation.key(dimension), 1_000_000).await;
    }
    assert_eq!(test.call(Operation::Chat, false, &[]).await.status, 200);
    let refused = [("x-mock-fault", "429"), ("x-ratelimiter-retries", "0")];
    assert_eq!(test.call(Operation::Chat, false, &refused).await.status, 429);
    assert_eq!(test.call(Operation::Messages, true, &[]).await.status, 200);
    let unlisted = json!({"model": "invented", "messages": []}).to_string();
    let answer = test.request(Method::POST, Operation::Chat.path(), &[], unlisted).await;
    assert_eq!(answer.status, 404);
    let metrics = test.server.get("/metrics").await.body;
    for line in [
        r#"requests_total{provider="openai",model="gpt-4o",outcome="answered"} 1"#,
        r#"requests_total{provider="openai",model="gpt-4o",outcome="refused_rate"} 1"#,
        r#"requests_total{provider="openai",model="other",outcome="invalid"} 1"#,
        r#"requests_total{provider="anthropic",model="other",outcome="answered"} 1"#,
        r#"output_tokens_total{provider="openai",model="gpt-4o"} 7"#,
        r#"output_tokens_total{provider="anthropic",model="other"} 7"#,
        r#"cost_micro_dollars_total{provider="anthropic",model="other"} 0"#,
        r#"wait_seconds_count{provider="openai"} 3"#,
        r#"first_byte_seconds_count{provider="openai"} 1"#,
        r#"upstream_seconds_count{provider="openai"} 2"#,
        r#"upstream_seconds_count{provider="anthropic"} 1"#,
        "open_streams 0",
    ] {
        let line = format!("ratelimiter_gateway_{line}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert!(!metrics.contains("invented"), "{metrics}");
}

/// GW-12
#[tokio::test]
async fn gw_12_open_streams_are_counted_and_answers_name_their_lease() {
    let test = GatewayTest::start().await;
    let ungoverned = test.call(Operation::Chat, false, &[]).await;
    assert_eq!(ungoverned.header("x-ratelimiter-lease"), "");
    assert_eq!(ungoverned.header("x-ratelimiter-waited-ms"), "0");
    test.define_limits().await;
    let mut answer = test.begin(Operation::Chat, true, &[("x-mock-fault", "stall")]).await;
    answer.body_mut().frame().await.unwrap().unwrap();
    let lease = answer.headers()["x-ratelimiter-lease"].to_str().unwrap().to_owned();
    let open = test.server.get("/v1/admin/leases?limit=10").await.body;
    assert!(open.contains(&lease), "{lease} in {open}");
    let metrics = test.server.get("/metrics").await.body;
    assert!(metrics.contains("ratelimiter_gateway_open_streams 1\n"), "{metrics}");
    drop(answer);
    test.settled(Operation::Chat).await;
    let metrics = test.server.get("/metrics").await.body;
    assert!(metrics.contains("ratelimiter_gateway_open_streams 0\n"), "{metrics}");
    assert!(metrics.contains(r#"outcome="caller_gone"} 1"#), "{metrics}");
    let whole = whole(test.begin(Operation::Messages, false, &[]).await).await;
    assert!(!whole.header("x-ratelimiter-lease").is_empty());
}
