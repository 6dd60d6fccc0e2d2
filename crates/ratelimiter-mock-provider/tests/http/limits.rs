//! Limits and their headers.

use hyper::StatusCode;
use ratelimiter_mock_provider::{MockOptions, RateCounts};

use super::harness::{CHAT, Context, MESSAGES, chat, every_call, messages, streamed, with};

/// GW-14
#[tokio::test]
async fn answers_without_limits_have_no_headers_about_them() {
    let context = Context::new(MockOptions::default()).await;
    for (path, body) in every_call() {
        let answer = context.call(path, &body).await;
        assert!(!answer.headers.keys().any(|name| name.as_str().contains("ratelimit")), "{path}");
    }
}

/// GW-14
#[tokio::test]
async fn a_used_up_limit_of_requests_is_a_429() {
    let options = MockOptions { requests_per_minute: Some(2), ..MockOptions::default() };
    let context = Context::new(options).await;
    for (path, body) in every_call() {
        context.provider.set_limits(Some(2), None);
        for remaining in ["1", "0"] {
            let answer = context.call(path, &body).await;
            assert_eq!(answer.status, StatusCode::OK);
            if path == MESSAGES {
                assert_eq!(answer.header("anthropic-ratelimit-requests-limit"), "2");
                assert_eq!(answer.header("anthropic-ratelimit-requests-remaining"), remaining);
                assert!(answer.header("anthropic-ratelimit-requests-reset").ends_with('Z'));
            } else {
                assert_eq!(answer.header("x-ratelimit-limit-requests"), "2");
                assert_eq!(answer.header("x-ratelimit-remaining-requests"), remaining);
                assert!(answer.header("x-ratelimit-reset-requests").ends_with('s'));
            }
        }
        let answer = context.call(path, &body).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        let wait = answer.header("retry-after").parse::<u64>().expect("seconds");
        assert!((1..=30).contains(&wait), "{wait}");
    }
}

/// GW-14
#[tokio::test]
async fn actual_tokens_are_counted_when_a_call_ends() {
    let options = MockOptions { tokens_per_minute: Some(60), ..MockOptions::default() };
    let context = Context::new(options).await;
    let answer = context.call(CHAT, &with(chat(), "max_tokens", 50)).await;
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), "37");
    let answer = context.call(MESSAGES, &streamed(messages())).await;
    assert_eq!(answer.status, StatusCode::OK);
    context.ends(2).await;
    let answer = context.call("/v1/messages/count_tokens", &messages()).await;
    let left = answer.header("anthropic-ratelimit-output-tokens-remaining").parse::<u64>();
    // One comes back each second.
    assert!((14..30).contains(&left.expect("a number")));
}

/// GW-14
#[tokio::test]
async fn reserved_tokens_are_counted_when_a_call_starts() {
    let options = MockOptions {
        tokens_per_minute: Some(120),
        rate_counts: RateCounts::Reserved,
        ..MockOptions::default()
    };
    let context = Context::new(options).await;
    let body = with(chat(), "max_tokens", 100);
    let answer = context.call(CHAT, &body).await;
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), "13");
    let answer = context.call(CHAT, &body).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
    assert!(!answer.header("retry-after-ms").is_empty());
    let answer = context.call(CHAT, &with(chat(), "max_tokens", 120)).await;
    assert_eq!(answer.header("retry-after"), "", "it never fits");
}
