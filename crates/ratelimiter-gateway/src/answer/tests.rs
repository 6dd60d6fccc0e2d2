//! Answers as providers send them, cut in every way, and mutated.

mod garbage;
mod plain;
mod recorded;
mod streams;
mod withholding;

use bytes::Bytes;

use crate::{
    answer::{AnswerEnd, Observed, PlainMeter, StreamMeter},
    api::Operation,
    usage::Usage,
};

const OPERATIONS: [Operation; 5] = [
    Operation::ChatCompletions,
    Operation::Completions,
    Operation::Responses,
    Operation::Embeddings,
    Operation::Messages,
];

/// What passed of a stream, and what was seen in it.
fn stream<'a>(
    operation: Operation,
    withholds_usage: bool,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, Observed) {
    let mut meter = StreamMeter::new(operation, withholds_usage);
    let mut passed = Vec::new();
    for chunk in chunks {
        passed.extend_from_slice(&meter.feed(Bytes::copy_from_slice(chunk)));
    }
    passed.extend_from_slice(&meter.finish());
    (passed, meter.observed())
}

/// The same for a stream in one piece, cut in two at every byte, and byte by byte, with all three line ends.
fn stream_however_cut(
    operation: Operation,
    withholds_usage: bool,
    text: &str,
) -> (String, Observed) {
    let whole = stream(operation, withholds_usage, [text.as_bytes()]);
    let passed = String::from_utf8(whole.0).expect("text was sent");
    let expected_seen = whole.1;
    for line_end in ["\n", "\r\n", "\r"] {
        let bytes = text.replace('\n', line_end).into_bytes();
        let expected = (passed.replace('\n', line_end).into_bytes(), expected_seen);
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            let seen = stream(operation, withholds_usage, [head, tail]);
            assert_eq!(seen, expected, "cut at {cut}, line end {line_end:?}");
        }
        let seen = stream(operation, withholds_usage, bytes.chunks(1));
        assert_eq!(seen, expected, "byte by byte, line end {line_end:?}");
    }
    (passed, expected_seen)
}

/// What is seen in a stream that passes unchanged.
fn observe_stream(operation: Operation, text: &str) -> Observed {
    let (passed, seen) = stream_however_cut(operation, false, text);
    assert_eq!(passed, text);
    seen
}

fn plain<'a>(operation: Operation, chunks: impl IntoIterator<Item = &'a [u8]>) -> Observed {
    let mut meter = PlainMeter::new(operation);
    for chunk in chunks {
        meter.feed(chunk);
    }
    meter.observed()
}

/// What is seen in a plain answer, the same in one piece, cut in two at every byte, and byte by byte.
fn observe_plain(operation: Operation, text: &str) -> Observed {
    let bytes = text.as_bytes();
    let expected = plain(operation, [bytes]);
    for cut in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(cut);
        assert_eq!(plain(operation, [head, tail]), expected, "cut at {cut}");
    }
    assert_eq!(plain(operation, bytes.chunks(1)), expected, "byte by byte");
    expected
}

/// One line for a table.
fn describe(seen: &Observed) -> String {
    let Observed { usage, input_usage, output_bytes, is_reasoning, end } = seen;
    let mut line = format!("{end:?}");
    for (name, usage) in [("usage", usage), ("input only", input_usage)] {
        if let Some(usage) = usage {
            line += &format!(", {name} {}", describe_usage(usage));
        }
    }
    line += &format!(", {output_bytes} bytes of output");
    if *is_reasoning {
        line += ", reasoning";
    }
    line
}

fn describe_usage(usage: &Usage) -> String {
    let Usage { input, cache_read, cache_write, cache_write_1h, output, server_tool_calls } = usage;
    format!(
        "{input} in, {cache_read} read, {cache_write} written, {cache_write_1h} for 1h, {output} out, \
         {server_tool_calls} tools"
    )
}
