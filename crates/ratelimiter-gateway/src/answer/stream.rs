//! A streamed answer: its bytes pass through, and usage is read from its events.

use bytes::{Bytes, BytesMut};

use crate::{
    answer::{
        Observed,
        sse::{EventBoundary, Step},
        stream_events::{EventReader, Purpose},
    },
    api::Operation,
};

/// A longer event passes and is not read; its bytes beyond this count as output.
pub(super) const EVENT_BYTES_MAX: usize = 4 << 20;
/// A buffer that grew beyond this is given back after its event.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Reads a stream of events while it passes.
#[derive(Debug)]
pub(crate) struct StreamMeter {
    withholds_usage: bool,
    boundary: EventBoundary,
    reader: EventReader,
    /// What has come of the event that has not ended; empty once the event is too long.
    pending: Vec<u8>,
    /// How much has come of it. At most `EVENT_BYTES_MAX` while it is kept.
    event_bytes: usize,
    /// Whether the event before passed, for the `\n` that may still come of it.
    last: Passage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passage {
    Passed,
    Withheld,
}

impl StreamMeter {
    /// With `withholds_usage` the event that `stream_options.include_usage` adds does not pass: a chunk with usage and
    /// no choices. An event is then held back until it is whole; without, every chunk passes unchanged at once.
    pub(crate) fn new(operation: Operation, withholds_usage: bool) -> Self {
        Self {
            withholds_usage,
            boundary: EventBoundary::default(),
            reader: EventReader::new(operation),
            pending: Vec::new(),
            event_bytes: 0,
            last: Passage::Passed,
        }
    }

    /// Takes the next bytes of the answer and returns those to pass on.
    pub(crate) fn feed(&mut self, chunk: Bytes) -> Bytes {
        let mut passing = Passing::default();
        let mut start = 0;
        while start < chunk.len() {
            let end = match self.boundary.advance(&chunk[start..]) {
                Step::EventTail => start + 1,
                Step::EventEnd(len) => {
                    let end = start + len;
                    self.last = self.end_event(&chunk[start..end], &mut passing);
                    end
                }
                Step::Unfinished => {
                    self.keep(&chunk[start..], &mut passing);
                    if self.event_bytes > EVENT_BYTES_MAX {
                        passing.run_end = chunk.len();
                    }
                    break;
                }
            };
            match self.last {
                Passage::Passed => passing.run_end = end,
                Passage::Withheld => passing.skip_to(end, &chunk),
            }
            start = end;
        }
        if self.withholds_usage { passing.into_bytes(&chunk) } else { chunk }
    }

    /// Ends the stream and returns what was still held back. An event without its empty line is read too.
    pub(crate) fn finish(&mut self) -> Bytes {
        let mut passing = Passing::default();
        if self.event_bytes > 0 {
            self.end_event(&[], &mut passing);
        }
        passing.copied.freeze()
    }

    pub(crate) fn observed(&self) -> Observed {
        let observed = self.reader.observed();
        let unread = self.event_bytes.saturating_sub(EVENT_BYTES_MAX) as u64;
        Observed { output_bytes: observed.output_bytes + unread, ..observed }
    }

    /// Reads the event that ends with `tail`.
    fn end_event(&mut self, tail: &[u8], passing: &mut Passing) -> Passage {
        let event_bytes = self.event_bytes + tail.len();
        self.event_bytes = 0;
        let purpose = if event_bytes > EVENT_BYTES_MAX {
            self.reader.count_unread(event_bytes - EVENT_BYTES_MAX);
            Purpose::Other
        } else if self.pending.is_empty() {
            self.reader.read(tail)
        } else {
            let kept = self.pending.len();
            self.pending.extend_from_slice(tail);
            let purpose = self.reader.read(&self.pending);
            self.pending.truncate(kept);
            purpose
        };
        match purpose {
            Purpose::UsageOnly if self.withholds_usage => {
                self.pending.clear();
                self.shrink();
                Passage::Withheld
            }
            Purpose::UsageOnly | Purpose::Other => {
                self.release(passing);
                Passage::Passed
            }
        }
    }

    /// Keeps the start of an event, or lets it pass when it is too long.
    fn keep(&mut self, part: &[u8], passing: &mut Passing) {
        self.event_bytes += part.len();
        if self.event_bytes > EVENT_BYTES_MAX {
            self.release(passing);
        } else {
            self.pending.extend_from_slice(part);
        }
    }

    /// Lets what is pending pass.
    fn release(&mut self, passing: &mut Passing) {
        if self.withholds_usage && !self.pending.is_empty() {
            passing.copied.extend_from_slice(&self.pending);
        }
        self.pending.clear();
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.pending.capacity() > BUFFER_BYTES_MAX {
            self.pending = Vec::new();
        }
    }
}

/// What passes of a chunk: bytes that had to be copied, then a run of the chunk that needs no copy.
#[derive(Debug, Default)]
struct Passing {
    copied: BytesMut,
    run_start: usize,
    run_end: usize,
}

impl Passing {
    /// Between the run and `end` nothing passes; a new run starts there.
    fn skip_to(&mut self, end: usize, chunk: &Bytes) {
        self.copied.extend_from_slice(&chunk[self.run_start..self.run_end]);
        self.run_start = end;
        self.run_end = end;
    }

    fn into_bytes(mut self, chunk: &Bytes) -> Bytes {
        let run = self.run_start..self.run_end;
        if self.copied.is_empty() {
            return chunk.slice(run);
        }
        self.copied.extend_from_slice(&chunk[run]);
        self.copied.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GW-04
    #[test]
    fn a_large_event_leaves_no_large_buffer() {
        for withholds_usage in [false, true] {
            let mut meter = StreamMeter::new(Operation::ChatCompletions, withholds_usage);
            meter.feed(Bytes::from(vec![b'x'; 16 * BUFFER_BYTES_MAX]));
            assert!(meter.pending.capacity() > BUFFER_BYTES_MAX);
            meter.feed(Bytes::from_static(b"\n\ndata: a"));
            assert!(meter.pending.capacity() <= BUFFER_BYTES_MAX);
        }
    }

    /// GW-04
    #[test]
    fn whole_events_need_no_buffer() {
        let mut meter = StreamMeter::new(Operation::Messages, true);
        for _ in 0..100 {
            meter.feed(Bytes::from_static(b"data: {\"type\":\"ping\"}\n\n"));
        }
        assert_eq!(meter.pending.capacity(), 0);
    }
}
