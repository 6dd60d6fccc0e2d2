//! A registry in Redis for a backend that does not keep its definitions itself (`REG-01`): a document with the content of a limits file.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use ratelimiter::Registry;
use ratelimiter_redis::{
    DocumentAccess, DocumentContent, DocumentError, DocumentLock, DocumentVersion, HeldLocks,
    Ownership, RedisDocument, StagedText,
};
use ratelimiter_wire::{LimitsDocument, PreservedFields};
use tokio::time::timeout;

use super::redis::RedisRegistry;
use super::start::{Attempt, OWN_RETRY_EVERY, StartAttempts};
use super::text::{self, TextReader};
use super::{Changes, Held, Lock, Medium, Staged, Version};
use crate::disk::LockMode;
use crate::limits_file::{LoadError, OwnError, StagedDocument};

/// A server that starts waits for the lock of one that was killed, whatever the timeout of that was, and a little longer.
const START_ATTEMPTS_MAX: usize = 1_300;
const _: () = assert!(
    START_ATTEMPTS_MAX as u128 * OWN_RETRY_EVERY.as_millis()
        > RedisDocument::LOCK_TTL_MAX.as_millis()
);
/// How long a server that stops waits for Redis, before it leaves its locks to their TTL.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The document, and what the server knows of its other owners.
#[derive(Debug)]
pub(super) struct RedisMedium {
    document: Arc<RedisDocument>,
    texts: TextReader,
    starts: StartAttempts,
    /// How long the locks of other owners lasted when they were last looked at.
    others_last_ms: AtomicU64,
}

struct StagedInRedis {
    document: Arc<RedisDocument>,
    text: StagedText,
    locks: Vec<Lock>,
}

impl RedisMedium {
    pub(super) fn new(registry: RedisRegistry) -> Self {
        let texts = TextReader::new(registry.place().to_owned(), registry.limits_max());
        let document = RedisDocument::new(registry.config);
        let starts = StartAttempts::new(START_ATTEMPTS_MAX);
        Self { document, texts, starts, others_last_ms: AtomicU64::new(u64::MAX) }
    }

    fn error(&self, error: &DocumentError) -> io::Error {
        error_of(&self.document, error)
    }

    fn unreadable(&self, error: &DocumentError) -> LoadError {
        self.texts.unreadable(io::Error::new(kind_of(error), error.to_string()))
    }

    /// Asks for the ownership once. An owner that was killed does not extend its lock, so another attempt may succeed.
    async fn try_own(&self, mode: LockMode, addr: SocketAddr) -> Attempt {
        let access = match mode {
            LockMode::Exclusive => DocumentAccess::Exclusive,
            LockMode::Shared => DocumentAccess::Shared,
        };
        let description = format!("PID {} on {addr}", std::process::id());
        match self.document.own(access, &description).await {
            Ok(Ownership::Owned(lock)) => Attempt::Break(Ok(Lock::new(lock))),
            Ok(Ownership::InUse { description, for_ms }) => {
                let refusal = OwnError::in_use_by(description);
                match for_ms > self.others_last_ms.swap(for_ms, Ordering::Relaxed) {
                    true => Attempt::Break(Err(refusal)),
                    false => Attempt::Continue(refusal),
                }
            }
            Err(error) => Attempt::Break(Err(OwnError::CannotLock(self.error(&error)))),
        }
    }
}

impl Medium for RedisMedium {
    fn place(&self) -> String {
        self.document.place().to_owned()
    }

    fn describe(&self) -> (String, &'static str) {
        (
            format!("the registry {}", self.place()),
            "one of its own (registry.url, or another redis.prefix)",
        )
    }

    fn limits_max(&self) -> usize {
        self.texts.limits_max()
    }

    fn empty(&self) -> LimitsDocument {
        text::empty()
    }

    fn is_connected(&self) -> Option<bool> {
        Some(self.document.is_connected())
    }

    fn open(&self) -> BoxFuture<'_, Result<(), LoadError>> {
        async { self.document.peek().await.map(drop).map_err(|error| self.unreadable(&error)) }
            .boxed()
    }

    fn ping(&self) -> BoxFuture<'_, io::Result<()>> {
        async { self.document.peek().await.map(drop).map_err(|error| self.error(&error)) }.boxed()
    }

    fn own(&self, mode: LockMode, addr: SocketAddr) -> BoxFuture<'_, Result<Lock, OwnError>> {
        self.starts.own(move || self.try_own(mode, addr).boxed()).boxed()
    }

    fn try_lock(&self) -> BoxFuture<'_, io::Result<Option<Lock>>> {
        async {
            let locked = self.document.try_lock().await.map_err(|error| self.error(&error))?;
            Ok(locked.map(Lock::new))
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<(Option<Version>, LimitsDocument), LoadError>> {
        async {
            let read = self.document.read().await.map_err(|error| self.unreadable(&error))?;
            let (version, text) = read.document.unzip();
            Ok((version.map(Version::from), self.texts.read(text).await?))
        }
        .boxed()
    }

    fn peek(&self) -> BoxFuture<'_, io::Result<(Option<Version>, BTreeSet<PathBuf>)>> {
        async {
            let peeked = self.document.peek().await.map_err(|error| self.error(&error))?;
            let staged = peeked.staged_as.into_iter().map(PathBuf::from).collect();
            Ok((peeked.version.map(Version::from), staged))
        }
        .boxed()
    }

    fn read_changes(
        &self,
        seen: Option<Version>,
        is_locked: bool,
    ) -> BoxFuture<'_, io::Result<Option<Changes>>> {
        async move {
            let (version, staged) = self.peek().await?;
            if version == seen && (!is_locked || staged.is_empty()) {
                return Ok(None);
            }
            let read = self.document.read().await.map_err(|error| self.error(&error))?;
            let DocumentContent { document, staged } = read;
            let (version, text) = document.unzip();
            let staged = staged.filter(|_| is_locked).map(|(name, text)| (name, Some(text)));
            let changes = self.texts.read_changes(version.map(Version::from), text, staged);
            Ok(Some(changes.await?))
        }
        .boxed()
    }

    fn is_unchanged(&self, seen: Option<Version>) -> BoxFuture<'_, io::Result<bool>> {
        async move {
            let peeked = self.document.peek().await.map_err(|error| self.error(&error))?;
            let Some(version) = peeked.version else {
                // A Redis that has lost its data has no change of others either.
                return Ok(true);
            };
            let is_ours =
                version.written_as.as_ref().is_some_and(|name| self.document.is_own(name));
            Ok(is_ours || Some(Version::from(version)) == seen)
        }
        .boxed()
    }

    fn stage(
        &self,
        registry: &Registry,
        preserved: &PreservedFields,
        locks: Vec<Lock>,
    ) -> BoxFuture<'_, io::Result<Box<dyn Staged>>> {
        let (registry, preserved) = (registry.clone(), preserved.clone());
        async move {
            let text = text::write(&registry, &preserved).await?;
            let held = held_with(&self.document, &locks).map_err(|error| self.error(&error))?;
            let staged = self.document.stage(&text, &held).await;
            let text = staged.map_err(|error| self.error(&error))?;
            let document = Arc::clone(&self.document);
            Ok(Box::new(StagedInRedis { document, text, locks }) as Box<dyn Staged>)
        }
        .boxed()
    }

    fn remove_staged(
        &self,
        staged: Vec<StagedDocument>,
        locks: Vec<Lock>,
    ) -> BoxFuture<'_, BTreeSet<PathBuf>> {
        async move {
            for StagedDocument { name, .. } in staged {
                let held = held_with(&self.document, &locks);
                if let Ok(held) = held {
                    // If that fails, it is found again.
                    drop(self.document.discard(Some(&name.to_string_lossy()), &held).await);
                }
            }
            BTreeSet::new()
        }
        .boxed()
    }

    fn clear_staged(&self) -> BoxFuture<'_, ()> {
        async {
            let held = self.document.held_locks();
            drop(self.document.discard(None, &held).await);
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async { drop(timeout(RELEASE_TIMEOUT, self.document.release_all()).await) }.boxed()
    }
}

impl Staged for StagedInRedis {
    fn commit(self: Box<Self>) -> BoxFuture<'static, io::Result<()>> {
        let Self { document, text, locks } = *self;
        async move {
            let committed = match held_with(&document, &locks) {
                Ok(held) => document.commit(text, &held).await,
                Err(error) => Err(error),
            };
            committed.map_err(|error| error_of(&document, &error))
        }
        .boxed()
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, ()> {
        let Self { document, text, locks } = *self;
        async move {
            if let Ok(held) = held_with(&document, &locks) {
                drop(document.discard(Some(text.name()), &held).await);
            }
        }
        .boxed()
    }
}

impl Held for DocumentLock {
    fn is_held(&self) -> bool {
        Self::is_held(self)
    }
}

impl From<DocumentVersion> for Version {
    fn from(DocumentVersion { number, written_as }: DocumentVersion) -> Self {
        Self::Numbered { number, written_as }
    }
}

/// The locks that the server has, which include these.
fn held_with(document: &RedisDocument, locks: &[Lock]) -> Result<HeldLocks, DocumentError> {
    let held = document.held_locks();
    match locks.iter().all(Lock::is_held) {
        true => Ok(held),
        false => Err(DocumentError::LockLost),
    }
}

/// The error, with the name of the registry.
fn error_of(document: &RedisDocument, error: &DocumentError) -> io::Error {
    io::Error::new(kind_of(error), format!("{}: {error}", document.place()))
}

fn kind_of(error: &DocumentError) -> io::ErrorKind {
    match error {
        DocumentError::Problem(problem) => match problem.kind {
            "permission" => io::ErrorKind::PermissionDenied,
            "memory" | "disk" => io::ErrorKind::StorageFull,
            "timeout" => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        },
        DocumentError::LockLost => io::ErrorKind::NotConnected,
        DocumentError::Changed => io::ErrorKind::Other,
    }
}
