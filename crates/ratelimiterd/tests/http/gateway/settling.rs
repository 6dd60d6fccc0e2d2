//! Every end of a call at every operation (`GW-05`).

use http_body_util::BodyExt;
use hyper::Method;
use ratelimiter_mock_provider::CallEnd;
use serde_json::json;
use testkit::eventually;

use super::{GatewayTest, MAX_TOKENS, Operation};

const PROMPT: u64 = 11;
const OUTPUT: u64 = 7;
const NO_RETRIES: (&str, &str) = ("x-ratelimiter-retries", "0");
const PROMPT_HEADER: (&str, &str) = ("x-mock-prompt-tokens", "11");

/// What a call of an operation reserves of its input. A call without an answer tells: its estimate stays.
async fn reserved_input(operation: Operation) -> u64 {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let answer = test.call(operation, false, &[("x-mock-fault", "reset")]).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    let (requests, tokens, _) = test.settled(operation).await;
    assert_eq!(requests, 1);
    if operation == Operation::Embeddings { tokens } else { tokens - MAX_TOKENS }
}

/// What one call with a fault is settled with: requests and tokens.
async fn settled_with(operation: Operation, is_stream: bool, fault: &str) -> (u64, u64) {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let mut headers = vec![PROMPT_HEADER, NO_RETRIES];
    if !fault.is_empty() {
        headers.push(("x-mock-fault", fault));
    }
    drop(test.call(operation, is_stream, &headers).await);
    let (requests, tokens, _) = test.settled(operation).await;
    (requests, tokens)
}

/// All operations, plain and, where they have them, as streams.
fn kinds() -> impl Iterator<Item = (Operation, bool)> {
    let kinds = Operation::ALL.into_iter().flat_map(|one| [(one, false), (one, true)]);
    kinds.filter(|(operation, is_stream)| !is_stream || operation.can_stream())
}

const fn output_of(operation: Operation) -> u64 {
    if operation.can_stream() { OUTPUT } else { 0 }
}

/// GW-05
#[tokio::test]
async fn gw_05_answered_with_usage_it_is_the_usage() {
    for (operation, is_stream) in kinds() {
        let used = settled_with(operation, is_stream, "").await;
        assert_eq!(used, (1, PROMPT + output_of(operation)), "{operation:?} {is_stream}");
    }
}

/// GW-02, GW-05
#[tokio::test]
async fn gw_02_a_call_is_counted_in_every_dimension() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let answer = test.call(Operation::Chat, false, &[PROMPT_HEADER]).await;
    assert_eq!(answer.status, 200);
    let (requests, tokens, cost) = test.settled(Operation::Chat).await;
    assert_eq!((requests, tokens, cost), (1, PROMPT + OUTPUT, PROMPT + 2 * OUTPUT));
    assert_eq!(test.used(&Operation::Chat.key("otpm")), OUTPUT);
}

/// GW-05: each word of the mock has 5 bytes, and 3 bytes count as one token.
#[tokio::test]
async fn gw_05_where_the_provider_does_not_say_it_is_counted() {
    for (operation, is_stream) in kinds() {
        let input = reserved_input(operation).await;
        let (requests, tokens) = settled_with(operation, is_stream, "no-usage").await;
        let counted = tokens - input;
        let expected = if operation.can_stream() { (5 * OUTPUT).div_ceil(3) } else { 0 };
        assert_eq!((requests, counted), (1, expected), "{operation:?} {is_stream}");
    }
}

/// GW-05
#[tokio::test]
async fn gw_05_refused_by_the_provider_it_is_a_request_and_no_tokens() {
    for (operation, is_stream) in kinds() {
        for fault in ["429", "quota", "503"] {
            let used = settled_with(operation, is_stream, fault).await;
            assert_eq!(used, (1, 0), "{operation:?} {is_stream} {fault}");
        }
    }
}

/// GW-05
#[tokio::test]
async fn gw_05_of_a_stream_that_breaks_the_input_and_what_passed_counts() {
    for (operation, is_stream) in kinds().filter(|(_, is_stream)| *is_stream) {
        let input = reserved_input(operation).await;
        for fault in ["cut", "cut-utf8", "error-event"] {
            let (requests, tokens) = settled_with(operation, is_stream, fault).await;
            // Anthropic says at the beginning what the input was.
            let input = if operation == Operation::Messages { PROMPT } else { input };
            let output = tokens.checked_sub(input).unwrap();
            assert_eq!(requests, 1);
            assert!(output <= (5 * OUTPUT).div_ceil(3) + 2, "{operation:?} {fault}: {output}");
            assert!(
                output > 0 || fault == "cut-utf8",
                "{operation:?} {fault}: something had passed"
            );
        }
    }
}

/// GW-05
#[tokio::test]
async fn gw_05_of_a_plain_answer_that_breaks_the_estimate_stays() {
    for (operation, is_stream) in kinds().filter(|(_, is_stream)| !is_stream) {
        let bound = if operation.can_stream() { MAX_TOKENS } else { 0 };
        let estimate = reserved_input(operation).await + bound;
        for fault in ["cut", "reset"] {
            let used = settled_with(operation, is_stream, fault).await;
            assert_eq!(used, (1, estimate), "{operation:?} {fault}");
        }
    }
}

/// GW-05
#[tokio::test]
async fn gw_05_without_any_answer_the_estimate_stays() {
    for (operation, is_stream) in kinds() {
        let bound = if operation.can_stream() { MAX_TOKENS } else { 0 };
        let estimate = reserved_input(operation).await + bound;
        let used = settled_with(operation, is_stream, "reset").await;
        assert_eq!(used, (1, estimate), "{operation:?} {is_stream}");
    }
}

/// GW-05
#[tokio::test]
async fn gw_05_never_sent_it_is_nothing() {
    for (operation, is_stream) in kinds() {
        let test = GatewayTest::start_with(|section| {
            for provider in section["providers"].as_array_mut().unwrap() {
                // Nothing listens there.
                provider["base_url"] = json!("http://127.0.0.1:1");
            }
        })
        .await;
        test.define_limits().await;
        let answer = test.call(operation, is_stream, &[NO_RETRIES]).await;
        assert_eq!(answer.status, 502, "{answer:?}");
        assert_eq!(test.settled(operation).await, (0, 0, 0), "{operation:?} {is_stream}");
    }
}

/// GW-05
#[tokio::test]
async fn gw_05_a_caller_that_leaves_a_stream_pays_for_what_was_streamed() {
    for (operation, is_stream) in kinds().filter(|(_, is_stream)| *is_stream) {
        let input = reserved_input(operation).await;
        let test = GatewayTest::start().await;
        test.define_limits().await;
        let headers = [PROMPT_HEADER, ("x-mock-fault", "stall")];
        let mut answer = test.begin(operation, is_stream, &headers).await;
        let first = answer.body_mut().frame().await.unwrap().unwrap();
        assert!(!first.data_ref().unwrap().is_empty());
        assert_eq!(test.used(&operation.key("concurrency")), 1, "it is open");
        drop(answer);
        let (requests, tokens, _) = test.settled(operation).await;
        let input = if operation == Operation::Messages { PROMPT } else { input };
        assert_eq!(requests, 1);
        assert!((input..input + MAX_TOKENS).contains(&tokens), "{operation:?}: {tokens}");
        eventually("the provider's call is cancelled", async || {
            test.mock.calls()[0].ended == CallEnd::ClientGone
        })
        .await;
    }
}

/// GW-05
#[tokio::test]
async fn gw_05_a_caller_that_leaves_before_a_plain_answer_leaves_the_estimate() {
    for (operation, is_stream) in kinds().filter(|(_, is_stream)| !is_stream) {
        let bound = if operation.can_stream() { MAX_TOKENS } else { 0 };
        let estimate = reserved_input(operation).await + bound;
        let test = GatewayTest::start().await;
        test.define_limits().await;
        let headers = [("x-mock-fault", "slow")];
        tokio::select! {
            answer = test.begin(operation, is_stream, &headers) => panic!("{answer:?}"),
            () = test.mock.wait_for_calls(1) => {}
        }
        let (requests, tokens, _) = test.settled(operation).await;
        assert_eq!((requests, tokens), (1, estimate), "{operation:?}");
        eventually("the provider's call is cancelled", async || {
            test.mock.calls()[0].ended == CallEnd::ClientGone
        })
        .await;
    }
}

/// GW-05
#[tokio::test]
async fn gw_05_a_caller_that_leaves_before_the_output_leaves_the_estimate_where_a_model_reasons() {
    let reasons = |effort: &str, thinking: &str| {
        [
            (Operation::Chat, "reasoning_effort", json!(effort)),
            (Operation::Responses, "reasoning", json!({"effort": effort})),
            (Operation::Messages, "thinking", json!({"type": thinking})),
        ]
    };
    let told = reasons("high", "enabled").map(|call| (call, MAX_TOKENS));
    let told_not = reasons("none", "disabled").map(|call| (call, 0));
    for ((operation, field, value), output) in told.into_iter().chain(told_not) {
        let test = GatewayTest::start().await;
        test.define_limits().await;
        let mut body = operation.body(true);
        body[field] = value;
        let headers = [("x-mock-fault", "slow")];
        tokio::select! {
            answer = test.begin_with(operation, body.clone(), &headers) => panic!("{answer:?}"),
            () = test.mock.wait_for_calls(1) => {}
        }
        let (requests, tokens, _) = test.settled(operation).await;
        assert_eq!((requests, test.used(&operation.key("otpm"))), (1, output), "{body}");
        assert!(tokens > output, "the input counts: {tokens} for {body}");
    }
}

/// GW-05: after it, what was streamed counts.
#[tokio::test]
async fn gw_05_a_model_that_has_begun_its_output_reasons_no_more() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let mut body = Operation::Chat.body(true);
    body["reasoning_effort"] = json!("high");
    let headers = [("x-mock-fault", "stall")];
    let mut answer = test.begin_with(Operation::Chat, body, &headers).await;
    let mut passed = String::new();
    while !passed.contains("word") {
        let data = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        passed += std::str::from_utf8(&data).unwrap();
    }
    drop(answer);
    test.settled(Operation::Chat).await;
    let output = test.used(&Operation::Chat.key("otpm"));
    assert!((1..MAX_TOKENS).contains(&output), "{output}");
}

/// GW-05
#[tokio::test]
async fn gw_05_a_silent_provider_ends_its_call_alone() {
    let test = GatewayTest::start_with(|section| {
        section["providers"][0]["upstream_timeout_ms"] = json!(100);
    })
    .await;
    test.define_limits().await;
    let other = test.begin(Operation::Messages, true, &[("x-mock-fault", "stall")]).await;
    let silent = test.call(Operation::Chat, true, &[("x-mock-fault", "stall")]).await;
    assert_eq!(silent.status, 200, "its first half came");
    assert!(!silent.body.contains("[DONE]"));
    let slow = test.call(Operation::Chat, false, &[("x-mock-fault", "slow")]).await;
    assert_eq!(slow.status, 504, "{slow:?}");
    eventually("both are settled", async || test.server.memory.open_leases() == 1).await;
    assert_eq!(test.used(&Operation::Chat.key("rpm")), 2);
    assert_eq!(test.used(&Operation::Messages.key("concurrency")), 1, "another call goes on");
    drop(other);
    test.settled(Operation::Messages).await;
}

/// GW-05: what the provider counts up front is not given back to its rates, and to budgets it is.
#[tokio::test]
async fn gw_05_rates_that_count_up_front_keep_what_was_reserved() {
    let input = reserved_input(Operation::Chat).await;
    let test = GatewayTest::start_with(|section| {
        section["providers"][0]["rate_counts"] = json!("reserved");
    })
    .await;
    test.define_limits().await;
    test.call(Operation::Chat, false, &[PROMPT_HEADER]).await;
    let (_, tokens, cost) = test.settled(Operation::Chat).await;
    assert_eq!((tokens, cost), (input + MAX_TOKENS, PROMPT + 2 * OUTPUT));
}

/// A path that is not metered needs no room and is not counted.
#[tokio::test]
async fn lists_of_models_and_counts_of_tokens_pass_unmetered() {
    let test = GatewayTest::start().await;
    test.define_limits().await;
    let models = test.request(Method::GET, "/openai/v1/models", &[], "").await;
    assert_eq!(models.status, 200);
    assert_eq!(models.json()["object"], "list");
    let body = Operation::Messages.body(false).to_string();
    let headers = [("anthropic-version", "2023-06-01")];
    let count =
        test.request(Method::POST, "/anthropic/v1/messages/count_tokens", &headers, body).await;
    assert!(count.json()["input_tokens"].as_u64().unwrap() > 0, "{count:?}");
    assert_eq!(test.settled(Operation::Chat).await, (0, 0, 0));
    assert_eq!(test.settled(Operation::Messages).await, (0, 0, 0));
}
