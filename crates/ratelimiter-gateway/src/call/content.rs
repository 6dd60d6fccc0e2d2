//! What of a body becomes input.

use serde_json::{Map, Value};

use crate::api::Operation;

/// What of a body becomes input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Content {
    /// Bytes of text: prompts, messages, tools and their names.
    pub(crate) text_bytes: u64,
    /// Tokens that are given as numbers.
    pub(crate) token_ids: u64,
    pub(crate) messages: u64,
    pub(crate) images: u64,
    /// Bytes in Base64 of each file and recording.
    pub(crate) file_bytes: Vec<u64>,
    /// There is input that only the provider sees: an earlier answer, a stored prompt, a file, a tool of its own.
    pub(crate) has_hidden_input: bool,
    /// The number of prompts, each of which is answered.
    pub(crate) prompts: u64,
}

/// Fields whose presence means that the provider adds input of its own.
const HIDDEN: [&str; 5] =
    ["previous_response_id", "conversation", "container", "mcp_servers", "file_id"];
/// Tools of these types are the caller's own.
const OWN_TOOLS: [&str; 2] = ["function", "custom"];

impl Content {
    pub(crate) fn read(operation: Operation, body: &Value) -> Self {
        let mut content = Self { prompts: 1, ..Self::default() };
        let Value::Object(fields) = body else { return content };
        for (name, value) in fields {
            match (operation, name.as_str()) {
                (_, "model") => {}
                (Operation::Completions, "prompt") | (Operation::Embeddings, "input") => {
                    content.add_prompts(value);
                }
                (Operation::Responses, "prompt") => {
                    content.has_hidden_input |= !value.is_null();
                    content.add(value);
                }
                (_, "tools") => content.add_tools(value),
                (_, "messages" | "input") => {
                    content.messages = value.as_array().map_or(1, |items| items.len() as u64);
                    content.add(value);
                }
                (_, name) if HIDDEN.contains(&name) => content.has_hidden_input |= !value.is_null(),
                _ => content.add(value),
            }
        }
        content
    }

    /// A text, tokens, or a list of either.
    fn add_prompts(&mut self, prompts: &Value) {
        let Value::Array(items) = prompts else { return self.add(prompts) };
        if items.iter().any(Value::is_number) {
            self.token_ids += items.len() as u64;
            return;
        }
        self.prompts = (items.len() as u64).max(1);
        self.messages = self.prompts;
        for item in items {
            match item {
                Value::Array(tokens) => self.token_ids += tokens.len() as u64,
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_) => self.add(item),
            }
        }
    }

    fn add_tools(&mut self, tools: &Value) {
        self.add(tools);
        let types = tools.as_array().into_iter().flatten().filter_map(|tool| tool.get("type"));
        let is_hidden = |kind: &Value| kind.as_str().is_none_or(|kind| !OWN_TOOLS.contains(&kind));
        self.has_hidden_input |= types.into_iter().any(is_hidden);
        self.messages += tools.as_array().map_or(0, |tools| tools.len() as u64);
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => self.text_bytes += 4,
            Value::Number(number) => self.text_bytes += number.to_string().len() as u64,
            Value::String(text) => self.text_bytes += text.len() as u64,
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => self.add_object(fields),
        }
    }

    /// A part of a message, or any other object.
    fn add_object(&mut self, fields: &Map<String, Value>) {
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
        for (name, value) in fields {
            self.text_bytes += name.len() as u64;
            match (name.as_str(), value) {
                ("image_url", _) => self.images += 1,
                ("source", Value::Object(source)) => self.add_source(kind, source),
                ("input_audio", Value::Object(audio)) => self.add_file(audio.get("data")),
                ("file_data", data) => self.add_file(Some(data)),
                (name, _) if HIDDEN.contains(&name) => self.has_hidden_input |= !value.is_null(),
                ("file_url", _) => self.has_hidden_input = true,
                (_, value) => self.add(value),
            }
        }
    }

    /// The source of an image or a document: its text, its bytes, or where it is.
    fn add_source(&mut self, kind: &str, source: &Map<String, Value>) {
        let is_text = source.get("type").and_then(Value::as_str) == Some("text");
        match (kind, source.get("data")) {
            ("image", _) => self.images += 1,
            (_, Some(data)) if is_text => self.add(data),
            (_, Some(data)) => self.add_file(Some(data)),
            (_, None) => {
                self.has_hidden_input |= source.contains_key("url");
                self.add_object(source);
            }
        }
    }

    fn add_file(&mut self, data: Option<&Value>) {
        let bytes = data.and_then(Value::as_str).map_or(0, str::len);
        self.file_bytes.push(bytes as u64);
    }
}
