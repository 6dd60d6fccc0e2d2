//! A schema of its own, and the server's clock.

use std::time::Duration;

use coordination::Timestamp;
use coordination_conformance::{DurableFixture, Fixture};
use coordination_sql::testing::TestSchema;
use coordination_sql::{PostgresConfig, PostgresProvider, SchemaName, sqlx};

#[derive(Debug)]
pub(crate) struct PostgresFixture {
    provider: PostgresProvider,
    schema: TestSchema,
}

impl PostgresFixture {
    async fn connect(schema: TestSchema) -> PostgresFixture {
        let config = PostgresConfig {
            schema: SchemaName::new(schema.name()).expect("a valid name"),
            // Many scenarios run at a time, on one server.
            connections_max: 4,
            ..PostgresConfig::default()
        };
        let provider = PostgresProvider::connect_with(schema.url(), config).await;
        PostgresFixture { provider: provider.expect("the server answers"), schema }
    }
}

impl Fixture for PostgresFixture {
    const PROVIDER: &'static str = "POSTGRES";
    type Outbox = PostgresProvider;
    type Inbox = PostgresProvider;
    type Scheduler = PostgresProvider;
    type Leases = PostgresProvider;

    async fn fresh() -> PostgresFixture {
        PostgresFixture::connect(TestSchema::new()).await
    }

    fn outbox(&self) -> &PostgresProvider {
        &self.provider
    }

    fn inbox(&self) -> &PostgresProvider {
        &self.provider
    }

    fn scheduler(&self) -> &PostgresProvider {
        &self.provider
    }

    fn leases(&self) -> &PostgresProvider {
        &self.provider
    }

    async fn now(&self) -> Timestamp {
        let now = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint";
        let micros: i64 = sqlx::query_scalar(now)
            .fetch_one(self.provider.pool())
            .await
            .expect("the server answers");
        Timestamp::from_unix_micros(micros).expect("a moment of the calendar")
    }

    /// Waits where the clock is.
    async fn advance(&self, span: Duration) {
        let until = self.now().await.after(span);
        loop {
            let left = until.since(self.now().await);
            if left.is_zero() {
                return;
            }
            sqlx::query("SELECT pg_sleep($1)")
                .bind(left.as_secs_f64())
                .execute(self.provider.pool())
                .await
                .expect("the server answers");
        }
    }

    /// Half of a lease of 10 units is a second: the most that a busy machine may take.
    fn unit() -> Duration {
        Duration::from_millis(200)
    }
}

impl DurableFixture for PostgresFixture {
    async fn reopen(self) -> PostgresFixture {
        self.provider.close().await;
        PostgresFixture::connect(self.schema).await
    }
}
