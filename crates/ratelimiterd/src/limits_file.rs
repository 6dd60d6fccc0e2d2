//! The limits file on disk: read at the start, replaced in two steps.
//!
//! A new content is first *staged*: written beside the file and flushed, its name included. A full disk shows there,
//! before anything was applied. Then it is *committed*: renamed over the file, and the folder flushed. A crash at any
//! instant leaves the old or the new file, never a part of one; and what was staged and not committed stays beside it,
//! which tells the next server which change may have been begun (`staged_files`).

mod change_lock;
mod owner;
mod staged_files;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{LeaseId, Registry};
use ratelimiter_wire::{LIMITS_FILE_BYTES_MAX, LimitsDocument, LimitsFileError, PreservedFields};

pub(crate) use self::owner::OwnError;
pub(crate) use self::staged_files::StagedFile;
use crate::disk::{Access, Disk, DiskFile, OsDisk};

/// Where the definitions are kept.
#[derive(Debug, Clone)]
pub struct LimitsFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    limits_max: usize,
    /// What this server's staged contents are named after, since others may stage theirs beside them.
    name: LeaseId,
}

/// A new content that is safe on disk, beside the file.
#[derive(Debug)]
#[must_use = "a staged content is committed or discarded"]
pub(crate) struct Staged {
    disk: Arc<dyn Disk>,
    temporary: PathBuf,
    path: PathBuf,
    /// Work on a disk goes on when whoever waits for it is gone, so it has the right to write: nobody else does before it
    /// has come to its end.
    _locks: Vec<FileLock>,
}

/// A lock on a file beside the limits file. It ends when this and its clones are dropped, or with the process.
#[derive(Debug, Clone)]
#[must_use = "whoever has no lock may not write"]
pub(crate) struct FileLock(#[expect(dead_code, reason = "it is held")] Arc<dyn DiskFile>);

/// Why a limits file cannot be used.
#[derive(Debug)]
pub struct LoadError {
    path: PathBuf,
    reason: LoadReason,
}

#[derive(Debug)]
enum LoadReason {
    Unreadable(io::Error),
    NotAFile(&'static str),
    Invalid(LimitsFileError),
    TooMany { count: usize, limits_max: usize },
}

impl LimitsFile {
    /// How many limits a file has at the most, unless its owner says otherwise.
    pub const LIMITS_MAX_DEFAULT: usize = 100_000;

    /// The file at this path, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let name = LeaseId::generate(MonotonicClock::new().now());
        Self::on(Arc::new(OsDisk), path, name)
    }

    /// The file at this path of a disk. What a server stages is named after `name`, which no other server has.
    pub fn on(disk: Arc<dyn Disk>, path: impl Into<PathBuf>, name: LeaseId) -> Self {
        Self { disk, path: path.into(), limits_max: Self::LIMITS_MAX_DEFAULT, name }
    }

    /// The same file with another bound on the number of its limits.
    #[must_use]
    pub fn with_limits_max(self, limits_max: usize) -> Self {
        Self { limits_max, ..self }
    }

    /// How many limits it has at the most.
    pub const fn limits_max(&self) -> usize {
        self.limits_max
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file; a file that does not exist holds no limits.
    ///
    /// # Errors
    /// The file cannot be read, or has errors: all of them are reported.
    pub fn load(&self) -> Result<LimitsDocument, LoadError> {
        match self.load_existing() {
            Err(LoadError { reason: LoadReason::Unreadable(error), .. })
                if error.kind() == io::ErrorKind::NotFound =>
            {
                Ok(LimitsDocument::default())
            }
            loaded => loaded,
        }
    }

    /// Reads the file, which must exist.
    ///
    /// # Errors
    /// As [`LimitsFile::load`], and when there is no file.
    pub fn load_existing(&self) -> Result<LimitsDocument, LoadError> {
        let load_error = |reason| LoadError { path: self.path.clone(), reason };
        let bytes_max = LIMITS_FILE_BYTES_MAX as u64 + 1;
        let bytes = match self.disk.read_file(&self.path, bytes_max) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(what)) => return Err(load_error(LoadReason::NotAFile(what))),
            Err(error) => return Err(load_error(LoadReason::Unreadable(error))),
        };
        let read = LimitsDocument::read(&bytes);
        let document = read.map_err(|error| load_error(LoadReason::Invalid(error)))?;
        let (count, limits_max) = (document.registry.len(), self.limits_max);
        if count > limits_max {
            return Err(load_error(LoadReason::TooMany { count, limits_max }));
        }
        Ok(document)
    }

    /// Writes a new content beside the file, and flushes it.
    ///
    /// # Errors
    /// It cannot be written; the file is as it was.
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
            _locks: Vec::new(),
        };
        let text = preserved.write(registry.iter());
        if text.len() > LIMITS_FILE_BYTES_MAX {
            let reason = format!(
                "it would have more than {LIMITS_FILE_BYTES_MAX} bytes, which no server reads"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
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

    /// The file beside this one whose name goes on like this.
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
        // Its name too: if power is lost while the change is on its way to a shared backend, whoever starts next must find
        // what was staged, to shut the change out (`TB-08`).
        self.disk.open(folder_of(&self.path), Access::Read)?.sync_all()
    }

    /// The same, which has these locks until it is committed or discarded.
    pub(crate) fn holding(self, locks: Vec<FileLock>) -> Self {
        Self { _locks: locks, ..self }
    }

    /// Puts the content in the file's place.
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
            // It is in its place, so nobody may take this for a file that cannot be replaced.
            Ok(folder) => folder.sync_all().map_err(io::Error::other),
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    /// Forgets the content. What cannot be removed is overwritten by the next one.
    pub(crate) fn discard(self) {
        drop(self.disk.remove_file(&self.temporary));
    }

    /// Leaves the content beside the file: the change was begun, and nobody knows how it ended.
    pub(crate) fn leave_uncommitted(self) {}
}

/// Nothing can be written there as long as nobody puts it right.
pub(crate) fn is_permanent(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
    kinds.contains(&error.kind()) || is_mount_point(error)
}

/// The file is a mount point itself, and cannot be replaced while it is one.
pub(crate) fn is_mount_point(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            LoadReason::Unreadable(error) => write!(f, "{path}: cannot be read: {error}"),
            LoadReason::NotAFile(what) => write!(f, "{path}: is {what}, not a limits file"),
            LoadReason::Invalid(LimitsFileError { errors }) => {
                for (at, error) in errors.iter().enumerate() {
                    let separator = if at == 0 { "" } else { "\n" };
                    write!(f, "{separator}{path}: {error}")?;
                }
                Ok(())
            }
            LoadReason::TooMany { count, limits_max } => write!(
                f,
                "{path}: has {count} limits, and registry.limits_max allows {limits_max}; raise it, or delete some"
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
