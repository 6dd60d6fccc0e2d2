//! The limits file: a JSON array of limit states, or of bare definitions.
//!
//! It is edited by hand and read at the start of a server, so reading reports every fault with its line, and not just
//! the first one.

mod entry;
mod fault;
mod scan;

use std::collections::BTreeMap;

use entry::Entry;
pub use fault::{FileFault, LimitsFileError};
use ratelimiter::{RegisteredLimit, Registry};
use scan::Scan;

/// The most bytes of a limits file.
pub const LIMITS_FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Reads a limits file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read_limits_file(bytes: &[u8]) -> Result<Registry, LimitsFileError> {
    if bytes.len() > LIMITS_FILE_BYTES_MAX {
        let message = format!("a limits file has at most {LIMITS_FILE_BYTES_MAX} bytes");
        return Err(LimitsFileError { faults: vec![FileFault::at_line(1, message)] });
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = &bytes[..error.valid_up_to()];
            let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
            let fault = FileFault::at_line(line, "the file is not UTF-8");
            return Err(LimitsFileError { faults: vec![fault] });
        }
    };
    let Scan { entries, fault } = Scan::of(text);
    let mut faults = Vec::from_iter(fault);
    let mut registry = Registry::new();
    let mut lines = BTreeMap::new();
    for (line, raw) in entries {
        match entry::read(line, raw.get()) {
            Ok(registered) => {
                let key = registered.limit.key.clone();
                if let Some(first) = lines.insert(key.clone(), line) {
                    let message = format!("the key stands there twice, first on line {first}");
                    let key = Some(key.to_string());
                    faults.push(FileFault { line, key, field: Some("key".to_owned()), message });
                }
                registry.put(registered);
            }
            Err(more) => faults.extend(more),
        }
    }
    if faults.is_empty() {
        return Ok(registry);
    }
    faults.sort_by_key(|fault| fault.line);
    Err(LimitsFileError { faults })
}

/// Writes a limits file: sorted by key, one field a line, the same bytes for the same limits.
///
/// # Panics
/// Never: an entry is plain text and numbers, which JSON can always hold.
pub fn write_limits_file<'a>(limits: impl IntoIterator<Item = &'a RegisteredLimit>) -> String {
    let mut entries = limits.into_iter().map(Entry::from).collect::<Vec<_>>();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    let mut text = serde_json::to_string_pretty(&entries).expect("an entry has string keys only");
    text.push('\n');
    text
}
