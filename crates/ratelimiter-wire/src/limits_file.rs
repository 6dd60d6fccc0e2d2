//! The limits file: a JSON array of limit states, or of bare definitions; since version 2, an object around that array.
//!
//! It is edited by hand and read at the start of a server, so reading reports every fault with its line, and not just
//! the first one. An array is of the first edition and means what it always meant: a field that it does not know is a
//! fault. An object may come from a newer server: what is not understood there is noted, [kept](Kept), and written back.

mod entry;
mod fault;
mod kept;
mod scan;

use std::collections::BTreeMap;

use entry::{Reading, Strictness};
pub use fault::{FileFault, LimitsFileError};
pub use kept::Kept;
use ratelimiter::{RegisteredLimit, Registry};
use scan::Scan;

/// The most bytes of a limits file.
pub const LIMITS_FILE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The version that a file with an object around its limits has at the least.
pub const LIMITS_FILE_VERSION: u64 = 2;

/// What a limits file says.
#[derive(Debug, Clone, Default)]
pub struct LimitsDocument {
    /// The limits that this version understands.
    pub registry: Registry,
    /// Everything else, to be written back.
    pub kept: Kept,
    /// What of it was not understood, by line. The file is served all the same.
    pub notes: Vec<FileFault>,
}

impl LimitsDocument {
    /// Reads a limits file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, LimitsFileError> {
        let Scan { envelope, entries, mut faults } = Scan::of(text_of(bytes)?);
        let strictness = match &envelope {
            None => Strictness::FirstEdition,
            Some(_) => Strictness::KeepsUnknown,
        };
        let mut document = Self { kept: Kept::in_envelope(envelope), ..Self::default() };
        let mut lines = BTreeMap::new();
        for (line, raw) in entries {
            let key = match entry::read(line, raw.get(), strictness) {
                Ok(reading) => document.take(reading),
                Err(more) => {
                    faults.extend(more);
                    continue;
                }
            };
            if let Some(first) = lines.insert(key.clone(), line) {
                let message = format!("the key stands there twice, first on line {first}");
                let (key, field) = (Some(key), Some("key".to_owned()));
                faults.push(FileFault { line, key, field, message });
            }
        }
        if faults.is_empty() {
            return Ok(document);
        }
        faults.sort_by_key(|fault| fault.line);
        Err(LimitsFileError { faults })
    }

    /// Takes an entry in; its key.
    fn take(&mut self, reading: Reading) -> String {
        match reading {
            Reading::Understood { registered, unknown } => {
                let key = registered.limit.key.clone();
                let text = key.to_string();
                for (name, line, _) in &unknown {
                    let message = "not known to this version; kept, and not heeded".to_owned();
                    let (key, field) = (Some(text.clone()), Some(name.clone()));
                    self.notes.push(FileFault { line: *line, key, field, message });
                }
                self.kept.keep_fields(key, unknown);
                self.registry.put(*registered);
                text
            }
            Reading::UnknownKind { key, kind, line, text } => {
                let message = format!(
                    "{kind:?} is not known to this version; this limit is kept, and not served"
                );
                let field = Some("kind".to_owned());
                self.notes.push(FileFault { line, key: Some(key.clone()), field, message });
                self.kept.keep_entry(key.clone(), kind, text);
                key
            }
        }
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, LimitsFileError> {
    let only = |fault| LimitsFileError { faults: vec![fault] };
    if bytes.len() > LIMITS_FILE_BYTES_MAX {
        let message = format!("a limits file has at most {LIMITS_FILE_BYTES_MAX} bytes");
        return Err(only(FileFault::at_line(1, message)));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
        only(FileFault::at_line(line, "the file is not UTF-8"))
    })
}

/// Reads the limits of a limits file that this version understands.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read_limits_file(bytes: &[u8]) -> Result<Registry, LimitsFileError> {
    LimitsDocument::read(bytes).map(|document| document.registry)
}

/// Writes a limits file: sorted by key, one field a line, the same bytes for the same limits.
///
/// # Panics
/// Never: an entry is plain text and numbers, which JSON can always hold.
pub fn write_limits_file<'a>(limits: impl IntoIterator<Item = &'a RegisteredLimit>) -> String {
    Kept::default().write(limits)
}
