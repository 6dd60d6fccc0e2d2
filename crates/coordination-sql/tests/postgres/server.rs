//! A test's own schema and statements.

use std::time::Duration;

use coordination::{BatchSize, LeaseDuration, OwnerToken};
use coordination_sql::{PostgresConfig, PostgresProvider, SchemaName, sqlx};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::postgres::TestSchema;

/// How long a call may wait for its turn on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn config(schema: &TestSchema) -> PostgresConfig {
    PostgresConfig {
        schema: SchemaName::new(schema.name()).unwrap(),
        // One, so that a test looks at the very session that the provider used.
        connections_max: 1,
        connect_timeout: PATIENCE,
        answer_timeout: PATIENCE,
    }
}

pub(crate) async fn connect(schema: &TestSchema) -> PostgresProvider {
    PostgresProvider::connect_with(schema.url(), config(schema)).await.unwrap()
}

/// Runs statements of the test's own; `{schema}` is the schema.
pub(crate) async fn execute(schema: &TestSchema, text: &str) {
    let mut connection = PgConnection::connect(schema.url()).await.unwrap();
    let text = AssertSqlSafe(text.replace("{schema}", schema.name()));
    sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// A number from the server.
pub(crate) async fn number(schema: &TestSchema, text: &str) -> i64 {
    answer(schema, text).await
}

/// A text from the server.
pub(crate) async fn text(schema: &TestSchema, text: &str) -> String {
    answer(schema, text).await
}

async fn answer<T>(schema: &TestSchema, text: &str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    let mut connection = PgConnection::connect(schema.url()).await.unwrap();
    let text = AssertSqlSafe(text.replace("{schema}", schema.name()));
    let answer = sqlx::query_scalar(text).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    answer
}

pub(crate) fn owner() -> OwnerToken {
    OwnerToken::new("a").unwrap()
}

pub(crate) fn lease() -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(3600)).unwrap()
}

pub(crate) fn batch(count: u32) -> BatchSize {
    BatchSize::new(count).unwrap()
}
