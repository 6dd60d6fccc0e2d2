//! Finding the entries of a limits file and their lines, as far as the file is JSON.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::fault::FileFault;

/// The entries with their lines, and why there are no more.
pub(super) struct Scan<'a> {
    pub(super) entries: Vec<(usize, &'a RawValue)>,
    pub(super) fault: Option<FileFault>,
}

impl<'a> Scan<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut raws = Vec::new();
        let mut json = serde_json::Deserializer::from_str(text);
        let result = Entries(&mut raws).deserialize(&mut json).and_then(|()| json.end());
        let mut lines = Lines::of(text);
        let entries: Vec<_> = raws.into_iter().map(|raw| (lines.line_of(raw), raw)).collect();
        let fault = result.err().map(|error| {
            let after = entries.last().and_then(|(_, raw)| super::entry::key_of(raw.get()));
            let message = match after {
                Some(key) => format!("{error}, after the limit {key}"),
                None => error.to_string(),
            };
            FileFault::at_line(error.line().max(1), message)
        });
        Self { entries, fault }
    }
}

/// Collects the entries outside, so that those before a fault are not lost with it.
struct Entries<'v, 'a>(&'v mut Vec<&'a RawValue>);

impl<'a> DeserializeSeed<'a> for Entries<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Entries<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of limits")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(raw) = list.next_element::<&'a RawValue>()? {
            self.0.push(raw);
        }
        Ok(())
    }
}

/// Counts lines once from the beginning to the end, since entries come in order.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    const fn of(text: &'a str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// The line on which a part of the text begins. A raw value that was read from a text is a part of it.
    fn line_of(&mut self, raw: &RawValue) -> usize {
        let offset = raw.get().as_ptr().addr() - self.text.as_ptr().addr();
        self.line += newlines(&self.text[self.at..offset]);
        self.at = offset;
        self.line
    }
}

pub(super) fn newlines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}

/// The fields of one entry with their lines, in order.
pub(super) struct Fields<'a>(pub(super) Vec<(String, usize, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// `None` if the text is no object. `first_line` is where the text begins.
    pub(super) fn of(first_line: usize, text: &'a str) -> Option<Self> {
        let pairs = serde_json::from_str::<Pairs<'a>>(text).ok()?;
        let mut lines = Lines::of(text);
        let field = |(name, raw)| (name, first_line - 1 + lines.line_of(raw), raw);
        Some(Self(pairs.0.into_iter().map(field).collect()))
    }
}

struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a limit")
            }

            fn visit_map<A>(self, mut map: A) -> Result<Self::Value, A::Error>
            where
                A: serde::de::MapAccess<'de>,
            {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<String, &'de RawValue>()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(PairsVisitor).map(Pairs)
    }
}
