//! The providers' formats of usage. A count that is not written as a whole number from 0 to 2^53 is absent, and so is
//! what has another type than it should.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::{api::Operation, usage::Usage};

/// No provider counts further; JavaScript's numbers are exact up to here.
pub(super) const COUNT_MAX: u64 = 1 << 53;

/// Reads a JSON object; `None` for any other value and for what is not JSON.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    if !json.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// Reads a `usage` object. `None` unless it tells the input and, where there is one, the output.
pub(super) fn read_usage(operation: Operation, json: &[u8]) -> Option<Usage> {
    let usage = match operation {
        Operation::ChatCompletions | Operation::Completions => {
            let usage: ChatUsage = object(json)?;
            openai_usage(
                usage.prompt_tokens?,
                usage.prompt_tokens_details,
                usage.completion_tokens?,
            )
        }
        Operation::Embeddings => {
            let usage: ChatUsage = object(json)?;
            openai_usage(usage.prompt_tokens?, usage.prompt_tokens_details, 0)
        }
        Operation::Responses => {
            let usage: ResponsesUsage = object(json)?;
            openai_usage(usage.input_tokens?, usage.input_tokens_details, usage.output_tokens?)
        }
        Operation::Messages => return object::<MessagesUsage>(json)?.whole(),
    };
    unless_placeholder(usage)
}

/// The input that the provider states includes what came from the cache.
fn openai_usage(input: u64, details: InputDetails, output: u64) -> Usage {
    let cache_read = details.cached_tokens.unwrap_or(0).min(input);
    Usage { input: input - cache_read, cache_read, output, ..Usage::default() }
}

/// Some gateways send zeros until they know better.
fn unless_placeholder(usage: Usage) -> Option<Usage> {
    (usage.all() > 0).then_some(usage)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ChatUsage {
    #[serde(deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "object_or_default")]
    prompt_tokens_details: InputDetails,
    #[serde(deserialize_with = "count")]
    completion_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponsesUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "object_or_default")]
    input_tokens_details: InputDetails,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u64>,
}

/// Anthropic's usage, whose input excludes what was read from the cache and written to it.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessagesUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "object_or_default")]
    cache_creation: CacheCreation,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "object_or_default")]
    server_tool_use: ServerToolUse,
}

/// Parts of `cache_creation_input_tokens`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CacheCreation {
    #[serde(deserialize_with = "count")]
    ephemeral_5m_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    ephemeral_1h_input_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct ServerToolUse {
    #[serde(deserialize_with = "count")]
    web_search_requests: Option<u64>,
    #[serde(deserialize_with = "count")]
    web_fetch_requests: Option<u64>,
}

impl MessagesUsage {
    /// The output that `message_start` states is a placeholder.
    pub(super) fn without_output(self) -> Self {
        Self { output_tokens: None, ..self }
    }

    /// Counts are cumulative: each that is present replaces the earlier one.
    pub(super) fn replace_by(&mut self, later: Self) {
        let Self {
            input_tokens,
            cache_creation_input_tokens,
            cache_creation: CacheCreation { ephemeral_5m_input_tokens, ephemeral_1h_input_tokens },
            cache_read_input_tokens,
            output_tokens,
            server_tool_use: ServerToolUse { web_search_requests, web_fetch_requests },
        } = later;
        let written = &mut self.cache_creation;
        let tools = &mut self.server_tool_use;
        for (kept, last) in [
            (&mut self.input_tokens, input_tokens),
            (&mut self.cache_creation_input_tokens, cache_creation_input_tokens),
            (&mut written.ephemeral_5m_input_tokens, ephemeral_5m_input_tokens),
            (&mut written.ephemeral_1h_input_tokens, ephemeral_1h_input_tokens),
            (&mut self.cache_read_input_tokens, cache_read_input_tokens),
            (&mut self.output_tokens, output_tokens),
            (&mut tools.web_search_requests, web_search_requests),
            (&mut tools.web_fetch_requests, web_fetch_requests),
        ] {
            *kept = last.or(*kept);
        }
    }

    /// Input and output; `None` while one of them is unknown.
    pub(super) fn whole(&self) -> Option<Usage> {
        unless_placeholder(Usage { output: self.output_tokens?, ..self.all_but_output()? })
    }

    /// The input alone, with an output of 0.
    pub(super) fn input_only(&self) -> Option<Usage> {
        unless_placeholder(self.all_but_output()?)
    }

    fn all_but_output(&self) -> Option<Usage> {
        let one_hour = self.cache_creation.ephemeral_1h_input_tokens.unwrap_or(0);
        let minutes = self.cache_creation.ephemeral_5m_input_tokens.unwrap_or(0);
        let written = self.cache_creation_input_tokens.unwrap_or(minutes + one_hour);
        let cache_write_1h = one_hour.min(written);
        let tools = self.server_tool_use;
        Some(Usage {
            input: self.input_tokens?,
            cache_read: self.cache_read_input_tokens.unwrap_or(0),
            cache_write: written - cache_write_1h,
            cache_write_1h,
            output: 0,
            server_tool_calls: tools.web_search_requests.unwrap_or(0)
                + tools.web_fetch_requests.unwrap_or(0),
        })
    }
}

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let json = <&RawValue>::deserialize(from)?;
    Ok(json.get().parse().ok().filter(|count| *count <= COUNT_MAX))
}

fn object_or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let json = <&RawValue>::deserialize(from)?;
    Ok(object(json.get().as_bytes()).unwrap_or_default())
}
