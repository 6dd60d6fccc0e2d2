//! The interface of a provider under test.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use coordination::{Clock, Inbox, Joins, LeaseDuration, Leases, Scheduler, Timestamp, WallClock};

/// A fresh, empty provider and its clock.
///
/// The provider's clock moves only in [`advance`](Fixture::advance): no scenario waits for time to
/// pass, races with it, or is run twice (`CRD-19`). A provider with a remote clock, such as a
/// database's, is given one that can be set.
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

    /// An isolated provider with a clock that is more than a day behind the wall clock, so that a
    /// provider that reads the wrong clock fails.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// Its outbox.
    fn outbox(&self) -> &Self::Outbox;

    /// Its inbox.
    fn inbox(&self) -> &Self::Inbox;

    /// Its scheduler.
    fn scheduler(&self) -> &Self::Scheduler;

    /// Its leases.
    fn leases(&self) -> &Self::Leases;

    /// The current time by the provider's clock.
    fn now(&self) -> impl Future<Output = Timestamp> + Send;

    /// Advances the provider's clock.
    fn advance(&self, span: Duration) -> impl Future<Output = ()> + Send;

    /// Runs a future while the provider's clock is ahead, and then sets the clock right.
    fn while_ahead(
        &self,
        by: Duration,
        something: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send;

    /// Runs one scenario: by default on its own runtime with several threads, so that races are
    /// real.
    fn block_on(scenario: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
            .expect("a runtime can be made")
            .block_on(scenario);
    }
}

/// A durable provider.
pub trait DurableFixture: Fixture {
    /// The provider after a restart of the process, without its memory.
    fn reopen(self) -> impl Future<Output = Self> + Send;
}

/// Whether the wall clock is ahead of the provider's clock or behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClockSkew {
    Ahead,
    Behind,
}

impl ClockSkew {
    /// Moves the provider's clock until the wall clock is off by more than a day. Returns the
    /// provider's time.
    pub(crate) async fn apply<F: Fixture>(self, fixture: &F) -> Timestamp {
        let (day, wall) = (Duration::from_secs(24 * 60 * 60), WallClock.now());
        match self {
            ClockSkew::Ahead => {
                assert!(fixture.now().await.after(day) < wall, "the fixture's clock is behind");
            }
            ClockSkew::Behind => advance_to(fixture, wall.after(day * 2)).await,
        }
        fixture.now().await
    }
}

/// A duration in units of the suite.
pub(crate) fn units(count: u32) -> Duration {
    Duration::from_secs(1) * count
}

/// The duration of a claim or lease, in units.
pub(crate) fn lease(count: u32) -> LeaseDuration {
    LeaseDuration::new(units(count)).expect("a unit is at most an hour")
}

/// Advances the provider's clock to `at`.
pub(crate) async fn advance_to<F: Fixture>(fixture: &F, at: Timestamp) {
    let now = fixture.now().await;
    fixture.advance(at.since(now)).await;
}
