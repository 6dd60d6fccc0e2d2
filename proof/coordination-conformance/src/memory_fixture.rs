//! The memory provider with a settable clock.

use std::sync::Arc;
use std::time::Duration;

use coordination::{Clock, FakeClock, MemoryProvider, Timestamp};

use crate::{DurableFixture, Fixture};

/// A memory provider with a fake clock.
#[derive(Debug)]
pub struct MemoryFixture {
    clock: FakeClock,
    provider: MemoryProvider,
}

impl MemoryFixture {
    /// The clock.
    pub fn clock(&self) -> &FakeClock {
        &self.clock
    }

    /// The provider.
    pub fn provider(&self) -> &MemoryProvider {
        &self.provider
    }
}

impl Fixture for MemoryFixture {
    const PROVIDER: &'static str = "INMEMORY";
    type Outbox = MemoryProvider;
    type Inbox = MemoryProvider;
    type Scheduler = MemoryProvider;
    type Leases = MemoryProvider;

    async fn fresh() -> MemoryFixture {
        let start: Timestamp = "2026-03-01T12:00:00.25Z".parse().expect("a valid moment");
        let clock = FakeClock::at(start);
        let provider = MemoryProvider::with_clock(Arc::new(clock.clone()));
        MemoryFixture { clock, provider }
    }

    fn outbox(&self) -> &MemoryProvider {
        &self.provider
    }

    fn inbox(&self) -> &MemoryProvider {
        &self.provider
    }

    fn scheduler(&self) -> &MemoryProvider {
        &self.provider
    }

    fn leases(&self) -> &MemoryProvider {
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

/// Loses everything: the durable scenarios must fail with it.
impl DurableFixture for MemoryFixture {
    async fn reopen(self) -> MemoryFixture {
        MemoryFixture::fresh().await
    }
}
