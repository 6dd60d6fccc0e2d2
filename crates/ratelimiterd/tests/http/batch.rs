//! Batches: independent items, one result each, in order.

use expect_test::expect;

use crate::harness::{KEY, TestServer, complete_body, reserve_body};

fn batch(items: &[String]) -> String {
    format!(r#"{{"requests":[{}]}}"#, items.join(","))
}

/// HTTP-07
#[tokio::test]
async fn the_items_of_a_batch_are_independent_and_answered_in_order() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 2).await;
    let items = [
        reserve_body(1, &[(KEY, 2)]),
        reserve_body(2, &[("unknown", 1)]),
        r#"{"lease_id":"x"}"#.to_owned(),
        reserve_body(3, &[(KEY, 3)]),
        reserve_body(1, &[(KEY, 2)]),
    ];
    let answer = server.post("/v1/reserve/batch", &batch(&items)).await;
    assert_eq!(answer.status, 200);
    let results = answer.json()["results"].as_array().unwrap().clone();
    let shown: Vec<_> = results
        .iter()
        .map(|result| format!("{} {}", result["allowed"], result["error"].as_str().unwrap_or("-")))
        .collect();
    expect![[r#"
        true -
        false unknown_limit_key:unknown
        false invalid_request:lease_id
        false amount_exceeds_capacity:global:llm:openai:gpt-4o:rpm
        true -"#]]
    .assert_eq(&shown.join("\n"));

    let items = [
        complete_body(1, &[(KEY, 0)]),
        complete_body(1, &[]),
        "{}".to_owned(),
        complete_body(9, &[]),
    ];
    let answer = server.post("/v1/complete/batch", &batch(&items)).await;
    let results = answer.json()["results"].as_array().unwrap().clone();
    let shown: Vec<_> = results.iter().map(|result| result["ok"].to_string()).collect();
    assert_eq!(shown, ["true", "true", "false", "true"]);
    assert_eq!(server.get(&format!("/v1/admin/limits/{KEY}")).await.json()["limit"]["used"], 0);
}

/// HTTP-07
#[tokio::test]
async fn a_batch_has_1_to_256_items() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1_000).await;
    let items = |count: u128| (1..=count).map(|n| reserve_body(n, &[(KEY, 1)])).collect::<Vec<_>>();
    let answer = server.post("/v1/reserve/batch", &batch(&items(256))).await;
    assert_eq!(answer.json()["results"].as_array().unwrap().len(), 256);
    for body in [batch(&[]), batch(&items(257)), "{}".to_owned()] {
        for path in ["/v1/reserve/batch", "/v1/complete/batch"] {
            let answer = server.post(path, &body).await;
            assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request:requests"));
        }
    }
    assert_eq!(server.post("/v1/reserve/batch", "{").await.error(), "invalid_request:body");
}
