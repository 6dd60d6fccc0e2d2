//! Reads usage from a provider's answer while it passes.
//!
//! Pure parsers, fed chunk by chunk: they keep at most one event of a stream, and of a plain answer only its `usage`.

mod json_scanner;
mod output_text;
mod plain;
mod sse;
mod stream;
mod stream_events;
mod usage_formats;

#[cfg(test)]
mod tests;

pub(crate) use plain::PlainMeter;
pub(crate) use stream::StreamMeter;

use crate::usage::Usage;

/// What is known of an answer so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Observed {
    /// The provider's last word about the whole answer; `Some` only when it has told input and output.
    /// A usage that is zero in everything is a placeholder and not taken.
    pub(crate) usage: Option<Usage>,
    /// The input, with an output of 0, while only the input is known: after `message_start`.
    pub(crate) input_usage: Option<Usage>,
    /// Bytes of text, of tool arguments and of visible reasoning that passed, to count where the provider does not say.
    pub(crate) output_bytes: u64,
    /// The provider reasons out of sight. A reasoning item (`responses`) or a thinking block (`messages`) that begins
    /// sets it, and the next visible output ends it; a summary of reasoning is not the reasoning and leaves it.
    /// Always false for the other operations and for plain answers, which do not show it.
    pub(crate) is_reasoning: bool,
    /// How it ended. The first end that is seen stays.
    pub(crate) end: AnswerEnd,
}

impl Observed {
    /// Of a plain answer with so many bytes. If nothing in it is of a known form, it may be text, all of it.
    pub(crate) fn or_received(self, received: u64) -> Self {
        let is_understood = self.usage.is_some()
            || self.end == AnswerEnd::Failed
            || self.end == AnswerEnd::Complete && self.output_bytes > 0;
        Self { output_bytes: if is_understood { self.output_bytes } else { received }, ..self }
    }
}

/// Whether an answer has ended, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AnswerEnd {
    /// Nothing has said that it is whole.
    #[default]
    Open,
    /// `[DONE]`, `response.completed`, `response.incomplete`, `message_stop`, or a whole JSON value.
    Complete,
    /// The provider reported an error instead of, or after a part of, the answer.
    Failed,
}
