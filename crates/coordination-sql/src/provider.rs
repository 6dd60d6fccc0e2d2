//! A provider: a database, and the statements for it. Each primitive has a module with its statements
//! and its trait.

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
/// Clones share connections. What was answered outlives the process.
#[derive(Debug, Clone)]
pub struct Provider<D: Database> {
    shared: Arc<Shared<D>>,
}

#[derive(Debug)]
struct Shared<D> {
    engine: D,
    sql: Sql,
}

/// The statements, as this provider's database reads them.
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
        Provider { shared: Arc::new(Shared { engine, sql }) }
    }

    pub(crate) fn engine(&self) -> &D {
        &self.shared.engine
    }

    pub(crate) fn sql(&self) -> &Sql {
        &self.shared.sql
    }

    /// A transaction for the application, on a connection of this provider. In SQLite it has the
    /// file's write lock from its start: keep it short.
    ///
    /// # Errors
    /// [`ProviderError`](coordination::ProviderError) if there was no answer.
    pub async fn begin(&self) -> Result<sqlx::Transaction<'static, D::Driver>> {
        let begun = self.engine().begin_for_application().await;
        begun.map_err(DatabaseError::of("begin transaction"))
    }

    /// How the outbox claims and acknowledges, to be measured beside the provider.
    #[cfg(feature = "testing")]
    pub fn outbox_statements(&self) -> [String; 2] {
        self.sql().outbox.measured().map(|statement| statement.text.to_string())
    }

    /// Runs a statement about items that the caller names. Says how many it changed; without any
    /// there is nothing to ask.
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
