//! What the two older endpoints have in common: usage, and the end of a stream.

use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::call::{Call, Output};
use crate::payload::{Frame, data};

/// How chunks tell the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamUsage {
    /// The caller did not ask, or the provider does not tell.
    Absent,
    /// As `null`, except in the last chunk.
    Last,
}

impl StreamUsage {
    pub(super) fn of(call: &Call) -> Self {
        let options = call.body.get("stream_options");
        let is_wanted = options.and_then(|options| options["include_usage"].as_bool());
        if is_wanted == Some(true) && call.gives_usage { Self::Last } else { Self::Absent }
    }
}

pub(super) fn usage(prompt_tokens: u64, output_tokens: u64) -> Value {
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens.saturating_add(output_tokens),
        "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}

pub(super) const fn finish_reason(output: Output) -> &'static str {
    if output.is_cut { "length" } else { "stop" }
}

/// Everything after the last finished choice.
pub(super) fn end(usage_chunk: Option<Bytes>) -> impl Iterator<Item = Frame> + Send {
    let done = Bytes::from_static(b"data: [DONE]\n\n");
    usage_chunk.into_iter().chain([done]).map(Frame::without_tokens)
}

/// Instead of the end.
pub(super) fn error() -> Bytes {
    data(&json!({ "error": {
        "message": "The server had an error while processing your request.",
        "type": "server_error",
        "param": null,
        "code": null,
    } }))
}
