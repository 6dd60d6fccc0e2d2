//! The provider in a PostgreSQL database.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgPool, Row};

use crate::config::{OpenError, PostgresConfig};
use crate::engine::Engine;
use crate::engine::postgres::Postgres;
use crate::failure::Failure;
use crate::migrations::MigrationSql;
use crate::provider::Provider;

/// Outbox, inbox, scheduler and leases in one schema of a PostgreSQL database: for many machines.
///
/// Due and expired are by the server's clock. A worker that waits for work is told of it by the
/// server.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use coordination::{NewOutboxMessage, Outbox, Payload, Topic};
/// use coordination_sql::{PostgresConfig, PostgresProvider, SchemaName};
///
/// let config = PostgresConfig { schema: SchemaName::new("billing_work")?, ..Default::default() };
/// let outbox = PostgresProvider::connect_with("postgresql://app@db/billing", config).await?;
/// outbox.enqueue(NewOutboxMessage::new(Topic::new("invoice.sent")?, Payload::new("7")?)).await?;
/// # Ok(())
/// # }
/// ```
pub type PostgresProvider = Provider<Postgres>;

impl Provider<Postgres> {
    /// Connects to the database with this address, makes the schema `coordination` if it is
    /// missing, and brings its tables up to date.
    ///
    /// # Errors
    /// [`OpenError`], which says what to look at.
    pub async fn connect(url: &str) -> Result<PostgresProvider, OpenError> {
        PostgresProvider::connect_with(url, PostgresConfig::default()).await
    }

    /// The same with another schema or other settings.
    ///
    /// # Errors
    /// [`OpenError`], which says what to look at.
    pub async fn connect_with(
        url: &str,
        config: PostgresConfig,
    ) -> Result<PostgresProvider, OpenError> {
        config.check()?;
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| OpenError::InvalidUrl { reason: error.to_string() })?;
        let name = name(&options, &config);
        let unavailable =
            |source: Failure| OpenError::Unavailable { database: name.clone(), source };
        let engine = Postgres::connect(options, &config, &name).await.map_err(unavailable)?;
        migrate(&engine, &name).await?;
        Ok(Provider::new(engine))
    }

    /// The connections, for the application's own statements.
    pub fn pool(&self) -> &PgPool {
        self.engine().pool()
    }

    /// Closes all connections of this provider and its clones; calls after it fail.
    pub async fn close(&self) {
        self.engine().close().await;
    }
}

/// What errors call the database: all of its address but the password.
fn name(options: &PgConnectOptions, config: &PostgresConfig) -> String {
    // Without a host there is a folder with a socket.
    let host = options.get_socket().map(|folder| folder.display().to_string());
    format!(
        "postgresql://{}@{}:{}/{} schema {}",
        options.get_username(),
        host.as_deref().unwrap_or(options.get_host()),
        options.get_port(),
        options.get_database().unwrap_or(options.get_username()),
        config.schema,
    )
}

/// Makes the schema and its tables, under a lock of the schema's own that ends with the
/// transaction.
async fn migrate(engine: &Postgres, name: &str) -> Result<(), OpenError> {
    let unavailable =
        |source: Failure| OpenError::Unavailable { database: name.to_owned(), source };
    let mut transaction = engine.begin().await.map_err(unavailable)?;
    let make_schema = async {
        let schema = engine.schema().as_str();
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended('coordination ' || $1, 0))";
        sqlx::query(lock).bind(schema).execute(&mut *transaction).await?;
        let exists = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1) AS found";
        let exists = sqlx::query(exists).bind(schema).fetch_one(&mut *transaction).await?;
        // Whoever may only use a schema that is there may not ask for one to be made.
        if !exists.try_get::<bool, _>("found")? {
            let create = format!("CREATE SCHEMA \"{schema}\"");
            (*transaction).execute(sqlx::AssertSqlSafe(create)).await?;
        }
        Ok::<_, sqlx::Error>(())
    };
    make_schema.await.map_err(|error| unavailable(error.into()))?;
    MigrationSql::new(engine.dialect()).run(engine, &mut transaction, name).await?;
    engine.commit(transaction).await.map_err(unavailable)
}
