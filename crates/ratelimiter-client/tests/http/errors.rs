//! Errors are told apart, and only unknown outcomes are retried.

use std::time::Duration;

use ratelimiter_client::{Actuals, Backend, Capacity, Limit, LimitKind, Page, Window};
use ratelimiter_client::{
    CompleteError, CompleteRequest, DefineError, DeleteError, HttpError, HttpLimiter, HttpOptions,
    LeaseId, LimitKey, Limiter, Refused, Requirements, ReserveError, ReserveRequest, StateError,
    Unanswered,
};

use crate::scripted_server::{Reply, ScriptedServer, answer, json};

fn request() -> ReserveRequest {
    let key = LimitKey::llm_rpm("openai", "gpt-4o").unwrap();
    ReserveRequest::new(LeaseId::from_u128(7), Requirements::of([(key, 1)]).unwrap())
}

/// A limiter without retries.
fn limiter(url: &str) -> HttpLimiter {
    let options = HttpOptions {
        repeat_for: Duration::ZERO,
        timeout: Duration::from_secs(30),
        ..HttpOptions::default()
    };
    HttpLimiter::with_options(url, options).unwrap()
}

/// The errors of `check` and of a reserve with a server that always replies like this.
async fn errors(reply: Reply) -> (HttpError, ReserveError) {
    let server = ScriptedServer::start(vec![reply]).await;
    let limiter = limiter(&server.url);
    let http_error = limiter.check().await.unwrap_err();
    (http_error, limiter.reserve(&request()).await.unwrap_err())
}

#[track_caller]
fn assert_unanswered(error: &ReserveError, says: &str) {
    let ReserveError::Unanswered(Unanswered { reason, .. }) = error else {
        panic!("the outcome is unknown, not {error:?}");
    };
    assert!(reason.contains(says), "{reason}");
}

#[track_caller]
fn assert_refused(error: &ReserveError, says: &str) {
    let ReserveError::Refused(Refused { reason }) = error else {
        panic!("a refusal, not {error:?}");
    };
    assert!(reason.contains(says), "{reason}");
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_web_page_is_no_answer() {
    let page = "<!doctype html>\n<html>  <title>Welcome</title>";
    let reply = answer("200 OK", "content-type: text/html\r\n", page);
    let (http_error, error) = errors(Reply::Bytes(reply)).await;
    assert!(
        matches!(&http_error, HttpError::UnexpectedResponse { status: 200, content, excerpt, .. }
            if content == "text/html" && excerpt.starts_with("<!doctype html> <html> <title>")),
        "{http_error:?}"
    );
    assert_refused(&error, "answers with text/html");
}

/// CLI-01
#[tokio::test]
async fn cli_01_another_programs_json_is_no_answer() {
    let (http_error, error) = errors(json("200 OK", r#"{"status":"up"}"#)).await;
    assert!(matches!(http_error, HttpError::UnexpectedResponse { .. }), "{http_error:?}");
    assert_refused(&error, "not an answer to a reserve");
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_redirect_is_not_followed() {
    let reply = answer("302 Found", "location: https://login.example.org/\r\n", "");
    let (http_error, error) = errors(Reply::Bytes(reply)).await;
    assert!(matches!(http_error, HttpError::Redirected { status: 302, .. }), "{http_error:?}");
    assert_refused(&error, "redirects to https://login.example.org/");
    assert_refused(&error, "give it the URL of the server itself");
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_token_that_is_not_accepted_is_reported() {
    let body = r#"{"error":"unauthorized","message":"no such token"}"#;
    let (http_error, error) = errors(json("401 Unauthorized", body)).await;
    assert!(matches!(http_error, HttpError::Unauthorized { .. }), "{http_error:?}");
    assert_refused(
        &error,
        "does not accept the token (401): no such token; give the client a token",
    );

    let body = r#"{"error":"forbidden","message":"an admin token is needed"}"#;
    let (http_error, error) = errors(json("403 Forbidden", body)).await;
    assert!(matches!(http_error, HttpError::Forbidden { .. }), "{http_error:?}");
    assert_refused(&error, "(403): an admin token is needed; use a token that permits it");
}

/// CLI-01
#[tokio::test]
async fn cli_01_an_incomplete_response_leaves_the_outcome_unknown() {
    let whole = answer("200 OK", "", r#"{"allowed":true,"retry_after_ms":0}"#);
    let half = whole[..whole.len() - 10].to_owned();
    let no_length = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"allowed\":tr".to_owned();
    let head_only = "HTTP/1.1 200".to_owned();
    for cut in [half, no_length, head_only, String::new()] {
        let (http_error, error) = errors(Reply::LastBytes(cut)).await;
        assert!(matches!(http_error, HttpError::Incomplete { .. }), "{http_error:?}");
        assert_unanswered(&error, "is incomplete");
    }
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_server_that_accepts_and_never_answers_times_out() {
    let server = ScriptedServer::start(vec![Reply::Silence]).await;
    let options = HttpOptions {
        timeout: Duration::from_millis(50),
        repeat_for: Duration::ZERO,
        ..HttpOptions::default()
    };
    let limiter = HttpLimiter::with_options(&server.url, options.clone()).unwrap();
    let http_error = limiter.check().await.unwrap_err();
    assert!(
        matches!(http_error, HttpError::TimedOut { timeout, .. } if timeout == options.timeout),
        "{http_error:?}"
    );
    let error = limiter.reserve(&request()).await.unwrap_err();
    assert_unanswered(&error, "did not answer within 50ms");
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_closed_port_is_unreachable() {
    // A privileged port that no server uses and no test is assigned.
    let limiter = limiter("http://127.0.0.1:1");
    let http_error = limiter.check().await.unwrap_err();
    assert!(matches!(http_error, HttpError::Unreachable { .. }), "{http_error:?}");
    let error = limiter.reserve(&request()).await.unwrap_err();
    assert_unanswered(&error, "cannot connect to http://127.0.0.1");
}

/// CLI-01
#[tokio::test]
async fn cli_01_an_error_page_of_a_proxy_is_unavailable() {
    for status in
        ["502 Bad Gateway", "503 Service Unavailable", "429 Too Many Requests", "500 Oops"]
    {
        let reply = answer(status, "content-type: text/html\r\nretry-after: 7\r\n", "<html>");
        let (http_error, error) = errors(Reply::Bytes(reply)).await;
        assert_eq!(http_error.retry_after(), Duration::from_secs(7), "{http_error:?}");
        assert_unanswered(&error, "is not available");
    }
}

/// CLI-01: at five minutes.
#[tokio::test]
async fn cli_01_a_retry_after_is_bounded() {
    const SECONDS_MAX: u64 = 5 * 60;
    for seconds in [SECONDS_MAX, SECONDS_MAX + 1, u64::MAX] {
        let headers = format!("retry-after: {seconds}\r\n");
        let by_header = Reply::Bytes(answer("503 Service Unavailable", &headers, ""));
        let ms = seconds.saturating_mul(1_000);
        let body = format!(r#"{{"allowed":false,"retry_after_ms":{ms}}}"#);
        for reply in [by_header, json("503 Service Unavailable", &body)] {
            let (http_error, error) = errors(reply).await;
            assert_eq!(
                http_error.retry_after(),
                Duration::from_secs(SECONDS_MAX),
                "{http_error:?}"
            );
            assert_unanswered(&error, "is not available");
        }
    }
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_backend_without_an_answer_gives_a_retry_delay() {
    let body = r#"{"allowed":false,"retry_after_ms":1500,"error":"backend_error"}"#;
    let reply = answer("503 Service Unavailable", "retry-after: 2\r\n", body);
    let (http_error, error) = errors(Reply::Bytes(reply)).await;
    assert!(http_error.is_unanswered());
    let ReserveError::Unanswered(Unanswered { retry_after, .. }) = error else {
        panic!("the outcome is unknown, not {error:?}");
    };
    assert_eq!(retry_after, Duration::from_millis(1500));
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_request_that_the_backend_refuses_is_not_retried() {
    let body = r#"{"allowed":false,"retry_after_ms":0,"error":"backend_refused"}"#;
    let (http_error, error) = errors(json("500 Internal Server Error", body)).await;
    assert!(!http_error.is_unanswered(), "{http_error:?}");
    assert_refused(&error, "backend_refused");
}

/// CLI-01
#[tokio::test]
async fn cli_01_every_operation_distinguishes_a_refusal_from_an_unknown_outcome() {
    let body = r#"{"error":"unauthorized"}"#;
    let refusing = ScriptedServer::start(vec![json("401 Unauthorized", body)]).await;
    let away = ScriptedServer::start(vec![json("503 Service Unavailable", "{}")]).await;
    let key = LimitKey::new("k").unwrap();
    let window = Window::from_seconds(60).unwrap();
    let kind = LimitKind::Rolling { window };
    let limit = Limit::new(key.clone(), kind, Capacity::ZERO);
    let complete = CompleteRequest::new(LeaseId::from_u128(7), Actuals::none());

    let limiter = limiter(&refusing.url);
    let completed = limiter.complete(&complete).await;
    assert!(matches!(completed, Err(CompleteError::Refused(_))));
    let defined = limiter.define(limit.clone()).await;
    assert!(matches!(defined, Err(DefineError::Refused(_))));
    let deleted = limiter.delete(&key).await;
    assert!(matches!(deleted, Err(DeleteError::Refused(_))));
    assert!(matches!(limiter.state(&key).await, Err(StateError::Refused(_))));
    let batch = limiter.reserve_batch(&[request(), request()]).await;
    assert!(batch.iter().all(|one| matches!(one, Err(ReserveError::Refused(_)))));

    let limiter = self::limiter(&away.url);
    let completed = limiter.complete(&complete).await;
    assert!(matches!(completed, Err(CompleteError::Unanswered(_))));
    let defined = limiter.define(limit).await;
    assert!(matches!(defined, Err(DefineError::Unanswered(_))));
    let deleted = limiter.delete(&key).await;
    assert!(matches!(deleted, Err(DeleteError::Unanswered(_))));
    let states = limiter.states(&Page::default()).await;
    assert!(matches!(states, Err(StateError::Unanswered(_))));
    let batch = limiter.complete_batch(&[complete.clone(), complete]).await;
    assert_eq!(batch.len(), 2);
    assert!(batch.iter().all(|one| matches!(one, Err(CompleteError::Unanswered(_)))));
}
