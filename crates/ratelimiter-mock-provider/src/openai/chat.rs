//! `POST /v1/chat/completions`.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::stream_end::{StreamUsage, end, error, finish_reason, usage};
use crate::answer::Answer;
use crate::call::{Call, Output};
use crate::payload::{Frame, Payload, WORD, data, repeat, text};
use crate::problem::Problem;
use crate::prompt::message_tokens;

pub(crate) fn answer(call: &Call) -> Result<Answer, Problem> {
    let model = call.model()?;
    let prompt_tokens = call.prompt_tokens(message_tokens(call.required_array("messages")?));
    let choices = call.choices()?;
    let wanted = call.count("max_completion_tokens")?.or(call.count("max_tokens")?);
    let output = call.output(wanted);
    let output_tokens = output.tokens.saturating_mul(choices);
    let usage = usage(prompt_tokens, output_tokens);
    let payload = if call.is_stream() {
        stream(call, model, choices, output, usage)
    } else {
        plain(call, model, choices, output, usage)
    };
    let output_tokens_max = output.tokens_max.saturating_mul(choices);
    Ok(Answer { prompt_tokens, output_tokens, output_tokens_max, payload })
}

fn plain(call: &Call, model: &str, choices: u64, output: Output, usage: Value) -> Payload {
    let text = text(output.tokens);
    let choice = |index| {
        json!({
            "index": index,
            "message": { "role": "assistant", "content": text, "refusal": null, "annotations": [] },
            "logprobs": null,
            "finish_reason": finish_reason(output),
        })
    };
    let mut body = envelope(call, model, "chat.completion");
    body["choices"] = (0..choices).map(choice).collect();
    if call.gives_usage {
        body["usage"] = usage;
    }
    Payload::json(&body, output.tokens * choices)
}

fn stream(call: &Call, model: &str, choices: u64, output: Output, usage: Value) -> Payload {
    let told = StreamUsage::of(call);
    let envelope = envelope(call, model, "chat.completion.chunk");
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = envelope.clone();
        chunk["choices"] = choices;
        if told == StreamUsage::Last {
            chunk["usage"] = usage;
        }
        data(&chunk)
    };
    let each = |delta: Value, finish_reason: Option<&str>| -> Vec<Bytes> {
        let choice = |index| {
            json!([{
                "index": index,
                "delta": delta,
                "logprobs": null,
                "finish_reason": finish_reason,
            }])
        };
        (0..choices).map(|index| chunk(choice(index), Value::Null)).collect()
    };
    let roles = each(json!({ "role": "assistant", "content": "", "refusal": null }), None);
    let deltas = each(json!({ "content": WORD }), None);
    let begin = roles.into_iter().map(Frame::without_tokens).chain(repeat(deltas, output.tokens));
    if call.fails {
        return Payload::stream(begin.chain([Frame::without_tokens(error())]));
    }
    let finished = each(json!({}), Some(finish_reason(output)));
    let usage_chunk = (told == StreamUsage::Last).then(|| chunk(json!([]), usage));
    let finished = finished.into_iter().map(Frame::without_tokens);
    Payload::stream(begin.chain(finished).chain(end(usage_chunk)))
}

fn envelope(call: &Call, model: &str, object: &str) -> Value {
    json!({
        "id": call.identity.id("chatcmpl-"),
        "object": object,
        "created": call.identity.created(),
        "model": model,
        "service_tier": "default",
        "system_fingerprint": "fp_mock",
    })
}
