//! Server-sent events: where an event ends, and what it says.
//!
//! A line ends with `\n`, `\r\n` or `\r`, and an event with an empty line.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Finds the ends of events in a stream that comes in chunks.
#[derive(Debug, Default)]
pub(super) struct EventBoundary {
    line: Line,
}

/// Where in a line the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Line {
    #[default]
    Empty,
    Text,
    /// The line ended with `\r`; a `\n` would belong to its end.
    AfterReturn,
    /// The event ended with `\r`; a `\n` would belong to it.
    AfterEvent,
}

/// What comes next in the bytes that were asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The first byte is the `\n` of a `\r\n` and still belongs to the event before.
    EventTail,
    /// The event ends after this many bytes.
    EventEnd(usize),
    /// The event does not end in these bytes.
    Unfinished,
}

impl EventBoundary {
    /// Goes on to the next end of an event, or through all `bytes`.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Step {
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            at += 1;
            self.line = match (self.line, byte) {
                (Line::AfterEvent, b'\n') => {
                    self.line = Line::Empty;
                    return Step::EventTail;
                }
                (Line::Empty, b'\n') => return Step::EventEnd(at),
                (Line::Empty | Line::AfterReturn | Line::AfterEvent, b'\r') => {
                    self.line = Line::AfterEvent;
                    return Step::EventEnd(at);
                }
                (Line::AfterReturn | Line::Text, b'\n') => Line::Empty,
                (Line::Text, b'\r') => Line::AfterReturn,
                (_, _) => {
                    let rest = &bytes[at..];
                    at += line_end(rest).unwrap_or(rest.len());
                    Line::Text
                }
            };
        }
        Step::Unfinished
    }
}

/// A line and what follows. Between the bytes of a `\r\n` it finds an empty line, which has no field.
fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match line_end(bytes) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr2(b'\n', b'\r', bytes)
}

/// The fields of one event that matter here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    /// Its `event` field.
    pub(super) name: Option<&'a [u8]>,
    /// Its `data` lines, joined by `\n`.
    pub(super) data: Option<Cow<'a, [u8]>>,
}

impl<'a> Event<'a> {
    /// Reads the lines of one event. A byte order mark before it is skipped.
    pub(super) fn parse(bytes: &'a [u8]) -> Self {
        let mut event = Self { name: None, data: None };
        let mut rest = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        while !rest.is_empty() {
            let line;
            (line, rest) = split_line(rest);
            let (field, value) = match memchr(b':', line) {
                Some(colon) => (&line[..colon], &line[colon + 1..]),
                None => (line, &line[line.len()..]),
            };
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match field {
                b"event" => event.name = Some(value),
                b"data" => event.push_data(value),
                _ => {}
            }
        }
        event
    }

    fn push_data(&mut self, line: &'a [u8]) {
        match &mut self.data {
            None => self.data = Some(Cow::Borrowed(line)),
            Some(data) => {
                let data = data.to_mut();
                data.push(b'\n');
                data.extend_from_slice(line);
            }
        }
    }
}
