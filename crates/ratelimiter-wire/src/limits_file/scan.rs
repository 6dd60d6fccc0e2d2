//! Entries of a limits file and their lines.
//!
//! Scanning stops at the first syntax error.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::LIMITS_FILE_VERSION;
use super::error::FileError;

/// A field's name, its line, and its JSON.
pub(super) type Field<'a> = (String, usize, &'a RawValue);

/// The entries with their lines, the object around them, and the errors so far.
pub(super) struct Scan<'a> {
    /// `None` for an array.
    pub(super) envelope: Option<Envelope<'a>>,
    pub(super) entries: Vec<(usize, &'a RawValue)>,
    pub(super) errors: Vec<FileError>,
}

/// The object around the entries since version 2.
pub(super) struct Envelope<'a> {
    pub(super) version: u64,
    /// The unknown fields.
    pub(super) fields: Vec<Field<'a>>,
}

/// What was parsed before a syntax error.
#[derive(Default)]
struct Parts<'a> {
    /// The fields of the object, without the entries.
    envelope_fields: Vec<(String, &'a RawValue)>,
    entries: Option<Vec<&'a RawValue>>,
}

impl<'a> Scan<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut parts = Parts::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let is_object = text.trim_start().starts_with('{');
        let result = match is_object {
            true => EnvelopeVisitor(&mut parts).deserialize(&mut json),
            false => EntriesVisitor(parts.entries.insert(Vec::new())).deserialize(&mut json),
        };
        let syntax_error = result.and_then(|()| json.end()).err();
        let Parts { envelope_fields, entries } = parts;
        let is_whole = syntax_error.is_none();
        let has_entries = entries.is_some();
        let mut lines = Lines::of(text);
        let entries: Vec<_> =
            entries.into_iter().flatten().map(|raw| (lines.line_of(raw), raw)).collect();
        let mut errors = Vec::from_iter(syntax_error.map(|error| {
            let after = entries.last().and_then(|(_, raw)| key_of(raw.get()));
            let message = match after {
                Some(key) => format!("{error}, after the limit {key}"),
                None => error.to_string(),
            };
            FileError::at_line(error.line().max(1), message)
        }));
        let envelope =
            is_object.then(|| Envelope::of(text, envelope_fields, is_whole, &mut errors));
        if is_object && is_whole && !has_entries {
            errors.push(FileError::of_field(
                1,
                None,
                "limits",
                "missing; it is the list of limits",
            ));
        }
        Self { envelope, entries, errors }
    }
}

impl<'a> Envelope<'a> {
    fn of(
        text: &'a str,
        envelope_fields: Vec<(String, &'a RawValue)>,
        is_whole: bool,
        errors: &mut Vec<FileError>,
    ) -> Self {
        let mut version = None;
        let (mut fields, mut seen) = (Vec::new(), BTreeSet::new());
        for (name, raw) in envelope_fields {
            let line = Lines::of(text).line_of(raw);
            // The first `limits` is not among these, so this is the second.
            if name == "limits" || !seen.insert(name.clone()) {
                errors.push(FileError::of_field(line, None, &name, "is listed twice"));
            } else if name == "version" {
                let number = serde_json::from_str(raw.get()).ok();
                version = number.filter(|number| *number >= LIMITS_FILE_VERSION);
                if version.is_none() {
                    let message =
                        format!("must be a whole number of at least {LIMITS_FILE_VERSION}");
                    errors.push(FileError::of_field(line, None, &name, message));
                }
            } else {
                fields.push((name, line, raw));
            }
        }
        if is_whole && !seen.contains("version") {
            let message = format!(
                "missing; a file that is an object has \"version\": {LIMITS_FILE_VERSION}, and a file of version 1 is a list"
            );
            errors.push(FileError::of_field(1, None, "version", message));
        }
        Self { version: version.unwrap_or(LIMITS_FILE_VERSION), fields }
    }
}

/// Collects the fields outside the visitor, so that those before a syntax error are not lost.
struct EnvelopeVisitor<'v, 'a>(&'v mut Parts<'a>);

impl<'a> DeserializeSeed<'a> for EnvelopeVisitor<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for EnvelopeVisitor<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of limits, or an object with version and limits")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "limits" && self.0.entries.is_none() {
                map.next_value_seed(EntriesVisitor(self.0.entries.insert(Vec::new())))?;
            } else {
                self.0.envelope_fields.push((name, map.next_value()?));
            }
        }
        Ok(())
    }
}

/// Collects the entries outside the visitor, so that those before a syntax error are not lost.
struct EntriesVisitor<'v, 'a>(&'v mut Vec<&'a RawValue>);

impl<'a> DeserializeSeed<'a> for EntriesVisitor<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for EntriesVisitor<'_, 'a> {
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

/// Counts lines in one pass, since entries come in order.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    const fn of(text: &'a str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// The line on which a raw value begins. A raw value that was parsed from a text is a slice of it.
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
pub(super) struct Fields<'a>(pub(super) Vec<Field<'a>>);

impl<'a> Fields<'a> {
    /// `None` if the text is not an object. `first_line` is where the text begins.
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

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
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

/// The field's text, if it has this name and is a string.
pub(super) fn text_in((field, _, raw): &Field<'_>, name: &str) -> Option<String> {
    (field == name).then(|| serde_json::from_str(raw.get()).ok())?
}

/// The key of an entry, if it can be parsed.
fn key_of(text: &str) -> Option<String> {
    let Fields(fields) = Fields::of(1, text)?;
    fields.iter().find_map(|field| text_in(field, "key"))
}
