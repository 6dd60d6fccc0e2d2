//! Faults of an answer's body.

use std::iter;

use hyper::body::Bytes;

use crate::fault::Fault;
use crate::gzip::Gzip;
use crate::payload::{Frame, Frames, Payload};

const LONG_LINE_BYTES: usize = 100_000_000;
const LONG_LINE_FRAMES: usize = 100;

/// Beyond what any stream here has.
const WRONG_STREAM_LENGTH: usize = 1 << 40;

const HTML: &[u8] = b"<!doctype html>\n<html><body><h1>Welcome to nginx!</h1></body></html>\n";
const GARBAGE: &[u8] = b"\x00\xffnot what you asked for: }{][\x80\n\n\xfe: 12\n\n";

/// What happens after the last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    /// The connection closes, and the body has no proper end.
    Abort,
    /// The body ends, but its announced length is larger.
    Short,
    /// Nothing, for ever.
    Stall,
}

/// A payload with a fault. `tokens` is how many it has.
pub(crate) fn apply(fault: Fault, payload: Payload, tokens: u64) -> (Payload, Ending) {
    match fault {
        Fault::Cut => (broken_off(payload, tokens, first_half), Ending::Abort),
        Fault::CutUtf8 => (broken_off(payload, tokens, half_character), Ending::Abort),
        Fault::Stall => (halted(payload, tokens), Ending::Stall),
        Fault::WrongLength => {
            let length = payload.content_length.map_or(WRONG_STREAM_LENGTH, |length| length + 100);
            (Payload { content_length: Some(length), ..payload }, Ending::Short)
        }
        Fault::Garbage => (replaced(&payload, GARBAGE), Ending::Complete),
        Fault::ContentType => {
            let page = replaced(&payload, HTML);
            let content_length = Some(HTML.len());
            (Payload { content_type: "text/html", content_length, ..page }, Ending::Complete)
        }
        Fault::LongLine => (long_line(&payload), Ending::Complete),
        Fault::Gzip => {
            let frames = Box::new(Gzip::new(payload.frames));
            let content_encoding = Some("gzip");
            (Payload { content_length: None, content_encoding, frames, ..payload }, Ending::Complete)
        }
        // Of streams, the endpoints make these themselves.
        Fault::Endless if !payload.is_stream() => {
            let spaces = Frame::without_tokens(Bytes::from(vec![b' '; 1_024]));
            let frames = Box::new(payload.frames.chain(iter::repeat(spaces)));
            (Payload { content_length: None, frames, ..payload }, Ending::Complete)
        }
        Fault::Endless
        | Fault::NoUsage
        | Fault::ErrorEvent
        // These end the call before there is a body.
        | Fault::TooManyRequests
        | Fault::Quota
        | Fault::Unavailable
        | Fault::RejectStreamOptions
        | Fault::Reset
        | Fault::Slow => (payload, Ending::Complete),
    }
}

/// The frames with the first half of the tokens, and a part of the next frame.
fn broken_off(payload: Payload, tokens: u64, part: fn(&[u8]) -> Vec<u8>) -> Payload {
    let is_stream = payload.is_stream();
    let mut tokens_left = tokens / 2;
    let mut is_over = false;
    let frames = payload.frames.map_while(move |frame| {
        if is_over {
            return None;
        }
        if is_stream && frame.tokens <= tokens_left {
            tokens_left -= frame.tokens;
            return Some(frame);
        }
        is_over = true;
        Some(Frame::without_tokens(Bytes::from(part(&frame.bytes))))
    });
    Payload { frames: Box::new(frames), ..payload }
}

/// The frames with the first half of the tokens. A plain body stops in its middle.
fn halted(payload: Payload, tokens: u64) -> Payload {
    if !payload.is_stream() {
        return broken_off(payload, tokens, first_half);
    }
    let mut tokens_left = tokens / 2;
    let frames = payload.frames.map_while(move |frame| {
        tokens_left = tokens_left.checked_sub(frame.tokens)?;
        Some(frame)
    });
    Payload { frames: Box::new(frames), ..payload }
}

fn first_half(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len() / 2].to_vec()
}

/// Up to the first byte of a character of two, which stands in a word of the answer if there is one.
fn half_character(bytes: &[u8]) -> Vec<u8> {
    let word = b"word ";
    let half = bytes.len() / 2;
    let from_half = bytes[half..].windows(word.len()).position(|window| window == word);
    let anywhere = || bytes.windows(word.len()).position(|window| window == word);
    let cut = from_half.map(|index| half + index).or_else(anywhere).map_or(half, |index| index + 1);
    [&bytes[..cut], &"ö".as_bytes()[..1]].concat()
}

fn replaced(payload: &Payload, bytes: &'static [u8]) -> Payload {
    let content_length = payload.content_length.map(|_| bytes.len());
    let frames = Box::new(iter::once(Frame::without_tokens(Bytes::from_static(bytes))));
    Payload { content_length, frames, ..*payload }
}

fn long_line(payload: &Payload) -> Payload {
    let part = Bytes::from(vec![b'x'; LONG_LINE_BYTES / LONG_LINE_FRAMES]);
    let (begin, end): (&'static [u8], &'static [u8]) =
        if payload.is_stream() { (b"data: {\"x\":\"", b"\"}\n\n") } else { (b"{\"x\":\"", b"\"}") };
    let parts = [Bytes::from_static(begin)].into_iter();
    let parts =
        parts.chain(iter::repeat_n(part, LONG_LINE_FRAMES)).chain([Bytes::from_static(end)]);
    let frames: Frames = Box::new(parts.map(Frame::without_tokens));
    Payload { content_length: None, frames, ..*payload }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::payload::{data, repeat};

    fn stream() -> Payload {
        let deltas = repeat(vec![data(&json!("word "))], 4);
        let begin = iter::once(Frame::without_tokens(Bytes::from("data: 1\n\n")));
        let end = iter::once(Frame::without_tokens(Bytes::from("data: [DONE]\n\n")));
        Payload::stream(begin.chain(deltas).chain(end))
    }

    fn plain() -> Payload {
        Payload::json(&json!("word word word word "), 4)
    }

    fn bytes(payload: Payload) -> Vec<u8> {
        payload.frames.flat_map(|frame| frame.bytes).collect()
    }

    fn text(fault: Fault, payload: Payload) -> (String, Ending) {
        let (payload, ending) = apply(fault, payload, 4);
        (String::from_utf8(bytes(payload)).expect("UTF-8"), ending)
    }

    /// GW-14
    #[test]
    fn a_cut_stream_has_half_of_its_tokens_and_half_an_event() {
        let (text, ending) = text(Fault::Cut, stream());
        assert_eq!(text, "data: 1\n\ndata: \"word \"\n\ndata: \"word \"\n\ndata: \"");
        assert_eq!(ending, Ending::Abort);
    }

    /// GW-14
    #[test]
    fn a_stalled_stream_has_half_of_its_tokens() {
        let (text, ending) = text(Fault::Stall, stream());
        assert_eq!(text, "data: 1\n\ndata: \"word \"\n\ndata: \"word \"\n\n");
        assert_eq!(ending, Ending::Stall);
    }

    #[test]
    fn a_plain_body_is_cut_in_its_middle() {
        for fault in [Fault::Cut, Fault::Stall] {
            assert_eq!(text(fault, plain()).0, "\"word word ");
        }
    }

    /// GW-14
    #[test]
    fn a_cut_can_be_inside_a_character() {
        for payload in [stream(), plain()] {
            let (payload, _) = apply(Fault::CutUtf8, payload, 4);
            let bytes = bytes(payload);
            let error = std::str::from_utf8(&bytes).expect_err("half a character");
            assert_eq!(error.valid_up_to(), bytes.len() - 1);
            assert_eq!(error.error_len(), None);
        }
    }

    #[test]
    fn a_long_line_has_100_mb() {
        let (payload, _) = apply(Fault::LongLine, stream(), 4);
        let length = payload.frames.map(|frame| frame.bytes.len()).sum::<usize>();
        assert_eq!(length, LONG_LINE_BYTES + "data: {\"x\":\"\"}\n\n".len());
    }
}
