//! What a limits file says that this version does not understand: written back as it was.

use std::collections::BTreeMap;

use ratelimiter::{LimitKey, RegisteredLimit};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::entry::Entry;
use super::scan::{Envelope, Field};

/// What stands in a limits file beside the limits that this version understands.
///
/// A file is written in the form in which it was read: an array stays an array, which every older server reads, and an
/// object stays one, with its version and the fields that only a newer server knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The object around the limits, if there is one.
    envelope: Option<(u64, Unknown)>,
    /// The unknown fields of limits that are otherwise understood.
    fields: BTreeMap<LimitKey, Unknown>,
    /// Limits of an unknown kind, by their keys: the kind, and all of the entry.
    entries: BTreeMap<String, (String, Box<str>)>,
}

/// Fields by name, in the order of the file, each with its JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Unknown(Vec<(String, Box<str>)>);

impl Kept {
    pub(super) fn in_envelope(envelope: Option<Envelope<'_>>) -> Self {
        let envelope = envelope.map(|Envelope { version, fields }| (version, fields.into()));
        Self { envelope, ..Self::default() }
    }

    pub(super) fn keep_fields(&mut self, key: LimitKey, unknown: Vec<Field<'_>>) {
        if !unknown.is_empty() {
            self.fields.insert(key, unknown.into());
        }
    }

    pub(super) fn keep_entry(&mut self, key: String, kind: String, text: &str) {
        self.entries.insert(key, (kind, text.into()));
    }

    /// Forgets what was said of a limit beyond what is understood, since the limit is gone. One of an unknown kind stays.
    pub fn forget(&mut self, key: &LimitKey) {
        self.fields.remove(key);
    }

    /// The kind of a limit that is kept and not served, if this is the key of one.
    pub fn unknown_kind_of(&self, key: &LimitKey) -> Option<&str> {
        self.entries.get(key.as_str()).map(|(kind, _)| kind.as_str())
    }

    /// True if the file says nothing beyond the limits that this version understands.
    pub fn is_empty(&self) -> bool {
        let outside = self.envelope.as_ref().is_some_and(|(_, unknown)| !unknown.0.is_empty());
        !outside && self.fields.is_empty() && self.entries.is_empty()
    }

    /// Writes the limits file of these limits, with everything that is kept: sorted by key, one field a line, the same
    /// bytes for the same limits.
    ///
    /// # Panics
    /// Never: an entry is plain text, numbers, and JSON that was read before.
    pub fn write<'a>(&self, limits: impl IntoIterator<Item = &'a RegisteredLimit>) -> String {
        let mut entries: BTreeMap<String, Written<'_>> = BTreeMap::new();
        for (key, (_, text)) in &self.entries {
            entries.insert(key.clone(), Written::Kept(raw(text)));
        }
        for registered in limits {
            let key = &registered.limit.key;
            let entry = Entry::from(registered);
            let written = match self.fields.get(key) {
                Some(unknown) => Written::WithUnknown { entry, unknown },
                None => Written::Plain(entry),
            };
            entries.insert(key.to_string(), written);
        }
        let limits: Vec<_> = entries.into_values().collect();
        let written = match &self.envelope {
            None => serde_json::to_string_pretty(&limits),
            Some((version, unknown)) => {
                serde_json::to_string_pretty(&Document { version: *version, unknown, limits })
            }
        };
        written.expect("all keys are strings") + "\n"
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("it was read as JSON")
}

#[derive(Serialize)]
struct Document<'a> {
    version: u64,
    #[serde(flatten)]
    unknown: &'a Unknown,
    limits: Vec<Written<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Written<'a> {
    Plain(Entry),
    WithUnknown {
        #[serde(flatten)]
        entry: Entry,
        #[serde(flatten)]
        unknown: &'a Unknown,
    },
    Kept(Box<RawValue>),
}

impl Serialize for Unknown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, json) in &self.0 {
            map.serialize_entry(name, &raw(json))?;
        }
        map.end()
    }
}

impl From<Vec<Field<'_>>> for Unknown {
    fn from(fields: Vec<Field<'_>>) -> Self {
        Self(fields.into_iter().map(|(name, _, raw)| (name, raw.get().into())).collect())
    }
}
