//! A JSON tokenizer that is fed in chunks and keeps next to nothing: the kinds of the open containers and one short word.
//!
//! It checks the structure, not the spelling of numbers.

use std::mem;

use memchr::memchr2;

/// Deeper JSON is not read on.
pub(super) const DEPTH_MAX: usize = 128;
/// Longer keys and values are not kept.
const WORD_BYTES_MAX: usize = 32;

/// What a JSON text consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// An object or array begins.
    Open,
    /// An object or array ends.
    Close,
    /// A key of an object, which is the word.
    Key,
    /// Some of the text of a string value, which goes on: so many bytes when unescaped.
    TextPart(u64),
    /// A string value ends with so many bytes; all of it is the word.
    Text(u64),
    /// A number, `true`, `false` or `null`; it is the word.
    Bare,
}

#[derive(Debug)]
pub(super) struct JsonScanner {
    state: State,
    /// The open containers. At most `DEPTH_MAX`.
    open: Vec<Container>,
    word: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    ValueOrClose,
    Key,
    KeyOrClose,
    Colon,
    CommaOrClose,
    Bare,
    String(Role),
    Escape(Role),
    UnicodeEscape { role: Role, digits_left: u8, code: u32 },
    Done,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

impl JsonScanner {
    pub(super) fn new() -> Self {
        Self { state: State::Value, open: Vec::new(), word: Word::default() }
    }

    /// How many objects and arrays are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether the whole value has passed.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The last key or value; empty when it was too long to keep. One with escapes equals no word without.
    pub(super) fn word(&self) -> &[u8] {
        self.word.bytes()
    }

    /// Takes bytes from the front of `input` up to the end of the next token. `None` when all are taken, when the value
    /// is over, and when this is not JSON.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Option<Token> {
        while let Some((&byte, rest)) = input.split_first() {
            let token = match self.state {
                State::Done | State::Broken => return None,
                State::String(role) => self.string(role, input),
                State::Escape(role) => {
                    *input = rest;
                    self.escape(role, byte)
                }
                State::UnicodeEscape { role, digits_left, code } => {
                    *input = rest;
                    self.unicode_escape(role, digits_left, code, byte)
                }
                State::Bare => self.bare(input),
                State::Value
                | State::ValueOrClose
                | State::Key
                | State::KeyOrClose
                | State::Colon
                | State::CommaOrClose => {
                    if !is_bare(byte) {
                        *input = rest;
                    }
                    self.structure(byte)
                }
            };
            if token.is_some() {
                return token;
            }
        }
        None
    }

    fn structure(&mut self, byte: u8) -> Option<Token> {
        let container = self.open.last().copied();
        match (self.state, byte) {
            (_, b' ' | b'\t' | b'\n' | b'\r') => None,
            (State::Value | State::ValueOrClose, b'{') => self.enter(Container::Object),
            (State::Value | State::ValueOrClose, b'[') => self.enter(Container::Array),
            (State::Value | State::ValueOrClose, b'"') => self.begin_string(Role::Value),
            (State::Value | State::ValueOrClose, _) if is_bare(byte) => {
                self.word.clear();
                self.become_state(State::Bare)
            }
            (State::Key | State::KeyOrClose, b'"') => self.begin_string(Role::Key),
            (State::Colon, b':') => self.become_state(State::Value),
            (State::CommaOrClose, b',') => self.become_state(match container {
                Some(Container::Object) => State::Key,
                Some(Container::Array) => State::Value,
                None => State::Broken,
            }),
            (State::KeyOrClose | State::CommaOrClose, b'}')
                if container == Some(Container::Object) =>
            {
                self.leave()
            }
            (State::ValueOrClose | State::CommaOrClose, b']')
                if container == Some(Container::Array) =>
            {
                self.leave()
            }
            _ => self.become_state(State::Broken),
        }
    }

    fn become_state(&mut self, state: State) -> Option<Token> {
        self.state = state;
        None
    }

    fn enter(&mut self, container: Container) -> Option<Token> {
        if self.open.len() == DEPTH_MAX {
            return self.become_state(State::Broken);
        }
        self.open.push(container);
        self.state = match container {
            Container::Object => State::KeyOrClose,
            Container::Array => State::ValueOrClose,
        };
        Some(Token::Open)
    }

    fn leave(&mut self) -> Option<Token> {
        self.open.pop();
        self.end_value();
        Some(Token::Close)
    }

    fn end_value(&mut self) {
        self.state = if self.open.is_empty() { State::Done } else { State::CommaOrClose };
    }

    fn begin_string(&mut self, role: Role) -> Option<Token> {
        self.word.clear();
        self.become_state(State::String(role))
    }

    fn string(&mut self, role: Role, input: &mut &[u8]) -> Option<Token> {
        let plain = memchr2(b'"', b'\\', input).unwrap_or(input.len());
        let plain = take(input, plain);
        self.word.push(plain);
        let bytes = plain.len() as u64;
        match (input.split_off_first(), role) {
            (Some(b'"'), Role::Key) => {
                self.state = State::Colon;
                Some(Token::Key)
            }
            (Some(b'"'), Role::Value) => {
                self.end_value();
                Some(Token::Text(bytes))
            }
            (Some(_), _) => {
                self.word.push(b"\\");
                self.state = State::Escape(role);
                text_part(role, bytes)
            }
            (None, _) => text_part(role, bytes),
        }
    }

    fn escape(&mut self, role: Role, byte: u8) -> Option<Token> {
        if byte == b'u' {
            return self.become_state(State::UnicodeEscape { role, digits_left: 4, code: 0 });
        }
        self.state = State::String(role);
        text_part(role, 1)
    }

    fn unicode_escape(&mut self, role: Role, left: u8, code: u32, byte: u8) -> Option<Token> {
        let Some(digit) = char::from(byte).to_digit(16) else {
            return self.become_state(State::Broken);
        };
        let code = code * 16 + digit;
        let digits_left = left - 1;
        if digits_left > 0 {
            return self.become_state(State::UnicodeEscape { role, digits_left, code });
        }
        self.state = State::String(role);
        text_part(role, utf8_bytes(code))
    }

    fn bare(&mut self, input: &mut &[u8]) -> Option<Token> {
        let len = input.iter().position(|byte| !is_bare(*byte));
        let part = take(input, len.unwrap_or(input.len()));
        self.word.push(part);
        len?;
        self.end_value();
        Some(Token::Bare)
    }
}

fn take<'a>(input: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = mem::take(input).split_at(len);
    *input = rest;
    taken
}

fn text_part(role: Role, bytes: u64) -> Option<Token> {
    match role {
        Role::Key => None,
        Role::Value => Some(Token::TextPart(bytes)),
    }
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// The bytes of an escaped code unit in UTF-8; the two halves of a pair make four.
fn utf8_bytes(code: u32) -> u64 {
    match code {
        0..0x80 => 1,
        0x80..0x800 | 0xd800..0xe000 => 2,
        _ => 3,
    }
}

/// A short key or value, built up over several chunks.
#[derive(Debug, Default)]
struct Word {
    buffer: [u8; WORD_BYTES_MAX],
    /// Above `WORD_BYTES_MAX` the word is too long, and what `buffer` has is of no use.
    len: usize,
}

impl Word {
    fn clear(&mut self) {
        self.len = 0;
    }

    fn push(&mut self, bytes: &[u8]) {
        let len = self.len.saturating_add(bytes.len());
        if len <= WORD_BYTES_MAX {
            self.buffer[self.len..len].copy_from_slice(bytes);
        }
        self.len = len;
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}
