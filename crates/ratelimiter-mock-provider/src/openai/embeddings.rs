//! `POST /v1/embeddings`.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::Call;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::prompt::words;

/// As OpenAI.
const INPUTS_MAX: usize = 2_048;
const DIMENSIONS: u64 = 8;
const DIMENSIONS_MAX: u64 = 3_072;

pub(crate) fn answer(call: &Call) -> Result<Answer, Problem> {
    let model = call.model()?;
    let input = call.required("input")?;
    let prompt_tokens = call.prompt_tokens(words(input));
    let dimensions = call.count("dimensions")?.unwrap_or(DIMENSIONS);
    if dimensions > DIMENSIONS_MAX {
        return Err(Problem::invalid(format!("dimensions: at most {DIMENSIONS_MAX}")));
    }
    let is_base64 = call.body.get("encoding_format").is_some_and(|format| format == "base64");
    let mut rng = call.identity.rng(1);
    let embedding = |index: usize| {
        let numbers = (0..dimensions).map(|_| rng.f32() - 0.5).collect::<Vec<_>>();
        let embedding =
            if is_base64 { base64(&little_endian(&numbers)).into() } else { json!(numbers) };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    };
    let data = (0..input_count(input)?).map(embedding).collect::<Value>();
    let mut body = json!({ "object": "list", "data": data, "model": model });
    if call.gives_usage {
        body["usage"] = json!({ "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens });
    }
    let payload = Payload::json(&body, 0);
    Ok(Answer { prompt_tokens, output_tokens: 0, output_tokens_max: 0, payload })
}

/// An array of token IDs is one input; an array of texts or of such arrays is many.
fn input_count(input: &Value) -> Result<usize, Problem> {
    let Some(inputs) = input.as_array() else { return Ok(1) };
    if inputs.first().is_some_and(Value::is_number) {
        return Ok(1);
    }
    if inputs.is_empty() || inputs.len() > INPUTS_MAX {
        return Err(Problem::invalid(format!("input: 1 to {INPUTS_MAX} inputs are required")));
    }
    Ok(inputs.len())
}

fn little_endian(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The SDKs ask for this unless told otherwise.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| usize::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_padding = digit > group.len();
            let digit = DIGITS[bits >> (18 - 6 * digit) & 63];
            text.push(if is_padding { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_in_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn an_array_of_tokens_is_one_input() {
        for (input, count) in [
            (json!("one"), Some(1)),
            (json!([1, 2]), Some(1)),
            (json!([[1], [2]]), Some(2)),
            (json!([]), None),
            (json!(vec!["one"; INPUTS_MAX]), Some(INPUTS_MAX)),
            (json!(vec!["one"; INPUTS_MAX + 1]), None),
        ] {
            assert_eq!(input_count(&input).ok(), count);
        }
    }
}
