//! Unknown fields and kinds of a limits file, preserved on rewrite.

use std::collections::BTreeMap;

use ratelimiter::{Limit, LimitKey, LimitKind, LimitMode, RegisteredLimit};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::LIMITS_FILE_VERSION;
use super::entry::Entry;
use super::scan::{Envelope, Field};

/// The parts of a limits file that this version does not understand.
///
/// A file is written in the form in which it was read: an array stays an array, which every older server can read, and an
/// object stays an object, with its version and its unknown fields. An array becomes an object when a limit needs version 2.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreservedFields {
    /// Version and unknown fields of the object around the limits, if there is one.
    envelope: Option<(u64, UnknownFields)>,
    /// The unknown fields of limits of a known kind.
    fields: BTreeMap<LimitKey, UnknownFields>,
    /// Limits of an unknown kind, by key: the kind, and the whole entry.
    entries: BTreeMap<String, (String, Box<str>)>,
}

/// Fields by name, in the order of the file, each with its JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct UnknownFields(Vec<(String, Box<str>)>);

impl PreservedFields {
    pub(super) fn versioned(envelope: Option<Envelope<'_>>) -> Self {
        let envelope = envelope.map(|Envelope { version, fields }| (version, fields.into()));
        Self { envelope, ..Self::default() }
    }

    pub(super) fn preserve_fields(&mut self, key: LimitKey, unknown: Vec<Field<'_>>) {
        if !unknown.is_empty() {
            self.fields.insert(key, unknown.into());
        }
    }

    pub(super) fn preserve_entry(&mut self, key: String, kind: String, text: &str) {
        self.entries.insert(key, (kind, text.into()));
    }

    /// Removes the unknown fields of a deleted limit. A limit of an unknown kind stays.
    pub fn forget(&mut self, key: &LimitKey) {
        self.fields.remove(key);
    }

    /// The kind of the limit with this key, if that kind is unknown and the limit only preserved.
    pub fn unknown_kind_of(&self, key: &LimitKey) -> Option<&str> {
        self.entries.get(key.as_str()).map(|(kind, _)| kind.as_str())
    }

    /// True if this version understands the whole file.
    pub fn is_empty(&self) -> bool {
        let outside = self.envelope.as_ref().is_some_and(|(_, unknown)| !unknown.0.is_empty());
        !outside && self.fields.is_empty() && self.entries.is_empty()
    }

    /// Writes a limits file of these limits and everything preserved: sorted by key, one field per line, the same bytes
    /// for the same limits.
    ///
    /// # Panics
    /// Never: an entry is plain text, numbers, and JSON that was parsed before.
    pub fn write<'a>(&self, limits: impl IntoIterator<Item = &'a RegisteredLimit>) -> String {
        let mut entries: BTreeMap<String, WrittenEntry<'_>> = BTreeMap::new();
        for (key, (_, text)) in &self.entries {
            entries.insert(key.clone(), WrittenEntry::Preserved(raw(text)));
        }
        let mut is_version_1 = true;
        for registered in limits {
            let Limit { key, kind, mode, .. } = &registered.limit;
            is_version_1 &= !matches!(kind, LimitKind::Calendar { .. })
                && *mode == LimitMode::Enforce
                && !key.is_template();
            let entry = Entry::from(registered);
            let written = match self.fields.get(key) {
                Some(unknown) => WrittenEntry::WithUnknownFields { entry, unknown },
                None => WrittenEntry::Plain(entry),
            };
            entries.insert(key.to_string(), written);
        }
        let limits: Vec<_> = entries.into_values().collect();
        let written = match &self.envelope {
            None if is_version_1 => serde_json::to_string_pretty(&limits),
            None => {
                let (version, unknown) = (LIMITS_FILE_VERSION, &UnknownFields::default());
                serde_json::to_string_pretty(&Document { version, unknown, limits })
            }
            Some((version, unknown)) => {
                serde_json::to_string_pretty(&Document { version: *version, unknown, limits })
            }
        };
        written.expect("all keys are strings") + "\n"
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("it was parsed as JSON")
}

#[derive(Serialize)]
struct Document<'a> {
    version: u64,
    #[serde(flatten)]
    unknown: &'a UnknownFields,
    limits: Vec<WrittenEntry<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WrittenEntry<'a> {
    Plain(Entry),
    WithUnknownFields {
        #[serde(flatten)]
        entry: Entry,
        #[serde(flatten)]
        unknown: &'a UnknownFields,
    },
    Preserved(Box<RawValue>),
}

impl Serialize for UnknownFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, json) in &self.0 {
            map.serialize_entry(name, &raw(json))?;
        }
        map.end()
    }
}

impl From<Vec<Field<'_>>> for UnknownFields {
    fn from(fields: Vec<Field<'_>>) -> Self {
        Self(fields.into_iter().map(|(name, _, raw)| (name, raw.get().into())).collect())
    }
}
