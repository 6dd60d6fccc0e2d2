//! The one connection of a server to its database. It holds the server's locks, and is opened again when it was lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, pending};
use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use super::failure::Failure;
use crate::medium::Lock;

/// How long to wait for a connection, with the table created if it is missing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait after a failed attempt to connect.
const RECONNECT_AFTER: Duration = Duration::from_millis(500);
/// The minimum time between a connection that turned out to be read-only and the next one.
const READ_ONLY_SESSION_MIN: Duration = Duration::from_secs(5);
/// The name of the connection in the database's list of sessions, unless the URL has another.
const APPLICATION_NAME: &str = "ratelimiterd";

/// A database and the connection to it.
pub(super) struct Database {
    /// With the password.
    options: PgConnectOptions,
    place: String,
    current: Mutex<Current>,
    /// Grows with each connection that is lost, and with it its locks.
    number: AtomicU64,
    is_connected: AtomicBool,
    is_connecting: AtomicBool,
    clock: MonotonicClock,
}

struct Current {
    session: Option<Session>,
    /// Why there is none.
    problem: String,
    /// Its loss was logged, so its return is logged too.
    is_loss_logged: bool,
}

/// A connection, and what is known of it.
pub(super) struct Session {
    pub(super) connection: PgConnection,
    /// The database's process behind the connection.
    pub(super) backend: i32,
    /// The advisory lock of the owner.
    pub(super) owner_key: i64,
    /// The advisory lock of a change.
    pub(super) change_key: i64,
    opened_at: Timestamp,
}

impl Database {
    pub(super) fn new(options: PgConnectOptions, place: String) -> Arc<Self> {
        let problem = "not connected".to_owned();
        let current = Current { session: None, problem, is_loss_logged: false };
        Arc::new(Self {
            options: named(options),
            place,
            current: Mutex::new(current),
            number: AtomicU64::new(0),
            is_connected: AtomicBool::new(false),
            is_connecting: AtomicBool::new(false),
            clock: MonotonicClock::new(),
        })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// The number of the connection in use.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Connects.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        let session = self.new_session().await?;
        self.use_session(&mut *self.current.lock().await, session);
        Ok(())
    }

    /// Runs work on the connection while these locks are held. It runs to its end even if the caller stops waiting.
    ///
    /// # Errors
    /// There is no connection, a lock was lost, or the work failed.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        answer_timeout: Duration,
        locks: Vec<Lock>,
        work: impl for<'s> FnOnce(&'s mut Session) -> BoxFuture<'s, Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let database = Arc::clone(self);
        let done = tokio::spawn(async move {
            let mut current = database.current.lock().await;
            let worked = database.work(&mut current, answer_timeout, &locks, work).await;
            drop((current, locks));
            worked
        });
        done.await.unwrap_or(Err(Failure::Panicked))
    }

    async fn work<T>(
        self: &Arc<Self>,
        current: &mut MutexGuard<'_, Current>,
        answer_timeout: Duration,
        locks: &[Lock],
        work: impl for<'s> FnOnce(&'s mut Session) -> BoxFuture<'s, Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some(session) = &mut current.session else {
            self.reconnect();
            return Err(Failure::NotConnected { problem: current.problem.clone() });
        };
        if !locks.iter().all(Lock::is_held) {
            return Err(Failure::LockLost);
        }
        let answer = timeout(answer_timeout, work(session)).await;
        let answer = answer.unwrap_or(Err(Failure::NoAnswer { waited: answer_timeout }));
        if let Err(failure) = &answer {
            let is_over = match failure.is_read_only() {
                true => self.clock.now().since(session.opened_at) >= READ_ONLY_SESSION_MIN,
                false => failure.ends_session(),
            };
            if is_over {
                self.lose_session(current, failure);
            }
        }
        answer
    }

    fn use_session(&self, current: &mut Current, session: Session) {
        current.session = Some(session);
        self.is_connected.store(true, Ordering::Relaxed);
    }

    fn lose_session(self: &Arc<Self>, current: &mut Current, failure: &Failure) {
        current.session = None;
        current.problem = failure.to_string();
        self.number.fetch_add(1, Ordering::AcqRel);
        self.is_connected.store(false, Ordering::Relaxed);
        let (registry, reason) = (&self.place, &current.problem);
        // One that is read-only answers; whoever wanted to write logs why not.
        current.is_loss_logged = !failure.is_read_only();
        if current.is_loss_logged {
            tracing::warn!(%registry, %reason, "connection to the registry lost; serving the limits that are known");
        }
        self.reconnect();
    }

    /// Connects in the background, unless that is under way, so that no tick waits for a database that is away.
    fn reconnect(self: &Arc<Self>) {
        if self.is_connecting.swap(true, Ordering::AcqRel) {
            return;
        }
        let database = Arc::clone(self);
        tokio::spawn(async move {
            match database.new_session().await {
                Ok(session) => {
                    let mut current = database.current.lock().await;
                    database.use_session(&mut current, session);
                    if current.is_loss_logged {
                        tracing::info!(registry = %database.place, "connected to the registry again");
                    }
                }
                Err(failure) => {
                    database.current.lock().await.problem = failure.to_string();
                    // The next tick tries again.
                    drop(timeout(RECONNECT_AFTER, pending::<()>()).await);
                }
            }
            database.is_connecting.store(false, Ordering::Release);
        });
    }

    async fn new_session(&self) -> Result<Session, Failure> {
        let session =
            timeout(CONNECT_TIMEOUT, Session::open(&self.options, self.clock.now())).await;
        session.unwrap_or(Err(Failure::NoAnswer { waited: CONNECT_TIMEOUT }))
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Session {
    async fn open(options: &PgConnectOptions, now: Timestamp) -> Result<Self, Failure> {
        let mut connection = PgConnection::connect_with(options).await?;
        if sqlx::query_scalar(IS_STANDBY).fetch_one(&mut connection).await? {
            return Err(Failure::Standby);
        }
        sqlx::raw_sql(SETTINGS).execute(&mut connection).await?;
        create_table(&mut connection).await?;
        sqlx::raw_sql(LOCK_TIMEOUT).execute(&mut connection).await?;
        let (backend, owner_key, change_key) =
            sqlx::query_as(SESSION).fetch_one(&mut connection).await?;
        Ok(Self { connection, backend, owner_key, change_key, opened_at: now })
    }
}

const IS_STANDBY: &str = "SELECT pg_is_in_recovery()";
/// The locks of a server whose machine or network died end within seconds. A change that is confirmed outlives a crash of
/// the database, whatever its default is.
const SETTINGS: &str = "SET client_min_messages = warning; \
     SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
     SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";
/// How long to wait for the change of another server, or for somebody who has locked the row or the table. Shorter than
/// [`ANSWER_TIMEOUT`](super::ANSWER_TIMEOUT), so that no statement is left waiting without its server.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '180ms'";
/// The connection's process, and the keys of the locks: those of the table's schema, so that several registries may share
/// a database.
const SESSION: &str = "SELECT pg_backend_pid(), \
     hashtextextended('ratelimiter_registry owner ' || relnamespace::regnamespace::text, 0), \
     hashtextextended('ratelimiter_registry change ' || relnamespace::regnamespace::text, 0) \
     FROM pg_class WHERE oid = to_regclass('ratelimiter_registry')";

const IS_CREATED: &str = "SELECT to_regclass('ratelimiter_registry') IS NOT NULL";
const HAS_ROW: &str = "SELECT EXISTS (SELECT FROM ratelimiter_registry WHERE id = 1)";
/// Two servers that start at once do not both create the table.
const CREATE_LOCK: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('ratelimiter_registry create', 0))";
/// One row. `written_as` and `staged_as` name the change that wrote `document` and `staged`.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS ratelimiter_registry ( \
     id smallint PRIMARY KEY CHECK (id = 1), version bigint NOT NULL, document text, written_as text, \
     staged text, staged_as text, owner text)";
/// A row without a document, which is not the same as a document without limits.
const INSERT: &str =
    "INSERT INTO ratelimiter_registry (id, version) VALUES (1, 0) ON CONFLICT DO NOTHING";

/// Creates the table and its row, if they are missing. Otherwise a role that may only read and write the row is enough.
async fn create_table(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    if is_created(connection).await?
        && sqlx::query_scalar(HAS_ROW).fetch_one(&mut *connection).await?
    {
        return Ok(());
    }
    let mut transaction = connection.begin().await?;
    sqlx::query(CREATE_LOCK).execute(&mut *transaction).await?;
    if !is_created(&mut transaction).await? {
        sqlx::query(CREATE).execute(&mut *transaction).await?;
    }
    sqlx::query(INSERT).execute(&mut *transaction).await?;
    transaction.commit().await
}

pub(super) async fn is_created(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(IS_CREATED).fetch_one(connection).await
}

/// Connects without a change to the database.
pub(super) async fn connect_to_read(options: PgConnectOptions) -> Result<PgConnection, Failure> {
    let connection = timeout(CONNECT_TIMEOUT, named(options).connect()).await;
    Ok(connection.map_err(|_| Failure::NoAnswer { waited: CONNECT_TIMEOUT })??)
}

fn named(options: PgConnectOptions) -> PgConnectOptions {
    let options = options.disable_statement_logging();
    match options.get_application_name() {
        Some(_) => options,
        None => options.application_name(APPLICATION_NAME),
    }
}
