//! A plain answer: one JSON object, read in chunks, of which nothing but its `usage` is kept.

use crate::{
    answer::{
        AnswerEnd, Observed,
        json_scanner::{JsonScanner, Token},
        output_text::{Counting, OutputCounter},
        stream_events::is_server_tool_call,
        usage_formats::read_usage,
    },
    api::Operation,
    usage::Usage,
};

/// A longer `usage` is not read.
pub(super) const USAGE_BYTES_MAX: usize = 64 << 10;
/// The depth of the fields of an item: in the answer, in its `output`, in the item.
const ITEM_DEPTH: usize = 3;

/// Reads a plain answer while it passes.
#[derive(Debug)]
pub(crate) struct PlainMeter {
    operation: Operation,
    scanner: JsonScanner,
    output: OutputCounter,
    /// The field of the answer whose value passes.
    field: Field,
    /// Whether the value that comes next is the type of an output item.
    is_item_type: bool,
    /// What follows the key `usage`: a colon and the value so far. At most `USAGE_BYTES_MAX`, else empty.
    usage_json: Vec<u8>,
    usage: Option<Usage>,
    server_tool_calls: u64,
    is_failed: bool,
}

/// The fields of the answer itself that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Usage,
    /// A usage too long to keep.
    LongUsage,
    Error,
    /// `"type": "error"` of Anthropic.
    Type,
    /// `"status": "failed"` of `responses`.
    Status,
    /// The output items of `responses`.
    Items,
    Other,
}

impl PlainMeter {
    pub(crate) fn new(operation: Operation) -> Self {
        let counting = match operation {
            Operation::ChatCompletions | Operation::Completions => Counting::Section(b"choices"),
            Operation::Responses => Counting::Section(b"output"),
            Operation::Embeddings => Counting::Nothing,
            Operation::Messages => Counting::Section(b"content"),
        };
        Self {
            operation,
            scanner: JsonScanner::new(),
            output: OutputCounter::new(counting),
            field: Field::Other,
            is_item_type: false,
            usage_json: Vec::new(),
            usage: None,
            server_tool_calls: 0,
            is_failed: false,
        }
    }

    /// Takes the next bytes of the answer.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        loop {
            let before = rest;
            let token = self.scanner.next(&mut rest);
            self.keep_usage(&before[..before.len() - rest.len()]);
            match token {
                Some(token) => self.take(token),
                None => return,
            }
        }
    }

    pub(crate) fn observed(&self) -> Observed {
        let server_tool_calls = self.server_tool_calls;
        let end = match (self.is_failed, self.scanner.is_done()) {
            (true, _) => AnswerEnd::Failed,
            (false, true) => AnswerEnd::Complete,
            (false, false) => AnswerEnd::Open,
        };
        Observed {
            usage: self.usage.map(|usage| Usage {
                server_tool_calls: usage.server_tool_calls + server_tool_calls,
                ..usage
            }),
            output_bytes: self.output.bytes(),
            end,
            ..Observed::default()
        }
    }

    fn keep_usage(&mut self, bytes: &[u8]) {
        if self.field != Field::Usage {
            return;
        }
        if self.usage_json.len() + bytes.len() > USAGE_BYTES_MAX {
            self.field = Field::LongUsage;
            self.usage_json = Vec::new();
        } else {
            self.usage_json.extend_from_slice(bytes);
        }
    }

    fn take(&mut self, token: Token) {
        let word = self.scanner.word();
        let depth = self.scanner.depth();
        self.output.take(token, word);
        match token {
            Token::Key if depth == 1 => self.field = Field::of(self.operation, word),
            Token::Key => {
                self.is_item_type =
                    depth == ITEM_DEPTH && self.field == Field::Items && word == b"type";
            }
            Token::Text(_) if depth == ITEM_DEPTH && self.is_item_type => {
                self.is_item_type = false;
                if str::from_utf8(word).is_ok_and(is_server_tool_call) {
                    self.server_tool_calls += 1;
                }
            }
            Token::Close | Token::Text(_) | Token::Bare if depth == 1 => self.end_field(token),
            Token::Open | Token::Close | Token::Text(_) | Token::TextPart(_) | Token::Bare => {}
        }
    }

    fn end_field(&mut self, token: Token) {
        let word = self.scanner.word();
        let is_text = matches!(token, Token::Text(_));
        match self.field {
            Field::Usage => {
                let json = self.usage_json.trim_ascii_start();
                let json = json.strip_prefix(b":").unwrap_or(json);
                self.usage = read_usage(self.operation, json).or(self.usage);
                self.usage_json = Vec::new();
            }
            Field::Error => {
                self.is_failed |= token != Token::Bare || word != b"null";
            }
            Field::Type => self.is_failed |= is_text && word == b"error",
            Field::Status => self.is_failed |= is_text && word == b"failed",
            Field::LongUsage | Field::Items | Field::Other => {}
        }
        self.field = Field::Other;
    }
}

impl Field {
    fn of(operation: Operation, key: &[u8]) -> Self {
        match (operation, key) {
            (_, b"usage") => Self::Usage,
            (_, b"error") => Self::Error,
            (Operation::Messages, b"type") => Self::Type,
            (Operation::Responses, b"status") => Self::Status,
            (Operation::Responses, b"output") => Self::Items,
            _ => Self::Other,
        }
    }
}
