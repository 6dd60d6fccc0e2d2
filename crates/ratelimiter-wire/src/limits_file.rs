//! The limits file.
//!
//! It is a JSON array of limit states or of plain definitions; since version 2, an object around that array. It is edited by
//! hand, so parsing reports every error with its line, not just the first one. An array is version 1, in which an unknown
//! field is an error. An object may come from a newer server: what is unknown there is reported, [preserved](PreservedFields), and written
//! back.

mod entry;
mod error;
mod preserved;
mod scan;

use std::collections::BTreeMap;

use entry::{ParsedEntry, Strictness};
pub use error::{FileError, LimitsFileError};
pub use preserved::PreservedFields;
use ratelimiter::{RegisteredLimit, Registry};
use scan::Scan;

/// The most bytes of a limits file.
pub const LIMITS_FILE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The lowest version of a file that is an object.
pub const LIMITS_FILE_VERSION: u64 = 2;

/// A parsed limits file.
#[derive(Debug, Clone, Default)]
pub struct LimitsDocument {
    /// The limits that this version understands.
    pub registry: Registry,
    /// Unknown fields and entries, to be written back.
    pub preserved: PreservedFields,
    /// Warnings about what is unknown, by line. The file is valid all the same.
    pub notes: Vec<FileError>,
}

impl LimitsDocument {
    /// Parses a limits file.
    ///
    /// # Errors
    /// All errors in the file.
    pub fn read(bytes: &[u8]) -> Result<Self, LimitsFileError> {
        let Scan { envelope, entries, mut errors } = Scan::of(text_of(bytes)?);
        let strictness = match &envelope {
            None => Strictness::RejectUnknown,
            Some(envelope) if envelope.version > LIMITS_FILE_VERSION => Strictness::Newer,
            Some(_) => Strictness::PreserveUnknown,
        };
        let mut document =
            Self { preserved: PreservedFields::versioned(envelope), ..Self::default() };
        let mut lines = BTreeMap::new();
        for (line, raw) in entries {
            let key = match entry::read(line, raw.get(), strictness) {
                Ok(entry) => document.add(entry),
                Err(more) => {
                    errors.extend(more);
                    continue;
                }
            };
            if let Some(first) = lines.insert(key.clone(), line) {
                let message = format!("the key is listed twice, first on line {first}");
                errors.push(FileError::of_field(line, Some(key), "key", message));
            }
        }
        if errors.is_empty() {
            return Ok(document);
        }
        errors.sort_by_key(|error| error.line);
        Err(LimitsFileError { errors })
    }

    /// Adds an entry, and returns its key.
    fn add(&mut self, entry: ParsedEntry) -> String {
        match entry {
            ParsedEntry::Known { registered, unknown } => {
                let key = registered.limit.key.clone();
                let text = key.to_string();
                for (name, line, _) in &unknown {
                    let message = "unknown to this version; ignored and preserved";
                    let note = FileError::of_field(*line, Some(text.clone()), name, message);
                    self.notes.push(note);
                }
                self.preserved.preserve_fields(key, unknown);
                self.registry.put(*registered);
                text
            }
            ParsedEntry::Unknown { key, field, value, line, text } => {
                let message = format!(
                    "{value:?} is unknown to this version; this limit is ignored and preserved"
                );
                self.notes.push(FileError::of_field(line, Some(key.clone()), field, message));
                self.preserved.preserve_entry(key.clone(), value, text);
                key
            }
        }
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, LimitsFileError> {
    let only = |error| LimitsFileError { errors: vec![error] };
    if bytes.len() > LIMITS_FILE_BYTES_MAX {
        let message = format!("a limits file has at most {LIMITS_FILE_BYTES_MAX} bytes");
        return Err(only(FileError::at_line(1, message)));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
        only(FileError::at_line(line, "the file is not UTF-8"))
    })
}

/// Parses a limits file, and returns the limits that this version understands.
///
/// # Errors
/// All errors in the file.
pub fn read_limits_file(bytes: &[u8]) -> Result<Registry, LimitsFileError> {
    LimitsDocument::read(bytes).map(|document| document.registry)
}

/// Writes a limits file: sorted by key, one field per line, the same bytes for the same limits.
///
/// # Panics
/// Never: an entry is plain text and numbers, which are always valid JSON.
pub fn write_limits_file<'a>(limits: impl IntoIterator<Item = &'a RegisteredLimit>) -> String {
    PreservedFields::default().write(limits)
}
