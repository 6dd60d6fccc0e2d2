//! What a provider brings to the suite: a fresh instance, and power over its time.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use coordination::{Clock, Inbox, Joins, LeaseDuration, Leases, Scheduler, Timestamp, WallClock};

/// A fresh, empty provider and its clock.
///
/// The suite's time is the provider's own, and moves only in [`advance`](Fixture::advance): no
/// scenario waits for time to pass, races with it, or is run twice (`CRD-19`). A provider with a
/// clock of its own, such as a database's, is given one that can be set.
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

    /// A provider that shares nothing with any other, by a clock that is more than a day behind
    /// the machine's: whoever asks the wrong one is found out.
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

    /// Moves the provider's clock on.
    fn advance(&self, span: Duration) -> impl Future<Output = ()> + Send;

    /// Does something while the provider's clock is ahead by so much, and sets it right again.
    fn while_ahead(
        &self,
        by: Duration,
        something: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send;

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

/// How the clock of this machine stands to the provider's. Scenarios about whose clock decides run
/// with either.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Machine {
    Ahead,
    Behind,
}

impl Machine {
    /// Moves the provider's clock to where this machine's is off by more than a day. Says what it
    /// is by the provider's.
    pub(crate) async fn meets<F: Fixture>(self, fixture: &F) -> Timestamp {
        let (day, machine) = (Duration::from_secs(24 * 60 * 60), WallClock.now());
        match self {
            Machine::Ahead => {
                assert!(fixture.now().await.after(day) < machine, "the fixture's clock is behind");
            }
            Machine::Behind => advance_to(fixture, machine.after(day * 2)).await,
        }
        fixture.now().await
    }
}

/// So many units of the suite's times.
#[expect(clippy::extra_unused_type_parameters, reason = "the unit is the same for all fixtures")]
pub(crate) fn units<F: Fixture>(count: u32) -> Duration {
    Duration::from_secs(1) * count
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
