//! The SQL provider: a database and its statements. Each primitive has a module.

mod inbox;
mod leases;
mod outbox;
mod scheduler;

use std::sync::Arc;

use coordination::Result;

use self::inbox::InboxSql;
use self::leases::LeaseSql;
use self::outbox::{JoinSql, OutboxSql};
use self::scheduler::{JobSql, TimerSql};
use crate::engine::{Database, Values};
use crate::error::DatabaseError;
use crate::statement::Statement;

/// Outbox, inbox, scheduler and leases in a database: a `SqliteProvider` or a `PostgresProvider`.
///
/// Clones share connections. Answered calls are durable.
#[derive(Debug, Clone)]
pub struct Provider<D: Database> {
    inner: Arc<ProviderInner<D>>,
}

#[derive(Debug)]
struct ProviderInner<D> {
    engine: D,
    sql: Sql,
}

/// The statements in the dialect of the database.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) outbox: OutboxSql,
    pub(crate) joins: JoinSql,
    pub(crate) inbox: InboxSql,
    pub(crate) timers: TimerSql,
    pub(crate) jobs: JobSql,
    pub(crate) leases: LeaseSql,
}

impl<D: Database> Provider<D> {
    pub(crate) fn new(engine: D) -> Provider<D> {
        let dialect = engine.dialect();
        let sql = Sql {
            outbox: OutboxSql::new(dialect),
            joins: JoinSql::new(dialect),
            inbox: InboxSql::new(dialect),
            timers: TimerSql::new(dialect),
            jobs: JobSql::new(dialect),
            leases: LeaseSql::new(dialect),
        };
        Provider { inner: Arc::new(ProviderInner { engine, sql }) }
    }

    pub(crate) fn engine(&self) -> &D {
        &self.inner.engine
    }

    pub(crate) fn sql(&self) -> &Sql {
        &self.inner.sql
    }

    /// A transaction for the application, on a connection of this provider. In SQLite it holds the
    /// file's write lock from its start: keep it short.
    ///
    /// # Errors
    /// [`ProviderError`](coordination::ProviderError) if there was no answer.
    pub async fn begin(&self) -> Result<sqlx::Transaction<'static, D::Driver>> {
        let begun = self.engine().begin_for_application().await;
        begun.map_err(DatabaseError::of("begin transaction"))
    }

    /// The statements that claim and acknowledge, for benchmarks without the provider.
    #[cfg(feature = "testing")]
    pub fn outbox_statements(&self) -> [String; 2] {
        self.sql().outbox.measured().map(|statement| statement.text.to_string())
    }

    /// Runs a statement on the given items. Returns how many it changed; without items it does not
    /// query.
    pub(crate) async fn change<I: Sync>(
        &self,
        operation: &'static str,
        statement: &Statement,
        items: &[I],
        values: Values<'_>,
    ) -> Result<usize> {
        if items.is_empty() {
            return Ok(0);
        }
        self.engine().execute(statement, values).await.map_err(DatabaseError::of(operation))
    }
}
