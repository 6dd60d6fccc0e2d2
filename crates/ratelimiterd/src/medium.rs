//! Where the definitions are stored: one document with a version, which is replaced in two steps under a lock.
//!
//! The administration knows only this. The document is a limits file, or the content of one in a database (`REG-01`).

mod file;
mod postgres;
mod redis;
mod redis_document;
mod registry_url;
mod start;
mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use ratelimiter::Registry;
use ratelimiter_waiting::Runtime;
use ratelimiter_wire::{LimitsDocument, PreservedFields};

use self::file::FileMedium;
pub use self::postgres::PostgresRegistry;
pub use self::redis::RedisRegistry;
use self::redis_document::RedisMedium;
pub(crate) use self::registry_url::RegistryDatabase;
pub use self::registry_url::{PostgresUrl, RegistryUrl, RegistryUrlError};
use crate::disk::{FileVersion, LockMode};
use crate::limits_file::{FileLock, LimitsFile, LoadError, OwnError, StagedDocument};

/// Where a server keeps its definitions.
#[derive(Debug, Clone)]
pub enum RegistryPlace {
    /// In a limits file.
    File(LimitsFile),
    /// In a PostgreSQL database.
    Postgres(PostgresRegistry),
    /// In Redis, where another backend keeps nothing else.
    RedisDocument(RedisRegistry),
    /// In Redis, where the backend keeps them.
    Redis(RedisRegistry),
}

/// A document in storage that may fail and be slow.
pub(crate) trait Medium: fmt::Debug + Send + Sync {
    /// A path, or a URL without its password.
    fn place(&self) -> String;

    /// What it is and where, and what another server would use instead.
    fn describe(&self) -> (String, &'static str);

    /// The maximum number of limits.
    fn limits_max(&self) -> usize;

    /// The document of a registry that has none yet.
    fn empty(&self) -> LimitsDocument;

    /// Whether the storage answers; `None` if it is part of this machine.
    fn is_connected(&self) -> Option<bool>;

    /// Makes the storage accessible. Called once, before everything else.
    ///
    /// # Errors
    /// The storage does not answer, or refuses.
    fn open(&self) -> BoxFuture<'_, Result<(), LoadError>>;

    /// Notices that the storage does not answer any more, and with it, that locks were lost.
    ///
    /// # Errors
    /// It does not answer.
    fn ping(&self) -> BoxFuture<'_, io::Result<()>>;

    /// Makes a server that listens on `addr` the owner, until the lock and its clones are dropped (`OPS-06`).
    ///
    /// # Errors
    /// See [`OwnError`].
    fn own(&self, mode: LockMode, addr: SocketAddr) -> BoxFuture<'_, Result<Lock, OwnError>>;

    /// Locks out the changes of other servers, until the lock and its clones are dropped; `None` if another server has it
    /// locked.
    ///
    /// # Errors
    /// It cannot be locked.
    fn try_lock(&self) -> BoxFuture<'_, io::Result<Option<Lock>>>;

    /// Reads the document at the start; a document that does not exist has no limits. The version is not newer than the
    /// document.
    ///
    /// # Errors
    /// It cannot be read, or has errors.
    fn load(&self) -> BoxFuture<'_, Result<(Option<Version>, LimitsDocument), LoadError>>;

    /// The version, and the names of what is staged. Cheap, for it is called several times a second.
    ///
    /// # Errors
    /// It cannot be read.
    fn peek(&self) -> BoxFuture<'_, io::Result<(Option<Version>, BTreeSet<PathBuf>)>>;

    /// Reads the document if it is not the one that was `seen`, or if something is staged and the caller has the lock.
    ///
    /// # Errors
    /// It cannot be read.
    fn read_changes(
        &self,
        seen: Option<Version>,
        is_locked: bool,
    ) -> BoxFuture<'_, io::Result<Option<Changes>>>;

    /// Whether no other server has replaced the document since it was `seen`. A server that keeps its locks knows
    /// nothing of its own changes.
    ///
    /// # Errors
    /// It cannot be read.
    fn is_unchanged(&self, seen: Option<Version>) -> BoxFuture<'_, io::Result<bool>>;

    /// Stores a new document beside the present one. The locks are held until it is committed or discarded.
    ///
    /// # Errors
    /// It cannot be written, or a lock was lost; nothing has changed.
    fn stage(
        &self,
        registry: &Registry,
        preserved: &PreservedFields,
        locks: Vec<Lock>,
    ) -> BoxFuture<'_, io::Result<Box<dyn Staged>>>;

    /// Removes what was staged and not committed, if these locks are still held; returns the names that cannot be removed.
    fn remove_staged(
        &self,
        staged: Vec<StagedDocument>,
        locks: Vec<Lock>,
    ) -> BoxFuture<'_, BTreeSet<PathBuf>>;

    /// Removes everything that is staged, at the start of the only server.
    fn clear_staged(&self) -> BoxFuture<'_, ()>;

    /// Ends the locks of a server that stops, unless they end with its process. Nothing can be changed after that.
    fn close(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

/// A new document beside the present one. Dropping it leaves it there, so that this or another server finds it.
pub(crate) trait Staged: Send {
    /// Replaces the document.
    ///
    /// # Errors
    /// The old document may still be there, or the new one may not be safe.
    fn commit(self: Box<Self>) -> BoxFuture<'static, io::Result<()>>;

    /// Removes it. If that fails, the next one replaces it.
    fn discard(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// A lock. It ends when this and its clones are dropped, or with the process, in Redis a few seconds later.
#[derive(Debug, Clone)]
#[must_use = "writing needs the lock"]
pub(crate) struct Lock(Arc<dyn Held>);

trait Held: fmt::Debug + Send + Sync {
    /// False if it was lost, with the connection to a database or by a TTL.
    fn is_held(&self) -> bool;
}

/// Distinguishes one document from the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    File(FileVersion),
    /// In a database.
    Numbered {
        number: i64,
        /// The name under which it was staged.
        written_as: Option<String>,
    },
}

/// A document that others have changed, and what they have staged and not committed.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) version: Option<Version>,
    pub(crate) document: Result<LimitsDocument, LoadError>,
    pub(crate) uncommitted: Vec<StagedDocument>,
}

impl RegistryPlace {
    /// The document; `None` if the backend keeps the definitions.
    pub(crate) fn medium(self, runtime: &Arc<dyn Runtime>) -> Option<Arc<dyn Medium>> {
        match self {
            Self::File(file) => Some(Arc::new(FileMedium::new(file, Arc::clone(runtime)))),
            Self::Postgres(registry) => Some(registry.medium()),
            Self::RedisDocument(registry) => Some(Arc::new(RedisMedium::new(registry))),
            Self::Redis(_) => None,
        }
    }

    /// The maximum number of limits.
    pub(crate) fn limits_max(&self) -> usize {
        match self {
            Self::File(file) => file.limits_max(),
            Self::Postgres(registry) => registry.limits_max(),
            Self::RedisDocument(registry) | Self::Redis(registry) => registry.limits_max(),
        }
    }

    /// Reads the definitions without a change to the place; where there are none, there are no limits.
    ///
    /// # Errors
    /// They cannot be read, or have errors: all of them are reported.
    pub async fn load(&self) -> Result<LimitsDocument, LoadError> {
        match self {
            Self::File(file) => file.load(),
            Self::Postgres(registry) => registry.load().await,
            Self::RedisDocument(registry) => {
                RedisMedium::new(registry.clone()).load().await.map(|(_, document)| document)
            }
            Self::Redis(registry) => registry.load_kept().await,
        }
    }
}

impl fmt::Display for RegistryPlace {
    /// A path, or a URL without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.path().display().fmt(f),
            Self::Postgres(registry) => f.write_str(registry.place()),
            Self::RedisDocument(registry) | Self::Redis(registry) => f.write_str(registry.place()),
        }
    }
}

impl From<LimitsFile> for RegistryPlace {
    fn from(file: LimitsFile) -> Self {
        Self::File(file)
    }
}

impl Lock {
    fn new(held: impl Held + 'static) -> Self {
        Self(Arc::new(held))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.is_held()
    }
}

/// The operating system keeps it as long as the process runs.
impl Held for FileLock {
    fn is_held(&self) -> bool {
        true
    }
}
