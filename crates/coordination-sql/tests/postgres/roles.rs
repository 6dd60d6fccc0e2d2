//! Roles with and without the right to migrate (`CRD-16`).

use coordination::{NewOutboxMessage, Outbox, OutboxStatus, Payload, Topic};
use coordination_sql::{
    NEWEST_MIGRATION, OpenError, PostgresProvider, SchemaName, SqliteProvider, sqlx,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::postgres::TestSchema;

use crate::server::{batch, config, connect, execute, lease, number, owner};

/// A role that may only read and write the tables of a schema. Dropped at the end of the test.
struct Writer<'a> {
    schema: &'a TestSchema,
    url: String,
}

impl Writer<'_> {
    async fn new(schema: &TestSchema) -> Writer<'_> {
        let name = schema.name();
        execute(schema, "CREATE ROLE {schema}_writer").await;
        // The session of whoever runs the tests, as that role: no password, no second login.
        let separator = if schema.url().contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}options[role]={name}_writer", schema.url());
        Writer { schema, url }
    }

    async fn grant(&self) {
        execute(
            self.schema,
            "GRANT USAGE ON SCHEMA {schema} TO {schema}_writer;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema}
                 TO {schema}_writer",
        )
        .await;
    }

    async fn drop_role(self) {
        let drop_role = "DROP OWNED BY {schema}_writer; DROP ROLE {schema}_writer";
        execute(self.schema, drop_role).await;
    }
}

pub(crate) async fn crd_16_a_role_that_may_only_read_and_write_connects() {
    let schema = TestSchema::new();
    PostgresProvider::migrate(schema.url(), config(&schema)).await.unwrap();
    let writer = Writer::new(&schema).await;
    writer.grant().await;
    let connected = PostgresProvider::connect_with(&writer.url, config(&schema)).await.unwrap();
    let opened = PostgresProvider::open(&writer.url, config(&schema)).await.unwrap();
    for provider in [connected, opened] {
        let message = NewOutboxMessage::new(Topic::new("t").unwrap(), Payload::empty());
        let id = Outbox::enqueue(&provider, message).await.unwrap();
        provider.claim_due(&owner(), lease(), batch(1)).await.unwrap();
        assert_eq!(provider.mark_dispatched(&owner(), &[id]).await.unwrap(), 1);
        let record = provider.record(id).await.unwrap().unwrap();
        assert_eq!(record.status, OutboxStatus::Done { outcome: None });
        provider.close().await;
    }
    writer.drop_role().await;
}

pub(crate) async fn crd_16_the_error_of_such_a_role_says_what_to_run() {
    let schema = TestSchema::new();
    let writer = Writer::new(&schema).await;
    let needed = |refused: &OpenError, version: i64| {
        let text = refused.to_string();
        assert!(
            matches!(refused, OpenError::MigrationNeeded { found, known: NEWEST_MIGRATION, .. }
                if *found == version),
            "{refused:?}"
        );
        assert!(text.starts_with("migration_needed: "), "{text}");
        assert!(text.contains("run PostgresProvider::migrate"), "{text}");
        let script = format!("PostgresProvider::migration_sql(&schema, {version})");
        assert!(text.contains(&script), "{text}");
        assert!(text.contains(schema.name()), "{text}");
    };
    // Neither the schema nor the right to make it.
    let url = &writer.url;
    let refused = PostgresProvider::connect_with(url, config(&schema)).await.unwrap_err();
    needed(&refused, 0);
    let refused = PostgresProvider::migrate(url, config(&schema)).await.unwrap_err();
    needed(&refused, 0);
    // The tables of an older program.
    connect(&schema).await.close().await;
    writer.grant().await;
    let last = format!("DELETE FROM {{schema}}.migrations WHERE version = {NEWEST_MIGRATION}");
    execute(&schema, &last).await;
    let refused = PostgresProvider::connect_with(url, config(&schema)).await.unwrap_err();
    needed(&refused, NEWEST_MIGRATION - 1);
    writer.drop_role().await;
}

pub(crate) async fn crd_16_opening_makes_no_tables() {
    let schema = TestSchema::new();
    let refused = PostgresProvider::open(schema.url(), config(&schema)).await.unwrap_err();
    assert!(matches!(refused, OpenError::MigrationNeeded { found: 0, .. }), "{refused:?}");
    let schemas = "SELECT COUNT(*) FROM pg_namespace WHERE nspname = '{schema}'";
    assert_eq!(number(&schema, schemas).await, 0);
    for _ in 0..2 {
        PostgresProvider::migrate(schema.url(), config(&schema)).await.unwrap();
        PostgresProvider::open(schema.url(), config(&schema)).await.unwrap();
    }
}

/// The migrations and the printed script create the same columns and indexes.
pub(crate) async fn crd_16_the_printed_migrations_are_those_that_run() {
    let (migrated, by_hand) = (TestSchema::new(), TestSchema::new());
    connect(&migrated).await.close().await;
    let name = SchemaName::new(by_hand.name()).unwrap();
    let script = PostgresProvider::migration_sql(&name, 0);
    let mut connection = PgConnection::connect(by_hand.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.unwrap();
    PostgresProvider::open(by_hand.url(), config(&by_hand)).await.unwrap();
    let mut made = Vec::new();
    for schema in [&migrated, &by_hand] {
        let describe = "SELECT table_name || ' ' || column_name || ' ' || data_type
                        FROM information_schema.columns WHERE table_schema = '{schema}'
                        UNION ALL
                        SELECT indexdef FROM pg_indexes WHERE schemaname = '{schema}' ORDER BY 1";
        let describe = AssertSqlSafe(describe.replace("{schema}", schema.name()));
        let lines: Vec<String> =
            sqlx::query_scalar(describe).fetch_all(&mut connection).await.unwrap();
        made.push(lines.join("\n").replace(schema.name(), "schema"));
    }
    assert!(made[0].contains("outbox topic text"), "{}", made[0]);
    assert_eq!(made[0], made[1]);
    let rest = PostgresProvider::migration_sql(&name, NEWEST_MIGRATION - 1);
    assert!(!rest.contains("-- Version 1:"), "only what is missing: {rest}");
    assert!(SqliteProvider::migration_sql(0).contains("CREATE TABLE coordination_outbox"));
}
