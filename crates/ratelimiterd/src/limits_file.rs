//! The limits file on disk, replaced in two steps.
//!
//! New content is first *staged*: written to a file next to it and flushed, with the folder. A full disk is detected
//! there, before anything was applied. Then it is *committed*: renamed over the limits file, and the folder flushed. A
//! crash at any moment leaves the old or the new file, never a part of one. A staged file that was not committed stays,
//! so that the next server knows which change may have been begun (`staged_files`).

mod change_lock;
mod owner;
mod staged_files;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{LeaseId, Registry, TEMPLATES_MAX};
use ratelimiter_wire::{LIMITS_FILE_BYTES_MAX, LimitsDocument, LimitsFileError, PreservedFields};

pub(crate) use self::owner::OwnError;
pub(crate) use self::staged_files::StagedDocument;
use crate::disk::{Access, Disk, DiskFile, OsDisk};

/// The file that stores the definitions.
#[derive(Debug, Clone)]
pub struct LimitsFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    limits_max: usize,
    /// Part of the name of this server's staged files, because other servers may stage theirs in the same folder.
    name: LeaseId,
}

/// New content that is safe on disk, next to the limits file.
#[derive(Debug)]
#[must_use = "staged content is committed or discarded"]
pub(crate) struct Staged {
    disk: Arc<dyn Disk>,
    temporary: PathBuf,
    path: PathBuf,
}

/// A lock on a file next to the limits file. It ends when this and its clones are dropped, or with the process.
#[derive(Debug, Clone)]
#[must_use = "writing needs the lock"]
pub(crate) struct FileLock(#[expect(dead_code, reason = "it is held")] Arc<dyn DiskFile>);

/// Why a limits file, or its content in a database, cannot be used.
#[derive(Debug)]
pub struct LoadError {
    /// A path, or a URL without its password.
    place: String,
    reason: LoadReason,
}

#[derive(Debug)]
enum LoadReason {
    Unreadable(io::Error),
    NotAFile(&'static str),
    Invalid(LimitsFileError),
    TooMany { count: usize, limits_max: usize },
    TooManyTemplates { count: usize },
}

impl LimitsFile {
    /// The default maximum number of limits in a file.
    pub const LIMITS_MAX_DEFAULT: usize = 100_000;

    /// The file at this path, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let name = LeaseId::generate(MonotonicClock::new().now());
        Self::on(Arc::new(OsDisk), path, name)
    }

    /// The file at this path of a disk. `name` is part of the names of staged files and must be unique to this server.
    pub fn on(disk: Arc<dyn Disk>, path: impl Into<PathBuf>, name: LeaseId) -> Self {
        Self { disk, path: path.into(), limits_max: Self::LIMITS_MAX_DEFAULT, name }
    }

    /// Sets the maximum number of limits.
    #[must_use]
    pub fn with_limits_max(self, limits_max: usize) -> Self {
        Self { limits_max, ..self }
    }

    /// The maximum number of limits.
    pub const fn limits_max(&self) -> usize {
        self.limits_max
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file; a file that does not exist has no limits.
    ///
    /// # Errors
    /// The file cannot be read, or has errors: all of them are reported.
    pub fn load(&self) -> Result<LimitsDocument, LoadError> {
        match self.load_existing() {
            Err(error) if error.is_missing() => Ok(LimitsDocument::default()),
            loaded => loaded,
        }
    }

    /// Reads the file, which must exist.
    ///
    /// # Errors
    /// As [`LimitsFile::load`], and when there is no file.
    pub fn load_existing(&self) -> Result<LimitsDocument, LoadError> {
        let place = || self.path.display().to_string();
        let bytes_max = LIMITS_FILE_BYTES_MAX as u64 + 1;
        match self.disk.read_file(&self.path, bytes_max) {
            Ok(Ok(bytes)) => parse(place, &bytes, self.limits_max),
            Ok(Err(what)) => Err(LoadError { place: place(), reason: LoadReason::NotAFile(what) }),
            Err(error) => Err(LoadError::unreadable(place(), error)),
        }
    }

    /// Writes new content next to the file, and flushes it.
    ///
    /// # Errors
    /// It cannot be written; the file is unchanged.
    pub(crate) fn stage(
        &self,
        registry: &Registry,
        preserved: &PreservedFields,
    ) -> io::Result<Staged> {
        self.disk.create_dir_all(folder_of(&self.path))?;
        let staged = Staged {
            disk: Arc::clone(&self.disk),
            temporary: self.sibling_path(&format!("{}.tmp", self.name)),
            path: self.path.clone(),
        };
        let text = write(registry, preserved)?;
        match staged.write(text.as_bytes()) {
            Ok(()) => Ok(staged),
            Err(error) => {
                staged.discard();
                Err(error)
            }
        }
    }

    fn open_sibling(&self, extension: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create_dir_all(folder_of(&self.path))?;
        self.disk.open(&self.sibling_path(extension), Access::Keep)
    }

    /// The path of a file next to this one: its name, a dot and the extension.
    fn sibling_path(&self, extension: &str) -> PathBuf {
        let mut name = self.file_name();
        name.push(".");
        name.push(extension);
        self.path.with_file_name(name)
    }

    fn file_name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }
}

impl Staged {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let file = self.disk.open(&self.temporary, Access::Truncate)?;
        file.write(bytes)?;
        file.sync_all()?;
        // Flush its name too: if power is lost while the change is on its way to a shared backend, the next server must
        // find the staged file, so that it can prevent the change from taking effect (`TB-08`).
        self.disk.open(folder_of(&self.path), Access::Read)?.sync_all()
    }

    /// Replaces the file with the staged content.
    ///
    /// # Errors
    /// The old file may still be there, or the new one may not survive a crash of the machine.
    pub(crate) fn commit(self) -> io::Result<()> {
        let folder = self.disk.open(folder_of(&self.path), Access::Read);
        let renamed = folder.and_then(|folder| {
            self.disk.rename(&self.temporary, &self.path)?;
            Ok(folder)
        });
        match renamed {
            // The file was replaced, so the error must not look like one of a file that cannot be.
            Ok(folder) => folder.sync_all().map_err(io::Error::other),
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    /// Removes the staged file. If that fails, the next one overwrites it.
    pub(crate) fn discard(self) {
        drop(self.disk.remove_file(&self.temporary));
    }
}

/// Reads the content of a limits file.
///
/// # Errors
/// It has errors, all of which are reported, or too many limits.
pub(crate) fn parse(
    place: impl Fn() -> String,
    bytes: &[u8],
    limits_max: usize,
) -> Result<LimitsDocument, LoadError> {
    let load_error = |reason| LoadError { place: place(), reason };
    let read = LimitsDocument::read(bytes);
    let document = read.map_err(|error| load_error(LoadReason::Invalid(error)))?;
    let count = document.registry.len();
    if count > limits_max {
        return Err(load_error(LoadReason::TooMany { count, limits_max }));
    }
    let count = document.registry.template_count();
    if count > TEMPLATES_MAX {
        return Err(load_error(LoadReason::TooManyTemplates { count }));
    }
    Ok(document)
}

/// The content of a limits file.
///
/// # Errors
/// It would be too long to be read again.
pub(crate) fn write(registry: &Registry, preserved: &PreservedFields) -> io::Result<String> {
    let text = preserved.write(registry.iter());
    if text.len() > LIMITS_FILE_BYTES_MAX {
        let reason =
            format!("it would have more than {LIMITS_FILE_BYTES_MAX} bytes, which no server reads");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    Ok(text)
}

/// Writing cannot succeed until an operator fixes the cause.
pub(crate) fn is_permanent(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
    kinds.contains(&error.kind()) || is_mount_point(error)
}

/// The file is itself a mount point, and cannot be replaced while it is one.
pub(crate) fn is_mount_point(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

impl LoadError {
    pub(crate) const fn unreadable(place: String, error: io::Error) -> Self {
        Self { place, reason: LoadReason::Unreadable(error) }
    }

    /// There is no content.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(&self.reason, LoadReason::Unreadable(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match &self.reason {
            LoadReason::Unreadable(error) => write!(f, "{place}: cannot be read: {error}"),
            LoadReason::NotAFile(what) => write!(f, "{place}: is {what}, not a limits file"),
            LoadReason::Invalid(LimitsFileError { errors }) => {
                for (at, error) in errors.iter().enumerate() {
                    let separator = if at == 0 { "" } else { "\n" };
                    write!(f, "{separator}{place}: {error}")?;
                }
                Ok(())
            }
            LoadReason::TooMany { count, limits_max } => write!(
                f,
                "{place}: has {count} limits, and registry.limits_max allows {limits_max}; raise it, or delete some"
            ),
            LoadReason::TooManyTemplates { count } => write!(
                f,
                "{place}: has {count} templates, and at most {TEMPLATES_MAX} are allowed; delete some"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

#[cfg(test)]
mod tests {
    use ratelimiter::{Capacity, Limit, LimitKey, LimitKind, Note, RegisteredLimit, Window};

    use super::*;

    /// What one server writes, the next one can read.
    #[test]
    fn a_file_that_no_server_would_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = LimitsFile::new(folder.path().join("limits.json"));
        let kind = LimitKind::Rolling { window: Window::from_seconds(1).unwrap() };
        let mut registry = Registry::new();
        for number in 0..LIMITS_FILE_BYTES_MAX / 2_048 {
            let key = LimitKey::new(number.to_string()).unwrap();
            let mut limit = Limit::new(key, kind, Capacity::new(1).unwrap());
            limit.unit = Note::new("u".repeat(1_024)).unwrap();
            limit.description = limit.unit.clone();
            registry.put(RegisteredLimit::in_force(limit));
        }
        let refused = file.stage(&registry, &PreservedFields::default()).unwrap_err();
        assert!(refused.to_string().contains("which no server reads"), "{refused}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
    }
}
