//! The lock for changes of a shared limits file, and detection of changes.

use std::fs::TryLockError;
use std::io;

use super::{FileLock, LimitsFile};
use crate::disk::{Access, FileKind, FileVersion, LockMode};

impl LimitsFile {
    /// Locks the file for a change, until the lock and its clones are dropped; `None` if another server has it locked.
    ///
    /// # Errors
    /// The lock file cannot be created.
    pub(crate) fn try_lock(&self) -> io::Result<Option<FileLock>> {
        // A separate file, because each change replaces the limits file.
        let file = self.open_sibling("lock")?;
        match file.try_lock(LockMode::Exclusive) {
            Ok(()) => Ok(Some(FileLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The current version of the file; `None` if it does not exist. The file is opened for this, because a network file
    /// system may otherwise answer from its cache.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn version(&self) -> io::Result<Option<FileVersion>> {
        let opened = self.disk.metadata(&self.path).and_then(|metadata| match metadata.kind {
            FileKind::File => self.disk.open(&self.path, Access::Read)?.metadata(),
            // Opening a pipe would block until a writer opens it.
            FileKind::Folder | FileKind::Other => Err(io::Error::other("it is not a file")),
        });
        match opened {
            Ok(metadata) => Ok(Some(metadata.version)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratelimiter::{Capacity, Limit, LimitKey, LimitKind, RegisteredLimit, Registry, Window};
    use ratelimiter_wire::PreservedFields;

    use super::*;

    fn registry(capacity: u64) -> Registry {
        let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
        let limit = Limit::new(LimitKey::new("k").unwrap(), kind, Capacity::new(capacity).unwrap());
        [RegisteredLimit::in_force(limit)].into_iter().collect()
    }

    #[test]
    fn one_server_at_a_time_may_change_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = LimitsFile::new(folder.path().join("data/limits.json"));
        let first = file.try_lock().unwrap().unwrap();
        assert!(file.try_lock().unwrap().is_none(), "the first one has it");
        drop(first);
        assert!(file.try_lock().unwrap().is_some());
    }

    #[test]
    fn every_change_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let file = LimitsFile::new(folder.path().join("limits.json"));
        assert_eq!(file.version().unwrap(), None);
        let mut seen = Vec::new();
        for capacity in [1, 2, 1, 2] {
            file.stage(&registry(capacity), &PreservedFields::default()).unwrap().commit().unwrap();
            let version = file.version().unwrap().unwrap();
            assert_ne!(seen.last(), Some(&version));
            seen.push(version);
        }
    }
}
