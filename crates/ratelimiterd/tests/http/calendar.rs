//! Calendar limits over the socket. The clock of these tests begins on 12 January 2025 at 05:33:20 UTC.

use std::time::Duration;

use expect_test::expect;

use crate::harness::{KEY, TestServer};

/// Ends on the first of the month in Sofia, two hours before it does in UTC.
fn monthly(capacity: u64) -> String {
    format!(
        r#"{{"key":"{KEY}","kind":"calendar","capacity":{capacity},"period":"month","time_zone":"Europe/Sofia"}}"#
    )
}

/// CAL-01: the refusal names the field, and what was defined stays.
#[tokio::test]
async fn cal_01_a_calendar_definition_of_bad_shape_is_refused_with_its_field() {
    let server = TestServer::start().await;
    assert_eq!(server.put(&monthly(5)).await.line(), r#"200 {"ok":true,"status":"active"}"#);
    let before = server.get("/v1/admin/limits").await.body;
    for (fields, field) in [
        ("", "period"),
        (r#","period":"year""#, "period"),
        (r#","period":"month","time_zone":"Europe/Atlantis""#, "time_zone"),
        (r#","period":"month","resets_at":"25:00""#, "resets_at"),
        (r#","period":"month","day":31"#, "day"),
        (r#","period":"month","weekday":"monday""#, "weekday"),
        (r#","period":"week","day":1"#, "day"),
        (r#","period":"hour","time_zone":"UTC""#, "time_zone"),
        (r#","period":"month","window_seconds":60"#, "window_seconds"),
        (r#","period":"month","timeout_seconds":60"#, "timeout_seconds"),
        (r#","period":"month","mode":"dark""#, "mode"),
        (r#","period":7"#, "period"),
    ] {
        let body = format!(r#"{{"key":"{KEY}","kind":"calendar","capacity":9{fields}}}"#);
        let answer = server.put(&body).await;
        let error = format!("invalid_request:{field}");
        assert_eq!((answer.status, answer.error()), (400, error), "{body}");
        assert!(!answer.json()["message"].as_str().unwrap().is_empty(), "{body}");
    }
    for field in [r#""period":"day""#, r#""time_zone":"UTC""#, r#""resets_at":"00:00""#] {
        let name = field.split('"').nth(1).unwrap();
        let body =
            format!(r#"{{"key":"k","kind":"rolling","capacity":9,"window_seconds":60,{field}}}"#);
        assert_eq!(server.put(&body).await.error(), format!("invalid_request:{name}"));
    }
    let answer = server.define_rolling(KEY, 5).await;
    assert_eq!(answer.line(), format!(r#"409 {{"error":"kind_conflict:{KEY}","ok":false}}"#));
    assert_eq!(server.get("/v1/admin/limits").await.body, before);
}

/// CAL-01, CAL-03: at the reset, and not before, everything returns.
#[tokio::test]
async fn cal_03_a_denial_hints_at_the_reset_and_the_state_shows_it() {
    let server = TestServer::start().await;
    server.put(&monthly(5)).await;
    server.reserve(1, &[(KEY, 5)]).await;
    server.complete(1, &[]).await;
    let answer = server.get(&format!("/v1/admin/limits/{KEY}")).await;
    expect![[r#"{"limit":{"key":"global:llm:openai:gpt-4o:rpm","kind":"calendar","capacity":5,"window_seconds":0,"timeout_seconds":0,"period":"month","time_zone":"Europe/Sofia","resets_at":"00:00","day":1,"unit":"","description":"","overage":"debt","status":"active","pending_decrease_to":null,"used":5,"available":0,"debt":0,"uncovered":0,"resets_at_unix_ms":1738360800000}}"#]].assert_eq(&answer.body);
    let denied = server.reserve(2, &[(KEY, 1)]).await;
    expect![[r#"200 {"allowed":false,"denied_keys":["global:llm:openai:gpt-4o:rpm"],"reserved_at_unix_ms":0,"retry_after_ms":1700800000}"#]].assert_eq(&denied.line());
    let to_reset = denied.json()["retry_after_ms"].as_u64().unwrap();
    server.clock.advance(Duration::from_millis(to_reset - 1));
    let denied = server.reserve(3, &[(KEY, 1)]).await;
    assert_eq!(denied.json()["retry_after_ms"], 1);
    server.clock.advance(Duration::from_millis(1));
    assert_eq!(server.reserve(4, &[(KEY, 5)]).await.json()["allowed"], true);
    let state = server.get(&format!("/v1/admin/limits/{KEY}")).await.json();
    // 1 March 2025, midnight in Sofia.
    assert_eq!(state["limit"]["resets_at_unix_ms"], 1_740_780_000_000_u64);
}

/// CAL-01, OPS-05: the file says that it needs version 2, and a restart reads it.
#[tokio::test]
async fn cal_01_a_calendar_limit_survives_a_restart() {
    let server = TestServer::start().await;
    server.put(&monthly(5)).await;
    let before = server.get("/v1/admin/limits").await.body;
    let file = std::fs::read_to_string(crate::harness::limits_path(&server.folder)).unwrap();
    assert!(file.starts_with("{\n  \"version\": 2"), "{file}");
    let server = server.restart().await;
    assert_eq!(server.get("/v1/admin/limits").await.body, before);
}

#[tokio::test]
async fn the_page_shows_the_mode_and_the_next_reset() {
    let server = TestServer::start().await;
    server.put(&monthly(5).replace('}', r#","mode":"shadow"}"#)).await;
    let page = server.get("/").await.body;
    for cell in [
        "<td>calendar month on day 1 at 00:00 Europe/Sofia<td>shadow<td",
        "<td>active<td>2025-01-31T22:00:00Z<td>",
    ] {
        assert!(page.contains(cell), "{page}");
    }
}
