//! What the primitives need of a database: the narrow place where SQLite and PostgreSQL differ.

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
use crate::statement::{Dialect, Queue, Statement};
use crate::value::{Columns, Value};

/// A database that a [`Provider`](crate::Provider) works on: `Sqlite` or `Postgres`. Nobody else
/// implements it.
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

    /// How it reads statements.
    fn dialect(&self) -> &Dialect;

    /// Runs a statement on its own, and gives its rows.
    fn fetch(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> impl Answer<Vec<Self::Row>, DatabaseError>;

    /// The same for a statement that changes nothing.
    fn read(
        &self,
        statement: &Statement,
        values: Values<'_>,
    ) -> impl Answer<Vec<Self::Row>, DatabaseError>;

    /// Runs a statement on its own, and says how many rows it was about.
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

    /// A transaction that will write.
    fn begin(&self) -> impl Answer<Transaction<'static, Self::Driver>, DatabaseError>;

    /// The same for the application, which may hold it for long.
    fn begin_for_application(
        &self,
    ) -> impl Answer<Transaction<'static, Self::Driver>, DatabaseError>;

    /// Commits a transaction. Without an answer nobody knows whether it did.
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
    /// whose parameters are the columns as arrays. Says how many were new.
    fn insert_in(
        &self,
        connection: &mut Self::Connection,
        insert: &Insert,
        rows: &[Values<'_>],
    ) -> impl Answer<usize, DatabaseError>;

    /// The moment it is by the database's clock.
    fn now_in(&self, connection: &mut Self::Connection) -> impl Answer<Timestamp, DatabaseError>;

    /// Tells the workers of this process that work was added, if the database does not.
    fn announce(&self, queue: Queue);

    /// Completes when work may have been added since this was called.
    fn work_added(&self, queue: Queue) -> impl Future<Output = ()> + Send;

    /// The clock by which this process judges that a lease has run out.
    fn lease_clock(&self) -> Arc<dyn Clock>;
}

/// A claim: PostgreSQL does all in one statement. SQLite looks first whether there is anything, so
/// that an idle worker never takes the write lock, and notices what has become due.
#[derive(Debug, Clone)]
pub(crate) struct ClaimSql {
    pub(crate) look: Statement,
    pub(crate) notice: Statement,
    pub(crate) claim: Statement,
}

/// An insertion of one row, and the same of many.
#[derive(Debug, Clone)]
pub(crate) struct Insert {
    pub(crate) one: Statement,
    pub(crate) many: Statement,
}

impl Insert {
    /// Insertions that tell `queue` of their rows when they commit.
    pub(crate) fn announced(dialect: &Dialect, queue: Queue, one: &str, many: &str) -> Insert {
        Insert { one: dialect.announced(queue, one), many: dialect.announced(queue, many) }
    }

    /// Insertions that nobody waits for.
    pub(crate) fn quiet(dialect: &Dialect, one: &str, many: &str) -> Insert {
        Insert { one: dialect.statement(one), many: dialect.statement(many) }
    }
}
