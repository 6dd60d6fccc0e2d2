//! Which strings of an answer are output: text, tool arguments and visible reasoning.
//!
//! The key that a string stands under decides, also for strings in an array under it. A tool's `input` is output with all
//! strings in it, and their keys. Names, IDs, signatures, citations and results of server tools are not.

use serde_json::value::RawValue;

use crate::answer::json_scanner::{JsonScanner, Token};

const TOOL_INPUT_KEY: &[u8] = b"input";

/// What counts of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// Only what is under this key, and there by key.
    Section(&'static [u8]),
    Nothing,
    /// Of an object or array, the strings under the keys of text.
    ByKey,
    /// The string itself, and otherwise as `ByKey`.
    Text,
    /// Every string in it.
    All,
}

impl Counting {
    /// What counts of the value under a key of an object of which this counts.
    fn under(self, key: &[u8]) -> Self {
        match self {
            Self::Section(section) if key == section => Self::ByKey,
            Self::Section(_) | Self::Nothing => Self::Nothing,
            Self::ByKey | Self::Text if key == TOOL_INPUT_KEY => Self::All,
            Self::ByKey | Self::Text if is_text(key) => Self::Text,
            Self::ByKey | Self::Text => Self::ByKey,
            Self::All => Self::All,
        }
    }
}

fn is_text(key: &[u8]) -> bool {
    matches!(
        key,
        b"arguments"
            | b"code"
            | b"content"
            | b"partial_json"
            | b"reasoning"
            | b"reasoning_content"
            | b"refusal"
            | b"text"
            | b"thinking"
            | b"transcript"
    )
}

/// Counts the bytes of output in a JSON text, token by token.
#[derive(Debug)]
pub(super) struct OutputCounter {
    whole: Counting,
    /// One entry for each object or array that is open; the scanner bounds their number.
    open: Vec<Level>,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Level {
    container: Counting,
    /// The value that comes next; in an array the same as `container`.
    value: Counting,
}

impl OutputCounter {
    pub(super) fn new(whole: Counting) -> Self {
        Self { whole, open: Vec::new(), bytes: 0 }
    }

    /// Bytes of output so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the scanner's next token; `word` is the scanner's.
    pub(super) fn take(&mut self, token: Token, word: &[u8]) {
        match token {
            Token::Open => {
                let value = self.value();
                self.open.push(Level { container: value, value });
            }
            Token::Close => {
                self.open.pop();
            }
            Token::Key => {
                if let Some(level) = self.open.last_mut() {
                    if level.container == Counting::All {
                        self.bytes += word.len() as u64;
                    }
                    level.value = level.container.under(word);
                }
            }
            Token::TextPart(bytes) | Token::Text(bytes) => {
                if matches!(self.value(), Counting::Text | Counting::All) {
                    self.bytes += bytes;
                }
            }
            Token::Bare => {}
        }
    }

    fn value(&self) -> Counting {
        self.open.last().map_or(self.whole, |level| level.value)
    }
}

/// The bytes of output in a whole JSON value.
pub(super) fn output_bytes(json: &RawValue, counting: Counting) -> u64 {
    let mut scanner = JsonScanner::new();
    let mut counter = OutputCounter::new(counting);
    let mut input = json.get().as_bytes();
    while let Some(token) = scanner.next(&mut input) {
        counter.take(token, scanner.word());
    }
    counter.bytes()
}
