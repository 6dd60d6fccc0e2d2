//! What of a body becomes input.

use serde_json::{Map, Value};

use crate::api::Operation;
use crate::encoding::Encoding;

/// What of a body becomes input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Content {
    /// Bytes of text: prompts, messages, tools and their names.
    pub(crate) text_bytes: u64,
    /// Tokens of the same text, if the encoding is known.
    pub(crate) text_tokens: Option<u64>,
    /// Tokens that are given as numbers.
    pub(crate) token_ids: u64,
    pub(crate) messages: u64,
    pub(crate) tools: u64,
    pub(crate) images: u64,
    /// Bytes in Base64 of each file and recording.
    pub(crate) file_bytes: Vec<u64>,
    /// There is input that only the provider sees: an earlier answer, a stored prompt, a file, a tool of its own.
    pub(crate) has_hidden_input: bool,
    /// The number of prompts, each of which is answered.
    pub(crate) prompts: u64,
}

/// Reads a body.
struct Reader {
    content: Content,
    encoding: Option<Encoding>,
    /// Within tools and schemas, which the provider writes in a language of its own: its signs count too.
    is_in_schema: bool,
}

/// Fields whose presence means that the provider adds input of its own.
const HIDDEN: [&str; 5] =
    ["previous_response_id", "conversation", "container", "mcp_servers", "file_id"];
/// Tools of these types are the caller's own.
const OWN_TOOLS: [&str; 2] = ["function", "custom"];
/// Fields with schemas, besides tools.
const SCHEMAS: [&str; 3] = ["functions", "response_format", "text"];

impl Content {
    /// Reads a body. With an encoding, the tokens of its text are counted, which takes about 20 µs a KiB of prose.
    pub(crate) fn read(operation: Operation, body: &Value, encoding: Option<Encoding>) -> Self {
        let text_tokens = encoding.map(|_| 0);
        let content = Self { prompts: 1, text_tokens, ..Self::default() };
        let mut reader = Reader { content, encoding, is_in_schema: false };
        if let Value::Object(fields) = body {
            reader.add_call(operation, fields);
        }
        reader.content
    }
}

impl Reader {
    fn add_call(&mut self, operation: Operation, fields: &Map<String, Value>) {
        for (name, value) in fields {
            match (operation, name.as_str()) {
                (_, "model") => {}
                (Operation::Completions, "prompt") | (Operation::Embeddings, "input") => {
                    self.add_prompts(value);
                }
                (Operation::Responses, "prompt") => {
                    self.content.has_hidden_input |= !value.is_null();
                    self.add(value);
                }
                (_, "tools") => self.add_tools(value),
                (_, "messages" | "input") => {
                    self.content.messages = value.as_array().map_or(1, |items| items.len() as u64);
                    self.add(value);
                }
                (_, name) if HIDDEN.contains(&name) => self.hides(value),
                (_, name) if SCHEMAS.contains(&name) => self.add_schema(value),
                _ => self.add(value),
            }
        }
    }

    /// A text, tokens, or a list of either.
    fn add_prompts(&mut self, prompts: &Value) {
        let Value::Array(items) = prompts else { return self.add(prompts) };
        if items.iter().any(Value::is_number) {
            self.content.token_ids += items.len() as u64;
            return;
        }
        self.content.prompts = (items.len() as u64).max(1);
        self.content.messages = self.content.prompts;
        for item in items {
            match item {
                Value::Array(tokens) => self.content.token_ids += tokens.len() as u64,
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_) => self.add(item),
            }
        }
    }

    fn add_tools(&mut self, tools: &Value) {
        self.add_schema(tools);
        let types = tools.as_array().into_iter().flatten().filter_map(|tool| tool.get("type"));
        let is_hidden = |kind: &Value| kind.as_str().is_none_or(|kind| !OWN_TOOLS.contains(&kind));
        self.content.has_hidden_input |= types.into_iter().any(is_hidden);
        self.content.tools += tools.as_array().map_or(0, |tools| tools.len() as u64);
    }

    fn add_schema(&mut self, schema: &Value) {
        self.is_in_schema = true;
        self.add(schema);
        self.is_in_schema = false;
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => self.add_bytes(4),
            Value::Number(number) => self.add_bytes(number.to_string().len() as u64),
            Value::String(text) => self.add_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => self.add_object(fields),
        }
    }

    fn add_text(&mut self, text: &str) {
        self.content.text_bytes += text.len() as u64;
        if let (Some(tokens), Some(encoding)) = (&mut self.content.text_tokens, self.encoding) {
            *tokens += encoding.tokens(text) + u64::from(self.is_in_schema);
        }
    }

    /// What has a token a byte at most.
    fn add_bytes(&mut self, bytes: u64) {
        self.content.text_bytes += bytes;
        if let Some(tokens) = &mut self.content.text_tokens {
            *tokens += bytes;
        }
    }

    fn hides(&mut self, value: &Value) {
        self.content.has_hidden_input |= !value.is_null();
    }

    /// A part of a message, or any other object.
    fn add_object(&mut self, fields: &Map<String, Value>) {
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
        for (name, value) in fields {
            self.add_text(name);
            match (name.as_str(), value) {
                ("image_url", _) => self.content.images += 1,
                ("source", Value::Object(source)) => self.add_source(kind, source),
                ("input_audio", Value::Object(audio)) => self.add_file(audio.get("data")),
                ("file_data", data) => self.add_file(Some(data)),
                (name, _) if HIDDEN.contains(&name) => self.hides(value),
                ("file_url", _) => self.content.has_hidden_input = true,
                (_, value) => self.add(value),
            }
        }
    }

    /// The source of an image or a document: its text, its bytes, or where it is.
    fn add_source(&mut self, kind: &str, source: &Map<String, Value>) {
        let is_text = source.get("type").and_then(Value::as_str) == Some("text");
        match (kind, source.get("data")) {
            ("image", _) => self.content.images += 1,
            (_, Some(data)) if is_text => self.add(data),
            (_, Some(data)) => self.add_file(Some(data)),
            (_, None) => {
                self.content.has_hidden_input |= source.contains_key("url");
                self.add_object(source);
            }
        }
    }

    fn add_file(&mut self, data: Option<&Value>) {
        let bytes = data.and_then(Value::as_str).map_or(0, str::len);
        self.content.file_bytes.push(bytes as u64);
    }
}
