//! `POST /v1/completions`.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::stream_end::{StreamUsage, end, error, finish_reason, usage};
use crate::answer::Answer;
use crate::call::{Call, Output};
use crate::payload::{Frame, Payload, WORD, data, repeat, text};
use crate::problem::Problem;
use crate::prompt::words;

const PROMPTS_MAX: usize = 2_048;

pub(crate) fn answer(call: &Call) -> Result<Answer, Problem> {
    let model = call.model()?;
    let prompt = call.required("prompt")?;
    let prompt_tokens = call.prompt_tokens(words(prompt));
    let choices = call.choices()? * prompt_count(prompt)?;
    let output = call.output(call.count("max_tokens")?);
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

/// An array of token IDs is one prompt; an array of texts or of such arrays is many.
fn prompt_count(prompt: &Value) -> Result<u64, Problem> {
    let Some(prompts) = prompt.as_array() else { return Ok(1) };
    if prompts.first().is_some_and(Value::is_number) {
        return Ok(1);
    }
    if prompts.len() > PROMPTS_MAX {
        return Err(Problem::invalid(format!("prompt: at most {PROMPTS_MAX} prompts")));
    }
    Ok((prompts.len() as u64).max(1))
}

fn plain(call: &Call, model: &str, choices: u64, output: Output, usage: Value) -> Payload {
    let text = text(output.tokens);
    let choice = |index| {
        json!({
            "text": text,
            "index": index,
            "logprobs": null,
            "finish_reason": finish_reason(output),
        })
    };
    let mut body = envelope(call, model);
    body["choices"] = (0..choices).map(choice).collect();
    if call.gives_usage {
        body["usage"] = usage;
    }
    Payload::json(&body, output.tokens * choices)
}

fn stream(call: &Call, model: &str, choices: u64, output: Output, usage: Value) -> Payload {
    let told = StreamUsage::of(call);
    let envelope = envelope(call, model);
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = envelope.clone();
        chunk["choices"] = choices;
        if told == StreamUsage::Last {
            chunk["usage"] = usage;
        }
        data(&chunk)
    };
    let each = |text: &str, finish_reason: Option<&str>| -> Vec<Bytes> {
        let choice = |index| {
            json!([{
                "text": text,
                "index": index,
                "logprobs": null,
                "finish_reason": finish_reason,
            }])
        };
        (0..choices).map(|index| chunk(choice(index), Value::Null)).collect()
    };
    let begin = repeat(each(WORD, None), output.tokens);
    if call.fails {
        return Payload::stream(begin.chain([Frame::without_tokens(error())]));
    }
    let finished = each("", Some(finish_reason(output)));
    let usage_chunk = (told == StreamUsage::Last).then(|| chunk(json!([]), usage));
    let finished = finished.into_iter().map(Frame::without_tokens);
    Payload::stream(begin.chain(finished).chain(end(usage_chunk)))
}

fn envelope(call: &Call, model: &str) -> Value {
    json!({
        "id": call.identity.id("cmpl-"),
        "object": "text_completion",
        "created": call.identity.created(),
        "model": model,
        "system_fingerprint": "fp_mock",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_prompts_have_many_choices() {
        for (prompt, count) in [
            (json!("one two"), 1),
            (json!(["one", "two"]), 2),
            (json!([1, 2, 3]), 1),
            (json!([[1, 2], [3]]), 2),
            (json!([]), 1),
        ] {
            assert_eq!(prompt_count(&prompt), Ok(count), "{prompt}");
        }
        assert!(prompt_count(&json!(vec!["one"; PROMPTS_MAX])).is_ok());
        assert!(prompt_count(&json!(vec!["one"; PROMPTS_MAX + 1])).is_err());
    }
}
