//! The provider in a PostgreSQL database.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgPool, Row};

use crate::config::{OpenError, PostgresConfig, SchemaName};
use crate::engine::Engine;
use crate::engine::postgres::{PoolOwner, Postgres};
use crate::error::DatabaseError;
use crate::migrations::{self, MigrationSql};
use crate::provider::Provider;
use crate::statement::Dialect;

/// Outbox, inbox, scheduler and leases in one schema of a PostgreSQL database: for many machines.
///
/// The server's clock decides what is due and expired. The server notifies workers of new work.
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
    /// Connects to the database with this URL, creates the schema `coordination` if it is missing,
    /// and migrates its tables.
    ///
    /// If they are up to date nothing is changed, so that a role that may only read and write them
    /// can connect.
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
        let target = SchemaTarget::connect(url, &config).await?;
        match target.check().await {
            Err(OpenError::MigrationNeeded { .. }) => target.migrate().await?,
            checked => checked?,
        }
        Ok(Provider::new(target.engine))
    }

    /// Connects to the database with this URL without migrating; call
    /// [`migrate`](PostgresProvider::migrate) before, for example in a deployment step.
    ///
    /// # Errors
    /// [`OpenError`], which says what to look at: [`OpenError::MigrationNeeded`] if the tables are
    /// not up to date.
    pub async fn open(url: &str, config: PostgresConfig) -> Result<PostgresProvider, OpenError> {
        let target = SchemaTarget::connect(url, &config).await?;
        target.check().await?;
        Ok(Provider::new(target.engine))
    }

    /// The same with the application's own pool. `connections_max` and `connect_timeout` are the
    /// pool's; nothing is set in its sessions, and [`close`](PostgresProvider::close) leaves it
    /// open. While a worker waits for work, it listens on one more connection.
    ///
    /// # Errors
    /// As [`open`](PostgresProvider::open).
    pub async fn from_pool(
        pool: PgPool,
        config: PostgresConfig,
    ) -> Result<PostgresProvider, OpenError> {
        let target = SchemaTarget::over(pool, &config)?;
        target.check().await?;
        Ok(Provider::new(target.engine))
    }

    /// Creates the schema and its tables, or migrates them: once, even if many processes call it
    /// concurrently, and atomically. The role must own the schema, or be allowed to create it. A
    /// statement may take an hour, whatever `answer_timeout` is: some rewrite a table.
    ///
    /// # Errors
    /// [`OpenError`], which says what to look at.
    pub async fn migrate(url: &str, config: PostgresConfig) -> Result<(), OpenError> {
        let target = SchemaTarget::connect(url, &config).await?;
        let migrated = target.migrate().await;
        target.engine.close().await;
        migrated
    }

    /// The SQL of [`migrate`](PostgresProvider::migrate) for tables at version `found`, 0 without
    /// any, to review or to run by hand.
    pub fn migration_sql(schema: &SchemaName, found: i64) -> String {
        let script = migrations::script(&Dialect::postgres(schema), found);
        let lock = LOCK.replace("$1", &format!("'{schema}'"));
        format!("BEGIN;\n{lock};\nCREATE SCHEMA IF NOT EXISTS \"{schema}\";\n{script}COMMIT;\n")
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

/// Serialises migrations of the same schema until the transaction ends.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('coordination ' || $1, 0))";

/// A schema that is being opened.
struct SchemaTarget {
    engine: Postgres,
    /// The name of the database in errors.
    name: String,
}

impl SchemaTarget {
    async fn connect(url: &str, config: &PostgresConfig) -> Result<SchemaTarget, OpenError> {
        config.check()?;
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| OpenError::InvalidUrl { reason: error.to_string() })?;
        let name = name(&options, config);
        match Postgres::connect(options, config, &name).await {
            Ok(engine) => Ok(SchemaTarget { engine, name }),
            Err(source) => Err(OpenError::Unavailable { database: name, source }),
        }
    }

    fn over(pool: PgPool, config: &PostgresConfig) -> Result<SchemaTarget, OpenError> {
        config.check()?;
        let name = name(&pool.connect_options(), config);
        let engine = Postgres::over(pool, PoolOwner::Application, config, &name);
        Ok(SchemaTarget { engine, name })
    }

    fn unavailable(&self, source: impl Into<DatabaseError>) -> OpenError {
        OpenError::Unavailable { database: self.name.clone(), source: source.into() }
    }

    /// Checks that the tables have the version of this program.
    async fn check(&self) -> Result<(), OpenError> {
        let found = match MigrationSql::new(self.engine.dialect()).found(&self.engine).await {
            Err(DatabaseError::Driver(error)) if is_missing(&error) => 0,
            found => found.map_err(|failure| self.unavailable(failure))?,
        };
        let (database, known) = (self.name.clone(), migrations::NEWEST);
        match found.cmp(&known) {
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(OpenError::TooNew { database, found, known }),
            Ordering::Less => Err(OpenError::MigrationNeeded { database, found, known }),
        }
    }

    /// Creates or migrates the schema. If the role may not, the error says so.
    async fn migrate(&self) -> Result<(), OpenError> {
        match self.run_migrations().await {
            Err(
                OpenError::Unavailable { source: DatabaseError::Driver(error), .. }
                | OpenError::Migration { source: DatabaseError::Driver(error), .. },
            ) if is_forbidden(&error) => {
                tracing::warn!(database = %self.name, %error, "this role may not migrate");
                // Another process may have migrated in the meantime.
                self.check().await
            }
            migrated => migrated,
        }
    }

    async fn run_migrations(&self) -> Result<(), OpenError> {
        let engine = self.engine.migrating();
        let begun = engine.begin().await;
        let mut transaction = begun.map_err(|failure| self.unavailable(failure))?;
        let make_schema = async {
            let schema = engine.schema().as_str();
            sqlx::query(LOCK).bind(schema).execute(&mut *transaction).await?;
            let exists = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1) AS found";
            let exists = sqlx::query(exists).bind(schema).fetch_one(&mut *transaction).await?;
            // A role that may only use the schema may not run `CREATE SCHEMA IF NOT EXISTS` either.
            if !exists.try_get::<bool, _>("found")? {
                let create = format!("CREATE SCHEMA \"{schema}\"");
                (*transaction).execute(sqlx::AssertSqlSafe(create)).await?;
            }
            Ok::<_, sqlx::Error>(())
        };
        engine.answer(make_schema).await.map_err(|failure| self.unavailable(failure))?;
        let migrations = MigrationSql::new(engine.dialect());
        migrations.run(&engine, &mut transaction, &self.name).await?;
        engine.commit(transaction).await.map_err(|failure| self.unavailable(failure))
    }
}

/// The name of the database in errors: its URL without the password.
fn name(options: &PgConnectOptions, config: &PostgresConfig) -> String {
    // Without a host it is a socket directory.
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

/// Whether the table or schema does not exist.
fn is_missing(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("42P01" | "3F000"))
}

/// Whether the role lacks a privilege.
fn is_forbidden(error: &sqlx::Error) -> bool {
    code(error).as_deref() == Some("42501")
}

fn code(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code)
}
