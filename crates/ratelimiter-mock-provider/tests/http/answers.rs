//! What each endpoint answers.

use http_body_util::Full;
use hyper::{Request, StatusCode, Version};
use ratelimiter_mock_provider::{CallEnd, MockOptions};
use serde_json::{Value, json};

use super::harness::{
    CHAT, COMPLETIONS, Context, EMBEDDINGS, MESSAGES, RESPONSES, chat, every_call, messages,
    prompt, read, response, streamed, with,
};

/// GW-14
#[tokio::test]
async fn a_chat_answer_has_its_words_and_usage() {
    let context = Context::new(MockOptions { output_tokens: 3, ..MockOptions::default() }).await;
    let answer = context.call(CHAT, &with(chat(), "n", 2)).await;
    let body = answer.json();
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(answer.header("x-request-id").starts_with("req_"));
    assert_eq!(body["created"], 1_700_000_001);
    assert_eq!(body["choices"][1]["message"]["content"], "word word word ");
    assert_eq!(body["choices"][1]["finish_reason"], "stop");
    let usage = &body["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(7), &json!(6)));
}

/// GW-14
#[tokio::test]
async fn the_callers_maximum_cuts_an_answer() {
    let context = Context::new(MockOptions::default()).await;
    for name in ["max_tokens", "max_completion_tokens"] {
        let body = context.call(CHAT, &with(chat(), name, 2)).await.json();
        assert_eq!(body["choices"][0]["message"]["content"], "word word ");
        assert_eq!(body["choices"][0]["finish_reason"], "length");
    }
    let body = context.call(COMPLETIONS, &with(prompt(), "max_tokens", 2)).await.json();
    assert_eq!(body["choices"][0]["text"], "word word ");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    let body = context.call(RESPONSES, &with(response(), "max_output_tokens", 2)).await.json();
    assert_eq!(body["status"], "incomplete");
    assert_eq!(body["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(body["usage"]["output_tokens"], 2);
    let body = context.call(MESSAGES, &with(messages(), "max_tokens", 2)).await.json();
    assert_eq!(body["stop_reason"], "max_tokens");
    assert_eq!(body["content"][0]["text"], "word word ");
    let cut = streamed(with(response(), "max_output_tokens", 2));
    let events = context.call(RESPONSES, &cut).await.events();
    assert_eq!(events.last().expect("events")["type"], "response.incomplete");
}

/// GW-14
#[tokio::test]
async fn a_stream_without_include_usage_has_no_usage() {
    let context = Context::new(MockOptions { output_tokens: 2, ..MockOptions::default() }).await;
    for (path, body) in [(CHAT, streamed(chat())), (COMPLETIONS, streamed(prompt()))] {
        let answer = context.call(path, &body).await;
        assert_eq!(answer.header("content-type"), "text/event-stream; charset=utf-8");
        assert!(answer.text().ends_with("}\n\ndata: [DONE]\n\n"));
        for event in answer.events() {
            assert!(event.get("usage").is_none(), "{event}");
            assert_eq!(event["choices"].as_array().map(Vec::len), Some(1));
        }
    }
}

/// GW-14
#[tokio::test]
async fn a_stream_with_include_usage_has_it_in_its_last_chunk() {
    let context = Context::new(MockOptions { output_tokens: 2, ..MockOptions::default() }).await;
    for body in [chat(), with(chat(), "n", 2)] {
        let choices = body["n"].as_u64().unwrap_or(1);
        let body = with(streamed(body), "stream_options", json!({ "include_usage": true }));
        let events = context.call(CHAT, &body).await.events();
        let (last, others) = events.split_last().expect("events");
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], 2 * choices);
        assert!(others.iter().all(|event| event.get("usage") == Some(&Value::Null)));
        let content =
            |event: &Value| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
        let words = others.iter().filter_map(content).collect::<String>();
        assert_eq!(words, "word word ".repeat(usize::try_from(choices).expect("few")));
        assert_eq!(others[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(others.last().expect("chunks")["choices"][0]["finish_reason"], "stop");
    }
}

/// GW-14
#[tokio::test]
async fn a_stream_of_responses_has_named_and_numbered_events() {
    let context = Context::new(MockOptions { output_tokens: 2, ..MockOptions::default() }).await;
    let answer = context.call(RESPONSES, &streamed(response())).await;
    let events = answer.events();
    let names = events.iter().map(|event| event["type"].as_str().expect("a type"));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers = events.iter().map(|event| event["sequence_number"].as_u64().expect("a number"));
    assert!(numbers.eq(0..10));
    assert!(!answer.text().contains("[DONE]"));
    let usage = &events[9]["response"]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(7), &json!(2)));
}

/// GW-14
#[tokio::test]
async fn a_stream_of_messages_has_its_usage_in_the_first_and_last_event() {
    let context = Context::new(MockOptions { output_tokens: 2, ..MockOptions::default() }).await;
    let events = context.call(MESSAGES, &streamed(messages())).await.events();
    let names = events.iter().map(|event| event["type"].as_str().expect("a type"));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 7);
    assert_eq!(events[0]["message"]["usage"]["output_tokens"], 1);
    assert_eq!(events[6]["usage"]["output_tokens"], 2);
    assert_eq!(events[6]["delta"]["stop_reason"], "end_turn");
}

#[tokio::test]
async fn embeddings_are_numbers_or_base64() {
    let context = Context::new(MockOptions::default()).await;
    let body = json!({ "model": "m", "input": ["one two", "three"], "dimensions": 4 });
    let answer = context.call(EMBEDDINGS, &body).await.json();
    assert_eq!(answer["data"][1]["embedding"].as_array().map(Vec::len), Some(4));
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 3, "total_tokens": 3 }));
    let answer = context.call(EMBEDDINGS, &with(body, "encoding_format", "base64")).await.json();
    // 16 bytes.
    assert_eq!(answer["data"][0]["embedding"].as_str().map(str::len), Some(24));
}

#[tokio::test]
async fn tokens_are_counted_and_models_listed() {
    let context = Context::new(MockOptions::default()).await;
    let answer = context.call("/v1/messages/count_tokens", &messages()).await;
    assert_eq!(answer.json(), json!({ "input_tokens": 7 }));
    for (name, kind) in [("x-none", "object"), ("anthropic-version", "type")] {
        let url = format!("{}/models", context.provider.base_url_openai());
        let request = Request::get(url).header(name, "1").body(Full::default()).expect("valid");
        let answer = read(context.client.request(request).await.expect("an answer")).await;
        assert_eq!(answer.json()["data"][0][kind], "model");
    }
}

#[tokio::test]
async fn http_2_is_spoken_in_cleartext() {
    let context = Context::over(MockOptions::default(), true).await;
    for (path, body) in every_call() {
        let response = context.send(path, &body, &[]).await.expect("an answer");
        assert_eq!(response.version(), Version::HTTP_2);
        let answer = read(response).await;
        assert!(answer.is_whole && answer.status == StatusCode::OK, "{path}");
    }
    assert!(context.ends(9).await.iter().all(|end| *end == CallEnd::Answered));
}

/// GW-14
#[tokio::test]
async fn the_answers_follow_from_the_seed() {
    let mut answers = Vec::new();
    for seed in [5, 5, 6] {
        let context = Context::new(MockOptions { seed, ..MockOptions::default() }).await;
        let mut bodies = Vec::new();
        for (path, body) in every_call() {
            bodies.push(context.call(path, &body).await.body);
        }
        answers.push(bodies);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[1].iter().zip(&answers[2]).all(|(one, other)| one != other));
}

#[tokio::test]
async fn a_caller_can_say_how_many_tokens_there_are() {
    let context = Context::new(MockOptions::default()).await;
    let headers = [("x-mock-output-tokens", "100"), ("x-mock-prompt-tokens", "5000")];
    let usage = &context.call_with(CHAT, &chat(), &headers).await.json()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(5000), &json!(100)));
    context.provider.set_output_tokens(5);
    let usage = &context.call(CHAT, &chat()).await.json()["usage"];
    assert_eq!(usage["completion_tokens"], 5);
    for headers in [("x-mock-output-tokens", "200001"), ("x-mock-fault", "earthquake")] {
        let answer = context.call_with(CHAT, &chat(), &[headers]).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn another_key_is_refused() {
    let api_key = Some("secret".to_owned());
    let context = Context::new(MockOptions { api_key, ..MockOptions::default() }).await;
    let answer = context.call_with(CHAT, &chat(), &[("authorization", "Bearer other")]).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
    let answer = context.call(MESSAGES, &messages()).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.json()["error"]["type"], "authentication_error");
    for header in [("authorization", "Bearer secret"), ("x-api-key", "secret")] {
        let answer = context.call_with(MESSAGES, &messages(), &[header]).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_shape_of_the_api() {
    let context = Context::new(MockOptions { body_bytes_max: 200, ..MockOptions::default() }).await;
    for (path, body, status) in [
        (CHAT, json!([]), 400),
        (CHAT, json!({ "model": "gpt-4o" }), 400),
        (CHAT, json!({ "messages": [{}] }), 400),
        (COMPLETIONS, json!({ "model": "m" }), 400),
        (RESPONSES, json!({ "model": "m" }), 400),
        (EMBEDDINGS, json!({ "model": "m" }), 400),
        (MESSAGES, json!({ "model": "m", "messages": [{}] }), 400),
        (MESSAGES, json!("x".repeat(199)), 413),
        (CHAT, json!("x".repeat(199)), 413),
        (CHAT, json!("x".repeat(198)), 400),
        ("/v1/audio/speech", json!({}), 404),
        ("/v1/messages/batches", json!({}), 404),
        ("/v1/models", json!({}), 405),
    ] {
        let answer = context.call(path, &body).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {body}");
        let is_anthropic = path.starts_with(MESSAGES);
        assert_eq!(answer.json()["type"] == "error", is_anthropic, "{path}");
        assert!(answer.json()["error"]["message"].is_string());
    }
    let url = format!("{}{MESSAGES}", context.provider.base_url_anthropic());
    let request = Request::post(url).body(Full::from(messages().to_string())).expect("valid");
    let answer = read(context.client.request(request).await.expect("an answer")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json()["error"]["message"], "anthropic-version: header is required");
}
