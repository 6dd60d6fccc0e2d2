//! The interface between the primitives and the database engines.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use coordination::{Answer, Clock, Timestamp};
use sqlx::Transaction;

use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement, WorkQueue};
use crate::value::{Columns, Value};

/// The database of a [`Provider`](crate::Provider): `Sqlite` or `Postgres`. Sealed.
pub trait Database: Engine {}

/// The parameters of one execution of a statement.
pub(crate) type Values<'a> = Vec<Value<'a>>;

/// The sealed part of [`Database`].
#[expect(private_interfaces, reason = "sealed: it is a bound, not an interface")]
pub trait Engine: Clone + Debug + Send + Sync + 'static {
    /// The driver.
    type Driver: sqlx::Database<Connection = Self::Connection, Row = Self::Row>;
    /// One connection.
    type Connection: sqlx::Connection<Database = Self::Driver> + Send;
    /// One row.
    type Row: Columns;

    /// Its SQL dialect.
    fn dialect(&self) -> &Dialect;

    /// Runs a statement outside a transaction and returns its rows.
    fn fetch(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> impl Answer<Vec<Self::Row>, DatabaseError>;

    /// The same for a read-only statement.
    fn read(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> impl Answer<Vec<Self::Row>, DatabaseError>;

    /// Runs a statement outside a transaction and returns how many rows it affected.
    fn execute(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> impl Answer<usize, DatabaseError>;

    /// Claims work.
    fn claim(
        &self,
        claim: &ClaimSql,
        values: Values<'_>,
    ) -> impl Answer<Vec<Self::Row>, DatabaseError>;

    /// A writing transaction.
    fn begin(&self) -> impl Answer<Transaction<'static, Self::Driver>, DatabaseError>;

    /// A transaction for the application, which may be long.
    fn begin_for_application(
        &self,
    ) -> impl Answer<Transaction<'static, Self::Driver>, DatabaseError>;

    /// Commits a transaction. Without an answer the outcome is unknown.
    fn commit(
        &self,
        transaction: Transaction<'static, Self::Driver>,
    ) -> impl Answer<(), DatabaseError>;

    /// Like [`fetch`](Engine::fetch), on a connection.
    fn fetch_in(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        values: Values<'_>,
    ) -> impl Answer<Vec<Self::Row>, DatabaseError>;

    /// Like [`execute`](Engine::execute), on a connection.
    fn execute_in(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        values: Values<'_>,
    ) -> impl Answer<usize, DatabaseError>;

    /// Inserts rows in their order: SQLite one by one with `one`, PostgreSQL at once with `many`,
    /// whose parameters are the columns as arrays. Returns how many were new.
    fn insert_in(
        &self,
        connection: &mut Self::Connection,
        insert: &Insert,
        rows: &[Values<'_>],
    ) -> impl Answer<usize, DatabaseError>;

    /// The current time by the database's clock.
    fn now_in(&self, connection: &mut Self::Connection) -> impl Answer<Timestamp, DatabaseError>;

    /// Notifies the workers of this process that work was added, if the database does not.
    fn notify_work(&self, queue: WorkQueue);

    /// Completes when work may have been added since the call.
    fn work_added(&self, queue: WorkQueue) -> impl Future<Output = ()> + Send;

    /// The clock by which this process decides that a lease has expired.
    fn lease_clock(&self) -> Arc<dyn Clock>;
}

/// The statements of a claim. PostgreSQL needs only `claim`. SQLite first checks with `look`
/// whether there is work, so that an idle worker never takes the write lock, and then runs
/// `mark_due`.
#[derive(Debug, Clone)]
pub(crate) struct ClaimSql {
    pub(crate) look: Statement,
    pub(crate) mark_due: Statement,
    pub(crate) claim: Statement,
}

/// An insert of one row, and the same of many.
#[derive(Debug, Clone)]
pub(crate) struct Insert {
    pub(crate) one: Statement,
    pub(crate) many: Statement,
}

impl Insert {
    /// An insert that notifies `queue` when it commits.
    pub(crate) fn notifying(dialect: &Dialect, queue: WorkQueue, one: &str, many: &str) -> Insert {
        Insert { one: dialect.notifying(queue, one), many: dialect.notifying(queue, many) }
    }

    /// An insert without notification.
    pub(crate) fn silent(dialect: &Dialect, one: &str, many: &str) -> Insert {
        Insert { one: dialect.statement(one), many: dialect.statement(many) }
    }
}
