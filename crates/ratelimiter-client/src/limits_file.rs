//! An in-process limiter from a limits file.

use std::path::{Path, PathBuf};

use ratelimiter::MemoryLimiter;
use ratelimiter::memory::MemoryOptions;
use ratelimiter_wire::{LimitsFileError, read_limits_file};

/// Makes a limiter from a limits file, which has the same format as a server's.
///
/// ```
/// use ratelimiter_client::{FromLimitsFile, MemoryLimiter};
///
/// # let folder = std::env::temp_dir().join(format!("ratelimiter-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("limits.json");
/// std::fs::write(
///     &path,
///     r#"[{ "key": "global:llm:openai:gpt-4o:rpm", "kind": "rolling", "capacity": 3000, "window_seconds": 60 }]"#,
/// )?;
/// let limiter = MemoryLimiter::from_file(&path)?;
/// # std::fs::remove_dir_all(&folder)?;
/// # drop(limiter);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait FromLimitsFile: Sized {
    /// A limiter with the limits of this file, on the system's clock.
    ///
    /// # Errors
    /// The file cannot be read, or has errors: all of them are listed, each with its line.
    fn from_file(path: impl AsRef<Path>) -> Result<Self, FromFileError> {
        Self::from_file_with(path, MemoryOptions::default())
    }

    /// A limiter with the limits of this file and these options.
    ///
    /// # Errors
    /// As [`FromLimitsFile::from_file`].
    fn from_file_with(
        path: impl AsRef<Path>,
        options: MemoryOptions,
    ) -> Result<Self, FromFileError>;
}

/// Why no limiter could be made from a limits file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum FromFileError {
    /// The file cannot be read.
    #[error("cannot read the limits file {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    /// The file has errors.
    #[error("the limits file {} has errors:\n{errors}", path.display())]
    Invalid { path: PathBuf, errors: LimitsFileError },
}

impl FromLimitsFile for MemoryLimiter {
    fn from_file_with(
        path: impl AsRef<Path>,
        options: MemoryOptions,
    ) -> Result<Self, FromFileError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|error| FromFileError::Unreadable { path: path.to_owned(), error })?;
        let registry = read_limits_file(&bytes)
            .map_err(|errors| FromFileError::Invalid { path: path.to_owned(), errors })?;
        let limiter = Self::with_options(options);
        for registered in registry.iter() {
            limiter.restore(registered.clone());
        }
        Ok(limiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratelimiter::{LimitKey, LimitMode, Page};

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.json");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_limits_file_gives_a_limiter_with_its_limits() {
        let (_folder, path) = file(
            r#"[
                { "key": "rpm", "kind": "rolling", "capacity": 3000, "window_seconds": 60 },
                { "key": "slots", "kind": "concurrency", "capacity": 8, "timeout_seconds": 300 }
            ]"#,
        );
        let limiter = MemoryLimiter::from_file(&path).unwrap();
        let states = limiter.states_now(&Page::default());
        assert_eq!(states.len(), 2);
        let rpm = limiter.state_now(&LimitKey::new("rpm").unwrap()).unwrap();
        assert_eq!(rpm.usage.available, 3000);
    }

    /// OPS-05, CAL-01, SHD-01
    #[test]
    fn ops_05_a_limits_file_of_version_2_gives_calendar_limits_and_limits_in_shadow_mode() {
        let (_folder, path) = file(
            r#"{ "version": 2, "limits": [
                { "key": "month", "kind": "calendar", "capacity": 9, "period": "month", "time_zone": "Europe/Sofia" },
                { "key": "rpm", "kind": "rolling", "capacity": 1, "window_seconds": 60, "mode": "shadow" }
            ] }"#,
        );
        let limiter = MemoryLimiter::from_file(&path).unwrap();
        let state = |key: &str| limiter.state_now(&LimitKey::new(key).unwrap()).unwrap();
        assert!(state("month").resets_at.is_some());
        assert_eq!(state("rpm").limit.mode, LimitMode::Shadow);
    }

    #[test]
    fn all_errors_of_a_limits_file_are_listed() {
        let (_folder, path) = file(
            r#"[
                { "key": "rpm", "kind": "rolling", "capacity": -1, "window_seconds": 60 },
                { "key": "two words", "kind": "rolling", "capacity": 1, "window_seconds": 60 },
                { "key": "slots", "kind": "concurrency", "capacity": 8 }
            ]"#,
        );
        let error = MemoryLimiter::from_file(&path).unwrap_err();
        let FromFileError::Invalid { errors, .. } = &error else {
            panic!("an error in the file, not {error}");
        };
        let lines: Vec<_> = errors.errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [2, 3, 4]);
        assert!(error.to_string().contains("capacity"), "{error}");
        assert!(error.to_string().contains("timeout_seconds"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = MemoryLimiter::from_file("no/such/limits.json").unwrap_err();
        assert!(error.to_string().contains("no/such/limits.json"), "{error}");
    }
}
