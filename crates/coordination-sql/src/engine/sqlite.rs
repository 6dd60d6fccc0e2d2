//! SQLite: one file, one writer at a time, and the process's clock.

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
use crate::statement::{Dialect, Queue, Statement};
use crate::value::Value;
use crate::wake::Wake;

/// A transaction that has the write lock from its start: it never has to give up in the middle
/// because another one was quicker.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// How long to wait before a file that another process is just making is opened again.
const OPEN_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// One SQLite file.
#[derive(Debug, Clone)]
pub struct Sqlite {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dialect: Dialect,
    /// What failures call the database.
    name: String,
    /// How long a connection is waited for.
    patience: Duration,
    clock: Arc<dyn Clock>,
    /// One connection: the tasks of this process take turns, in the order in which they came,
    /// instead of racing for the file's lock.
    writer: SqlitePool,
    /// For what changes nothing, and for the application's transactions.
    others: SqlitePool,
    wake: Arc<Wake>,
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
        let shared = Shared {
            dialect: Dialect::sqlite(),
            name: path.display().to_string(),
            patience: config.busy_timeout,
            clock: Arc::clone(&config.clock),
            writer,
            others,
            wake: Arc::default(),
            watch_interval: config.watch_interval,
            watcher: OnceLock::new(),
        };
        Ok(Sqlite { shared: Arc::new(shared) })
    }

    /// Connections to the file for the application.
    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.shared.others
    }

    /// A transaction that has the file for itself, readers apart.
    pub(crate) async fn begin_exclusive(
        &self,
    ) -> Result<Transaction<'static, Driver>, DatabaseError> {
        let begun = self.shared.writer.begin_with("BEGIN EXCLUSIVE").await;
        begun.map_err(|error| self.failure(error))
    }

    pub(crate) async fn close(&self) {
        if let Some(watcher) = self.shared.watcher.get() {
            watcher.abort();
        }
        self.shared.others.close().await;
        self.shared.writer.close().await;
    }

    fn failure(&self, error: sqlx::Error) -> DatabaseError {
        let (database, waited) = (self.shared.name.clone(), self.shared.patience);
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
            let now = self.shared.clock.now().unix_micros();
            arguments.add(now).map_err(sqlx::Error::Encode)?;
        }
        Ok(sqlx::query_with(AssertSqlSafe(Arc::clone(&statement.text)), arguments))
    }

    /// How many rows a statement was about.
    fn changed(
        &self,
        done: Result<SqliteQueryResult, sqlx::Error>,
    ) -> Result<usize, DatabaseError> {
        let rows = done.map_err(|error| self.failure(error))?.rows_affected();
        Ok(usize::try_from(rows).expect("a table fits in memory's address space"))
    }

    /// Watches the file for what other connections commit, for as long as this provider lives.
    fn watch(&self) {
        self.shared.watcher.get_or_init(|| {
            let (pool, wake) = (self.shared.others.clone(), Arc::clone(&self.shared.wake));
            tokio::spawn(watch(pool, wake, self.shared.watch_interval)).abort_handle()
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
        &self.shared.dialect
    }

    async fn fetch(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Vec<SqliteRow>, DatabaseError> {
        let query = self.query(statement, values)?;
        query.fetch_all(&self.shared.writer).await.map_err(|error| self.failure(error))
    }

    async fn read(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Vec<SqliteRow>, DatabaseError> {
        let query = self.query(statement, values)?;
        query.fetch_all(&self.shared.others).await.map_err(|error| self.failure(error))
    }

    async fn execute(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<usize, DatabaseError> {
        let query = self.query(statement, values)?;
        self.changed(query.execute(&self.shared.writer).await)
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
        // Of a claim's values, the topics are the last and the batch is before them.
        let notice = match values.get(3) {
            Some(topics) => vec![topics.clone(), values[2].clone()],
            None => Vec::new(),
        };
        self.execute_in(&mut transaction, &claim.notice, notice).await?;
        let rows = self.fetch_in(&mut transaction, &claim.claim, values).await?;
        self.commit(transaction).await?;
        Ok(rows)
    }

    async fn begin(&self) -> Result<Transaction<'static, Driver>, DatabaseError> {
        self.shared.writer.begin_with(BEGIN).await.map_err(|error| self.failure(error))
    }

    async fn begin_for_application(&self) -> Result<Transaction<'static, Driver>, DatabaseError> {
        self.shared.others.begin_with(BEGIN).await.map_err(|error| self.failure(error))
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
        Ok(self.shared.clock.now())
    }

    fn announce(&self, queue: Queue) {
        self.shared.wake.tell(queue);
    }

    fn work_added(&self, queue: Queue) -> impl Future<Output = ()> + Send {
        self.watch();
        self.shared.wake.told(queue)
    }

    fn lease_clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.get() {
            watcher.abort();
        }
    }
}

/// Makes the first connection. Two that open a new file at once both want to set its journal mode,
/// and the one that comes second is refused without being made to wait: it tries again.
async fn connect(
    pool: SqlitePoolOptions,
    options: &SqliteConnectOptions,
    patience: Duration,
) -> Result<SqlitePool, sqlx::Error> {
    let give_up_at = Instant::now() + patience;
    let mut again = interval(OPEN_AGAIN_AFTER);
    loop {
        again.tick().await;
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_locked(&error) && Instant::now() < give_up_at => {}
            connected => return connected,
        }
    }
}

/// Whether another connection had the write lock for all of the time that this one waited.
fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    // An extended code has the kind of the error in its lowest byte: 5 is SQLITE_BUSY.
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

/// The texts as `json_each` reads them. Names have no control characters, so that quotation marks
/// and backslashes are all there is to escape.
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

/// Wakes the workers of this process when any other connection has committed: the application's
/// transactions, and other processes.
async fn watch(pool: SqlitePool, wake: Arc<Wake>, every: Duration) {
    let mut look = interval(every);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A connection of its own: the number is about the commits of all others.
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
                    wake.tell_all();
                }
                Err(error) => {
                    tracing::warn!(%error, "watching the file failed, trying anew");
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
