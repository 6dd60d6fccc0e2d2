//! Every malformed request of `docs/reference/http-api.md`: 400 with the field.

use crate::harness::{KEY, TestServer, lease, reserve_body};

/// HTTP-03
#[tokio::test]
async fn a_reserve_of_bad_shape_is_refused_with_its_field() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 9).await;
    let id = lease(1);
    let with =
        |requirements: &str| format!(r#"{{"lease_id":"{id}","requirements":{requirements}}}"#);
    let amount = |amount: &str| with(&format!(r#"[{{"key":"{KEY}","amount":{amount}}}]"#));
    let many: Vec<String> = (0..33).map(|n| format!(r#"{{"key":"k{n}","amount":1}}"#)).collect();
    let table = [
        (String::new(), "invalid_request:body"),
        ("not json".to_owned(), "invalid_request:body"),
        (r#"{"lease_id":"#.to_owned(), "invalid_request:body"),
        ("[]".to_owned(), "invalid_request:body"),
        ("{}".to_owned(), "invalid_request:lease_id"),
        (r#"{"lease_id":7}"#.to_owned(), "invalid_request:lease_id"),
        (with("[]").replace(&id, "too-short"), "invalid_request:lease_id"),
        (with("[]").replace(&id, "8ZZZZZZZZZZZZZZZZZZZZZZZZZ"), "invalid_request:lease_id"),
        (with("[]").replace(&id, "0000000000000000000000000U"), "invalid_request:lease_id"),
        (format!(r#"{{"lease_id":"{id}"}}"#), "invalid_request:requirements"),
        (with("[]"), "invalid_request:requirements"),
        (with(&format!("[{}]", many.join(","))), "invalid_request:requirements"),
        (with(r#"[{"key":"k"}]"#), "invalid_request:requirements[0].amount"),
        (with(r#"[{"key":"k","amount":1},{"amount":1}]"#), "invalid_request:requirements[1].key"),
        (with(r#"[{"key":"two words","amount":1}]"#), "invalid_request:requirements[0].key"),
        (with(r#"[{"key":"k","amount":1,"cost":1}]"#), "invalid_request:requirements[0].cost"),
        (amount("0"), "invalid_request:requirements[0].amount"),
        (amount("-1"), "invalid_request:requirements[0].amount"),
        (amount("1.5"), "invalid_request:requirements[0].amount"),
        (amount("18446744073709551616"), "invalid_request:requirements[0].amount"),
        (amount("1e999"), "invalid_request:requirements[0].amount"),
        (
            reserve_body(1, &[(KEY, 1)]).replace('}', r#","x":1}"#),
            "invalid_request:requirements[0].x",
        ),
        (reserve_body(1, &[(KEY, 1), (KEY, 1)]), "duplicate_key:global:llm:openai:gpt-4o:rpm"),
    ];
    for (body, error) in table {
        let answer = server.post("/v1/reserve", &body).await;
        assert_eq!((answer.status, answer.error().as_str()), (400, error), "{body}");
        let json = answer.json();
        assert_eq!(
            (&json["allowed"], &json["retry_after_ms"]),
            (&false.into(), &0.into()),
            "{body}"
        );
        assert!(json["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        assert_eq!(json.get("reserved_at_unix_ms"), None, "{body}");
    }
    assert_eq!(
        server.reserve(1, &[(KEY, 9)]).await.json()["allowed"],
        true,
        "nothing was reserved"
    );
}

/// HTTP-03
#[tokio::test]
async fn a_body_that_is_not_utf_8_is_refused() {
    use tokio::io::AsyncWriteExt;
    let server = TestServer::start().await;
    let mut stream = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    let head =
        b"POST /v1/reserve HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 4\r\n\r\n";
    stream.write_all(head).await.unwrap();
    stream.write_all(b"\"\xff\xfe\"").await.unwrap();
    let answer = crate::harness::read_answer(&mut stream).await;
    assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request:body"));
}

/// HTTP-03
#[tokio::test]
async fn a_complete_of_bad_shape_is_refused_with_its_field() {
    let server = TestServer::start().await;
    let id = lease(1);
    for (body, error) in [
        ("{}".to_owned(), "invalid_request:lease_id"),
        (format!(r#"{{"lease_id":"{id}","actuals":{{}}}}"#), "invalid_request:actuals"),
        (format!(r#"{{"lease_id":"{id}","usage":[]}}"#), "invalid_request:usage"),
        (
            format!(r#"{{"lease_id":"{id}","actuals":[{{"key":"k","actual_amount":-1}}]}}"#),
            "invalid_request:actuals[0].actual_amount",
        ),
    ] {
        let answer = server.post("/v1/complete", &body).await;
        assert_eq!((answer.status, answer.error().as_str()), (400, error), "{body}");
        assert_eq!(answer.json()["ok"], false);
    }
}

/// DEF-02, DEF-03, HTTP-03
#[tokio::test]
async fn def_02_def_03_a_definition_of_bad_shape_is_refused_with_its_field() {
    let server = TestServer::start().await;
    for (body, error) in [
        (r#"{"kind":"rolling","capacity":1,"window_seconds":60}"#, "invalid_request:key"),
        (r#"{"key":"k","kind":"bucket","capacity":1,"window_seconds":60}"#, "invalid_request:kind"),
        (
            r#"{"key":"k","kind":"rolling","capacity":-1,"window_seconds":60}"#,
            "invalid_request:capacity",
        ),
        (
            r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":2678401}"#,
            "invalid_request:window_seconds",
        ),
        (
            r#"{"key":"k","kind":"concurrency","capacity":1,"timeout_seconds":0}"#,
            "invalid_request:timeout_seconds",
        ),
        (
            r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":60,"status":"active"}"#,
            "invalid_request:status",
        ),
    ] {
        let answer = server.put(body).await;
        assert_eq!((answer.status, answer.error().as_str()), (400, error), "{body}");
    }
    assert_eq!(server.get("/v1/admin/limits").await.body, r#"{"limits":[]}"#);
}
