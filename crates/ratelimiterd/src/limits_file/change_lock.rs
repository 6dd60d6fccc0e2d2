//! Several servers on one limits file: who may change it now, and whether somebody else has.

use std::fs::TryLockError;
use std::io;

use super::{FileLock, LimitsFile};
use crate::disk::{Access, FileKind, FileVersion, LockMode};

impl LimitsFile {
    /// The right to change the file, which ends when the lock and its clones are dropped; `None` if another server has it.
    ///
    /// # Errors
    /// The lock's file cannot be made.
    pub(crate) fn try_lock(&self) -> io::Result<Option<FileLock>> {
        // A file of its own, since the limits file is another one after each change.
        let file = self.open_sibling("lock")?;
        match file.try_lock(LockMode::Exclusive) {
            Ok(()) => Ok(Some(FileLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Which content the file has now; `None` if it is not there. The file is opened for this, so that a network
    /// file system looks at the real one.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn version(&self) -> io::Result<Option<FileVersion>> {
        let opened = self.disk.metadata(&self.path).and_then(|metadata| match metadata.kind {
            FileKind::File => self.disk.open(&self.path, Access::Read)?.metadata(),
            // Opening a pipe would wait for whoever writes to it.
            FileKind::Folder | FileKind::Other => Err(io::Error::other("it is no file")),
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
