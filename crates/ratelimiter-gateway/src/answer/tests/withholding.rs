use super::*;
use crate::answer::{
    stream::EVENT_BYTES_MAX,
    tests::recorded::{CHAT, COMPLETIONS},
};

/// A recorded stream without its event of usage.
fn without_usage(text: &str) -> String {
    let events = text.split_inclusive("\n\n");
    events.filter(|event| !event.contains("\"choices\":[],")).collect()
}

/// GW-04
#[test]
fn the_event_of_usage_is_withheld_and_all_other_bytes_pass_however_they_are_cut() {
    for (operation, text) in
        [(Operation::ChatCompletions, CHAT), (Operation::Completions, COMPLETIONS)]
    {
        let (passed, seen) = stream_however_cut(operation, true, text);
        assert_eq!(passed, without_usage(text));
        assert_eq!(seen, observe_stream(operation, text));
    }
}

/// GW-04
#[test]
fn only_a_usage_without_choices_is_withheld() {
    for (event, is_withheld) in [
        (r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#, true),
        (r#"{"choices": [ ] , "usage": {}}"#, true),
        (r#"{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#, false),
        (r#"{"choices":[],"usage":null}"#, false),
        (r#"{"choices":[],"prompt_filter_results":[]}"#, false),
        (r#"{"choices":null,"usage":{}}"#, false),
        (r#"{"usage":{}}"#, false),
        (r#"{"choices":[],"usage":[]}"#, false),
        (r#"[[],{}]"#, false),
    ] {
        let text = format!(": a\n\nevent: chunk\ndata: {event}\n: b\n\n\n");
        let (passed, _) = stream_however_cut(Operation::ChatCompletions, true, &text);
        assert_eq!(passed, if is_withheld { ": a\n\n\n" } else { &text }, "{event}");
    }
}

/// GW-04
#[test]
fn an_event_that_is_cut_off_passes_and_a_whole_one_without_its_empty_line_does_not() {
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let (passed, seen) = stream_however_cut(Operation::ChatCompletions, true, usage);
    assert_eq!((passed.as_str(), seen.usage.is_some()), ("", true));
    let cut = &usage[..usage.len() - 1];
    let (passed, seen) = stream_however_cut(Operation::ChatCompletions, true, cut);
    assert_eq!((passed.as_str(), seen.usage.is_some()), (cut, false));
}

/// GW-04
#[test]
fn a_chunk_of_whole_events_passes_without_a_copy() {
    let chunk = Bytes::from(without_usage(CHAT));
    for withholds_usage in [false, true] {
        let mut meter = StreamMeter::new(Operation::ChatCompletions, withholds_usage);
        let passed = meter.feed(chunk.clone());
        assert_eq!((passed.as_ptr(), passed.len()), (chunk.as_ptr(), chunk.len()));
    }
}

/// GW-04
#[test]
fn nothing_is_held_back_where_nothing_is_withheld() {
    let mut meter = StreamMeter::new(Operation::ChatCompletions, false);
    for chunk in CHAT.as_bytes().chunks(7) {
        let chunk = Bytes::copy_from_slice(chunk);
        let passed = meter.feed(chunk.clone());
        assert_eq!((passed.as_ptr(), passed.len()), (chunk.as_ptr(), chunk.len()));
    }
    assert!(meter.finish().is_empty());
}

/// GW-10
#[test]
fn an_event_is_read_up_to_the_longest_and_passes_unread_beyond() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    for (extra, line_end) in [(0, "\n"), (1, "\n"), (0, "\r"), (100, "\r\n")] {
        let line_ends = 2 * line_end.len() - line_end.len() / 2;
        let start = format!("data: {usage}");
        let padding = " ".repeat(EVENT_BYTES_MAX - start.len() - line_ends + extra);
        let text = format!("{start}{padding}{line_end}{line_end}data: [DONE]{line_end}{line_end}");
        for chunk_bytes in [usize::MAX, EVENT_BYTES_MAX, EVENT_BYTES_MAX - 1, 70_001, 999] {
            let (passed, seen) =
                stream(Operation::ChatCompletions, true, text.as_bytes().chunks(chunk_bytes));
            let is_read = extra == 0;
            assert_eq!(seen.usage.is_some(), is_read, "{extra} beyond");
            assert_eq!(seen.output_bytes, extra as u64);
            assert_eq!(seen.end, AnswerEnd::Complete);
            assert_eq!(passed.len() == text.len(), !is_read, "{extra} beyond");
            assert!(text.as_bytes().ends_with(&passed));
        }
    }
}

/// GW-10
#[test]
fn a_long_event_that_does_not_end_passes_and_counts_as_output() {
    let mut meter = StreamMeter::new(Operation::ChatCompletions, true);
    assert!(meter.feed(Bytes::from(vec![b'x'; EVENT_BYTES_MAX])).is_empty());
    assert_eq!(meter.feed(Bytes::from_static(b"yz")).len(), EVENT_BYTES_MAX + 2);
    assert_eq!(meter.feed(Bytes::from_static(b"yz")).len(), 2);
    assert_eq!(meter.observed().output_bytes, 4);
    assert!(meter.finish().is_empty());
    assert_eq!(meter.observed().output_bytes, 4);
}
