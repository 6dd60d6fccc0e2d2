//! `POST /v1/renew` over a socket (`REN-01` to `REN-03`).

use std::time::Duration;

use expect_test::expect;

use crate::harness::{Answer, KEY, TestServer, lease};

const SLOTS: &str = "global:llm:openai:gpt-4o:concurrency";

pub(crate) fn renew_body(id: u128, number: u64, amounts: &[(&str, u64)]) -> String {
    let amount = |(key, amount): &(&str, u64)| format!(r#"{{"key":"{key}","amount":{amount}}}"#);
    let amounts: Vec<String> = amounts.iter().map(amount).collect();
    let (lease, amounts) = (lease(id), amounts.join(","));
    format!(r#"{{"lease_id":"{lease}","number":{number},"amounts":[{amounts}]}}"#)
}

impl TestServer {
    async fn renew(&self, id: u128, number: u64, amounts: &[(&str, u64)]) -> Answer {
        self.post("/v1/renew", &renew_body(id, number, amounts)).await
    }
}

async fn server_with_a_lease() -> TestServer {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 10).await;
    server.define_concurrency(SLOTS, 2).await;
    assert_eq!(server.reserve(1, &[(KEY, 4), (SLOTS, 1)]).await.json()["allowed"], true);
    server
}

/// REN-01, REN-02
#[tokio::test]
async fn ren_01_a_renewed_lease_is_told_until_when_it_is_open() {
    let server = server_with_a_lease().await;
    server.clock.advance(Duration::from_secs(30));
    let answer = server.renew(1, 1, &[(KEY, 6)]).await;
    expect![[r#"200 {"renewed":true,"retry_after_ms":0,"renewed_at_unix_ms":1736660030000,"lapses_at_unix_ms":1736660090000}"#]]
        .assert_eq(&format!("{} {}", answer.status, answer.body));
    server.clock.advance(Duration::from_secs(1));
    let again = server.renew(1, 1, &[(KEY, 6)]).await;
    assert_eq!(again.body, answer.body, "REN-03");
    // The hold would have lapsed.
    server.clock.advance(Duration::from_secs(58));
    let answer = server.post("/v1/renew", &renew_body(1, 2, &[])).await;
    assert_eq!(answer.json()["renewed"], true, "without amounts");
}

/// REN-01, HINT-03: a denial is 200 with the keys and a hint, as that of a reserve.
#[tokio::test]
async fn ren_01_a_denied_renew_names_its_keys_and_when_to_ask_again() {
    let server = server_with_a_lease().await;
    server.reserve(2, &[(KEY, 6), (SLOTS, 1)]).await;
    let answer = server.renew(1, 1, &[(SLOTS, 2), (KEY, 5)]).await;
    assert_eq!(answer.status, 200);
    let json = answer.json();
    assert_eq!((&json["renewed"], &json["denied_keys"]), (&false.into(), &[SLOTS, KEY].into()));
    assert!(json["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{answer:?}");
    assert!(answer.header("retry-after").is_some());
    let metrics = server.get("/metrics").await.body;
    for line in [
        r#"ratelimiter_renew_total{outcome="denied"} 1"#,
        &format!(r#"ratelimiter_denied_total{{key="{KEY}"}} 1"#),
        r#"ratelimiter_request_seconds_count{route="/v1/renew"} 1"#,
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line} is not in\n{metrics}");
    }
}

/// REN-01, REN-03: each error has its status.
#[tokio::test]
async fn ren_01_ren_03_a_renew_that_cannot_be_is_an_error() {
    let server = server_with_a_lease().await;
    server.define_rolling("other", 10).await;
    let mut lines = String::new();
    for (id, number, amounts) in [
        (1, 1, vec![("other", 1)]),
        (1, 1, vec![(KEY, 11)]),
        (1, 1, vec![(KEY, u64::MAX)]),
        (1, 3, vec![(KEY, 1)]),
        (1, 2, vec![(KEY, 1)]),
        (9, 1, vec![]),
    ] {
        lines += &format!("{}\n", server.renew(id, number, &amounts).await.line());
    }
    server
        .put(&format!(r#"{{"key":"{KEY}","kind":"rolling","capacity":0,"window_seconds":60}}"#))
        .await;
    lines += &format!("{}\n", server.renew(1, 4, &[(KEY, 2)]).await.line());
    server.request("DELETE", &format!("/v1/admin/limits/{KEY}"), "", "").await;
    lines += &format!("{}\n", server.renew(1, 5, &[(KEY, 2)]).await.line());
    server.complete(1, &[]).await;
    lines += &format!("{}\n", server.renew(1, 6, &[]).await.line());
    expect![[r#"
        400 {"error":"invalid_amount:other","renewed":false,"retry_after_ms":0}
        422 {"error":"amount_exceeds_capacity:global:llm:openai:gpt-4o:rpm","renewed":false,"retry_after_ms":0}
        422 {"error":"amount_exceeds_capacity:global:llm:openai:gpt-4o:rpm","renewed":false,"retry_after_ms":0}
        200 {"lapses_at_unix_ms":1736660060000,"renewed":true,"renewed_at_unix_ms":1736660000000,"retry_after_ms":0}
        409 {"error":"renew_superseded","renewed":false,"retry_after_ms":0}
        409 {"error":"lease_ended","renewed":false,"retry_after_ms":0}
        200 {"error":"limit_paused:global:llm:openai:gpt-4o:rpm","renewed":false,"retry_after_ms":10000}
        404 {"error":"unknown_limit_key:global:llm:openai:gpt-4o:rpm","renewed":false,"retry_after_ms":0}
        409 {"error":"lease_ended","renewed":false,"retry_after_ms":0}
    "#]].assert_eq(&lines);
}

/// REN-01, HTTP-03
#[tokio::test]
async fn ren_01_a_renew_of_bad_shape_is_refused_with_its_field() {
    let server = server_with_a_lease().await;
    let good = renew_body(1, 1, &[(KEY, 1)]);
    for (body, error) in [
        (String::new(), "invalid_request:body"),
        (good.replace(&lease(1), "short"), "invalid_request:lease_id"),
        (good.replace("\"number\":1", "\"number\":0"), "invalid_request:number"),
        (good.replace("\"number\":1,", ""), "invalid_request:number"),
        (good.replace("\"amount\":1", "\"amount\":-1"), "invalid_request:amounts[0].amount"),
        (good.replace("\"number\":1", "\"number\":1,\"job_id\":\"j\""), "invalid_request:job_id"),
        (renew_body(1, 1, &[(KEY, 1), (KEY, 2)]), "duplicate_key:global:llm:openai:gpt-4o:rpm"),
    ] {
        let answer = server.post("/v1/renew", &body).await;
        assert_eq!((answer.status, answer.error().as_str()), (400, error), "{body}");
        assert_eq!(answer.json()["renewed"], false, "{body}");
    }
    let large = good.replace(KEY, &"k".repeat(1 << 20));
    assert_eq!(server.post("/v1/renew", &large).await.status, 413);
    assert_eq!(server.get("/v1/renew").await.status, 405);
    assert_eq!(
        server.renew(1, 1, &[(KEY, 1)]).await.json()["renewed"],
        true,
        "nothing was renewed"
    );
}
