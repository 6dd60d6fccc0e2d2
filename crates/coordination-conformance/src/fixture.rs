//! What a provider brings to the suite: a fresh instance, and power over its time.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use coordination::{Inbox, Joins, LeaseDuration, Leases, Scheduler, Timestamp};

/// A fresh, empty provider and its clock.
///
/// The suite never looks at the machine's time. A provider with a clock that can be set moves it in
/// [`advance`](Fixture::advance); one with a database's clock waits there, and makes
/// [`unit`](Fixture::unit) short. All times in the suite are multiples of the unit (cron's apart,
/// which are whole seconds), and no scenario breaks when more time passes than it asked for, unless
/// a wait of 5 units takes 10.
pub trait Fixture: Debug + Sized + Send + Sync + 'static {
    /// The provider's part of the scenario IDs: `INMEMORY`, `SQLITE`.
    const PROVIDER: &'static str;

    /// The outbox under test.
    type Outbox: Joins + Clone;
    /// The inbox under test.
    type Inbox: Inbox + Clone;
    /// The scheduler under test.
    type Scheduler: Scheduler + Clone;
    /// The leases under test.
    type Leases: Leases;

    /// A provider that shares nothing with any other.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// Its outbox.
    fn outbox(&self) -> &Self::Outbox;

    /// Its inbox.
    fn inbox(&self) -> &Self::Inbox;

    /// Its scheduler.
    fn scheduler(&self) -> &Self::Scheduler;

    /// Its leases.
    fn leases(&self) -> &Self::Leases;

    /// The moment it is by the provider's clock.
    fn now(&self) -> impl Future<Output = Timestamp> + Send;

    /// Returns when at least `span` more has passed by the provider's clock.
    fn advance(&self, span: Duration) -> impl Future<Output = ()> + Send;

    /// Does something while the provider's clock is ahead by so much, and sets it right again.
    ///
    /// A provider whose clock cannot be set does it by the right time, and then moves on by so much
    /// what it has noted of the ticks of jobs.
    fn while_ahead(
        &self,
        by: Duration,
        something: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send;

    /// The unit of the suite's times.
    fn unit() -> Duration {
        Duration::from_secs(1)
    }

    /// Runs one scenario to its end: by default on a runtime of its own with several threads, so
    /// that races are real.
    fn block_on(scenario: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
            .expect("a runtime can be made")
            .block_on(scenario);
    }
}

/// A provider that outlives its process.
pub trait DurableFixture: Fixture {
    /// The same provider as after a restart of the process: all that was in memory is gone.
    fn reopen(self) -> impl Future<Output = Self> + Send;
}

/// So many units.
pub(crate) fn units<F: Fixture>(count: u32) -> Duration {
    F::unit() * count
}

/// A claim or lease of so many units.
pub(crate) fn lease<F: Fixture>(count: u32) -> LeaseDuration {
    LeaseDuration::new(units::<F>(count)).expect("a unit is at most an hour")
}

/// Waits until `at` by the provider's clock.
pub(crate) async fn advance_to<F: Fixture>(fixture: &F, at: Timestamp) {
    let now = fixture.now().await;
    fixture.advance(at.since(now)).await;
}
