//! The PostgreSQL engine: the server's clock, and LISTEN/NOTIFY.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coordination::{Clock, MonotonicClock, Timestamp};
use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgConnection, PgPoolOptions, PgQueryResult, PgRow,
};
use sqlx::query::Query;
use sqlx::{Arguments, AssertSqlSafe, Connection, PgPool, Transaction};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::{ClaimSql, Database, Engine, Insert, Values};
use crate::config::{PostgresConfig, SchemaName};
use crate::error::DatabaseError;
use crate::listener;
use crate::statement::{Dialect, Statement, WorkQueue};
use crate::value::{Columns, Value};
use crate::waiters::Waiters;

/// A connection that was idle this long is pinged before it is used.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);
/// How often a statement is tried that the server aborted because of a deadlock.
const RETRY_ATTEMPTS_MAX: usize = 3;

/// The timeout of a migration statement, which may rewrite a large table or wait for another
/// process that does.
const MIGRATION_ANSWER_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// One schema of a PostgreSQL database.
#[derive(Debug, Clone)]
pub struct Postgres {
    inner: Arc<PostgresInner>,
}

#[derive(Debug)]
struct PostgresInner {
    dialect: Dialect,
    schema: SchemaName,
    /// The name of the database in errors.
    name: String,
    connect_timeout: Duration,
    answer_timeout: Duration,
    clock: Arc<dyn Clock>,
    now: Statement,
    pool: PgPool,
    owner: PoolOwner,
    waiters: Arc<Waiters>,
    listener: OnceLock<AbortHandle>,
}

/// Who owns the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolOwner {
    Provider,
    /// Closing the provider leaves it open.
    Application,
}

type Driver = sqlx::Postgres;

impl Postgres {
    /// Connects once, so that an unreachable server is reported with the reason.
    pub(crate) async fn connect(
        options: PgConnectOptions,
        config: &PostgresConfig,
        name: &str,
    ) -> Result<Postgres, DatabaseError> {
        let waited = config.connect_timeout;
        match timeout(waited, PgConnection::connect_with(&options)).await {
            Ok(connection) => connection?.close().await?,
            Err(_) => {
                return Err(DatabaseError::NoConnection { database: name.to_owned(), waited });
            }
        }
        let pool = PgPoolOptions::new()
            .max_connections(config.connections_max)
            .acquire_timeout(config.connect_timeout)
            .test_before_acquire(false)
            .before_acquire(|connection, idle| {
                Box::pin(async move {
                    // Without an answer the pool discards the connection and takes another one.
                    Ok(idle.idle_for < PING_AFTER_IDLE || connection.ping().await.is_ok())
                })
            })
            .connect_lazy_with(options);
        Ok(Postgres::over(pool, PoolOwner::Provider, config, name))
    }

    /// Uses an existing pool.
    pub(crate) fn over(
        pool: PgPool,
        owner: PoolOwner,
        config: &PostgresConfig,
        name: &str,
    ) -> Postgres {
        let dialect = Dialect::postgres(&config.schema);
        let inner = PostgresInner {
            now: dialect.statement("SELECT {now} AS now"),
            dialect,
            schema: config.schema.clone(),
            name: name.to_owned(),
            connect_timeout: pool.options().get_acquire_timeout(),
            answer_timeout: config.answer_timeout,
            clock: Arc::new(MonotonicClock::new()),
            pool,
            owner,
            waiters: Arc::default(),
            listener: OnceLock::new(),
        };
        Postgres { inner: Arc::new(inner) }
    }

    /// The same connections for a migration.
    pub(crate) fn migrating(&self) -> Postgres {
        let PostgresInner { schema, pool, name, .. } = &*self.inner;
        let config = PostgresConfig {
            schema: schema.clone(),
            answer_timeout: MIGRATION_ANSWER_TIMEOUT,
            ..PostgresConfig::default()
        };
        Postgres::over(pool.clone(), PoolOwner::Application, &config, name)
    }

    /// The connections.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.inner.pool
    }

    pub(crate) fn schema(&self) -> &SchemaName {
        &self.inner.schema
    }

    pub(crate) async fn close(&self) {
        if let Some(listener) = self.inner.listener.get() {
            listener.abort();
        }
        if self.inner.owner == PoolOwner::Provider {
            self.inner.pool.close().await;
        }
    }

    fn failure(&self, error: sqlx::Error) -> DatabaseError {
        if matches!(error, sqlx::Error::PoolTimedOut) {
            let (database, waited) = (self.inner.name.clone(), self.inner.connect_timeout);
            return DatabaseError::NoConnection { database, waited };
        }
        DatabaseError::Driver(error)
    }

    /// Awaits an answer of the database, with the answer timeout.
    pub(crate) async fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, DatabaseError> {
        match timeout(self.inner.answer_timeout, call).await {
            Ok(answer) => answer.map_err(|error| self.failure(error)),
            Err(_) => Err(DatabaseError::NoAnswer {
                database: self.inner.name.clone(),
                waited: self.inner.answer_timeout,
            }),
        }
    }

    /// The same for a single statement, which is retried if the server aborted it.
    async fn repeated<T, F: Future<Output = Result<T, sqlx::Error>> + Send>(
        &self,
        mut call: impl FnMut() -> Result<F, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        for _ in 1..RETRY_ATTEMPTS_MAX {
            match self.answer(call()?).await {
                Err(DatabaseError::Driver(error)) if is_retryable(&error) => {
                    tracing::debug!(%error, "statement aborted by the server (deadlock), retrying");
                }
                answer => return answer,
            }
        }
        self.answer(call()?).await
    }
}

impl Database for Postgres {}

#[expect(private_interfaces, reason = "sealed")]
impl Engine for Postgres {
    type Driver = Driver;
    type Connection = PgConnection;
    type Row = PgRow;

    fn dialect(&self) -> &Dialect {
        &self.inner.dialect
    }

    async fn fetch(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Vec<PgRow>, DatabaseError> {
        self.repeated(|| Ok(query(statement, &values)?.fetch_all(&self.inner.pool))).await
    }

    async fn read(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Vec<PgRow>, DatabaseError> {
        self.fetch(statement, values).await
    }

    async fn execute(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<usize, DatabaseError> {
        let call = || Ok(query(statement, &values)?.execute(&self.inner.pool));
        Ok(changed(&self.repeated(call).await?))
    }

    async fn claim(
        &self,
        claim: &ClaimSql,
        values: Values<'_>,
    ) -> Result<Vec<PgRow>, DatabaseError> {
        self.fetch(&claim.claim, values).await
    }

    async fn begin(&self) -> Result<Transaction<'static, Driver>, DatabaseError> {
        self.answer(self.inner.pool.begin()).await
    }

    async fn begin_for_application(&self) -> Result<Transaction<'static, Driver>, DatabaseError> {
        self.begin().await
    }

    async fn commit(&self, transaction: Transaction<'static, Driver>) -> Result<(), DatabaseError> {
        self.answer(transaction.commit()).await
    }

    async fn fetch_in(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<Vec<PgRow>, DatabaseError> {
        self.answer(query(statement, &values)?.fetch_all(connection)).await
    }

    async fn execute_in(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        values: Values<'_>,
    ) -> Result<usize, DatabaseError> {
        Ok(changed(&self.answer(query(statement, &values)?.execute(connection)).await?))
    }

    async fn insert_in(
        &self,
        connection: &mut PgConnection,
        insert: &Insert,
        rows: &[Values<'_>],
    ) -> Result<usize, DatabaseError> {
        let columns = rows.first().map_or(0, Vec::len);
        let mut arguments = PgArguments::default();
        for column in 0..columns {
            let cells = rows.iter().map(|row| &row[column]);
            add_column(&mut arguments, cells).map_err(sqlx::Error::Encode)?;
        }
        let query = planned(&insert.many, arguments);
        Ok(changed(&self.answer(query.execute(connection)).await?))
    }

    async fn now_in(&self, connection: &mut PgConnection) -> Result<Timestamp, DatabaseError> {
        let rows = self.fetch_in(connection, &self.inner.now, Vec::new()).await?;
        rows.first().ok_or(sqlx::Error::RowNotFound)?.moment("now")
    }

    fn notify_work(&self, _: WorkQueue) {
        // The server notifies all processes, including this one, when the transaction commits.
    }

    fn work_added(&self, queue: WorkQueue) -> impl Future<Output = ()> + Send {
        let PostgresInner { pool, dialect, waiters, .. } = &*self.inner;
        self.inner.listener.get_or_init(|| {
            let options = PgConnectOptions::clone(&pool.connect_options());
            let listening =
                listener::run(options, dialect.channel().to_owned(), Arc::clone(waiters));
            tokio::spawn(listening).abort_handle()
        });
        waiters.notified(queue)
    }

    fn lease_clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.inner.clock)
    }
}

impl Drop for PostgresInner {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get() {
            listener.abort();
        }
    }
}

/// Whether the server aborted the statement because of concurrent ones, so that it had no effect.
fn is_retryable(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    // Deadlock, and serialization failure under a stricter isolation level than the default.
    matches!(code.as_deref(), Some("40P01" | "40001"))
}

/// How many rows a statement affected.
fn changed(done: &PgQueryResult) -> usize {
    usize::try_from(done.rows_affected()).expect("a count of rows fits")
}

fn query(
    statement: &Statement,
    values: &Values<'_>,
) -> Result<Query<'static, Driver, PgArguments>, DatabaseError> {
    let mut arguments = PgArguments::default();
    for value in values {
        add(&mut arguments, value).map_err(sqlx::Error::Encode)?;
    }
    Ok(planned(statement, arguments))
}

/// A statement that searches rows is planned at each run. A cached plan from when the table was
/// small would scan the whole table after it has grown, and turning off cached plans would change
/// the session, which may be the application's (`CRD-15`).
fn planned(statement: &Statement, arguments: PgArguments) -> Query<'static, Driver, PgArguments> {
    let query = sqlx::query_with(AssertSqlSafe(Arc::clone(&statement.text)), arguments);
    query.persistent(!statement.searches)
}

fn add(arguments: &mut PgArguments, value: &Value<'_>) -> Result<(), sqlx::error::BoxDynError> {
    match value {
        Value::Int(number) => arguments.add(number),
        Value::Text(text) => arguments.add(text.as_deref()),
        Value::Bytes(bytes) => arguments.add(bytes),
        Value::Texts(texts) => arguments.add(texts),
    }
}

/// Adds the cells of one column, which have one type, as an array.
fn add_column<'a>(
    arguments: &mut PgArguments,
    cells: impl Iterator<Item = &'a Value<'a>>,
) -> Result<(), sqlx::error::BoxDynError> {
    let mut cells = cells.peekable();
    match cells.peek() {
        None => Ok(()),
        Some(Value::Int(_)) => arguments.add(cells.map(Value::as_int).collect::<Vec<_>>()),
        Some(Value::Text(_)) => arguments.add(cells.map(Value::as_text).collect::<Vec<_>>()),
        Some(Value::Bytes(_)) => arguments.add(cells.map(Value::as_bytes).collect::<Vec<_>>()),
        Some(Value::Texts(_)) => unreachable!("a cell is one value"),
    }
}

impl Value<'_> {
    fn as_int(&self) -> Option<i64> {
        let Value::Int(number) = self else { unreachable!("a column is of one kind") };
        *number
    }

    fn as_text(&self) -> Option<&str> {
        let Value::Text(text) = self else { unreachable!("a column is of one kind") };
        text.as_deref()
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        let Value::Bytes(bytes) = self else { unreachable!("a column is of one kind") };
        *bytes
    }
}
