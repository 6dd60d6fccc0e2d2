//! The definitions as the limits file has them, or should have them.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use ratelimiter::{LimitKey, LimitStatus, RegisteredLimit, Registry};
use ratelimiter_wire::{FileFault, Kept};

use crate::limits_file::{ChangeLock, LimitsFile, Owned, Staged, Stamp, is_mount_point};

/// How much of what was not understood is said each time; the rest is counted.
const NOTES_SAID_MAX: usize = 20;

/// The definitions and the file that they are kept in.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) file: LimitsFile,
    /// The right to the file; `None` while there can be no lock.
    pub(super) owned: Option<Owned>,
    registry: Registry,
    /// The limits of the registry that are on their way down.
    decreasing: BTreeSet<LimitKey>,
    /// What the file says beyond the limits that this version understands.
    pub(super) kept: Kept,
    /// Which content of the file was taken over last; at the start, where nobody else changes it.
    pub(super) stamp: Option<Stamp>,
    /// Limits whose change could not be kept, and not yet be taken back in the backend either.
    pub(super) parted: BTreeSet<LimitKey>,
    /// What is staged beside the file although nothing unconfirmed is left of it, because it cannot be removed.
    pub(super) stuck: BTreeSet<PathBuf>,
    /// The file could not follow the registry; the next tick tries again.
    pub(super) is_behind: bool,
    /// It was said that something is wrong with the file, and need not be said again.
    pub(super) is_reported: bool,
}

/// A staged content, if there was anything to change.
pub(super) struct MaybeStaged(Option<(Staged, Rights)>);

/// What lets a server write. Work on a disk goes on when whoever waits for it is gone, so it has these too: nobody else
/// writes before it has come to its end.
struct Rights {
    _owned: Option<Owned>,
    _lock: Option<ChangeLock>,
}

impl Book {
    pub(super) fn new(file: LimitsFile, owned: Option<Owned>) -> Self {
        Self {
            file,
            owned,
            registry: Registry::new(),
            decreasing: BTreeSet::new(),
            kept: Kept::default(),
            stamp: None,
            parted: BTreeSet::new(),
            stuck: BTreeSet::new(),
            is_behind: false,
            is_reported: false,
        }
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn put(&mut self, registered: RegisteredLimit) {
        let key = &registered.limit.key;
        match registered.waits() {
            true => self.decreasing.insert(key.clone()),
            false => self.decreasing.remove(key),
        };
        self.registry.put(registered);
    }

    pub(super) fn remove(&mut self, key: &LimitKey) {
        self.decreasing.remove(key);
        self.registry.remove(key);
        self.kept.forget(key);
    }

    /// A registry that the file already has needs no staging.
    pub(super) async fn stage(
        &self,
        next: &Registry,
        lock: Option<&ChangeLock>,
    ) -> io::Result<MaybeStaged> {
        if *next == self.registry && !self.is_behind {
            return Ok(MaybeStaged(None));
        }
        let (file, next, kept) = (self.file.clone(), next.clone(), self.kept.clone());
        let rights = Rights { _owned: self.owned.clone(), _lock: lock.cloned() };
        let staged = on_disk(move || Ok((file.stage(&next, &kept)?, rights))).await?;
        Ok(MaybeStaged(Some(staged)))
    }

    /// The backend has taken a definition over. A pause may wait or not; the next tick tells.
    pub(super) fn follow(&mut self, key: &LimitKey, status: LimitStatus) {
        if status == LimitStatus::Active {
            self.settle(key);
        }
    }

    /// The backend says that the limit's capacity waits for nothing.
    pub(super) fn settle(&mut self, key: &LimitKey) {
        // Another server may have deleted the limit meanwhile.
        let Some(registered) = self.registry.get_mut(key) else {
            return;
        };
        if registered.waits() {
            registered.settle();
            self.decreasing.remove(key);
            self.is_behind = true;
            tracing::info!(%key, capacity = %registered.limit.capacity, "decrease applied");
        }
    }

    /// The limits whose capacity is on its way down, as far as the file knows.
    pub(super) fn decreasing(&self) -> Vec<LimitKey> {
        self.decreasing.iter().cloned().collect()
    }

    /// Writes the file if it is behind; true if it is not any more. It may stay behind: what it says until then is a
    /// decrease that a restart carries out again, or a change that the disk has let neither pass nor be put back.
    pub(super) async fn catch_up(&mut self, lock: Option<&ChangeLock>) -> bool {
        if !self.is_behind {
            return true;
        }
        let written = match self.stage(&self.registry, lock).await {
            Ok(staged) => staged.commit().await,
            Err(error) => Err(error),
        };
        let is_written = written.is_ok();
        match written {
            Ok(()) => (self.is_behind, self.is_reported) = (false, false),
            Err(error) if is_mount_point(&error) => {
                // No tick can heal that, and each would write and flush the whole file to find out. The next change does.
                self.is_behind = false;
                self.report(&error.to_string(), "the limits file cannot be replaced");
            }
            Err(error) => {
                self.report(&error.to_string(), "the limits file is behind; trying again");
            }
        }
        is_written
    }

    /// Says once what is wrong with the file.
    pub(super) fn report(&mut self, reason: &str, what: &'static str) {
        if !self.is_reported {
            let path = self.file.path().display();
            tracing::warn!(%path, reason, "{what}");
            self.is_reported = true;
        }
    }

    /// Says what of the file was not understood (`OPS-05`).
    pub(super) fn report_notes(&self, notes: &[FileFault]) {
        let path = self.file.path().display();
        for note in notes.iter().take(NOTES_SAID_MAX) {
            tracing::warn!(%path, %note, "the limits file was written by a newer version");
        }
        if let Some(more) = notes.len().checked_sub(NOTES_SAID_MAX).filter(|more| *more > 0) {
            tracing::warn!(%path, more, "the limits file was written by a newer version");
        }
    }
}

impl MaybeStaged {
    pub(super) async fn commit(self) -> io::Result<()> {
        match self.0 {
            Some((staged, rights)) => {
                on_disk(move || {
                    let committed = staged.commit();
                    drop(rights);
                    committed
                })
                .await
            }
            None => Ok(()),
        }
    }

    pub(super) async fn discard(self) {
        if let Some((staged, rights)) = self.0 {
            let discarded = on_disk(move || {
                staged.discard();
                drop(rights);
                Ok(())
            });
            discarded.await.expect("discarding does not fail");
        }
    }

    /// Leaves it beside the file, where the next tick finds it, of this server or of another.
    pub(super) fn leave(self) {
        if let Some((staged, _)) = self.0 {
            staged.leave();
        }
    }
}

/// Runs disk work where it holds up nobody.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
