//! A PostgreSQL provider with a settable clock.
//!
//! The provider's statements ask `statement_timestamp()`, without a schema. The sessions of this
//! fixture find a function of that name in the test's schema first, which reads a table: the
//! shipped statements run on a real server, and no scenario depends on the speed of the machine.

use std::sync::Arc;
use std::time::Duration;

use coordination::{
    Clock, FakeClock, FencingToken, LeaseDuration, Leases, OwnerToken, ResourceName, Result,
    Tenure, Timestamp,
};
use coordination_conformance::{DurableFixture, Fixture};
use coordination_sql::{PostgresConfig, PostgresProvider, SchemaName, sqlx};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::postgres::TestSchema;

/// How long a call may wait for its turn on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const MAKE_CLOCK: &str = "
    CREATE SCHEMA {schema};
    CREATE TABLE {schema}.test_clock (micros BIGINT NOT NULL);
    INSERT INTO {schema}.test_clock VALUES ({micros});
    CREATE FUNCTION {schema}.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
        'SELECT timestamptz ''epoch'' + micros * interval ''1 microsecond''
         FROM {schema}.test_clock'";

#[derive(Debug)]
pub(crate) struct PostgresFixture {
    provider: PostgresProvider,
    leases: VirtualLeases,
    clock: FakeClock,
    schema: TestSchema,
}

/// The provider's leases, with a holder's clock that is moved with the server's.
#[derive(Debug, Clone)]
pub(crate) struct VirtualLeases {
    provider: PostgresProvider,
    clock: FakeClock,
}

impl PostgresFixture {
    async fn connect(schema: TestSchema, clock: FakeClock) -> PostgresFixture {
        let config = PostgresConfig {
            schema: SchemaName::new(schema.name()).expect("a valid name"),
            connections_max: 4,
            connect_timeout: PATIENCE,
            answer_timeout: PATIENCE,
        };
        let separator = if schema.url().contains('?') { '&' } else { '?' };
        let (url, name) = (schema.url(), schema.name());
        // Named, the server's own functions are not the first to be found.
        let url = format!("{url}{separator}options[search_path]={name},pg_catalog");
        let provider = PostgresProvider::connect_with(&url, config).await;
        let provider = provider.expect("the server answers");
        let leases = VirtualLeases { provider: provider.clone(), clock: clock.clone() };
        PostgresFixture { provider, leases, clock, schema }
    }

    async fn set_server(&self, now: Timestamp) {
        let set = format!("UPDATE {}.test_clock SET micros = $1", self.schema.name());
        let set = sqlx::query(AssertSqlSafe(set)).bind(now.unix_micros());
        let set = set.execute(self.provider.pool()).await.expect("the server answers");
        assert_eq!(set.rows_affected(), 1, "one clock");
    }
}

impl Fixture for PostgresFixture {
    const PROVIDER: &'static str = "POSTGRES";
    type Outbox = PostgresProvider;
    type Inbox = PostgresProvider;
    type Scheduler = PostgresProvider;
    type Leases = VirtualLeases;

    async fn fresh() -> PostgresFixture {
        let start: Timestamp = "2026-03-01T12:00:00.25Z".parse().expect("a valid moment");
        let schema = TestSchema::new();
        let make_clock = MAKE_CLOCK
            .replace("{schema}", schema.name())
            .replace("{micros}", &start.unix_micros().to_string());
        let connection = PgConnection::connect(schema.url()).await;
        let mut connection = connection.expect("the server answers");
        let made = sqlx::raw_sql(AssertSqlSafe(make_clock)).execute(&mut connection).await;
        made.expect("the schema is new");
        connection.close().await.expect("the server answers");
        PostgresFixture::connect(schema, FakeClock::at(start)).await
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

    fn leases(&self) -> &VirtualLeases {
        &self.leases
    }

    async fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The server's clock first: tasks that wake up by the other one ask the server.
    async fn advance(&self, span: Duration) {
        self.set_server(self.clock.now().after(span)).await;
        self.clock.advance(span);
    }

    async fn while_ahead(&self, by: Duration, something: impl Future<Output = ()> + Send) {
        self.advance(by).await;
        something.await;
        let right = self.clock.now().before(by);
        self.set_server(right).await;
        self.clock.set(right);
    }
}

impl DurableFixture for PostgresFixture {
    async fn reopen(self) -> PostgresFixture {
        self.provider.close().await;
        PostgresFixture::connect(self.schema, self.clock).await
    }
}

impl Leases for VirtualLeases {
    async fn try_acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> Result<Option<FencingToken>> {
        self.provider.try_acquire(resource, duration, owner).await
    }

    async fn try_renew(
        &self,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> Result<Option<FencingToken>> {
        self.provider.try_renew(tenure, duration).await
    }

    async fn release(&self, tenure: &Tenure) -> Result<usize> {
        self.provider.release(tenure).await
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }
}
