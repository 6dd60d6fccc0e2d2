//! What the provider has seen of its callers.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use ratelimiter_mock_provider::{CallEnd, Fault, MockOptions, MockProvider};

use super::harness::{CHAT, Context, PATIENCE, chat, every_call, streamed};

/// GW-14
#[tokio::test]
async fn a_client_that_leaves_is_seen() {
    for http2 in [false, true] {
        let context = Context::over(MockOptions::default(), http2).await;
        let mut left = 0;
        for (path, body) in every_call() {
            for fault in [Fault::Stall, Fault::Endless] {
                let response = context.send(path, &body, &[("x-mock-fault", fault.name())]).await;
                let mut body = response.expect("an answer").into_body();
                let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
                assert!(frame.expect("in time").expect("a frame").is_ok(), "{path} {fault}");
                drop(body);
                left += 1;
                let ends = context.ends(left).await;
                assert_eq!(ends.last(), Some(&CallEnd::ClientGone), "{path} {fault}");
            }
        }
    }
}

/// GW-14
#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_seen() {
    for http2 in [false, true] {
        let options = MockOptions {
            latency: Duration::from_secs(600),
            requests_per_minute: Some(100),
            tokens_per_minute: Some(100),
            ..MockOptions::default()
        };
        let context = Context::over(options, http2).await;
        let call = context.client.request(context.request(CHAT, &chat(), &[]));
        let call = tokio::spawn(call);
        context.provider.wait_for_calls(1).await;
        assert_eq!(context.provider.calls()[0].ended, CallEnd::Open);
        call.abort();
        assert_eq!(context.ends(1).await, [CallEnd::ClientGone]);
    }
}

#[tokio::test]
async fn a_call_is_seen_as_it_was_sent() {
    let context = Context::new(MockOptions::default()).await;
    let path = format!("{CHAT}?trace=1");
    context.call_with(&path, &chat(), &[("x-trace", "7")]).await;
    let calls = context.provider.calls();
    let [call] = calls.as_slice() else { panic!("one call") };
    assert_eq!((call.number, &call.method, &call.path), (1, &Method::POST, &path));
    assert_eq!(call.headers["x-trace"], "7");
    assert_eq!(call.body, chat().to_string());
}

#[tokio::test]
async fn a_stopped_provider_closes_its_connections() {
    let context = Context::new(MockOptions::default()).await;
    let mut body = {
        let response = context.send(CHAT, &streamed(chat()), &[("x-mock-fault", "stall")]).await;
        response.expect("an answer").into_body()
    };
    context.provider.stop().await;
    let ends = async { while let Some(Ok(_)) = body.frame().await {} };
    tokio::time::timeout(PATIENCE, ends).await.expect("the connection is closed");
}

#[tokio::test]
async fn options_out_of_bounds_are_refused() {
    let options = MockOptions { fault_rate: 2.0, ..MockOptions::default() };
    let error = MockProvider::start(options).await.expect_err("a share above 1");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
