//! Migrations of a PostgreSQL schema.

use std::time::Duration;

use coordination::{NewOutboxMessage, Outbox, Payload, Topic};
use coordination_sql::{
    NEWEST_MIGRATION, OpenError, PostgresConfig, PostgresProvider, SchemaName, sqlx,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::postgres::TestSchema;
use tokio::task::JoinSet;

use crate::{DATA_OF_VERSION_1, check_data, version_1};

async fn open(schema: &TestSchema) -> Result<PostgresProvider, OpenError> {
    let name = SchemaName::new(schema.name()).unwrap();
    let patience = Duration::from_secs(120);
    let config = PostgresConfig {
        schema: name,
        connections_max: 2,
        connect_timeout: patience,
        answer_timeout: patience,
    };
    PostgresProvider::connect_with(schema.url(), config).await
}

async fn execute(schema: &TestSchema, text: &str) {
    let mut connection = PgConnection::connect(schema.url()).await.unwrap();
    let text = AssertSqlSafe(text.replace("{schema}", schema.name()));
    sqlx::query(text).execute(&mut connection).await.unwrap();
}

pub(crate) async fn opening_again_changes_nothing() {
    let schema = TestSchema::new();
    let first = open(&schema).await.unwrap();
    let message = NewOutboxMessage::new(Topic::new("t").unwrap(), Payload::empty());
    let id = first.enqueue(message).await.unwrap();
    let second = open(&schema).await.unwrap();
    assert!(second.record(id).await.unwrap().is_some(), "the message is there");
    let versions = format!("SELECT COUNT(*) FROM {}.migrations", schema.name());
    let versions = sqlx::query_scalar(AssertSqlSafe(versions));
    let versions: i64 = versions.fetch_one(second.pool()).await.unwrap();
    assert_eq!(versions, NEWEST_MIGRATION, "each migration once");
}

pub(crate) async fn many_that_open_a_new_schema_at_once_all_do() {
    for _ in 0..3 {
        let schema = std::sync::Arc::new(TestSchema::new());
        let mut opening = JoinSet::new();
        for _ in 0..8 {
            let schema = std::sync::Arc::clone(&schema);
            opening.spawn(async move { open(&schema).await });
        }
        for opened in opening.join_all().await {
            assert_eq!(Outbox::oldest_ready_age(&opened.unwrap()).await.unwrap(), None);
        }
    }
}

pub(crate) async fn schemas_share_nothing() {
    let (one, other) = (TestSchema::new(), TestSchema::new());
    let (one, other) = (open(&one).await.unwrap(), open(&other).await.unwrap());
    let message = NewOutboxMessage::new(Topic::new("t").unwrap(), Payload::empty());
    let id = one.enqueue(message).await.unwrap();
    assert!(one.record(id).await.unwrap().is_some());
    assert!(other.record(id).await.unwrap().is_none());
}

pub(crate) async fn a_schema_of_version_1_is_brought_up_to_date() {
    let schema = TestSchema::new();
    let name = SchemaName::new(schema.name()).unwrap();
    let data = ["outbox", "join_members", "joins", "jobs"]
        .iter()
        .fold(DATA_OF_VERSION_1.to_owned(), |text, table| {
            text.replace(&format!("{{{table}}}"), &format!("{name}.{table}"))
        });
    let mut connection = PgConnection::connect(schema.url()).await.unwrap();
    for text in [version_1(&PostgresProvider::migration_sql(&name, 0)), data] {
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    }
    check_data(&open(&schema).await.unwrap()).await;
}

/// A statement that rewrites a large table takes longer than any call may.
pub(crate) async fn a_migration_may_take_longer_than_a_call() {
    let schema = TestSchema::new();
    let config = PostgresConfig {
        schema: SchemaName::new(schema.name()).unwrap(),
        connect_timeout: Duration::from_secs(120),
        // No answer of a server comes so early.
        answer_timeout: Duration::from_nanos(1),
        ..PostgresConfig::default()
    };
    PostgresProvider::migrate(schema.url(), config).await.unwrap();
    open(&schema).await.unwrap();
}

pub(crate) async fn a_newer_schema_is_refused() {
    let schema = TestSchema::new();
    open(&schema).await.unwrap().close().await;
    execute(&schema, "INSERT INTO {schema}.migrations VALUES (1000, 'from the future', 0)").await;
    let refused = open(&schema).await.unwrap_err();
    assert!(
        matches!(refused, OpenError::TooNew { found: 1000, known: NEWEST_MIGRATION, .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains(schema.name()), "{refused}");
}

pub(crate) async fn a_migration_that_fails_leaves_nothing() {
    let schema = TestSchema::new();
    execute(&schema, "CREATE SCHEMA {schema}").await;
    // In the way of a table that comes late.
    execute(&schema, "CREATE TABLE {schema}.leases (id INTEGER)").await;
    let refused = open(&schema).await.unwrap_err();
    assert!(matches!(refused, OpenError::Migration { version: 1, .. }), "{refused:?}");
    execute(&schema, "DROP TABLE {schema}.leases").await;
    open(&schema).await.expect("nothing of the first attempt is in the way");
}

pub(crate) async fn an_unreachable_server_is_named_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let nobody =
        format!("postgresql:///shop?host={}&user=app&password=secret", folder.path().display());
    let refused = PostgresProvider::connect(&nobody).await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused:?}");
    assert!(text.starts_with("database_unavailable: postgresql://app@"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

pub(crate) async fn a_bad_address_is_refused_and_not_shown() {
    let refused = PostgresProvider::connect("postgresql://app:secret@host:port/x").await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, OpenError::InvalidUrl { .. }), "{refused:?}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
}
