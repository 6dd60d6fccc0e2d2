//! What the events of each API's stream mean.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    answer::{
        AnswerEnd, Observed,
        output_text::{Counting, output_bytes},
        sse::Event,
        usage_formats::{MessagesUsage, object, read_usage},
    },
    api::Operation,
};

/// Tools that the caller runs; every other item of type `*_call` is a call of the provider's tools.
const CALLERS_TOOLS: [&str; 5] =
    ["apply_patch_call", "computer_call", "custom_tool_call", "function_call", "local_shell_call"];

/// Reads the events of one stream.
#[derive(Debug)]
pub(super) struct EventReader {
    operation: Operation,
    observed: Observed,
    /// For `messages`, which tells its usage in parts.
    messages: MessagesUsage,
    /// For `responses`, whose usage does not have them.
    server_tool_calls: u64,
}

/// What an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It only tells the usage: the event that `stream_options.include_usage` adds.
    UsageOnly,
    Other,
}

#[derive(Deserialize)]
struct ChatChunk<'a> {
    #[serde(borrow)]
    choices: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessagesEvent<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// An object that has usage: a response, a message, or Groq's part of a chunk.
#[derive(Deserialize)]
struct WithUsage<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// An object that has a type: an output item or a content block.
#[derive(Deserialize)]
struct WithType<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

impl EventReader {
    pub(super) fn new(operation: Operation) -> Self {
        Self {
            operation,
            observed: Observed::default(),
            messages: MessagesUsage::default(),
            server_tool_calls: 0,
        }
    }

    pub(super) fn observed(&self) -> Observed {
        self.observed
    }

    /// Counts output that is not read.
    pub(super) fn count_unread(&mut self, bytes: usize) {
        self.observed.output_bytes += bytes as u64;
    }

    /// Reads one event. What is not understood says nothing.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Purpose {
        let event = Event::parse(bytes);
        if event.name == Some(b"error") {
            self.end(AnswerEnd::Failed);
        }
        let Some(data) = event.data.as_deref() else {
            return Purpose::Other;
        };
        if data.trim_ascii() == b"[DONE]" {
            self.end(AnswerEnd::Complete);
            return Purpose::Other;
        }
        match self.operation {
            Operation::ChatCompletions | Operation::Completions | Operation::Embeddings => {
                return object(data).map_or(Purpose::Other, |chunk| self.read_chat(&chunk));
            }
            Operation::Responses => {
                if let Some(event) = object(data) {
                    self.read_responses(&event);
                }
            }
            Operation::Messages => {
                if let Some(event) = object(data) {
                    self.read_messages(&event);
                }
            }
        }
        Purpose::Other
    }

    fn read_chat(&mut self, chunk: &ChatChunk<'_>) -> Purpose {
        if chunk.error.is_some() {
            self.end(AnswerEnd::Failed);
        }
        if let Some(choices) = chunk.choices {
            self.count_output(choices, Counting::ByKey);
        }
        let groq = chunk.x_groq.and_then(parse::<WithUsage<'_>>).and_then(|part| part.usage);
        for usage in [groq, chunk.usage].into_iter().flatten() {
            self.take_usage(usage);
        }
        let has_usage = chunk.usage.is_some_and(|usage| usage.get().starts_with('{'));
        if has_usage && chunk.choices.is_some_and(is_empty_list) {
            Purpose::UsageOnly
        } else {
            Purpose::Other
        }
    }

    fn read_responses(&mut self, event: &ResponsesEvent<'_>) {
        let kind = &*event.kind;
        if kind == "error" || event.error.is_some() {
            self.end(AnswerEnd::Failed);
        }
        if let Some(delta) = event.delta.filter(|_| kind.ends_with(".delta")) {
            let is_reasoning = self.observed.is_reasoning;
            self.count_output(delta, Counting::All);
            if kind == "response.reasoning_summary_text.delta" {
                self.observed.is_reasoning = is_reasoning;
            }
        }
        let item = event.item.and_then(parse::<WithType<'_>>);
        match (kind, item) {
            ("response.output_item.added", Some(item)) if item.kind == "reasoning" => {
                self.observed.is_reasoning = true;
            }
            ("response.output_item.done", Some(item)) if is_server_tool_call(&item.kind) => {
                self.server_tool_calls += 1;
            }
            ("response.completed" | "response.incomplete", _) => {
                self.end_response(event.response, AnswerEnd::Complete);
            }
            ("response.failed", _) => self.end_response(event.response, AnswerEnd::Failed),
            _ => {}
        }
    }

    fn end_response(&mut self, response: Option<&RawValue>, end: AnswerEnd) {
        self.end(end);
        if let Some(usage) = usage_of(response) {
            self.take_usage(usage);
        }
    }

    fn read_messages(&mut self, event: &MessagesEvent<'_>) {
        if event.error.is_some() {
            self.end(AnswerEnd::Failed);
        }
        match &*event.kind {
            "message_start" => {
                let usage = usage_of(event.message).and_then(parse::<MessagesUsage>);
                self.take_messages_usage(usage.map(MessagesUsage::without_output));
            }
            "content_block_start" => self.begin_block(event.content_block),
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.count_output(delta, Counting::ByKey);
                }
            }
            "message_delta" => self.take_messages_usage(event.usage.and_then(parse)),
            "message_stop" => self.end(AnswerEnd::Complete),
            "error" => self.end(AnswerEnd::Failed),
            _ => {}
        }
    }

    fn begin_block(&mut self, block: Option<&RawValue>) {
        let Some(block) = block else { return };
        if let Some(WithType { kind }) = parse(block)
            && matches!(&*kind, "thinking" | "redacted_thinking")
        {
            self.observed.is_reasoning = true;
        }
        self.count_output(block, Counting::ByKey);
    }

    fn count_output(&mut self, json: &RawValue, counting: Counting) {
        let bytes = output_bytes(json, counting);
        self.observed.output_bytes += bytes;
        if bytes > 0 {
            self.observed.is_reasoning = false;
        }
    }

    fn take_usage(&mut self, usage: &RawValue) {
        if let Some(mut usage) = read_usage(self.operation, usage.get().as_bytes()) {
            usage.server_tool_calls += self.server_tool_calls;
            self.observed.usage = Some(usage);
        }
    }

    fn take_messages_usage(&mut self, later: Option<MessagesUsage>) {
        let Some(later) = later else { return };
        self.messages.replace_by(later);
        self.observed.usage = self.messages.whole();
        self.observed.input_usage = match self.observed.usage {
            Some(_) => None,
            None => self.messages.input_only(),
        };
    }

    fn end(&mut self, end: AnswerEnd) {
        if self.observed.end == AnswerEnd::Open {
            self.observed.end = end;
        }
    }
}

/// Whether an output item of `responses` is a call of a tool that the provider runs.
pub(super) fn is_server_tool_call(item_type: &str) -> bool {
    item_type.ends_with("_call") && !CALLERS_TOOLS.contains(&item_type)
}

fn parse<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Option<T> {
    object(json.get().as_bytes())
}

fn usage_of(json: Option<&RawValue>) -> Option<&RawValue> {
    parse::<WithUsage<'_>>(json?)?.usage
}

fn is_empty_list(json: &RawValue) -> bool {
    let list = json.get().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    list.is_some_and(|items| items.trim().is_empty())
}
