//! What goes wrong on demand, and how slowly.

use std::time::Duration;

use hyper::StatusCode;
use ratelimiter_mock_provider::{CallEnd, Fault, MockOptions};
use serde_json::json;

use super::harness::{
    CHAT, Context, MESSAGES, RESPONSES, chat, every_call, streamed, streams, with,
};

/// GW-14
#[tokio::test]
async fn refusing_faults_have_their_status() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let answer = context.faulty(Fault::TooManyRequests, path, &body).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!((answer.header("retry-after"), answer.header("retry-after-ms")), ("1", "1000"));
        let answer = context.faulty(Fault::Unavailable, path, &body).await;
        let status = if path == MESSAGES { 529 } else { 503 };
        assert_eq!(answer.status.as_u16(), status);
        let answer = context.faulty(Fault::Quota, path, &body).await;
        if path == MESSAGES {
            assert_eq!(answer.status, StatusCode::PAYMENT_REQUIRED);
            assert_eq!(answer.json()["error"]["type"], "billing_error");
        } else {
            assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(answer.json()["error"]["code"], "insufficient_quota");
        }
        assert_eq!(answer.header("retry-after"), "");
        let asked = with(body.clone(), "stream_options", json!({ "include_usage": true }));
        let answer = context.faulty(Fault::RejectStreamOptions, path, &asked).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let answer = context.faulty(Fault::RejectStreamOptions, path, &body).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
}

/// GW-14
#[tokio::test]
async fn a_cut_answer_breaks_off_after_half_of_its_tokens() {
    for http2 in [false, true] {
        let context = Context::over(MockOptions::default(), http2).await;
        for (path, body) in every_call() {
            let answer = context.faulty(Fault::Cut, path, &body).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert!(!answer.is_whole, "{path}");
            assert!(!answer.body.is_empty(), "{path}");
            if body["stream"] == true {
                let (whole_events, half_event) = answer.text().rsplit_once("\n\n").expect("events");
                assert_eq!(whole_events.matches("\"word \"").count(), 8, "{path}");
                assert!(!half_event.is_empty(), "{path}");
            }
            let answer = context.faulty(Fault::CutUtf8, path, &body).await;
            assert!(!answer.is_whole, "{path}");
            assert!(std::str::from_utf8(&answer.body).is_err(), "{path}");
        }
        assert!(context.ends(18).await.iter().all(|end| *end == CallEnd::Answered));
    }
}

/// GW-14
#[tokio::test]
async fn a_wrong_length_is_never_reached() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let answer = context.faulty(Fault::WrongLength, path, &body).await;
        assert!(!answer.is_whole, "{path}");
        let length = answer.header("content-length").parse::<usize>().expect("a length");
        assert!(answer.body.len() < length, "{path}");
        let is_sent = answer.text().ends_with('}') || answer.text().ends_with("\n\n");
        assert!(is_sent, "{path}: {}", answer.text());
    }
}

/// GW-14
#[tokio::test]
async fn a_reset_call_has_no_answer() {
    for http2 in [false, true] {
        let context = Context::over(MockOptions::default(), http2).await;
        for (path, body) in every_call() {
            let answer = context.send(path, &body, &[("x-mock-fault", "reset")]).await;
            assert!(answer.is_err(), "{path}");
        }
        assert!(context.ends(9).await.iter().all(|end| *end == CallEnd::Answered));
    }
}

/// GW-14
#[tokio::test]
async fn strange_answers_are_whole() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let answer = context.faulty(Fault::Garbage, path, &body).await;
        assert!(answer.is_whole && answer.status == StatusCode::OK);
        assert!(std::str::from_utf8(&answer.body).is_err());
        let answer = context.faulty(Fault::ContentType, path, &body).await;
        assert!(answer.is_whole && answer.status == StatusCode::OK);
        assert_eq!(answer.header("content-type"), "text/html");
        let answer = context.faulty(Fault::Gzip, path, &body).await;
        assert!(answer.is_whole && answer.status == StatusCode::OK);
        assert_eq!(answer.header("content-encoding"), "gzip");
        assert!(answer.body.starts_with(&[0x1f, 0x8b]));
    }
    let answer = context.faulty(Fault::LongLine, CHAT, &streamed(chat())).await;
    assert!(answer.is_whole && answer.body.len() > 100_000_000);
    assert_eq!(answer.body.iter().filter(|byte| **byte == b'\n').count(), 2);
}

/// GW-14
#[tokio::test]
async fn a_provider_can_keep_the_usage_to_itself() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let is_stream = body["stream"] == true;
        let body = if is_stream && path != RESPONSES && path != MESSAGES {
            with(body, "stream_options", json!({ "include_usage": true }))
        } else {
            body
        };
        let answer = context.faulty(Fault::NoUsage, path, &body).await;
        assert_eq!(answer.status, StatusCode::OK);
        let text = answer.text().replace("\"usage\":null", "");
        assert!(!text.contains("usage"), "{path}: {text}");
    }
}

/// GW-14
#[tokio::test]
async fn a_stream_can_end_with_an_error_event() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in streams() {
        let answer = context.faulty(Fault::ErrorEvent, path, &body).await;
        assert!(answer.is_whole);
        let events = answer.events();
        let last = events.last().expect("events");
        match path {
            RESPONSES => {
                assert_eq!(events[events.len() - 2]["type"], "error");
                assert_eq!(last["type"], "response.failed");
                assert_eq!(last["response"]["error"]["code"], "server_error");
            }
            MESSAGES => assert_eq!(last["error"]["type"], "overloaded_error"),
            _ => assert_eq!(last["error"]["type"], "server_error"),
        }
        assert!(!answer.text().contains("[DONE]"));
    }
}

/// GW-14
#[tokio::test]
async fn answers_are_as_slow_as_they_are_told() {
    let options = MockOptions {
        latency: Duration::from_millis(20),
        chunk_interval: Duration::from_millis(5),
        slow_for: Duration::from_millis(60),
        output_tokens: 4,
        ..MockOptions::default()
    };
    let context = Context::new(options).await;
    let started = tokio::time::Instant::now();
    context.call(CHAT, &chat()).await;
    assert!(started.elapsed() >= Duration::from_millis(20));
    let started = tokio::time::Instant::now();
    context.call(CHAT, &streamed(chat())).await;
    // Seven chunks have six intervals.
    assert!(started.elapsed() >= Duration::from_millis(50));
    let started = tokio::time::Instant::now();
    context.faulty(Fault::Slow, CHAT, &chat()).await;
    assert!(started.elapsed() >= Duration::from_millis(80));
}

/// GW-14
#[tokio::test]
async fn faults_hit_their_share_of_calls() {
    let options =
        MockOptions { faults: vec![Fault::Unavailable], fault_rate: 0.5, ..MockOptions::default() };
    let context = Context::new(options).await;
    let mut statuses = Vec::new();
    for _ in 0..64 {
        statuses.push(context.call(CHAT, &chat()).await.status);
    }
    let hit = statuses.iter().filter(|status| **status != StatusCode::OK).count();
    assert!((16..48).contains(&hit), "{hit}");
    context.provider.set_faults(Vec::new());
    assert_eq!(context.call(CHAT, &chat()).await.status, StatusCode::OK);
}
