//! The durable scenarios hold for a provider that keeps its state over a restart, and fail for one
//! that forgets.

use std::time::Duration;

use coordination::{MemoryProvider, Timestamp};
use coordination_conformance::{DurableFixture, Fixture, MemoryFixture, Outcome, durable};

/// Keeps its state when it is reopened, as a database would.
#[derive(Debug)]
struct KeptFixture(MemoryFixture);

impl Fixture for KeptFixture {
    const PROVIDER: &'static str = "KEPT";
    type Outbox = MemoryProvider;
    type Inbox = MemoryProvider;
    type Scheduler = MemoryProvider;
    type Leases = MemoryProvider;

    async fn fresh() -> KeptFixture {
        KeptFixture(MemoryFixture::fresh().await)
    }

    fn outbox(&self) -> &MemoryProvider {
        self.0.outbox()
    }

    fn inbox(&self) -> &MemoryProvider {
        self.0.inbox()
    }

    fn scheduler(&self) -> &MemoryProvider {
        self.0.scheduler()
    }

    fn leases(&self) -> &MemoryProvider {
        self.0.leases()
    }

    async fn now(&self) -> Timestamp {
        self.0.now().await
    }

    async fn while_ahead(&self, by: Duration, something: impl Future<Output = ()> + Send) {
        self.0.while_ahead(by, something).await;
    }

    async fn advance(&self, span: Duration) {
        self.0.advance(span).await;
    }
}

impl DurableFixture for KeptFixture {
    async fn reopen(self) -> KeptFixture {
        self
    }
}

mod prim_kept {
    use super::KeptFixture;

    coordination_conformance::durable_suite!(KeptFixture);
}

#[test]
fn a_provider_that_forgets_fails_every_durable_scenario() {
    for case in durable::cases::<MemoryFixture>() {
        assert_ne!(case.outcome(), Outcome::Passed, "{}", case.scenario.id);
    }
}
