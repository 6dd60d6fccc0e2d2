//! Entries of a limits file.

use std::collections::BTreeSet;

use ratelimiter::{Capacity, KeyPattern, LimitKey, RegisteredLimit, TimeZone};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::FileError;
use super::scan::{Field, Fields, text_in};
use crate::decode::{Body, Refusal, decode};
use crate::definition::{
    DefinitionBody, KindBody, ModeBody, OverageBody, PeriodBody, StatusBody, WeekdayBody,
    definition_with,
};
use crate::error_code::ErrorCode;
use crate::field;
use crate::state::{read_status, write_status_v1};
use crate::strict::strict;

/// The JSON form of a [`RegisteredLimit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with key, kind and capacity")]
pub(super) struct Entry {
    #[serde(with = "field::text")]
    pub(super) key: LimitKey,
    kind: KindBody,
    #[serde(deserialize_with = "field::capacity", serialize_with = "field::write_capacity")]
    capacity: Capacity,
    #[serde(default, deserialize_with = "field::whole_number")]
    window_seconds: u64,
    #[serde(default, deserialize_with = "field::whole_number")]
    timeout_seconds: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    period: Option<PeriodBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resets_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weekday: Option<WeekdayBody>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "field::optional_number::<_, 1, { field::RESET_DAY_MAX }>"
    )]
    day: Option<u64>,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    overage: OverageBody,
    #[serde(default, skip_serializing_if = "ModeBody::is_enforce")]
    mode: ModeBody,
    #[serde(default)]
    status: StatusBody,
    #[serde(default)]
    pending_decrease_to: Option<u64>,
}

strict!(ObjectOnly: Entry);

/// The fields of an [`Entry`].
const KNOWN_FIELDS: [&str; 16] = [
    "key",
    "kind",
    "capacity",
    "window_seconds",
    "timeout_seconds",
    "period",
    "time_zone",
    "resets_at",
    "weekday",
    "day",
    "unit",
    "description",
    "overage",
    "mode",
    "status",
    "pending_decrease_to",
];

definition_with!(
    Entry: key kind capacity window_seconds timeout_seconds
        period time_zone resets_at weekday day unit description overage mode,
    status: StatusBody, pending_decrease_to: Option<u64>
);

impl From<&RegisteredLimit> for Entry {
    fn from(registered: &RegisteredLimit) -> Self {
        let RegisteredLimit { limit, status } = registered;
        let (status, pending) = write_status_v1(*status, limit.capacity);
        Self::joined(limit.into(), (status, pending))
    }
}

impl TryFrom<Entry> for RegisteredLimit {
    type Error = Refusal;

    fn try_from(entry: Entry) -> Result<Self, Refusal> {
        let (definition, status, pending) = entry.split();
        let status = read_status(status, pending, definition.capacity)?;
        Ok(Self { limit: definition.into_request()?, status })
    }
}

/// How to treat what is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// It is a typo: version 1 has no unknown fields.
    RejectUnknown,
    /// A newer server may have written an unknown field or kind.
    PreserveUnknown,
    /// The file has a later version: the values of some fields may be newer too.
    Newer,
}

/// The fields whose value a newer server may know, and this one not.
const NEWER_VALUES: [(&str, IsKnown); 4] = [
    ("kind", is_known::<KindBody>),
    ("period", is_known::<PeriodBody>),
    ("mode", is_known::<ModeBody>),
    ("time_zone", |name| TimeZone::new(name).is_ok()),
];

type IsKnown = fn(&str) -> bool;

fn is_known<T: DeserializeOwned>(value: &str) -> bool {
    serde_json::from_value::<T>(value.into()).is_ok()
}

/// A parsed entry.
pub(super) enum ParsedEntry<'a> {
    Known {
        registered: Box<RegisteredLimit>,
        unknown: Vec<Field<'a>>,
    },
    /// This version does not know the value of a field that decides what the limit is.
    Unknown {
        key: String,
        field: &'static str,
        value: String,
        /// The line of the field.
        line: usize,
        text: &'a str,
    },
}

/// Parses one entry; `line` is where it begins.
pub(super) fn read(
    line: usize,
    text: &str,
    strictness: Strictness,
) -> Result<ParsedEntry<'_>, Vec<FileError>> {
    let refusal = match parse_known(text) {
        Ok(registered) => {
            check_template(line, text, &registered.limit.key, strictness)?;
            return Ok(ParsedEntry::Known { registered, unknown: Vec::new() });
        }
        Err(refusal) => refusal,
    };
    let Some(Fields(fields)) = Fields::of(line, text) else {
        return Err(vec![FileError::at_line(line, strip_position(&refusal.message))]);
    };
    let key = fields.iter().find_map(|field| text_in(field, "key"));
    if strictness == Strictness::RejectUnknown {
        return Err(entry_errors(line, key, &fields, refusal));
    }
    // A kind may be unknown in any file that is an object, the others only in a newer one.
    let checked =
        if strictness == Strictness::Newer { &NEWER_VALUES[..] } else { &NEWER_VALUES[..1] };
    let unknown = checked.iter().find_map(|(name, is_known)| {
        let mut values = fields.iter().filter_map(|field| Some((text_in(field, name)?, field.1)));
        let (value, line) = values.find(|(value, _)| !is_known(value))?;
        Some((*name, value, line))
    });
    if let (Some(key), Some((field, value, line))) = (&key, unknown) {
        return Ok(ParsedEntry::Unknown { key: key.clone(), field, value, line, text });
    }
    let (known, unknown): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(name, ..)| KNOWN_FIELDS.contains(&name.as_str()));
    let mut names = BTreeSet::new();
    if let Some((name, line, _)) = unknown.iter().find(|(name, ..)| !names.insert(name)) {
        return Err(vec![FileError::of_field(*line, key, name, "is listed twice")]);
    }
    match parse_known(&object_of(&known)) {
        Ok(registered) => {
            check_template(line, text, &registered.limit.key, strictness)?;
            Ok(ParsedEntry::Known { registered, unknown })
        }
        Err(refusal) => Err(entry_errors(line, key, &known, refusal)),
    }
}

/// TPL-01: version 1 has no templates. Other keys with a `*` are as old as version 1.
fn check_template(
    line: usize,
    text: &str,
    key: &LimitKey,
    strictness: Strictness,
) -> Result<(), Vec<FileError>> {
    if !key.is_template() {
        return Ok(());
    }
    let message = match (strictness, KeyPattern::new(key)) {
        (Strictness::RejectUnknown, _) => {
            r#"a `*` segment makes it a template, which needs a file of version 2: {"version": 2, "limits": [...]}"#.to_owned()
        }
        (Strictness::PreserveUnknown | Strictness::Newer, Err(error)) => error.to_string(),
        (Strictness::PreserveUnknown | Strictness::Newer, Ok(_)) => return Ok(()),
    };
    let fields = Fields::of(line, text).map_or_else(Vec::new, |Fields(fields)| fields);
    let at = fields.iter().find(|(name, ..)| name == "key").map_or(line, |(_, line, _)| *line);
    Err(vec![FileError::of_field(at, Some(key.to_string()), "key", message)])
}

fn parse_known(text: &str) -> Result<Box<RegisteredLimit>, Refusal> {
    decode::<Entry>(text.as_bytes()).and_then(RegisteredLimit::try_from).map(Box::new)
}

fn object_of(fields: &[Field<'_>]) -> String {
    let name = |name: &String| serde_json::to_string(name).expect("a string is JSON");
    let fields: Vec<_> =
        fields.iter().map(|(field, _, raw)| format!("{}:{raw}", name(field))).collect();
    format!("{{{}}}", fields.join(","))
}

/// Checks every field separately. If each is valid, the error is that of the whole entry.
#[expect(clippy::wildcard_enum_match_arm, reason = "checks of an entry return no other code")]
fn entry_errors(
    line: usize,
    key: Option<String>,
    fields: &[Field<'_>],
    whole: Refusal,
) -> Vec<FileError> {
    let mut errors = Vec::new();
    for (name, line, raw) in fields {
        if let Some(message) = field_error(name, raw) {
            errors.push(FileError::of_field(*line, key.clone(), name, message));
        }
    }
    if errors.is_empty() {
        let field = match whole.error {
            ErrorCode::InvalidRequest { field } => field,
            // No check of an entry returns another code; if one did, it would still be shown.
            error => error.to_string(),
        };
        let at = fields.iter().find(|(name, ..)| *name == field).map_or(line, |(_, line, _)| *line);
        errors.push(FileError::of_field(at, key, &field, strip_position(&whole.message)));
    }
    errors
}

/// The error of a single field: an entry with only this field is parsed, and must fail only because the others are
/// missing.
fn field_error(name: &str, raw: &RawValue) -> Option<String> {
    let name = serde_json::to_string(name).expect("a string is JSON");
    let alone = format!("{{{name}:{raw}}}");
    let message = decode::<Entry>(alone.as_bytes()).err()?.message;
    let lacks_others = message.starts_with("missing field");
    (!lacks_others).then(|| strip_position(&message).to_owned())
}

/// The message without serde's position, which counts from the entry and not from the file.
fn strip_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(message, _)| message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_fields_are_those_of_an_entry() {
        let text = r#"{"key":"k","kind":"calendar","capacity":1,"period":"week","time_zone":"UTC","resets_at":"00:00",
            "weekday":"monday","day":1,"mode":"shadow"}"#;
        let entry = serde_json::to_string(&decode::<Entry>(text.as_bytes()).unwrap()).unwrap();
        let Fields(fields) = Fields::of(1, &entry).unwrap();
        let names: Vec<_> = fields.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, KNOWN_FIELDS);
    }
}
