//! The body of an answer as a row of frames. They are made when they are sent, so that a long stream takes no memory.

use std::iter;

use hyper::body::Bytes;
use serde_json::Value;

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

/// The text of one output token.
pub(crate) const WORD: &str = "word ";

/// Bytes that are sent together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    /// The output tokens in it.
    pub(crate) tokens: u64,
}

pub(crate) type Frames = Box<dyn Iterator<Item = Frame> + Send>;

pub(crate) struct Payload {
    pub(crate) content_type: &'static str,
    /// `None` if the length is not known before the end, as of a stream.
    pub(crate) content_length: Option<usize>,
    pub(crate) content_encoding: Option<&'static str>,
    pub(crate) frames: Frames,
}

impl Frame {
    pub(crate) const fn without_tokens(bytes: Bytes) -> Self {
        Self { bytes, tokens: 0 }
    }
}

impl Payload {
    pub(crate) fn json(value: &Value, tokens: u64) -> Self {
        let bytes = Bytes::from(value.to_string());
        let content_length = Some(bytes.len());
        let frames = Box::new(iter::once(Frame { bytes, tokens }));
        Self { content_type: JSON, content_length, content_encoding: None, frames }
    }

    pub(crate) fn stream(frames: impl Iterator<Item = Frame> + Send + 'static) -> Self {
        Self {
            content_type: EVENT_STREAM,
            content_length: None,
            content_encoding: None,
            frames: Box::new(frames),
        }
    }

    pub(crate) const fn is_stream(&self) -> bool {
        self.content_length.is_none()
    }
}

/// An event without a name, as in OpenAI's older streams.
pub(crate) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// An event that is named as its data's `type`.
pub(crate) fn event(value: &Value) -> Bytes {
    let name = value["type"].as_str().expect("events have a type");
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

/// `deltas` in turn, so many times each.
pub(crate) fn repeat(deltas: Vec<Bytes>, times: u64) -> impl Iterator<Item = Frame> + Send {
    let turns = deltas.len();
    let total = u64::try_from(turns).unwrap_or(u64::MAX).saturating_mul(times);
    let mut turn = 0;
    (0..total).map(move |_| {
        let bytes = deltas[turn].clone();
        turn = (turn + 1) % turns;
        Frame { bytes, tokens: 1 }
    })
}

/// The text of an answer.
pub(crate) fn text(tokens: u64) -> String {
    WORD.repeat(usize::try_from(tokens).expect("an answer has a most number of tokens"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_written_as_the_apis_do() {
        assert_eq!(data(&json!({ "a": 1 })), "data: {\"a\":1}\n\n");
        assert_eq!(event(&json!({ "type": "ping" })), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    }

    #[test]
    fn deltas_take_turns() {
        let frames = repeat(vec![Bytes::from("a"), Bytes::from("b")], 2);
        let texts = frames.map(|frame| frame.bytes).collect::<Vec<_>>();
        assert_eq!(texts, ["a", "b", "a", "b"]);
        assert_eq!(repeat(vec![Bytes::from("a")], u64::MAX).take(3).count(), 3);
    }
}
