use fastrand::Rng;
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::answer::tests::{plain::ANSWERS, recorded::STREAMS};

/// GW-10
#[test]
fn counts_that_are_not_whole_and_in_range_are_absent() {
    let max = 1_u64 << 53;
    for (count, is_known) in [
        ("7".to_owned(), true),
        (max.to_string(), true),
        ((max + 1).to_string(), false),
        ("-1".to_owned(), false),
        ("-0".to_owned(), false),
        ("1.5".to_owned(), false),
        ("1e300".to_owned(), false),
        ("1e999".to_owned(), false),
        ("99999999999999999999999".to_owned(), false),
        ("\"7\"".to_owned(), false),
        ("null".to_owned(), false),
        ("true".to_owned(), false),
        ("[7]".to_owned(), false),
        ("{}".to_owned(), false),
    ] {
        let chat = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":{count},"completion_tokens":1}}}}"#
        );
        let responses = format!(r#"{{"input_tokens":1,"output_tokens":{count}}}"#);
        let event =
            format!(r#"{{"type":"response.completed","response":{{"usage":{responses}}}}}"#);
        let message = format!(
            r#"{{"type":"message_delta","usage":{{"input_tokens":1,"output_tokens":{count}}}}}"#
        );
        for (operation, json) in [
            (Operation::ChatCompletions, chat.clone()),
            (Operation::Responses, event),
            (Operation::Messages, message.clone()),
        ] {
            let seen = observe_stream(operation, &format!("data: {json}\n\n"));
            assert_eq!(seen.usage.is_some(), is_known, "{json}");
        }
        for (operation, json) in [
            (Operation::ChatCompletions, chat),
            (Operation::Responses, format!(r#"{{"usage":{responses}}}"#)),
            (Operation::Messages, message),
        ] {
            assert_eq!(observe_plain(operation, &json).usage.is_some(), is_known, "{json}");
        }
    }
}

/// GW-10
#[test]
fn what_is_no_answer_says_nothing() {
    for text in [
        "",
        "\n",
        "<html>502 Bad Gateway</html>",
        "null",
        "[1,2]",
        "\u{1}\u{2}\n\n\r",
        "data: {\"usage\":[1,2,3]}\n\n",
        "data: {\"choices\":\"x\",\"usage\":7,\"response\":[],\"message\":{\"usage\":[1,2,3,4,5,6]}}\n\n",
        "data: [[],[1,2],null,null]\n\n",
        "data: {\"type\":\"message_start\",\"message\":7}\n\n",
        "data: {\"type\":{},\"item\":[],\"delta\":7}\n\n",
        "data: {\"type\":\"response.completed",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}\n\n",
    ] {
        for operation in OPERATIONS {
            assert_eq!(observe_stream(operation, text), Observed::default(), "{text}");
            let seen = observe_plain(operation, text);
            assert_eq!((seen.usage, seen.output_bytes), (None, 0), "{text}");
        }
    }
}

/// GW-10
#[test]
fn a_plain_answer_that_is_not_json_stays_open() {
    for text in [
        "{]",
        "[}",
        "{\"a\" 1}",
        "[1,]",
        "{,}",
        "{\"a\":}",
        "\"\\ux",
        "{\"usage\":{\"prompt_tokens\":1}]",
    ] {
        assert_eq!(observe_plain(Operation::Embeddings, text).end, AnswerEnd::Open, "{text}");
    }
}

/// GW-10
#[test]
fn bytes_that_are_not_utf8_do_not_disturb_what_follows() {
    let mut bytes = b"data: {\"choices\":[{\"delta\":{\"content\":\"\xc3\"}}]}\n\n".to_vec();
    bytes.extend_from_slice(b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\n");
    let (passed, seen) = stream(Operation::ChatCompletions, true, bytes.chunks(1));
    assert_eq!((passed, seen.output_bytes), (bytes, 2));
}

/// Changes some bytes, cuts some out and doubles some.
fn mutate(rng: &mut Rng, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.usize(0..6) {
        let at = rng.usize(0..bytes.len());
        let end = (at + rng.usize(0..40)).min(bytes.len());
        match rng.u8(0..5) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] = *rng.choice(b"\n\r\"{}[]:,0-").expect("there are some"),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at.max(1)),
            _ => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
        if bytes.is_empty() {
            bytes.push(b'\n');
        }
    }
    bytes
}

fn random_chunks<'a>(rng: &mut Rng, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    while !bytes.is_empty() {
        let len = if rng.bool() { rng.usize(0..=8) } else { rng.usize(0..=300) };
        let (chunk, rest) = bytes.split_at(len.min(bytes.len()));
        chunks.push(chunk);
        bytes = rest;
    }
    chunks
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk {
    choices: Value,
    usage: Value,
}

/// What should pass, by another way than the meter's: lines first, then events, then whole JSON values.
fn without_usage_events(bytes: &[u8]) -> Vec<u8> {
    let mut passing = Vec::new();
    let mut event = Vec::new();
    let mut lines = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let text = rest.iter().position(|byte| b"\r\n".contains(byte)).unwrap_or(rest.len());
        let line_end = match &rest[text..] {
            [b'\r', b'\n', ..] => 2,
            [] => 0,
            _ => 1,
        };
        event.extend_from_slice(&rest[..text + line_end]);
        lines.push(&rest[..text]);
        rest = &rest[text + line_end..];
        if text == 0 || rest.is_empty() {
            if !is_usage_event(&lines) {
                passing.extend_from_slice(&event);
            }
            event.clear();
            lines.clear();
        }
    }
    passing
}

fn is_usage_event(lines: &[&[u8]]) -> bool {
    let data: Vec<&[u8]> = lines
        .iter()
        .filter_map(
            |line| if *line == b"data" { Some(&b""[..]) } else { line.strip_prefix(b"data:") },
        )
        .map(|value| value.strip_prefix(b" ").unwrap_or(value))
        .collect();
    let json = data.join(&b'\n');
    serde_json::from_slice::<Chunk>(&json).is_ok_and(|chunk| {
        json.trim_ascii_start().starts_with(b"{")
            && chunk.choices == Value::Array(Vec::new())
            && chunk.usage.is_object()
    })
}

/// GW-04, GW-10
#[test]
fn a_mutated_stream_passes_whole_except_for_events_of_usage() {
    let mut rng = Rng::with_seed(7);
    for _ in 0..4_000 {
        let (operation, text) = *rng.choice(&STREAMS).expect("there are some");
        let line_end = *rng.choice(&["\n", "\r\n", "\r"]).expect("there are some");
        let bytes = mutate(&mut rng, &text.replace('\n', line_end));
        let chunks = random_chunks(&mut rng, &bytes);

        let (passed, seen) = stream(operation, false, chunks.iter().copied());
        assert_eq!(passed, bytes);
        assert_eq!(seen, stream(operation, false, [&bytes[..]]).1);

        let chat = Operation::ChatCompletions;
        let (passed, seen) = stream(chat, true, chunks);
        assert_eq!(passed, without_usage_events(&bytes), "{}", String::from_utf8_lossy(&bytes));
        assert_eq!(seen, stream(chat, false, [&bytes[..]]).1);
    }
}

/// GW-10
#[test]
fn a_mutated_plain_answer_is_seen_the_same_however_it_is_cut() {
    let mut rng = Rng::with_seed(11);
    for _ in 0..20_000 {
        let (operation, text) = *rng.choice(&ANSWERS).expect("there are some");
        let bytes = mutate(&mut rng, text);
        let chunks = random_chunks(&mut rng, &bytes);
        assert_eq!(plain(operation, chunks), plain(operation, [&bytes[..]]));
    }
}
