//! A schema of its own, and the server's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use coordination::Timestamp;
use coordination_conformance::{DurableFixture, Fixture};
use coordination_sql::testing::TestSchema;
use coordination_sql::{PostgresConfig, PostgresProvider, SchemaName, sqlx};

/// The unit in milliseconds. Half of a lease of 10 units is a second: the most that a busy machine
/// may take.
const UNIT_MS: u64 = 200;
/// The unit of a scenario that runs alone, because the machine may have been busier than that.
const LONG_UNIT_MS: u64 = 2_000;

static UNIT_NOW_MS: AtomicU64 = AtomicU64::new(UNIT_MS);
/// Read by those that run side by side, written by the one that runs alone.
static RUNNING: RwLock<()> = RwLock::new(());

/// Runs a scenario beside others.
pub(crate) fn beside_others<T>(run: impl FnOnce() -> T) -> T {
    let _others_too = RUNNING.read().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// Runs a scenario when no other runs, with a unit that is ten times as long.
pub(crate) fn alone_and_slowly<T>(run: impl FnOnce() -> T) -> T {
    let _alone = RUNNING.write().unwrap_or_else(PoisonError::into_inner);
    UNIT_NOW_MS.store(LONG_UNIT_MS, Ordering::SeqCst);
    let outcome = run();
    UNIT_NOW_MS.store(UNIT_MS, Ordering::SeqCst);
    outcome
}

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
            connect_timeout: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(120),
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

    async fn while_ahead(&self, by: Duration, something: impl Future<Output = ()> + Send) {
        something.await;
        let move_on = format!(
            "UPDATE \"{}\".jobs SET next_tick = next_tick + $1, ticked_at = ticked_at + $1",
            self.schema.name()
        );
        sqlx::query(sqlx::AssertSqlSafe(move_on))
            .bind(i64::try_from(by.as_micros()).expect("it fits"))
            .execute(self.provider.pool())
            .await
            .expect("the server answers");
    }

    fn unit() -> Duration {
        Duration::from_millis(UNIT_NOW_MS.load(Ordering::SeqCst))
    }
}

impl DurableFixture for PostgresFixture {
    async fn reopen(self) -> PostgresFixture {
        self.provider.close().await;
        PostgresFixture::connect(self.schema).await
    }
}
