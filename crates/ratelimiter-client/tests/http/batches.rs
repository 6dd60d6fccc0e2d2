//! The batcher with an HTTP limiter.

use std::time::Duration;

use ratelimiter_client::{
    BatchOptions, Batcher, HttpLimiter, HttpOptions, LeaseId, LimitKey, Limiter, Requirements,
    ReserveError, ReserveRequest,
};

use crate::scripted_server::{ScriptedServer, json};

/// CLI-02
#[tokio::test]
async fn cli_02_one_failed_call_fails_only_its_own_items() {
    let allowed = r#"{"results":[{"allowed":true,"retry_after_ms":0,"reserved_at_unix_ms":1}]}"#;
    let replies = vec![
        json("503 Service Unavailable", r#"{"error":"backend_error"}"#),
        json("200 OK", allowed),
    ];
    let server = ScriptedServer::start(replies).await;
    let options = HttpOptions { repeat_for: Duration::ZERO, ..HttpOptions::default() };
    let limiter = HttpLimiter::with_options(&server.url, options).unwrap();
    let one_at_a_time = BatchOptions { items_max: 1, calls_max: 1, ..BatchOptions::default() };
    let batcher = Batcher::with_options(limiter, &one_at_a_time);
    let request = |lease| {
        let key = LimitKey::new("k").unwrap();
        let requirements = Requirements::of([(key, 1)]).unwrap();
        ReserveRequest::new(LeaseId::from_u128(lease), requirements)
    };
    let (first, second) = (request(1), request(2));
    let (first, second) = tokio::join!(batcher.reserve(&first), batcher.reserve(&second));
    assert!(matches!(first, Err(ReserveError::Unanswered(_))), "{first:?}");
    assert!(second.unwrap().is_allowed());
}
