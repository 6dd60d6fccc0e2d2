//! The file system under a limits file: the few calls that reading and replacing one is made of.
//!
//! A trait, so that the simulation runs the shipped order of these calls on a disk that fills up, fails, and loses power.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A file system. The calls are those of [`std::fs`], and fail as those do.
#[expect(clippy::missing_errors_doc, reason = "they are those of `std::fs`")]
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a folder and those above it, where they are missing.
    fn create_dir_all(&self, folder: &Path) -> io::Result<()>;

    /// The names of what is in a folder.
    fn read_dir(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// What is at a path.
    fn metadata(&self, path: &Path) -> io::Result<FileMetadata>;

    /// Opens a file, or a folder for reading.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Puts a file in the place of another.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
}

/// An open file or folder.
#[expect(clippy::missing_errors_doc, reason = "they are those of `std::fs::File`")]
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Reads from the start, `bytes_max` bytes at the most.
    fn read(&self, bytes_max: u64) -> io::Result<Vec<u8>>;

    /// Writes this in the place of all that is there.
    fn write(&self, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written, or what was renamed in the folder, safe from a loss of power.
    fn sync_all(&self) -> io::Result<()>;

    /// What it is, even if it has another name or none by now.
    fn metadata(&self) -> io::Result<FileMetadata>;

    /// Locks the file until it is dropped, or the process ends.
    fn try_lock(&self, mode: LockMode) -> Result<(), TryLockError>;
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It exists, and is only read.
    Read,
    /// It is created, or emptied, and written.
    Truncate,
    /// It is created where it is missing, and keeps what it holds.
    Keep,
}

/// Who else may lock a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Nobody.
    Exclusive,
    /// Others that share it, too.
    Shared,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMetadata {
    /// What kind of thing it is.
    pub kind: FileKind,
    /// Which one it is, if it is a file.
    pub version: FileVersion,
}

/// What kind of thing is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A pipe, a socket or a device.
    Other,
}

/// What tells one content of a file from the next, where every change puts another file in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The file's number.
    pub inode: u64,
    /// Seconds and nanoseconds.
    pub modified_at: (i64, i64),
    /// Its length.
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
