//! A registry in PostgreSQL (`REG-01`): one row with the content of a limits file, its version, and what is staged.
//!
//! Each server has one connection. Its locks are advisory locks of that connection's session, and writes go through the
//! same session, so a server whose connection was lost cannot write in the belief that it still has the lock.

mod failure;
mod lock;
mod row;
mod session;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{LeaseId, Registry};
use ratelimiter_wire::{LimitsDocument, PreservedFields};

use self::failure::Failure;
use self::lock::SessionLock;
use self::row::{Peeked, RegistryRow};
use self::session::{Database, Session, connect_to_read, is_created};
use super::registry_url::PostgresUrl;
use super::start::{Attempt, StartAttempts};
use super::text::{self, TextReader};
use super::{Changes, Lock, Medium, Staged, Version};
use crate::disk::LockMode;
use crate::limits_file::{LoadError, OwnError, StagedDocument};

/// How long to wait for an answer without a document.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for a document to be sent or stored.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The database may not have noticed yet that the connection of the server's predecessor has ended.
const START_ATTEMPTS_MAX: usize = 10;

const LOAD: &str = "SELECT document FROM ratelimiter_registry WHERE id = 1";
const STAGE: &str = "UPDATE ratelimiter_registry SET staged = $1, staged_as = $2 WHERE id = 1 \
     RETURNING version, pg_backend_pid()";
const COMMIT: &str = "UPDATE ratelimiter_registry SET document = staged, written_as = staged_as, version = version + 1, \
     staged = NULL, staged_as = NULL WHERE id = 1 AND staged_as = $1 AND version = $2";
const DISCARD: &str = "UPDATE ratelimiter_registry SET staged = NULL, staged_as = NULL WHERE id = 1 AND staged_as = $1";
const CLEAR: &str = "UPDATE ratelimiter_registry SET staged = NULL, staged_as = NULL \
     WHERE id = 1 AND staged_as IS NOT NULL";

/// The registry in a PostgreSQL database, before a server connects to it.
#[derive(Debug, Clone)]
pub struct PostgresRegistry {
    url: PostgresUrl,
    limits_max: usize,
}

#[derive(Debug)]
struct PostgresMedium {
    database: Arc<Database>,
    texts: TextReader,
    /// Unique to this server, and part of the names of what it stages.
    name: String,
    staged_count: AtomicU64,
    /// What this server wrote as the owner, to recognise its own lost connection.
    owner: std::sync::Mutex<Option<String>>,
    starts: StartAttempts,
    /// An advisory lock does not keep out its own session.
    changing: Arc<tokio::sync::Mutex<()>>,
}

struct StagedRow {
    database: Arc<Database>,
    name: String,
    /// The version of the document that it replaces.
    version: i64,
    locks: Vec<Lock>,
}

impl PostgresRegistry {
    /// The registry at this URL.
    pub const fn new(url: PostgresUrl, limits_max: usize) -> Self {
        Self { url, limits_max }
    }

    /// The URL without its password.
    pub fn place(&self) -> &str {
        self.url.place()
    }

    pub(super) const fn limits_max(&self) -> usize {
        self.limits_max
    }

    pub(super) fn medium(self) -> Arc<dyn Medium> {
        Arc::new(PostgresMedium {
            database: Database::new(self.url.options(), self.url.place().to_owned()),
            texts: self.texts(),
            name: LeaseId::generate(MonotonicClock::new().now()).to_string(),
            staged_count: AtomicU64::new(0),
            owner: std::sync::Mutex::default(),
            starts: StartAttempts::new(START_ATTEMPTS_MAX),
            changing: Arc::default(),
        })
    }

    /// Reads the definitions without a change to the database.
    pub(super) async fn load(&self) -> Result<LimitsDocument, LoadError> {
        let read = async {
            let mut connection = connect_to_read(self.url.options()).await?;
            if !is_created(&mut connection).await? {
                return Ok(None);
            }
            let row = sqlx::query_scalar::<_, Option<String>>(LOAD);
            Ok(row.fetch_optional(&mut connection).await?.flatten())
        };
        let (read, texts): (Result<_, Failure>, _) = (read.await, self.texts());
        let text = read.map_err(|failure| texts.unreadable(failure.error()))?;
        texts.read(text).await
    }

    fn texts(&self) -> TextReader {
        TextReader::new(self.place().to_owned(), self.limits_max)
    }
}

impl PostgresMedium {
    async fn run<T: Send + 'static>(
        &self,
        answer_timeout: Duration,
        locks: Vec<Lock>,
        work: impl for<'s> FnOnce(&'s mut Session) -> BoxFuture<'s, Result<T, Failure>> + Send + 'static,
    ) -> io::Result<T> {
        let done = self.database.run(answer_timeout, locks, work).await;
        done.map_err(|failure| failure.error_of(self.database.place()))
    }

    /// Asks for the ownership once.
    async fn try_own(&self, mode: LockMode, addr: SocketAddr) -> Result<Lock, OwnError> {
        let description = format!("PID {} on {addr}", std::process::id());
        let database = Arc::clone(&self.database);
        let owned = self.run(ANSWER_TIMEOUT, Vec::new(), move |session| {
            async move {
                let key = session.owner_key;
                if !session.try_lock(key, mode).await? {
                    return Ok(Err(session.describe_owner().await?));
                }
                let lock = SessionLock::new(database, key, mode, None);
                let owner = match mode {
                    LockMode::Shared => None,
                    LockMode::Exclusive => session.set_owner(&description).await?,
                };
                Ok(Ok((lock, owner)))
            }
            .boxed()
        });
        match owned.await {
            Ok(Ok((lock, owner))) => {
                *self.own_description() = owner;
                Ok(Lock::new(lock))
            }
            Ok(Err(owner)) if owner.is_some() && *self.own_description() == owner => {
                let reason = "the database still has the previous connection of this server";
                Err(OwnError::CannotLock(io::Error::other(reason)))
            }
            Ok(Err(owner)) => Err(OwnError::in_use_by(owner)),
            Err(error) => Err(OwnError::CannotLock(error)),
        }
    }

    fn own_description(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.owner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Medium for PostgresMedium {
    fn place(&self) -> String {
        self.database.place().to_owned()
    }

    fn describe(&self) -> (String, &'static str) {
        (format!("the registry {}", self.place()), "one of its own (registry.url)")
    }

    fn limits_max(&self) -> usize {
        self.texts.limits_max()
    }

    fn empty(&self) -> LimitsDocument {
        text::empty()
    }

    fn is_connected(&self) -> Option<bool> {
        Some(self.database.is_connected())
    }

    fn open(&self) -> BoxFuture<'_, Result<(), LoadError>> {
        async {
            let connected = self.database.connect().await;
            connected.map_err(|failure| self.texts.unreadable(failure.error()))
        }
        .boxed()
    }

    fn ping(&self) -> BoxFuture<'_, io::Result<()>> {
        async { self.peek().await.map(|_| ()) }.boxed()
    }

    fn own(&self, mode: LockMode, addr: SocketAddr) -> BoxFuture<'_, Result<Lock, OwnError>> {
        let attempt = move || {
            let owning = self.try_own(mode, addr);
            owning.map(|owned| match owned {
                Err(refusal @ OwnError::InUse { .. }) => Attempt::Continue(refusal),
                owned => Attempt::Break(owned),
            })
        };
        self.starts.own(move || attempt().boxed()).boxed()
    }

    fn try_lock(&self) -> BoxFuture<'_, io::Result<Option<Lock>>> {
        async {
            let Ok(changing) = Arc::clone(&self.changing).try_lock_owned() else {
                return Ok(None);
            };
            let database = Arc::clone(&self.database);
            let locked = self.run(ANSWER_TIMEOUT, Vec::new(), move |session| {
                async move {
                    let (key, mode) = (session.change_key, LockMode::Exclusive);
                    if !session.lock_in_turn(key).await? {
                        return Ok(None);
                    }
                    Ok(Some(SessionLock::new(database, key, mode, Some(changing))))
                }
                .boxed()
            });
            Ok(locked.await?.map(Lock::new))
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<(Option<Version>, LimitsDocument), LoadError>> {
        async {
            let read =
                self.database.run(DOCUMENT_TIMEOUT, Vec::new(), |session| session.read().boxed());
            let row = read.await.map_err(|failure| self.texts.unreadable(failure.error()))?;
            Ok((row.version, self.texts.read(row.document).await?))
        }
        .boxed()
    }

    fn peek(&self) -> BoxFuture<'_, io::Result<(Option<Version>, BTreeSet<PathBuf>)>> {
        let peek = self.run(ANSWER_TIMEOUT, Vec::new(), |session| session.peek().boxed());
        async {
            let Peeked { version, staged_as } = peek.await?;
            Ok((version, staged_as.into_iter().map(PathBuf::from).collect()))
        }
        .boxed()
    }

    fn read_changes(
        &self,
        seen: Option<Version>,
        is_locked: bool,
    ) -> BoxFuture<'_, io::Result<Option<Changes>>> {
        async move {
            let read = self.run(DOCUMENT_TIMEOUT, Vec::new(), move |session| {
                async move {
                    let Peeked { version, staged_as } = session.peek().await?;
                    if version == seen && !(is_locked && staged_as.is_some()) {
                        return Ok(None);
                    }
                    session.read().await.map(Some)
                }
                .boxed()
            });
            let Some(RegistryRow { version, document, staged_as, staged }) = read.await? else {
                return Ok(None);
            };
            let staged = staged_as.filter(|_| is_locked).map(|name| (name, staged));
            Ok(Some(self.texts.read_changes(version, document, staged).await?))
        }
        .boxed()
    }

    fn is_unchanged(&self, seen: Option<Version>) -> BoxFuture<'_, io::Result<bool>> {
        async move {
            let (version, _) = self.peek().await?;
            let is_ours = match &version {
                Some(Version::Numbered { written_as: Some(name), .. }) => {
                    name.starts_with(&self.name)
                }
                Some(Version::Numbered { .. } | Version::File(_)) | None => false,
            };
            Ok(is_ours || version == seen)
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
            let number = self.staged_count.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}.{number}", self.name);
            let staged_as = name.clone();
            let staged = self.run(DOCUMENT_TIMEOUT, locks.clone(), move |session| {
                async move {
                    let row: Option<(i64, i32)> = sqlx::query_as(STAGE)
                        .bind(text)
                        .bind(staged_as)
                        .fetch_optional(&mut session.connection)
                        .await?;
                    let (version, backend) = row.ok_or(Failure::Missing)?;
                    session.check_backend(backend)?;
                    Ok(version)
                }
                .boxed()
            });
            let version = staged.await?;
            let database = Arc::clone(&self.database);
            Ok(Box::new(StagedRow { database, name, version, locks }) as Box<dyn Staged>)
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
                let name = name.to_string_lossy().into_owned();
                let discard = discard(&self.database, name, locks.clone());
                // If that fails, it is found again.
                drop(discard.await);
            }
            BTreeSet::new()
        }
        .boxed()
    }

    fn clear_staged(&self) -> BoxFuture<'_, ()> {
        async {
            let clear = self.run(ANSWER_TIMEOUT, Vec::new(), |session| {
                async move { session.execute(CLEAR, None).await }.boxed()
            });
            drop(clear.await);
        }
        .boxed()
    }
}

impl Staged for StagedRow {
    fn commit(self: Box<Self>) -> BoxFuture<'static, io::Result<()>> {
        let Self { database, name, version, locks } = *self;
        async move {
            let committed = database.run(DOCUMENT_TIMEOUT, locks, move |session| {
                async move {
                    let commit = sqlx::query(COMMIT).bind(name).bind(version);
                    let changed = commit.execute(&mut session.connection).await?.rows_affected();
                    if changed == 0 { Err(Failure::Changed) } else { Ok(()) }
                }
                .boxed()
            });
            committed.await.map_err(|failure| failure.error_of(database.place()))
        }
        .boxed()
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, ()> {
        let Self { database, name, version: _, locks } = *self;
        async move { drop(discard(&database, name, locks).await) }.boxed()
    }
}

async fn discard(
    database: &Arc<Database>,
    name: String,
    locks: Vec<Lock>,
) -> Result<bool, Failure> {
    let discard = database.run(ANSWER_TIMEOUT, locks, move |session| {
        async move { session.execute(DISCARD, Some(name)).await }.boxed()
    });
    discard.await
}
