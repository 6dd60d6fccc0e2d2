//! One entry of a limits file.

use ratelimiter::{Capacity, LimitKey, RegisteredLimit};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::fault::FileFault;
use super::scan::Fields;
use crate::decode::{Body, Refusal, decode};
use crate::definition::{DefinitionBody, KindBody, OverageBody, StatusBody};
use crate::field;
use crate::object::object_only;
use crate::state::{read_status, write_status_v1};
use crate::word::ErrorWord;

/// A limit as it is in force, and whether its capacity is on its way down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with key, kind and capacity")]
pub(super) struct Entry {
    #[serde(with = "field::text")]
    pub(super) key: LimitKey,
    kind: KindBody,
    #[serde(deserialize_with = "field::capacity", serialize_with = "field::write_capacity")]
    capacity: Capacity,
    #[serde(default, deserialize_with = "field::seconds")]
    window_seconds: u64,
    #[serde(default, deserialize_with = "field::seconds")]
    timeout_seconds: u64,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    overage: OverageBody,
    #[serde(default)]
    status: StatusBody,
    #[serde(default)]
    pending_decrease_to: Option<u64>,
}

object_only!(Entry);

impl From<&RegisteredLimit> for Entry {
    fn from(registered: &RegisteredLimit) -> Self {
        let RegisteredLimit { limit, status } = registered;
        let DefinitionBody {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
        } = limit.into();
        let (status, pending_decrease_to) = write_status_v1(*status, capacity);
        Self {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
            status,
            pending_decrease_to,
        }
    }
}

impl TryFrom<Entry> for RegisteredLimit {
    type Error = Refusal;

    fn try_from(entry: Entry) -> Result<Self, Refusal> {
        let Entry {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
            status,
            pending_decrease_to,
        } = entry;
        let definition = DefinitionBody {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
        };
        let status = read_status(status, pending_decrease_to, capacity)?;
        Ok(Self { limit: definition.into_request()?, status })
    }
}

/// Reads one entry; `line` is where it begins.
pub(super) fn read(line: usize, text: &str) -> Result<RegisteredLimit, Vec<FileFault>> {
    let whole = decode::<Entry>(text.as_bytes()).and_then(RegisteredLimit::try_from);
    whole.map_err(|refusal| faults(line, text, refusal))
}

/// The key of an entry, if it has one that can be read.
pub(super) fn key_of(text: &str) -> Option<String> {
    let Fields(fields) = Fields::of(1, text)?;
    let (_, _, raw) = fields.into_iter().find(|(name, ..)| name == "key")?;
    serde_json::from_str(raw.get()).ok()
}

/// Looks at every field by itself. Where each is right alone, the fault is the one that the whole entry showed.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other words do not come from a limit")]
fn faults(line: usize, text: &str, whole: Refusal) -> Vec<FileFault> {
    let key = key_of(text);
    let Some(Fields(fields)) = Fields::of(line, text) else {
        return vec![FileFault::at_line(line, without_place(&whole.message))];
    };
    let mut faults = Vec::new();
    for (name, line, raw) in &fields {
        if let Some(message) = fault_of_field(name, raw) {
            let field = Some(name.clone());
            faults.push(FileFault { line: *line, key: key.clone(), field, message });
        }
    }
    if faults.is_empty() {
        let field = match whole.error {
            ErrorWord::InvalidRequest { field } => field,
            // No check of an entry says another word; if one did, it would still be shown.
            error => error.to_string(),
        };
        let at = fields.iter().find(|(name, ..)| *name == field).map_or(line, |(_, line, _)| *line);
        let message = without_place(&whole.message).to_owned();
        faults.push(FileFault { line: at, key, field: Some(field), message });
    }
    faults
}

/// What is wrong with a field by itself: an entry that has only this field is read, and must lack nothing but the
/// others.
fn fault_of_field(name: &str, raw: &RawValue) -> Option<String> {
    let name = serde_json::to_string(name).expect("a string is JSON");
    let alone = format!("{{{name}:{raw}}}");
    let message = decode::<Entry>(alone.as_bytes()).err()?.message;
    let lacks_others = message.starts_with("missing field");
    (!lacks_others).then(|| without_place(&message).to_owned())
}

/// The message without the reader's own place, which counts from the entry and not from the file.
fn without_place(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(message, _)| message)
}
