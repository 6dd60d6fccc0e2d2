//! What a call may use, estimated before it is made (`GW-03`).

use crate::call::{Call, OutputBound};
use crate::ratios::Ratio;
use crate::settings::Model;

/// What is reserved for the output of a call if neither the caller nor the model's settings bound it.
const OUTPUT_TOKENS_DEFAULT: u64 = 4_096;
/// What an image may use. Providers count 85 to about 1 600 tokens for one of any size.
const IMAGE_TOKENS: u64 = 2_048;
/// A file or a recording uses at most one token for so many bytes of its Base64, and is not taken for less than an image.
const FILE_BYTES_PER_TOKEN: u64 = 16;
/// What providers add to each message, and to each call.
const TOKENS_PER_MESSAGE: u64 = 8;
const TOKENS_PER_CALL: u64 = 16;
/// What OpenAI adds, whose text is counted in tokens.
const ENCODED_TOKENS_PER_MESSAGE: u64 = 4;
const ENCODED_TOKENS_PER_CALL: u64 = 8;
/// To each tool, and once to a call with tools.
const ENCODED_TOKENS_PER_TOOL: u64 = 8;
const ENCODED_TOKENS_FOR_TOOLS: u64 = 16;
/// Anthropic explains to the model how tools are used: 264 to 530 tokens in what it has published.
const TOOLS_PROMPT_TOKENS: u64 = 700;
/// Of calls with tools, only those with so much text say how many tokens text has.
const TOOLS_BYTES_LEARNED_MIN: u64 = 16 * 1_024;
/// No text has fewer tokens than one for so many bytes, but for repetitions that nobody sends.
const BYTES_PER_TOKEN_MAX: u64 = 16;

/// The most that a call may use, and the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Estimate {
    /// The most input.
    pub(crate) input: u64,
    /// The most output.
    pub(crate) output: u64,
    /// The bytes of text, if the input is nothing else.
    pub(crate) bytes: u64,
}

/// What of an estimate is certain. Where an estimate is above a whole capacity, this decides whether the call can ever fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Certain {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Estimate {
    /// Estimates a call of a model by what one byte of its text may use.
    pub(crate) fn of(
        call: &Call,
        model: Option<&Model>,
        ratio: Ratio,
        hidden_input_tokens: u64,
    ) -> (Self, Certain) {
        let content = &call.content;
        let attached = content.images.saturating_mul(IMAGE_TOKENS);
        let files = content
            .file_bytes
            .iter()
            .map(|bytes| bytes.div_ceil(FILE_BYTES_PER_TOKEN).max(IMAGE_TOKENS));
        let hidden = if content.has_hidden_input { hidden_input_tokens } else { 0 };
        let has_tools = u64::from(content.tools > 0);
        let (text, overhead) = match content.text_tokens {
            Some(tokens) => {
                let of_messages = content.messages.saturating_mul(ENCODED_TOKENS_PER_MESSAGE);
                let of_tools = content.tools.saturating_mul(ENCODED_TOKENS_PER_TOOL)
                    + has_tools * ENCODED_TOKENS_FOR_TOOLS;
                (tokens, of_messages + of_tools + ENCODED_TOKENS_PER_CALL)
            }
            None => {
                let of_parts =
                    (content.messages + content.tools).saturating_mul(TOKENS_PER_MESSAGE);
                let of_tools = has_tools * TOOLS_PROMPT_TOKENS;
                (ratio.tokens(content.text_bytes), of_parts + of_tools + TOKENS_PER_CALL)
            }
        };
        let input = [content.token_ids, attached, files.sum(), hidden, overhead]
            .into_iter()
            .fold(text, u64::saturating_add);
        let certain_input = content.text_bytes / BYTES_PER_TOKEN_MAX + content.token_ids;
        let (each, is_stated) = match call.output {
            OutputBound::None => (0, true),
            OutputBound::Stated(tokens) => (tokens, true),
            OutputBound::Unstated => {
                let default = model.and_then(|model| model.default_output_tokens);
                let longest = model.and_then(|model| model.max_output_tokens);
                (default.or(longest).unwrap_or(OUTPUT_TOKENS_DEFAULT), false)
            }
        };
        let output = each.saturating_mul(call.answers);
        let certain = Certain { input: certain_input, output: if is_stated { output } else { 0 } };
        let is_text = content.token_ids == 0
            && content.images == 0
            && content.file_bytes.is_empty()
            && !content.has_hidden_input
            && (content.tools == 0 || content.text_bytes >= TOOLS_BYTES_LEARNED_MIN);
        let bytes = if is_text { content.text_bytes } else { 0 };
        (Self { input, output, bytes }, certain)
    }
}

#[cfg(test)]
#[cfg(feature = "openai-tokenizer")]
mod corpus;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Operation;

    fn estimate(operation: Operation, body: &str) -> (u64, u64) {
        let call = Call::parse(operation, body.to_owned().into(), |_| None).unwrap();
        let (estimate, _) = Estimate::of(&call, None, Ratio::SAFE, 32_768);
        (estimate.input, estimate.output)
    }

    /// GW-03
    #[test]
    fn gw_03_the_output_is_the_callers_bound_for_each_answer() {
        for (operation, body, output) in [
            (Operation::ChatCompletions, r#"{"model":"m","max_tokens":7}"#, 7),
            (Operation::ChatCompletions, r#"{"model":"m","max_completion_tokens":7,"n":3}"#, 21),
            (Operation::ChatCompletions, r#"{"model":"m"}"#, 4_096),
            (Operation::ChatCompletions, r#"{"model":"m","n":0}"#, 4_096),
            (Operation::Completions, r#"{"model":"m","max_tokens":5,"n":2,"best_of":4}"#, 20),
            (Operation::Completions, r#"{"model":"m","max_tokens":5,"prompt":["a","b"]}"#, 10),
            (Operation::Completions, r#"{"model":"m","max_tokens":5,"prompt":[1,2]}"#, 5),
            (Operation::Completions, r#"{"model":"m","max_tokens":5,"prompt":[[1,2],[3]]}"#, 10),
            (Operation::Responses, r#"{"model":"m","max_output_tokens":9}"#, 9),
            (Operation::Messages, r#"{"model":"m","max_tokens":11}"#, 11),
            (Operation::Embeddings, r#"{"model":"m","input":"a"}"#, 0),
        ] {
            assert_eq!(estimate(operation, body).1, output, "{body}");
        }
    }

    /// GW-03
    #[test]
    fn gw_03_the_models_settings_bound_the_output_that_the_caller_does_not() {
        let model = |default_output_tokens, max_output_tokens| Model {
            name: "m".to_owned(),
            default_output_tokens,
            max_output_tokens,
            ..Model::default()
        };
        let body = r#"{"model":"m"}"#;
        let call = Call::parse(Operation::ChatCompletions, body.into(), |_| None).unwrap();
        for (model, output) in
            [(model(Some(5), Some(9)), 5), (model(None, Some(9)), 9), (model(None, None), 4_096)]
        {
            let (estimate, certain) = Estimate::of(&call, Some(&model), Ratio::SAFE, 0);
            assert_eq!((estimate.output, certain.output), (output, 0));
        }
    }

    /// GW-03
    #[test]
    fn gw_03_input_that_only_the_provider_sees_has_a_reserve() {
        let visible = estimate(Operation::Responses, r#"{"model":"m","input":"a"}"#).0;
        for hidden in [
            r#"{"model":"m","input":"a","previous_response_id":"r"}"#,
            r#"{"model":"m","input":"a","conversation":"c"}"#,
            r#"{"model":"m","input":"a","prompt":{"id":"p"}}"#,
            r#"{"model":"m","input":"a","tools":[{"type":"web_search"}]}"#,
            r#"{"model":"m","input":[{"type":"input_file","file_id":"f"}]}"#,
        ] {
            let with = estimate(Operation::Responses, hidden).0;
            assert!(with >= visible + 32_768, "{hidden}: {with}");
        }
        let own = r#"{"model":"m","input":"a","tools":[{"type":"function","name":"f"}]}"#;
        assert!(estimate(Operation::Responses, own).0 < visible + TOOLS_PROMPT_TOKENS + 100);
    }

    /// GW-03
    #[test]
    fn gw_03_binary_input_is_not_counted_as_text() {
        let image = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{}"}}}}]}}]}}"#,
            "A".repeat(1_000_000)
        );
        let (input, _) = estimate(Operation::ChatCompletions, &image);
        assert!((2_048..2_300).contains(&input), "{input}");
        let document = format!(
            r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":[{{"type":"document","source":{{"type":"base64","media_type":"application/pdf","data":"{}"}}}}]}}]}}"#,
            "A".repeat(160_000)
        );
        let (input, _) = estimate(Operation::Messages, &document);
        assert!((10_000..10_300).contains(&input), "{input}");
        let ids = format!(r#"{{"model":"m","input":[{}1]}}"#, "1,".repeat(9_999));
        let (input, _) = estimate(Operation::Embeddings, &ids);
        assert!((10_000..10_100).contains(&input), "{input}");
    }
}
