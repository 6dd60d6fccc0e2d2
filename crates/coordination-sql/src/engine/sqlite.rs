//! The SQLite engine: one file, one writer, and the process's clock.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coordination::{Clock, Timestamp};
use sqlx::query::Query;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions,
    SqliteQueryResult, SqliteRow, SqliteSynchronous,
};
use sqlx::{Arguments, AssertSqlSafe, SqlitePool, Transaction};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{ClaimSql, Database, Engine, Insert, Values};
use crate::config::SqliteConfig;
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement, WorkQueue};
use crate::value::Value;
use crate::waiters::Waiters;

/// Takes the write lock at the start, so that the transaction cannot fail later because another one
/// was faster.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// The delay before a file is opened again that another process is creating.
const OPEN_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// One SQLite file.
#[derive(Debug, Clone)]
pub struct Sqlite {
    inner: Arc<SqliteInner>,
}

#[derive(Debug)]
struct SqliteInner {
    dialect: Dialect,
    /// The name of the database in errors.
    name: String,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
    /// One connection: the tasks of this process queue for it, instead of racing for the file's
    /// lock.
    writer: SqlitePool,
    /// For read-only statements, and for the application's transactions.
    others: SqlitePool,
    waiters: Arc<Waiters>,
    watch_interval: Duration,
    watcher: OnceLock<AbortHandle>,
}

impl Sqlite {
    pub(crate) async fn open(path: &Path, config: &SqliteConfig) -> Result<Sqlite, DatabaseError> {
        let synchronous = if config.survives_power_loss {
            SqliteSynchronous::Full
        } else {
            SqliteSynchronous::Normal
        };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .busy_timeout(config.busy_timeout);
        let pool = |connections: u32| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(config.busy_timeout)
                .test_before_acquire(false)
                .idle_timeout(None)
                .max_lifetime(None)
        };
        let writer = connect(pool(1), &options, config.busy_timeout).await?;
        let others = pool(config.other_connections_max).connect_lazy_with(options);
        let inner = SqliteInner {
            dialect: Dialect::sqlite(),
            name: path.display().to_string(),
            busy_timeout: config.busy_timeout,
            clock: Arc::clone(&config.clock),
            writer,
            others,
            waiters: Arc::default(),
            watch_interval: config.watch_interval,
            watcher: OnceLock::new(),
        };
        Ok(Sqlite { inner: Arc::new(inner) })
    }

    /// Connections for the application.
    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.inner.others
    }

    /// A transaction with the exclusive lock; others can still read.
    pub(crate) async fn begin_exclusive(
        &self,
    ) -> Result<Transaction<'static, Driver>, DatabaseError> {
        let begun = self.inner.writer.begin_with("BEGIN EXCLUSIVE").await;
        begun.map_err(|error| self.failure(error))
    }

    pub(crate) async fn close(&self) {
        if let Some(watcher) = self.inner.watcher.get() {
            watcher.abort();
        }
        self.inner.others.close().await;
        self.inner.writer.close().await;
    }

    fn failure(&self, error: sqlx::Error) -> DatabaseError {
        let (database, waited) = (self.inner.name.clone(), self.inner.busy_timeout);
        if matches!(error, sqlx::Error::PoolTimedOut) {
            DatabaseError::NoConnection { database, waited }
        } else if is_locked(&error) {
            DatabaseError::Locked { database, waited }
        } else {
            DatabaseError::Driver(error)
        }
    }

    fn query(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Query<'static, Driver, SqliteArguments>, DatabaseError> {
        let mut arguments = SqliteArguments::default();
        for value in values {
            add(&mut arguments, value).map_err(sqlx::Error::Encode)?;
        }
        if statement.takes_now {
            let now = self.inner.clock.now().unix_micros();
            arguments.add(now).map_err(sqlx::Error::Encode)?;
        }
        Ok(sqlx::query_with(AssertSqlSafe(Arc::clone(&statement.text)), arguments))
    }

    /// How many rows a statement affected.
    fn changed(
        &self,
        done: Result<SqliteQueryResult, sqlx::Error>,
    ) -> Result<usize, DatabaseError> {
        let rows = done.map_err(|error| self.failure(error))?.rows_affected();
        Ok(usize::try_from(rows).expect("a table fits in memory's address space"))
    }

    /// Watches the file for commits of other connections, as long as this provider lives.
    fn watch(&self) {
        self.inner.watcher.get_or_init(|| {
            let (pool, waiters) = (self.inner.others.clone(), Arc::clone(&self.inner.waiters));
            tokio::spawn(watch(pool, waiters, self.inner.watch_interval)).abort_handle()
        });
    }
}

type Driver = sqlx::Sqlite;

impl Database for Sqlite {}

#[expect(private_interfaces, reason = "sealed")]
impl Engine for Sqlite {
    type Driver = Driver;
    type Connection = SqliteConnection;
    type Row = SqliteRow;

    fn dialect(&self) -> &Dialect {
        &self.inner.dialect
    }

    async fn fetch(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Vec<SqliteRow>, DatabaseError> {
        let query = self.query(statement, values)?;
        query.fetch_all(&self.inner.writer).await.map_err(|error| self.failure(error))
    }

    async fn read(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Vec<SqliteRow>, DatabaseError> {
        let query = self.query(statement, values)?;
        query.fetch_all(&self.inner.others).await.map_err(|error| self.failure(error))
    }

    async fn execute(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<usize, DatabaseError> {
        let query = self.query(statement, values)?;
        self.changed(query.execute(&self.inner.writer).await)
    }

    async fn claim(
        &self,
        claim: &ClaimSql,
        values: Values<'_>,
    ) -> Result<Vec<SqliteRow>, DatabaseError> {
        if self.read(&claim.look, Vec::new()).await?.is_empty() {
            return Ok(Vec::new());
        }
        let mut transaction = self.begin().await?;
        // The values of a claim are owner, lease, batch size, and topics if there are any.
        let mark_due = match values.get(3) {
            Some(topics) => vec![topics.clone(), values[2].clone()],
            None => Vec::new(),
        };
        self.execute_in(&mut transaction, &claim.mark_due, mark_due).await?;
        let rows = self.fetch_in(&mut transaction, &claim.claim, values).await?;
        self.commit(transaction).await?;
        Ok(rows)
    }

    async fn begin(&self) -> Result<Transaction<'static, Driver>, DatabaseError> {
        self.inner.writer.begin_with(BEGIN).await.map_err(|error| self.failure(error))
    }

    async fn begin_for_application(&self) -> Result<Transaction<'static, Driver>, DatabaseError> {
        self.inner.others.begin_with(BEGIN).await.map_err(|error| self.failure(error))
    }

    async fn commit(&self, transaction: Transaction<'static, Driver>) -> Result<(), DatabaseError> {
        transaction.commit().await.map_err(|error| self.failure(error))
    }

    async fn fetch_in(
        &self,
        connection: &mut SqliteConnection,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Vec<SqliteRow>, DatabaseError> {
        let query = self.query(statement, values)?;
        query.fetch_all(connection).await.map_err(|error| self.failure(error))
    }

    async fn execute_in(
        &self,
        connection: &mut SqliteConnection,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<usize, DatabaseError> {
        let query = self.query(statement, values)?;
        self.changed(query.execute(connection).await)
    }

    async fn insert_in(
        &self,
        connection: &mut SqliteConnection,
        insert: &Insert,
        rows: &[Values<'_>],
    ) -> Result<usize, DatabaseError> {
        let mut count = 0;
        for row in rows {
            count += self.execute_in(connection, &insert.one, row.clone()).await?;
        }
        Ok(count)
    }

    async fn now_in(&self, _: &mut SqliteConnection) -> Result<Timestamp, DatabaseError> {
        Ok(self.inner.clock.now())
    }

    fn notify_work(&self, queue: WorkQueue) {
        self.inner.waiters.notify(queue);
    }

    fn work_added(&self, queue: WorkQueue) -> impl Future<Output = ()> + Send {
        self.watch();
        self.inner.waiters.notified(queue)
    }

    fn lease_clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.inner.clock)
    }
}

impl Drop for SqliteInner {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.get() {
            watcher.abort();
        }
    }
}

/// Opens the first connection. If two processes open a new file at once, both set its journal mode,
/// and SQLite refuses the second one without waiting for the busy timeout: it retries.
async fn connect(
    pool: SqlitePoolOptions,
    options: &SqliteConnectOptions,
    busy_timeout: Duration,
) -> Result<SqlitePool, sqlx::Error> {
    let give_up_at = Instant::now() + busy_timeout;
    let mut again = interval(OPEN_AGAIN_AFTER);
    loop {
        again.tick().await;
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_locked(&error) && Instant::now() < give_up_at => {}
            connected => return connected,
        }
    }
}

/// Whether another connection held the write lock.
fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    // The lowest byte of an extended code is the primary code: 5 is SQLITE_BUSY.
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == 5)
}

fn add(arguments: &mut SqliteArguments, value: Value<'_>) -> Result<(), sqlx::error::BoxDynError> {
    match value {
        Value::Int(number) => arguments.add(number),
        Value::Text(text) => arguments.add(text.map(Cow::into_owned)),
        Value::Bytes(bytes) => arguments.add(bytes.map(<[u8]>::to_vec)),
        Value::Texts(texts) => arguments.add(json_array(&texts)),
    }
}

/// The texts as JSON for `json_each`. Names have no control characters, so that only quotation
/// marks, backslashes, and the tab of inbox IDs need escaping.
fn json_array(texts: &[String]) -> String {
    let mut json = String::from("[");
    for (number, text) in texts.iter().enumerate() {
        json.push_str(if number == 0 { "\"" } else { ",\"" });
        for character in text.chars() {
            match character {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                '\t' => json.push_str("\\t"),
                other => json.push(other),
            }
        }
        json.push('"');
    }
    json.push(']');
    json
}

/// Wakes the workers of this process when another connection has committed: one of the application,
/// or of another process.
async fn watch(pool: SqlitePool, waiters: Arc<Waiters>, every: Duration) {
    let mut look = interval(every);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A separate connection: `data_version` changes with commits of other connections only.
        let Ok(connection) = pool.acquire().await else {
            look.tick().await;
            if pool.is_closed() {
                return;
            }
            continue;
        };
        let mut connection = connection.detach();
        let mut seen = None;
        loop {
            look.tick().await;
            let query = sqlx::query_scalar::<_, i64>("PRAGMA data_version");
            match query.fetch_one(&mut connection).await {
                Ok(version) if seen == Some(version) => {}
                Ok(version) => {
                    seen = Some(version);
                    waiters.notify_all();
                }
                Err(error) => {
                    tracing::warn!(%error, "file watch failed, retrying");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_a_json_array() {
        let texts = ["a\tb".to_owned(), "say \"x\\y\"".to_owned()];
        assert_eq!(json_array(&texts), r#"["a\tb","say \"x\\y\""]"#);
        assert_eq!(json_array(&[]), "[]");
    }
}
