//! The file system, as reading and replacing a limits file uses it.
//!
//! A trait, so that the simulation runs the shipped sequence of calls on a disk that fills up, fails and loses power.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A file system. The methods are those of [`std::fs`] and fail for the same reasons.
#[expect(clippy::missing_errors_doc, reason = "as in `std::fs`")]
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a folder and its missing parents.
    fn create_dir_all(&self, folder: &Path) -> io::Result<()>;

    /// The names of the entries of a folder.
    fn read_dir(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// The metadata of the file or folder at a path.
    fn metadata(&self, path: &Path) -> io::Result<FileMetadata>;

    /// Opens a file, or a folder for reading.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, replacing the one at the new path.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
}

/// An open file or folder.
#[expect(clippy::missing_errors_doc, reason = "as in `std::fs::File`")]
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Reads at most `bytes_max` bytes from the start.
    fn read(&self, bytes_max: u64) -> io::Result<Vec<u8>>;

    /// Replaces the whole content.
    fn write(&self, bytes: &[u8]) -> io::Result<()>;

    /// Flushes what was written, or what was renamed in the folder, so that it survives a loss of power.
    fn sync_all(&self) -> io::Result<()>;

    /// The metadata of the open file, even if it has been renamed or removed.
    fn metadata(&self) -> io::Result<FileMetadata>;

    /// Locks the file until it is dropped or the process ends.
    fn try_lock(&self, mode: LockMode) -> Result<(), TryLockError>;
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read an existing file.
    Read,
    /// Create or empty the file, and write it.
    Truncate,
    /// Create the file if it is missing, and keep its content.
    Keep,
}

/// Whether others may hold a lock on the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// No other lock.
    Exclusive,
    /// Other shared locks.
    Shared,
}

/// Metadata of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMetadata {
    /// File, folder or something else.
    pub kind: FileKind,
    /// Identifies the content of a file.
    pub version: FileVersion,
}

/// The type of what is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A pipe, a socket or a device.
    Other,
}

/// Distinguishes one content of a file from the next. Every change replaces the file, so its inode changes too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The inode number.
    pub inode: u64,
    /// Seconds and nanoseconds.
    pub modified_at: (i64, i64),
    /// The length.
    pub bytes: u64,
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy)]
pub struct OsDisk;

impl dyn Disk + '_ {
    /// Reads at most `bytes_max` bytes of a regular file, or says what is there instead. Opening a pipe would block until
    /// a writer opens it, and a device might never end.
    pub(crate) fn read_file(
        &self,
        path: &Path,
        bytes_max: u64,
    ) -> io::Result<Result<Vec<u8>, &'static str>> {
        match self.metadata(path)?.kind {
            FileKind::File => self.open(path, Access::Read)?.read(bytes_max).map(Ok),
            FileKind::Folder => Ok(Err("a directory")),
            FileKind::Other => Ok(Err("a pipe, a socket or a device")),
        }
    }
}

impl Disk for OsDisk {
    fn create_dir_all(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    fn read_dir(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn metadata(&self, path: &Path) -> io::Result<FileMetadata> {
        fs::metadata(path).map(FileMetadata::from)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = File::options();
        let file = match access {
            Access::Read => options.read(true).open(path),
            Access::Truncate => options.create(true).truncate(true).write(true).open(path),
            Access::Keep => options.create(true).truncate(false).read(true).write(true).open(path),
        };
        Ok(Arc::new(file?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

impl DiskFile for File {
    fn read(&self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let (mut file, mut bytes) = (self, Vec::new());
        file.rewind()?;
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(bytes)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }

    fn metadata(&self) -> io::Result<FileMetadata> {
        File::metadata(self).map(FileMetadata::from)
    }

    fn try_lock(&self, mode: LockMode) -> Result<(), TryLockError> {
        match mode {
            LockMode::Exclusive => File::try_lock(self),
            LockMode::Shared => File::try_lock_shared(self),
        }
    }
}

impl From<fs::Metadata> for FileMetadata {
    fn from(metadata: fs::Metadata) -> Self {
        let kind = match (metadata.is_file(), metadata.is_dir()) {
            (true, _) => FileKind::File,
            (false, true) => FileKind::Folder,
            (false, false) => FileKind::Other,
        };
        let modified_at = (metadata.mtime(), metadata.mtime_nsec());
        let version = FileVersion { inode: metadata.ino(), modified_at, bytes: metadata.len() };
        Self { kind, version }
    }
}
