//! Several servers on one limits file: who may change it now, and whether somebody else has.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use super::{LimitsFile, folder_of};

/// How often a lock that somebody else has is tried again.
const LOCK_RETRY_EVERY: Duration = Duration::from_millis(20);

/// The right to change a limits file. It ends when this and its clones are dropped, or with the process.
#[derive(Debug, Clone)]
#[must_use = "whoever has no lock may not write"]
pub(crate) struct ChangeLock {
    _file: Arc<File>,
}

/// What tells one content of the file from the next: every change puts another file in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileVersion {
    inode: u64,
    modified_at: (i64, i64),
    bytes: u64,
}

impl LimitsFile {
    /// Waits for the right to change the file; `None` if another server keeps it for longer than `timeout`.
    ///
    /// # Errors
    /// The lock's file cannot be made.
    pub(crate) async fn lock(&self, timeout: Duration) -> io::Result<Option<ChangeLock>> {
        let file = self.open_lock()?;
        let mut turns = tokio::time::interval(LOCK_RETRY_EVERY);
        let locked = tokio::time::timeout(timeout, async {
            loop {
                turns.tick().await;
                match file.try_lock() {
                    Ok(()) => return Ok(()),
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(error)) => return Err(error),
                }
            }
        });
        match locked.await {
            Ok(Ok(())) => Ok(Some(ChangeLock { _file: Arc::new(file) })),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The lock is a file of its own, since the limits file is another one after each change.
    fn open_lock(&self) -> io::Result<File> {
        fs::create_dir_all(folder_of(&self.path))?;
        File::options().create(true).truncate(false).write(true).open(self.sibling_path("lock"))
    }

    /// Which content the file has now; `None` if it is not there. The file is opened for this, so that a network
    /// file system looks at the real one.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn version(&self) -> io::Result<Option<FileVersion>> {
        let opened = fs::metadata(&self.path).and_then(|metadata| match metadata.is_file() {
            true => File::open(&self.path)?.metadata(),
            // Opening a pipe would wait for whoever writes to it.
            false => Err(io::Error::other("it is no file")),
        });
        let metadata = match opened {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(FileVersion {
            inode: metadata.ino(),
            modified_at: (metadata.mtime(), metadata.mtime_nsec()),
            bytes: metadata.len(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use ratelimiter::{Capacity, Limit, LimitKey, LimitKind, RegisteredLimit, Registry, Window};
    use ratelimiter_wire::Kept;

    use super::*;

    fn registry(capacity: u64) -> Registry {
        let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
        let limit = Limit::new(LimitKey::new("k").unwrap(), kind, Capacity::new(capacity).unwrap());
        [RegisteredLimit::in_force(limit)].into_iter().collect()
    }

    #[tokio::test]
    async fn one_server_at_a_time_may_change_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = LimitsFile::new(folder.path().join("data/limits.json"));
        let first = file.lock(Duration::from_secs(60)).await.unwrap().unwrap();
        let timeout = Duration::from_millis(50);
        assert!(file.lock(timeout).await.unwrap().is_none(), "the first one has it");
        drop(first);
        assert!(file.lock(Duration::from_secs(60)).await.unwrap().is_some());
    }

    #[test]
    fn every_change_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let file = LimitsFile::new(folder.path().join("limits.json"));
        assert_eq!(file.version().unwrap(), None);
        let mut seen = Vec::new();
        for capacity in [1, 2, 1, 2] {
            file.stage(&registry(capacity), &Kept::default()).unwrap().commit().unwrap();
            let version = file.version().unwrap().unwrap();
            assert_ne!(seen.last(), Some(&version));
            seen.push(version);
        }
    }
}
