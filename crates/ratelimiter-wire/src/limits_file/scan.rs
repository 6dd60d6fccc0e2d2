//! Finding the entries of a limits file and their lines, as far as the file is JSON.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::LIMITS_FILE_VERSION;
use super::fault::FileFault;

/// A field's name, its line, and its JSON.
pub(super) type Field<'a> = (String, usize, &'a RawValue);

/// The entries with their lines, what stands around them, and why there are no more.
pub(super) struct Scan<'a> {
    /// `None` for an array.
    pub(super) envelope: Option<Envelope<'a>>,
    pub(super) entries: Vec<(usize, &'a RawValue)>,
    pub(super) faults: Vec<FileFault>,
}

/// What stands around the entries since version 2.
pub(super) struct Envelope<'a> {
    pub(super) version: u64,
    /// The fields that this version does not know.
    pub(super) fields: Vec<Field<'a>>,
}

/// All that was read before a fault.
#[derive(Default)]
struct Parts<'a> {
    /// The fields of the object around the entries, but for the entries.
    around: Vec<(String, &'a RawValue)>,
    entries: Option<Vec<&'a RawValue>>,
}

impl<'a> Scan<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut parts = Parts::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let is_object = text.trim_start().starts_with('{');
        let result = match is_object {
            true => Around(&mut parts).deserialize(&mut json),
            false => Entries(parts.entries.insert(Vec::new())).deserialize(&mut json),
        };
        let fault = result.and_then(|()| json.end()).err();
        let Parts { around, entries } = parts;
        let is_whole = fault.is_none();
        let has_entries = entries.is_some();
        let mut lines = Lines::of(text);
        let entries: Vec<_> =
            entries.into_iter().flatten().map(|raw| (lines.line_of(raw), raw)).collect();
        let mut faults = Vec::from_iter(fault.map(|error| {
            let after = entries.last().and_then(|(_, raw)| key_of(raw.get()));
            let message = match after {
                Some(key) => format!("{error}, after the limit {key}"),
                None => error.to_string(),
            };
            FileFault::at_line(error.line().max(1), message)
        }));
        let envelope = is_object.then(|| Envelope::of(text, around, is_whole, &mut faults));
        if is_object && is_whole && !has_entries {
            faults.push(of_file(1, "limits", "missing; it is the list of limits"));
        }
        Self { envelope, entries, faults }
    }
}

impl<'a> Envelope<'a> {
    fn of(
        text: &'a str,
        around: Vec<(String, &'a RawValue)>,
        is_whole: bool,
        faults: &mut Vec<FileFault>,
    ) -> Self {
        let mut version = None;
        let (mut fields, mut seen) = (Vec::new(), BTreeSet::new());
        for (name, raw) in around {
            let line = Lines::of(text).line_of(raw);
            // The first list of limits is not among these.
            if name == "limits" || !seen.insert(name.clone()) {
                faults.push(of_file(line, &name, "stands there twice"));
            } else if name == "version" {
                let number = serde_json::from_str(raw.get()).ok();
                version = number.filter(|number| *number >= LIMITS_FILE_VERSION);
                if version.is_none() {
                    let message = format!("is a whole number from {LIMITS_FILE_VERSION} on");
                    faults.push(of_file(line, &name, message));
                }
            } else {
                fields.push((name, line, raw));
            }
        }
        if is_whole && !seen.contains("version") {
            let message = format!(
                "missing; a file that is an object says \"version\": {LIMITS_FILE_VERSION}, and one of the first edition is a list"
            );
            faults.push(of_file(1, "version", message));
        }
        Self { version: version.unwrap_or(LIMITS_FILE_VERSION), fields }
    }
}

fn of_file(line: usize, field: &str, message: impl Into<String>) -> FileFault {
    FileFault { line, key: None, field: Some(field.to_owned()), message: message.into() }
}

/// Collects the fields outside, so that those before a fault are not lost with it.
struct Around<'v, 'a>(&'v mut Parts<'a>);

impl<'a> DeserializeSeed<'a> for Around<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Around<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of limits, or an object with version and limits")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "limits" && self.0.entries.is_none() {
                map.next_value_seed(Entries(self.0.entries.insert(Vec::new())))?;
            } else {
                self.0.around.push((name, map.next_value()?));
            }
        }
        Ok(())
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
pub(super) struct Fields<'a>(pub(super) Vec<Field<'a>>);

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

/// The text of the field with this name.
pub(super) fn text_in((field, _, raw): &Field<'_>, name: &str) -> Option<String> {
    (field == name).then(|| serde_json::from_str(raw.get()).ok())?
}

/// The key of an entry, if it has one that can be read.
fn key_of(text: &str) -> Option<String> {
    let Fields(fields) = Fields::of(1, text)?;
    fields.iter().find_map(|field| text_in(field, "key"))
}
