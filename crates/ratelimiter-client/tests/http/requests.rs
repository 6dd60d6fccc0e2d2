//! The requests that a server gets.

use std::time::Duration;

use ratelimiter_client::{
    Backend, BearerToken, Cleartext, Decision, ForgiveError, HttpLimiter, HttpOptions, KeyPattern,
    LeaseId, LeasePage, LimitKey, Limiter, Page, ReleaseError, Requirements, ReserveError,
    ReserveRequest, Wait,
};
use tokio::net::TcpListener;

use crate::encrypted::serve_http_version;
use crate::scripted_server::{Reply, ScriptedServer, json};

const ALLOWED: &str = r#"{"allowed":true,"retry_after_ms":0,"reserved_at_unix_ms":1736660000000}"#;
const AWAY: &str = r#"{"allowed":false,"retry_after_ms":1,"error":"backend_error"}"#;

fn request(lease: u128) -> ReserveRequest {
    let key = LimitKey::llm_rpm("openai", "gpt-4o").unwrap();
    ReserveRequest::new(LeaseId::from_u128(lease), Requirements::of([(key, 1)]).unwrap())
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_request_without_an_answer_is_retried_with_the_same_lease() {
    let replies = vec![
        json("503 Service Unavailable", AWAY),
        Reply::LastBytes("HTTP/1.1 200 OK\r\n".to_owned()),
        json("200 OK", ALLOWED),
    ];
    let server = ScriptedServer::start(replies).await;
    let options = HttpOptions { repeat_for: Duration::from_secs(60), ..HttpOptions::default() };
    let limiter = HttpLimiter::with_options(&server.url, options).unwrap();
    let decision = limiter.reserve(&request(7)).await.unwrap();
    assert!(decision.is_allowed());
    let bodies: Vec<_> = server.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies.len(), 3);
    assert!(bodies[0].contains(&LeaseId::from_u128(7).to_string()));
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_retry_delay_beyond_repeat_for_is_reported_at_once() {
    let body = r#"{"allowed":false,"retry_after_ms":60000,"error":"backend_error"}"#;
    let server = ScriptedServer::start(vec![json("503 Service Unavailable", body)]).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let error = limiter.reserve(&request(7)).await.unwrap_err();
    let ReserveError::Unanswered(unanswered) = error else {
        panic!("the outcome is unknown, not {error:?}");
    };
    assert_eq!(unanswered.retry_after, Duration::from_secs(60));
    assert_eq!(server.seen().len(), 1);
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_refusal_is_not_retried() {
    let body = r#"{"allowed":false,"retry_after_ms":0,"error":"lease_ended"}"#;
    let server = ScriptedServer::start(vec![json("409 Conflict", body)]).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let error = limiter.reserve(&request(7)).await.unwrap_err();
    assert_eq!(error, ReserveError::LeaseEnded);
    assert_eq!(server.seen().len(), 1);
}

/// CLI-01
#[tokio::test]
async fn cli_01_one_connection_serves_many_requests_and_the_token_goes_with_each() {
    let server = ScriptedServer::start(vec![json("200 OK", ALLOWED)]).await;
    let options =
        HttpOptions { token: Some(BearerToken::new("3c0ffee").unwrap()), ..HttpOptions::default() };
    let limiter = HttpLimiter::with_options(&server.url, options).unwrap();
    for lease in 0..5 {
        assert!(limiter.reserve(&request(lease)).await.unwrap().is_allowed());
    }
    let seen = server.seen();
    assert_eq!(seen.len(), 5);
    for seen in seen {
        assert_eq!(seen.connection, 0);
        assert_eq!(seen.line, "POST /v1/reserve");
        assert_eq!(seen.authorization.as_deref(), Some("Bearer 3c0ffee"));
    }
}

/// CLI-01
#[tokio::test]
async fn cli_01_a_batch_is_one_request_and_its_answers_stay_in_order() {
    let body = r#"{"results":[
        {"allowed":true,"retry_after_ms":0,"reserved_at_unix_ms":1},
        {"allowed":false,"retry_after_ms":9,"reserved_at_unix_ms":0,"denied_keys":["k"]},
        {"allowed":false,"retry_after_ms":0,"error":"lease_conflict"}
    ]}"#;
    let server = ScriptedServer::start(vec![json("200 OK", body)]).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let requests: Vec<_> = (0..3).map(request).collect();
    let answers = limiter.reserve_batch(&requests).await;
    assert!(matches!(answers[0], Ok(Decision::Allowed { .. })));
    assert!(matches!(&answers[1], Ok(Decision::Denied(denial)) if denial.retry_after_ms() == 9));
    assert_eq!(answers[2], Err(ReserveError::LeaseConflict));
    assert_eq!(server.seen().len(), 1);
    assert!(limiter.reserve_batch(&[]).await.is_empty());
    assert_eq!(server.seen().len(), 1, "nothing to send");
}

/// CLI-01
#[tokio::test]
async fn cli_01_more_than_256_requests_are_several_batches() {
    let one = r#"{"allowed":true,"retry_after_ms":0,"reserved_at_unix_ms":1}"#;
    let results = |count: usize| format!(r#"{{"results":[{}]}}"#, vec![one; count].join(","));
    let replies = vec![
        json("200 OK", &results(256)),
        json("200 OK", &results(1)),
        json("200 OK", &results(2)),
    ];
    let server = ScriptedServer::start(replies).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let requests: Vec<_> = (0..257).map(request).collect();
    let answers = limiter.reserve_batch(&requests).await;
    assert_eq!(answers.len(), 257);
    assert!(answers.iter().all(Result::is_ok));
    let answers = limiter.reserve_batch(&requests[..3]).await;
    assert!(
        answers.iter().all(|answer| matches!(answer, Err(ReserveError::Refused(refused))
                if refused.reason.contains("2 results for 3 requests"))),
        "{answers:?}"
    );
}

/// CLI-01, TPL-06
#[tokio::test]
async fn cli_01_keys_and_pages_are_encoded() {
    let server = ScriptedServer::start(vec![json("200 OK", r#"{"limits":[]}"#)]).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let page = Page {
        prefix: "global:llm:a&b".to_owned(),
        after: Some(LimitKey::new("meta/llama?x").unwrap()),
        count_max: Some(10),
        template: Some(KeyPattern::new("tenant:*:a&b").unwrap()),
    };
    assert_eq!(limiter.states(&page).await, Ok(vec![]));
    let missing = json("404 Not Found", r#"{"error":"not_found"}"#);
    let empty = ScriptedServer::start(vec![missing]).await;
    let limiter = HttpLimiter::new(&empty.url).unwrap();
    let key = LimitKey::new("meta/llama?x").unwrap();
    assert_eq!(limiter.state(&key).await, Ok(None));
    assert_eq!(
        server.seen()[0].line,
        "GET /v1/admin/limits?prefix=global%3Allm%3Aa%26b&after=meta%2Fllama%3Fx&limit=10&template=tenant%3A%2A%3Aa%26b"
    );
    assert_eq!(empty.seen()[0].line, "GET /v1/admin/limits/meta%2Fllama%3Fx");
}

/// CLI-01, OPS-01
#[tokio::test]
async fn cli_01_a_page_of_leases_is_encoded() {
    let server = ScriptedServer::start(vec![json("200 OK", r#"{"leases":[]}"#)]).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let page = LeasePage {
        key: Some(LimitKey::new("meta/llama?x").unwrap()),
        older_than: Duration::from_millis(1_001),
        after: Some(LeaseId::from_u128(7)),
        count_max: 10,
    };
    assert_eq!(limiter.leases(&page).await, Ok(vec![]));
    let oldest = LeasePage { older_than: Duration::MAX, count_max: 2_000, ..LeasePage::default() };
    assert_eq!(limiter.leases(&oldest).await, Ok(vec![]));
    let none = LeasePage { count_max: 0, ..LeasePage::default() };
    assert_eq!(limiter.leases(&none).await, Ok(vec![]));
    let lines: Vec<_> = server.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(
        lines,
        [
            "GET /v1/admin/leases?older_than_seconds=2&limit=10&key=meta%2Fllama%3Fx&after=00000000000000000000000007",
            "GET /v1/admin/leases?older_than_seconds=2764800&limit=1000",
        ]
    );
}

/// CLI-01, OPS-01, OPS-02: a second answer would be another one.
#[tokio::test]
async fn cli_01_a_release_and_a_forgive_without_an_answer_are_not_retried() {
    let lost = json("503 Service Unavailable", r#"{"error":"backend_error","retry_after_ms":1}"#);
    let server = ScriptedServer::start(vec![lost]).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let released = limiter.release(LeaseId::from_u128(7)).await;
    assert!(matches!(released, Err(ReleaseError::Unanswered(_))), "{released:?}");
    let forgiven = limiter.forgive(&LimitKey::new("k").unwrap()).await;
    assert!(matches!(forgiven, Err(ForgiveError::Unanswered(_))), "{forgiven:?}");
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].line, "DELETE /v1/admin/leases/00000000000000000000000007");
    assert_eq!((&*seen[1].line, &*seen[1].body), ("POST /v1/admin/forgive", r#"{"key":"k"}"#));
}

/// CLI-01
#[tokio::test]
async fn cli_01_without_encryption_http_2_is_used_if_configured() {
    for (cleartext, version) in [(Cleartext::Http1, "HTTP/1.1"), (Cleartext::Http2, "HTTP/2.0")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            serve_http_version(stream).await;
        });
        let options = HttpOptions { cleartext, ..HttpOptions::default() };
        let limiter = HttpLimiter::with_options(&url, options).unwrap();
        let error = limiter.reserve(&request(1)).await.unwrap_err().to_string();
        assert!(error.contains(version), "{error}");
    }
}

const WAIT_REFUSED: &str =
    r#"{"allowed":false,"retry_after_ms":0,"error":"invalid_request:wait_ms"}"#;

/// Waits for a minute.
fn waiting(lease: u128) -> ReserveRequest {
    let wait = Some(Wait::new(Duration::from_secs(60), "acme").unwrap());
    ReserveRequest { wait, ..request(lease) }
}

/// WAIT-08: a server of the first edition gets requests that do not wait. After a minute it may be a newer one.
#[tokio::test]
async fn wait_08_against_a_server_that_refuses_waiting_requests_go_on_without() {
    let replies = vec![
        json("400 Bad Request", WAIT_REFUSED),
        json("200 OK", ALLOWED),
        json("200 OK", ALLOWED),
        json("200 OK", ALLOWED),
    ];
    let server = ScriptedServer::start(replies).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    assert!(limiter.can_wait());
    assert!(limiter.reserve(&waiting(1)).await.unwrap().is_allowed());
    assert!(!limiter.can_wait());
    assert!(limiter.reserve(&waiting(2)).await.unwrap().is_allowed());
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    assert!(limiter.can_wait());
    assert!(limiter.reserve(&waiting(3)).await.unwrap().is_allowed());
    let waits: Vec<_> =
        server.seen().into_iter().map(|seen| seen.body.contains("\"wait_ms\":60000")).collect();
    assert_eq!(waits, [true, false, false, true]);
}

/// WAIT-08: the timeout of a request that waits is its wait and that of any request.
#[tokio::test(start_paused = true)]
async fn wait_08_a_request_that_waits_has_its_wait_added_to_its_timeout() {
    let server = ScriptedServer::start(vec![Reply::Silence]).await;
    let options = HttpOptions { repeat_for: Duration::ZERO, ..HttpOptions::default() };
    let timeout = options.timeout;
    let limiter = HttpLimiter::with_options(&server.url, options).unwrap();
    let begun = tokio::time::Instant::now();
    let error = limiter.reserve(&waiting(1)).await.unwrap_err();
    assert!(matches!(error, ReserveError::Unanswered(_)), "{error:?}");
    let over = begun.elapsed() - (Duration::from_secs(60) + timeout);
    assert!(over < Duration::from_secs(1), "{over:?}");
}
