//! `POST /v1/responses`.

use std::iter;

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::{Call, Output};
use crate::payload::{Frame, Payload, WORD, event, text};
use crate::problem::Problem;
use crate::prompt::{message_tokens, words};

pub(crate) fn answer(call: &Call) -> Result<Answer, Problem> {
    let model = call.model()?;
    let instructions = call.body.get("instructions").map_or(0, words);
    let prompt_tokens = message_tokens(call.required("input")?) + instructions;
    let prompt_tokens = call.prompt_tokens(prompt_tokens);
    let wanted = call.count("max_output_tokens")?;
    let output = call.output(wanted);
    let response = Response {
        envelope: envelope(call, model),
        message_id: call.identity.id("msg_"),
        output,
        usage: if call.gives_usage { usage(prompt_tokens, output.tokens) } else { Value::Null },
    };
    let payload = if call.is_stream() {
        Payload::stream(response.events(call.fails))
    } else {
        Payload::json(&response.finished(), output.tokens)
    };
    let Output { tokens, tokens_max, .. } = output;
    Ok(Answer { prompt_tokens, output_tokens: tokens, output_tokens_max: tokens_max, payload })
}

struct Response {
    envelope: Value,
    message_id: String,
    output: Output,
    usage: Value,
}

impl Response {
    fn status(&self) -> &'static str {
        if self.output.is_cut { "incomplete" } else { "completed" }
    }

    fn message(&self, status: &str, content: &Value) -> Value {
        json!({
            "id": self.message_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        })
    }

    fn finished(&self) -> Value {
        let content = json!([text_part(&text(self.output.tokens))]);
        let mut response = self.envelope.clone();
        response["status"] = self.status().into();
        response["output"] = json!([self.message(self.status(), &content)]);
        response["usage"] = self.usage.clone();
        if self.output.is_cut {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response
    }

    fn failed(&self) -> Value {
        let mut response = self.envelope.clone();
        response["status"] = "failed".into();
        response["error"] = json!({
            "code": "server_error",
            "message": "The server had an error while processing your request.",
        });
        response
    }

    fn events(self, fails: bool) -> impl Iterator<Item = Frame> + Send {
        let begin = self.begin();
        let item_id = self.message_id.clone();
        let deltas = (0..self.output.tokens).map(move |_| {
            json!({
                "type": "response.output_text.delta",
                "item_id": item_id,
                "output_index": 0,
                "content_index": 0,
                "delta": WORD,
                "logprobs": [],
            })
        });
        // The end has the whole text, so it is made only when a stream gets there.
        let end = iter::once(()).flat_map(move |()| if fails { self.error() } else { self.end() });
        let events = begin.into_iter().chain(deltas).chain(end);
        (0_u64..).zip(events).map(|(number, mut value)| {
            value["sequence_number"] = number.into();
            let is_delta = value["type"] == "response.output_text.delta";
            Frame { bytes: event(&value), tokens: u64::from(is_delta) }
        })
    }

    fn begin(&self) -> Vec<Value> {
        vec![
            json!({ "type": "response.created", "response": self.envelope }),
            json!({ "type": "response.in_progress", "response": self.envelope }),
            json!({
                "type": "response.output_item.added",
                "output_index": 0,
                "item": self.message("in_progress", &json!([])),
            }),
            json!({
                "type": "response.content_part.added",
                "item_id": self.message_id,
                "output_index": 0,
                "content_index": 0,
                "part": text_part(""),
            }),
        ]
    }

    fn end(&self) -> Vec<Value> {
        let text = text(self.output.tokens);
        let content = json!([text_part(&text)]);
        vec![
            json!({
                "type": "response.output_text.done",
                "item_id": self.message_id,
                "output_index": 0,
                "content_index": 0,
                "text": text,
                "logprobs": [],
            }),
            json!({
                "type": "response.content_part.done",
                "item_id": self.message_id,
                "output_index": 0,
                "content_index": 0,
                "part": text_part(&text),
            }),
            json!({
                "type": "response.output_item.done",
                "output_index": 0,
                "item": self.message(self.status(), &content),
            }),
            json!({ "type": format!("response.{}", self.status()), "response": self.finished() }),
        ]
    }

    fn error(&self) -> Vec<Value> {
        vec![
            json!({
                "type": "error",
                "code": "server_error",
                "message": "The server had an error while processing your request.",
                "param": null,
            }),
            json!({ "type": "response.failed", "response": self.failed() }),
        ]
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn usage(input_tokens: u64, output_tokens: u64) -> Value {
    json!({
        "input_tokens": input_tokens,
        "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": output_tokens,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input_tokens.saturating_add(output_tokens),
    })
}

/// A response that has just begun.
fn envelope(call: &Call, model: &str) -> Value {
    let sent = |name: &str| call.body.get(name).cloned().unwrap_or_default();
    json!({
        "id": call.identity.id("resp_"),
        "object": "response",
        "created_at": call.identity.created(),
        "status": "in_progress",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": sent("instructions"),
        "max_output_tokens": sent("max_output_tokens"),
        "model": model,
        "output": [],
        "parallel_tool_calls": true,
        "previous_response_id": sent("previous_response_id"),
        "reasoning": { "effort": null, "summary": null },
        "service_tier": "default",
        "store": true,
        "temperature": 1.0,
        "text": { "format": { "type": "text" } },
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": null,
        "user": null,
        "metadata": {},
    })
}
