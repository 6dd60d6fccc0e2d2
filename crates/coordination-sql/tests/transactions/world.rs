//! A test's own database, opened by several providers as by several processes, with a table of the
//! application.

use std::future::Future;
use std::time::Duration;

use coordination_sql::{
    Database, Postgres, PostgresConfig, PostgresProvider, Provider, SchemaName, Sqlite,
    SqliteConfig, SqliteProvider, sqlx,
};
use sqlx::Transaction;
use tempfile::TempDir;
use testkit::postgres::TestSchema;

/// How long a call may wait for its turn among many on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) trait World: Sized + Send + Sync + 'static {
    type Driver: sqlx::Database;
    type Db: Database<Driver = Self::Driver>;

    /// A database without tables.
    fn new() -> impl Future<Output = Self> + Send;

    /// Another provider on it, with its own connections.
    fn open(&self) -> impl Future<Output = Provider<Self::Db>> + Send;

    /// Closes a provider.
    fn close(provider: &Provider<Self::Db>) -> impl Future<Output = ()> + Send;

    /// Creates the application's table.
    fn make_orders(&self, provider: &Provider<Self::Db>) -> impl Future<Output = ()> + Send;

    /// Adds an order in the application's transaction.
    fn add_order(
        &self,
        transaction: &mut Transaction<'static, Self::Driver>,
    ) -> impl Future<Output = ()> + Send;

    /// Runs a statement that a newer program may run; `{jobs}` and `{job_runs}` are tables,
    /// `{two_megabytes}` is more than a payload may be.
    fn execute_newer(
        &self,
        provider: &Provider<Self::Db>,
        text: &str,
    ) -> impl Future<Output = ()> + Send;

    /// How many orders there are.
    fn orders(&self, provider: &Provider<Self::Db>) -> impl Future<Output = i64> + Send;
}

pub(crate) struct SqliteWorld(TempDir);

pub(crate) struct PostgresWorld(TestSchema);

impl World for SqliteWorld {
    type Driver = sqlx::Sqlite;
    type Db = Sqlite;

    async fn new() -> SqliteWorld {
        SqliteWorld(tempfile::tempdir().unwrap())
    }

    async fn open(&self) -> SqliteProvider {
        let config = SqliteConfig { busy_timeout: PATIENCE, ..SqliteConfig::default() };
        SqliteProvider::open_with(self.0.path().join("shop.sqlite"), config).await.unwrap()
    }

    async fn close(provider: &SqliteProvider) {
        provider.close().await;
    }

    async fn make_orders(&self, provider: &SqliteProvider) {
        sqlx::query("CREATE TABLE orders (id INTEGER)").execute(provider.pool()).await.unwrap();
    }

    async fn add_order(&self, transaction: &mut Transaction<'static, sqlx::Sqlite>) {
        sqlx::query("INSERT INTO orders VALUES (1)").execute(&mut **transaction).await.unwrap();
    }

    async fn execute_newer(&self, provider: &SqliteProvider, text: &str) {
        let text = text
            .replace("{jobs}", "coordination_jobs")
            .replace("{job_runs}", "coordination_job_runs")
            .replace("{two_megabytes}", "zeroblob(2000000)");
        sqlx::query(sqlx::AssertSqlSafe(text)).execute(provider.pool()).await.unwrap();
    }

    async fn orders(&self, provider: &SqliteProvider) -> i64 {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM orders");
        count.fetch_one(provider.pool()).await.unwrap()
    }
}

impl PostgresWorld {
    fn sql(&self, text: &str) -> sqlx::AssertSqlSafe<String> {
        sqlx::AssertSqlSafe(text.replace("orders", &format!("{}.orders", self.0.name())))
    }
}

impl World for PostgresWorld {
    type Driver = sqlx::Postgres;
    type Db = Postgres;

    async fn new() -> PostgresWorld {
        PostgresWorld(TestSchema::new())
    }

    async fn open(&self) -> PostgresProvider {
        let schema = SchemaName::new(self.0.name()).unwrap();
        let config = PostgresConfig {
            schema,
            connections_max: 4,
            connect_timeout: PATIENCE,
            answer_timeout: PATIENCE,
        };
        PostgresProvider::connect_with(self.0.url(), config).await.unwrap()
    }

    async fn close(provider: &PostgresProvider) {
        provider.close().await;
    }

    async fn make_orders(&self, provider: &PostgresProvider) {
        let create = self.sql("CREATE TABLE orders (id INTEGER)");
        sqlx::query(create).execute(provider.pool()).await.unwrap();
    }

    async fn add_order(&self, transaction: &mut Transaction<'static, sqlx::Postgres>) {
        let insert = self.sql("INSERT INTO orders VALUES (1)");
        sqlx::query(insert).execute(&mut **transaction).await.unwrap();
    }

    async fn execute_newer(&self, provider: &PostgresProvider, text: &str) {
        let text = text
            .replace("{jobs}", &format!("{}.jobs", self.0.name()))
            .replace("{job_runs}", &format!("{}.job_runs", self.0.name()))
            .replace("{two_megabytes}", "decode(repeat('00', 2000000), 'hex')");
        sqlx::query(sqlx::AssertSqlSafe(text)).execute(provider.pool()).await.unwrap();
    }

    async fn orders(&self, provider: &PostgresProvider) -> i64 {
        let count = sqlx::query_scalar(self.sql("SELECT COUNT(*) FROM orders"));
        count.fetch_one(provider.pool()).await.unwrap()
    }
}
