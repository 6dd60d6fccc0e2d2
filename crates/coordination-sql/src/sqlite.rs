//! The provider in a SQLite file.

use std::path::Path;

use sqlx::SqlitePool;

use crate::config::{OpenError, SqliteConfig};
use crate::engine::Engine;
use crate::engine::sqlite::Sqlite;
use crate::error::DatabaseError;
use crate::migrations::{self, MigrationSql};
use crate::provider::Provider;
use crate::statement::Dialect;

/// Outbox, inbox, scheduler and leases in one SQLite file: for one machine, durable, nothing to
/// install. Several processes may open the same file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use coordination::{
///     BatchSize, LeaseDuration, NewOutboxMessage, Outbox, OwnerToken, Payload, Topic,
/// };
/// use coordination_sql::SqliteProvider;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("work.sqlite");
/// let outbox = SqliteProvider::open(&path).await?;
/// outbox.enqueue(NewOutboxMessage::new(Topic::new("order.placed")?, Payload::new("42")?)).await?;
/// drop(outbox);
///
/// // Another process, or the same one after a crash.
/// let outbox = SqliteProvider::open(&path).await?;
/// let me = OwnerToken::random();
/// let lease = LeaseDuration::new(Duration::from_secs(30))?;
/// let claimed = outbox.claim_due(&me, lease, BatchSize::new(10)?).await?;
/// assert_eq!(claimed[0].payload.as_text(), Some("42"));
/// assert_eq!(outbox.mark_dispatched(&me, &[claimed[0].id]).await?, 1);
/// # Ok(())
/// # }
/// ```
pub type SqliteProvider = Provider<Sqlite>;

impl Provider<Sqlite> {
    /// Opens the file, creates it if it is missing, and migrates its tables.
    ///
    /// # Errors
    /// [`OpenError`], which says what to look at.
    pub async fn open(path: impl AsRef<Path>) -> Result<SqliteProvider, OpenError> {
        SqliteProvider::open_with(path, SqliteConfig::default()).await
    }

    /// The same with other settings.
    ///
    /// # Errors
    /// [`OpenError`], which says what to look at.
    pub async fn open_with(
        path: impl AsRef<Path>,
        config: SqliteConfig,
    ) -> Result<SqliteProvider, OpenError> {
        config.check()?;
        let path = path.as_ref();
        let name = path.display().to_string();
        let unavailable =
            |source: DatabaseError| OpenError::Unavailable { database: name.clone(), source };
        let engine = Sqlite::open(path, &config).await.map_err(unavailable)?;
        let mut transaction = engine.begin_exclusive().await.map_err(unavailable)?;
        MigrationSql::new(engine.dialect()).run(&engine, &mut transaction, &name).await?;
        engine.commit(transaction).await.map_err(unavailable)?;
        Ok(Provider::new(engine))
    }

    /// The SQL that opening a file at version `found`, 0 for a new one, runs, for review.
    pub fn migration_sql(found: i64) -> String {
        format!("BEGIN;\n{}COMMIT;\n", migrations::script(&Dialect::sqlite(), found))
    }

    /// Connections to the same file, for the application's own statements.
    pub fn pool(&self) -> &SqlitePool {
        self.engine().pool()
    }

    /// Closes all connections of this provider and its clones; later calls fail.
    pub async fn close(&self) {
        self.engine().close().await;
    }
}
