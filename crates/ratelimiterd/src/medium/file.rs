//! The limits file as a medium. Its work runs on threads that may block.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use ratelimiter::Registry;
use ratelimiter_waiting::Runtime;
use ratelimiter_wire::{LimitsDocument, PreservedFields};

use super::{Changes, Lock, Medium, Staged, Version};
use crate::disk::LockMode;
use crate::limits_file::{self, LimitsFile, LoadError, OwnError, StagedDocument};

const DISK_WORK_PANICKED: &str = "the disk work panicked";

#[derive(Debug)]
pub(super) struct FileMedium {
    file: LimitsFile,
    runtime: Arc<dyn Runtime>,
}

/// New content next to the limits file.
struct StagedFile {
    staged: limits_file::Staged,
    runtime: Arc<dyn Runtime>,
    /// Disk work continues when its caller is gone. It holds the locks itself, so that no other server writes before it
    /// has ended.
    locks: Vec<Lock>,
}

impl FileMedium {
    pub(super) fn new(file: LimitsFile, runtime: Arc<dyn Runtime>) -> Self {
        Self { file, runtime }
    }

    fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LimitsFile) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'_, io::Result<T>> {
        let file = self.file.clone();
        on_disk(&*self.runtime, move || work(&file)).boxed()
    }
}

impl Medium for FileMedium {
    fn place(&self) -> String {
        self.file.path().display().to_string()
    }

    fn describe(&self) -> (String, &'static str) {
        (format!("the limits file {}", self.place()), "a file of its own (--limits)")
    }

    fn limits_max(&self) -> usize {
        self.file.limits_max()
    }

    fn empty(&self) -> LimitsDocument {
        LimitsDocument::default()
    }

    fn is_connected(&self) -> Option<bool> {
        None
    }

    fn open(&self) -> BoxFuture<'_, Result<(), LoadError>> {
        ready(Ok(())).boxed()
    }

    fn ping(&self) -> BoxFuture<'_, io::Result<()>> {
        ready(Ok(())).boxed()
    }

    fn own(&self, mode: LockMode, addr: SocketAddr) -> BoxFuture<'_, Result<Lock, OwnError>> {
        let owned = self.on_disk(move |file| Ok(file.own(mode, addr)));
        async { owned.await.unwrap_or_else(|error| Err(OwnError::CannotLock(error))) }
            .map(|owned| owned.map(Lock::new))
            .boxed()
    }

    fn try_lock(&self) -> BoxFuture<'_, io::Result<Option<Lock>>> {
        ready(self.file.try_lock().map(|lock| lock.map(Lock::new))).boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<(Option<Version>, LimitsDocument), LoadError>> {
        // Read before the content, so that a write in between is detected as a change.
        let version = version_of(&self.file).unwrap_or_default();
        ready(self.file.load().map(|document| (version, document))).boxed()
    }

    fn peek(&self) -> BoxFuture<'_, io::Result<(Option<Version>, BTreeSet<PathBuf>)>> {
        // If the folder cannot be listed, it cannot be locked either.
        self.on_disk(|file| Ok((version_of(file)?, file.staged_paths().unwrap_or_default())))
    }

    fn read_changes(
        &self,
        seen: Option<Version>,
        is_locked: bool,
    ) -> BoxFuture<'_, io::Result<Option<Changes>>> {
        self.on_disk(move |file| {
            let version = version_of(file)?;
            let uncommitted = if is_locked { file.uncommitted()? } else { Vec::new() };
            if version == seen && uncommitted.is_empty() {
                return Ok(None);
            }
            Ok(Some(Changes { version, document: file.load_existing(), uncommitted }))
        })
    }

    fn is_unchanged(&self, seen: Option<Version>) -> BoxFuture<'_, io::Result<bool>> {
        self.on_disk(move |file| Ok(version_of(file)? == seen))
    }

    fn stage(
        &self,
        registry: &Registry,
        preserved: &PreservedFields,
        locks: Vec<Lock>,
    ) -> BoxFuture<'_, io::Result<Box<dyn Staged>>> {
        let (registry, preserved) = (registry.clone(), preserved.clone());
        let runtime = Arc::clone(&self.runtime);
        self.on_disk(move |file| {
            let staged = file.stage(&registry, &preserved)?;
            Ok(Box::new(StagedFile { staged, runtime, locks }) as Box<dyn Staged>)
        })
    }

    fn remove_staged(
        &self,
        staged: Vec<StagedDocument>,
        locks: Vec<Lock>,
    ) -> BoxFuture<'_, BTreeSet<PathBuf>> {
        let removed = self.on_disk(move |file| {
            let removed = staged.iter().map(|staged| file.remove_staged(&staged.name));
            let unremovable = removed.filter_map(Result::err).collect();
            drop(locks);
            Ok(unremovable)
        });
        async { removed.await.expect("removing does not panic") }.boxed()
    }

    fn clear_staged(&self) -> BoxFuture<'_, ()> {
        for staged in self.file.uncommitted().unwrap_or_default() {
            drop(self.file.remove_staged(&staged.name));
        }
        ready(()).boxed()
    }
}

impl Staged for StagedFile {
    fn commit(self: Box<Self>) -> BoxFuture<'static, io::Result<()>> {
        let Self { staged, runtime, locks } = *self;
        let commit = move || {
            let committed = staged.commit();
            drop(locks);
            committed
        };
        async move { on_disk(&*runtime, commit).await }.boxed()
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, ()> {
        let Self { staged, runtime, locks } = *self;
        let discard = move || {
            staged.discard();
            drop(locks);
        };
        async move { runtime.run_blocking(discard).await.expect("discarding does not panic") }
            .boxed()
    }
}

fn version_of(file: &LimitsFile) -> io::Result<Option<Version>> {
    Ok(file.version()?.map(Version::File))
}

/// Runs disk work on a thread that may block.
async fn on_disk<T: Send + 'static>(
    runtime: &dyn Runtime,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = runtime.run_blocking(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other(DISK_WORK_PANICKED)))
}
