//! A SQLite provider in a temporary folder, with a settable clock.

use std::sync::Arc;
use std::time::Duration;

use coordination::{Clock, FakeClock, Timestamp};
use coordination_conformance::{DurableFixture, Fixture};
use coordination_sql::{SqliteConfig, SqliteProvider};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct SqliteFixture {
    clock: FakeClock,
    provider: SqliteProvider,
    folder: TempDir,
}

impl SqliteFixture {
    async fn open(clock: FakeClock, folder: TempDir) -> SqliteFixture {
        let config = SqliteConfig { clock: Arc::new(clock.clone()), ..SqliteConfig::default() };
        let path = folder.path().join("coordination.sqlite");
        let provider = SqliteProvider::open_with(path, config).await.expect("the file opens");
        SqliteFixture { clock, provider, folder }
    }
}

impl Fixture for SqliteFixture {
    const PROVIDER: &'static str = "SQLITE";
    type Outbox = SqliteProvider;
    type Inbox = SqliteProvider;
    type Scheduler = SqliteProvider;
    type Leases = SqliteProvider;

    async fn fresh() -> SqliteFixture {
        let start: Timestamp = "2026-03-01T12:00:00.25Z".parse().expect("a valid moment");
        let folder = tempfile::tempdir().expect("a temporary folder");
        SqliteFixture::open(FakeClock::at(start), folder).await
    }

    fn outbox(&self) -> &SqliteProvider {
        &self.provider
    }

    fn inbox(&self) -> &SqliteProvider {
        &self.provider
    }

    fn scheduler(&self) -> &SqliteProvider {
        &self.provider
    }

    fn leases(&self) -> &SqliteProvider {
        &self.provider
    }

    async fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    async fn while_ahead(&self, by: Duration, something: impl Future<Output = ()> + Send) {
        self.clock.advance(by);
        something.await;
        self.clock.set(self.clock.now().before(by));
    }
}

impl DurableFixture for SqliteFixture {
    async fn reopen(self) -> SqliteFixture {
        self.provider.close().await;
        SqliteFixture::open(self.clock, self.folder).await
    }
}
