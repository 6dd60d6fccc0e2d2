use expect_test::expect;

use super::*;
use crate::answer::{json_scanner::DEPTH_MAX, plain::USAGE_BYTES_MAX};

const CHAT: &str = r#"{
  "id": "chatcmpl-1", "object": "chat.completion", "error": null,
  "choices": [{"index": 0, "message": {"role": "assistant", "content": "Grüße \ud83d\ude00\n\u00e9", "refusal": null,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}], "annotations": []},
    "logprobs": {"content": [{"token": "Gr", "logprob": -0.1, "top_logprobs": []}]}, "finish_reason": "stop"}],
  "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29, "prompt_tokens_details": {"cached_tokens": 4}},
  "service_tier": "default"
}
"#;

const COMPLETIONS: &str = r#"{"id":"cmpl-1","choices":[{"text":"Hello","index":0,"logprobs":null}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;

const RESPONSES: &str = r#"{"id":"resp_1","object":"response","status":"completed","error":null,"instructions":"Be kind",
"output":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm"}],"encrypted_content":"gAAAA"},
{"type":"web_search_call","id":"ws_1","action":{"type":"search","query":"what"}},
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello","annotations":[{"type":"url_citation","title":"t"}]}]},
{"type":"function_call","name":"f","arguments":"{}"}],
"text":{"format":{"type":"text"}},"tools":[{"type":"function","name":"f","parameters":{"properties":{"text":{"type":"string"}}}}],
"usage":{"input_tokens":75,"input_tokens_details":{"cached_tokens":25},"output_tokens":1186,"total_tokens":1261},"metadata":{"usage":"mine"}}"#;

const EMBEDDINGS: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[-0.0123,1e-5,0]},{"embedding":"AACAPw=="}],"model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}"#;

const MESSAGES: &str = r#"{"id":"msg_1","type":"message","role":"assistant",
"content":[{"type":"thinking","thinking":"Hm","signature":"EqQB"},{"type":"redacted_thinking","data":"EmwK"},
{"type":"text","text":"Hello","citations":[{"cited_text":"no"}]},{"type":"tool_use","id":"t","name":"f","input":{"city":"Bonn","days":[1,"two"]}}],
"stop_reason":"tool_use","usage":{"input_tokens":25,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_1h_input_tokens":20},
"cache_read_input_tokens":7,"output_tokens":15,"server_tool_use":{"web_search_requests":2}}}"#;

/// All of them.
pub(super) const ANSWERS: [(Operation, &str); 5] = [
    (Operation::ChatCompletions, CHAT),
    (Operation::Completions, COMPLETIONS),
    (Operation::Responses, RESPONSES),
    (Operation::Embeddings, EMBEDDINGS),
    (Operation::Messages, MESSAGES),
];

/// GW-04
#[test]
fn usage_is_read_from_each_plain_answer_however_it_is_cut() {
    let table: String = ANSWERS
        .iter()
        .map(|(operation, text)| {
            format!("{operation:?}: {}\n", describe(&observe_plain(*operation, text)))
        })
        .collect();
    expect![[r#"
        ChatCompletions: Complete, usage 15 in, 4 read, 0 written, 0 for 1h, 10 out, 0 tools, 17 bytes of output
        Completions: Complete, usage 3 in, 0 read, 0 written, 0 for 1h, 2 out, 0 tools, 5 bytes of output
        Responses: Complete, usage 50 in, 25 read, 0 written, 0 for 1h, 1186 out, 1 tools, 9 bytes of output
        Embeddings: Complete, usage 8 in, 0 read, 0 written, 0 for 1h, 0 out, 0 tools, 0 bytes of output
        Messages: Complete, usage 25 in, 7 read, 10 written, 20 for 1h, 15 out, 2 tools, 22 bytes of output
    "#]].assert_eq(&table);
}

/// GW-05
#[test]
fn an_error_and_a_failed_status_fail_the_answer() {
    use AnswerEnd::{Complete, Failed};
    for (operation, text, end) in [
        (Operation::ChatCompletions, r#"{"error":{"message":"no"}}"#, Failed),
        (Operation::ChatCompletions, r#"{"error":"no"}"#, Failed),
        (Operation::ChatCompletions, r#"{"error" : null }"#, Complete),
        (Operation::ChatCompletions, r#"{"choices":[{"error":{}}]}"#, Complete),
        (Operation::ChatCompletions, r#"{"type":"error","status":"failed"}"#, Complete),
        (Operation::Responses, r#"{"status":"failed","usage":{}}"#, Failed),
        (Operation::Responses, r#"{"status":"incomplete"}"#, Complete),
        (Operation::Messages, r#"{"type":"error"}"#, Failed),
        (Operation::Messages, r#"{"type":"message"}"#, Complete),
    ] {
        assert_eq!(observe_plain(operation, text).end, end, "{text}");
    }
}

/// GW-05
#[test]
fn a_failed_response_keeps_its_usage() {
    let text = r#"{"status":"failed","usage":{"input_tokens":3,"output_tokens":4},"error":{}}"#;
    let seen = observe_plain(Operation::Responses, text);
    assert_eq!(seen.usage, Some(Usage { input: 3, output: 4, ..Usage::default() }));
    assert_eq!(seen.end, AnswerEnd::Failed);
}

/// GW-05
#[test]
fn an_answer_that_is_cut_off_is_open_and_its_usage_is_known_once_it_has_passed() {
    let whole = observe_plain(Operation::ChatCompletions, CHAT).usage;
    let usage_end = CHAT.find("  \"service_tier").expect("it is there") - 2;
    for len in 0..CHAT.trim_end().len() {
        let seen = plain(Operation::ChatCompletions, [&CHAT.as_bytes()[..len]]);
        assert_eq!(seen.end, AnswerEnd::Open);
        assert_eq!(seen.usage, whole.filter(|_| len >= usage_end), "after {len} bytes");
    }
}

/// GW-10
#[test]
fn a_usage_is_read_up_to_the_longest() {
    for (extra, is_read) in [(0, true), (1, false)] {
        let usage = r#"{"prompt_tokens":8}"#;
        let padding = " ".repeat(USAGE_BYTES_MAX - usage.len() - 1 + extra);
        let text = format!("{{\"usage\":{padding}{usage},\"error\":null}}");
        for chunk_bytes in [usize::MAX, 1000] {
            let seen = plain(Operation::Embeddings, text.as_bytes().chunks(chunk_bytes));
            assert_eq!(seen.usage.is_some(), is_read);
            assert_eq!(seen.end, AnswerEnd::Complete);
        }
    }
}

/// GW-10
#[test]
fn json_is_read_up_to_the_deepest() {
    for (depth, end) in [(DEPTH_MAX, AnswerEnd::Complete), (DEPTH_MAX + 1, AnswerEnd::Open)] {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(plain(Operation::Messages, [text.as_bytes()]).end, end);
    }
}

#[test]
fn a_large_answer_of_embeddings_is_not_kept() {
    let mut meter = PlainMeter::new(Operation::Embeddings);
    meter.feed(br#"{"data":[{"embedding":["#);
    for _ in 0..1000 {
        meter.feed("-0.0123,".repeat(1000).as_bytes());
        assert!(format!("{meter:?}").len() < 1000, "all that it keeps");
    }
    meter.feed(br#"0]}],"usage":{"prompt_tokens":8}}"#);
    let expected = Some(Usage { input: 8, ..Usage::default() });
    assert_eq!(meter.observed().usage, expected);
    assert_eq!(meter.observed().end, AnswerEnd::Complete);
}

/// GW-05
#[test]
fn gw_05_what_is_in_no_known_form_may_be_text() {
    for (text, output_bytes) in [
        (r#"{"choices":[{"text":"Hello"}]}"#, 5),
        (r#"{"choices":[{"text":"Hello"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#, 5),
        (r#"{"answer":"Hello"}"#, 18),
        (r#"{"choices":[{"text":"Hel"#, 24),
        ("<html>", 6),
        (r#"{"error":{"message":"no"}}"#, 0),
    ] {
        let observed = observe_plain(Operation::Completions, text).or_received(text.len() as u64);
        assert_eq!(observed.output_bytes, output_bytes, "{text}");
    }
}
