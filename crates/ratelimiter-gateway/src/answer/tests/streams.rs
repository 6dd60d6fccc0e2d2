use expect_test::expect;

use super::*;
use crate::answer::tests::recorded::{CHAT, MESSAGES, RESPONSES, STREAMS};

/// The start of a recorded stream, up to an event that has this text in it.
fn until<'a>(text: &'a str, event: &str) -> &'a str {
    let at = text.find(event).expect("it is in the recording");
    &text[..text[..at].rfind("\n\n").map_or(0, |end| end + 2)]
}

fn usage(operation: Operation, text: &str) -> Option<Usage> {
    observe_stream(operation, text).usage
}

/// GW-04
#[test]
fn usage_is_read_from_each_stream_however_it_is_cut() {
    let table: String = STREAMS
        .iter()
        .map(|(operation, text)| {
            format!("{operation:?}: {}\n", describe(&observe_stream(*operation, text)))
        })
        .collect();
    expect![[r#"
        ChatCompletions: Complete, usage 15 in, 4 read, 0 written, 0 for 1h, 10 out, 0 tools, 14 bytes of output
        Completions: Complete, usage 3 in, 0 read, 0 written, 0 for 1h, 2 out, 0 tools, 7 bytes of output
        Responses: Complete, usage 50 in, 25 read, 0 written, 0 for 1h, 1186 out, 1 tools, 7 bytes of output
        Messages: Complete, usage 25 in, 7 read, 10 written, 20 for 1h, 15 out, 3 tools, 12 bytes of output
    "#]].assert_eq(&table);
}

/// GW-05
#[test]
fn a_cut_stream_tells_what_it_has_told() {
    let table: String = [
        (Operation::ChatCompletions, until(CHAT, "\"choices\":[],")),
        (Operation::Responses, until(RESPONSES, "web_search_call")),
        (Operation::Responses, until(RESPONSES, "response.completed")),
        (Operation::Messages, until(MESSAGES, "ping")),
        (Operation::Messages, until(MESSAGES, "thinking_delta")),
        (Operation::Messages, until(MESSAGES, "message_delta")),
        (Operation::Messages, until(MESSAGES, "server_tool_use")),
    ]
    .iter()
    .map(|(operation, text)| {
        format!("{operation:?}: {}\n", describe(&observe_stream(*operation, text)))
    })
    .collect();
    expect![[r#"
        ChatCompletions: Open, 14 bytes of output
        Responses: Open, 0 bytes of output, reasoning
        Responses: Open, 7 bytes of output
        Messages: Open, input only 25 in, 7 read, 10 written, 20 for 1h, 0 out, 0 tools, 0 bytes of output
        Messages: Open, input only 25 in, 7 read, 10 written, 20 for 1h, 0 out, 0 tools, 0 bytes of output, reasoning
        Messages: Open, input only 25 in, 7 read, 10 written, 20 for 1h, 0 out, 0 tools, 12 bytes of output
        Messages: Open, usage 25 in, 7 read, 10 written, 20 for 1h, 12 out, 0 tools, 12 bytes of output
    "#]].assert_eq(&table);
}

/// GW-04
#[test]
fn the_last_cumulative_count_wins_and_an_absent_one_keeps_the_earlier() {
    let text = r#"data: {"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":9}}}

data: {"type":"message_delta","usage":{"input_tokens":40,"cache_read_input_tokens":8,"output_tokens":5}}

data: {"type":"message_delta","usage":{"output_tokens":7,"cache_read_input_tokens":null}}

data: {"type":"message_delta","delta":{}}

"#;
    let expected = Usage { input: 40, cache_read: 8, output: 7, ..Usage::default() };
    assert_eq!(usage(Operation::Messages, text), Some(expected));
}

/// GW-04
#[test]
fn an_hours_cache_write_is_a_part_of_all_cache_writes() {
    for (counts, write, hour) in [
        (
            r#""cache_creation_input_tokens":30,"cache_creation":{"ephemeral_1h_input_tokens":20}"#,
            10,
            20,
        ),
        (
            r#""cache_creation_input_tokens":30,"cache_creation":{"ephemeral_1h_input_tokens":50}"#,
            0,
            30,
        ),
        (r#""cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":6}"#, 5, 6),
        (r#""cache_creation_input_tokens":30,"cache_creation":[1]"#, 30, 0),
    ] {
        let text = format!(
            "data: {{\"type\":\"message_start\",\"message\":{{\"usage\":{{\"input_tokens\":1,{counts}}}}}}}\n\n"
        );
        let seen = observe_stream(Operation::Messages, &text).input_usage.expect("it is told");
        assert_eq!((seen.cache_write, seen.cache_write_1h), (write, hour), "{counts}");
    }
}

/// GW-04
#[test]
fn groqs_own_place_for_usage_is_read_too() {
    let text = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"prompt_tokens":5,"completion_tokens":6}}}

"#;
    let expected = Usage { input: 5, output: 6, ..Usage::default() };
    assert_eq!(usage(Operation::ChatCompletions, text), Some(expected));
}

#[test]
fn more_cached_than_there_is_means_all_is_cached() {
    let text = r#"data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":9}}}

"#;
    let expected = Usage { cache_read: 5, output: 6, ..Usage::default() };
    assert_eq!(usage(Operation::ChatCompletions, text), Some(expected));
}

#[test]
fn a_usage_of_zeros_is_a_placeholder() {
    let zeros = r#"data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    assert_eq!(usage(Operation::ChatCompletions, zeros), None);
    let truth = r#"data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":0}}"#;
    let expected = Usage { input: 2, ..Usage::default() };
    let both = format!("{truth}\n\n{zeros}\n\n");
    assert_eq!(usage(Operation::ChatCompletions, &both), Some(expected));
    let start = r#"data: {"type":"message_start","message":{"usage":{"input_tokens":0}}}"#;
    assert_eq!(observe_stream(Operation::Messages, start).input_usage, None);
}

/// GW-04
#[test]
fn fields_comments_and_data_of_several_lines_are_read_as_the_format_says() {
    let text = "\u{feff}id: 1\nretry: 5\n: a comment\ndata:{\"choices\":[],\ndata: \"usage\":\
        {\"prompt_tokens\":1,\ndata:\"completion_tokens\":2}}\ndatabase: {}\ndata\nunknown\n\n\n\ndata:[DONE]\n\n";
    let seen = observe_stream(Operation::ChatCompletions, text);
    assert_eq!(seen.usage, Some(Usage { input: 1, output: 2, ..Usage::default() }));
    assert_eq!(seen.end, AnswerEnd::Complete);
}

#[test]
fn the_last_event_needs_no_empty_line() {
    for tail in ["", "\n"] {
        let text = format!("{}{tail}", CHAT.trim_end());
        assert_eq!(observe_stream(Operation::ChatCompletions, &text).end, AnswerEnd::Complete);
    }
}

/// GW-05
#[test]
fn an_error_event_ends_the_answer_and_the_first_end_stays() {
    use AnswerEnd::{Complete, Failed, Open};
    let done = "data: [DONE]\n\n";
    for (operation, text, end) in [
        (Operation::ChatCompletions, r#"data: {"error":{"message":"overloaded"}}"#, Failed),
        (Operation::ChatCompletions, r#"data: {"error":null,"choices":[]}"#, Open),
        (Operation::ChatCompletions, "event: error\ndata: no JSON", Failed),
        (Operation::Responses, r#"data: {"type":"error","code":"x"}"#, Failed),
        (Operation::Responses, r#"data: {"type":"response.failed","response":{}}"#, Failed),
        (Operation::Responses, r#"data: {"type":"response.incomplete"}"#, Complete),
        (
            Operation::Responses,
            r#"data: {"type":"response.created","response":{"error":{}}}"#,
            Open,
        ),
        (
            Operation::Messages,
            r#"data: {"type":"error","error":{"type":"overloaded_error"}}"#,
            Failed,
        ),
        (Operation::Messages, r#"data: {"type":"message_stop"}"#, Complete),
    ] {
        assert_eq!(observe_stream(operation, text).end, end, "{text}");
        let later = if end == Open { Complete } else { end };
        assert_eq!(observe_stream(operation, &format!("{text}\n\n{done}")).end, later, "{text}");
    }
}

/// GW-05
#[test]
fn a_failed_response_tells_its_usage() {
    let text = r#"data: {"type":"response.failed","response":{"usage":{"input_tokens":3,"output_tokens":4}}}"#;
    let seen = observe_stream(Operation::Responses, text);
    assert_eq!(seen.end, AnswerEnd::Failed);
    assert_eq!(seen.usage, Some(Usage { input: 3, output: 4, ..Usage::default() }));
}

/// GW-05
#[test]
fn reasoning_is_out_of_sight_until_something_visible_comes() {
    let added = r#"data: {"type":"response.output_item.added","item":{"type":"reasoning"}}"#;
    let summary = r#"data: {"type":"response.reasoning_summary_text.delta","delta":"I think"}"#;
    let text = r#"data: {"type":"response.output_text.delta","delta":"So"}"#;
    let empty = r#"data: {"type":"response.output_text.delta","delta":""}"#;
    let redacted = r#"data: {"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"x"}}"#;
    let thinking =
        r#"data: {"type":"content_block_start","content_block":{"type":"thinking","thinking":""}}"#;
    let signature = r#"data: {"type":"content_block_delta","delta":{"type":"signature_delta","signature":"x"}}"#;
    let thought =
        r#"data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"Hm"}}"#;
    for (operation, events, is_reasoning) in [
        (Operation::Responses, &[added][..], true),
        (Operation::Responses, &[summary], false),
        (Operation::Responses, &[added, summary, empty], true),
        (Operation::Responses, &[added, summary, text], false),
        (Operation::Responses, &[added, text, added], true),
        (Operation::Messages, &[redacted], true),
        (Operation::Messages, &[thinking, signature], true),
        (Operation::Messages, &[thinking, thought, signature], false),
        (Operation::Messages, &[thinking, thought, redacted], true),
    ] {
        let seen = observe_stream(operation, &(events.join("\n\n") + "\n\n"));
        assert_eq!(seen.is_reasoning, is_reasoning, "{events:?}");
    }
}
