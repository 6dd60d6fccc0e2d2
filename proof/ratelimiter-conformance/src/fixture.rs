//! What an implementer brings: a fresh limiter, power over its time, and what it can and cannot show.

use std::future::Future;
use std::time::Duration;

use ratelimiter::clock::{Clock, SystemClock, Timestamp};
use ratelimiter::{Backend, LeaseId};

/// One fact's world: a limiter without limits of ours, and power over its time.
///
/// Every fact gets a fixture of its own. Limiters of several fixtures may share one server, since each fact's keys
/// begin with its own [`Fixture::prefix`].
///
/// The limiter uses the hints' default constants.
pub trait Fixture {
    /// The limiter that is tested.
    type Limiter: Backend;

    /// What this implementer can show.
    fn powers(&self) -> Powers;

    /// A limiter on which no key with this fixture's prefix is defined.
    fn limiter(&self) -> impl Future<Output = Self::Limiter>;

    /// Lets time pass for the limiter: a fake clock moves at once, a real one is waited for.
    fn advance(&self, by: Duration) -> impl Future<Output = ()>;

    /// The moment, where time passes by itself: calls take some of it, and what lasts for seconds may be over before a
    /// fact has looked. `None` where time moves only as far as [`Fixture::advance`] is told.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// What the keys of this fixture begin with: unique, at most 64 bytes.
    fn prefix(&self) -> String {
        format!("conformance:{}:", self.lease())
    }

    /// A lease ID that nobody has used.
    fn lease(&self) -> LeaseId {
        LeaseId::generate(SystemClock::new().now())
    }

    /// Stops the server behind the limiter and gives a limiter on the one that takes its place.
    /// Called only where [`Powers::keeps_definitions`] or [`Powers::keeps_leases`] says that something survives.
    fn restarted(&self) -> impl Future<Output = Self::Limiter> {
        async { unreachable!("a fixture whose limiter keeps something over a restart restarts it") }
    }

    /// A limiter on another server that shares the first one's truth.
    /// Called only where [`Powers::second_server`] says that there can be one.
    fn another(&self) -> impl Future<Output = Self::Limiter> {
        async { unreachable!("a fixture that can have two servers gives the second one") }
    }
}

/// What an implementer can show: `Ok`, or `Err` with the reason why not, for whoever reads the run.
///
/// There is no default: each question is answered by whoever writes the fixture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Powers {
    /// How late after its time an expiry may be seen; less than a second.
    pub expiry_lag: Duration,
    /// How much later than the original a reconciled reservation may expire; at most a second.
    pub reconciled_expiry_lag: Duration,
    /// Time moves exactly as far as [`Fixture::advance`] is told, and stands still in between.
    pub exact_time: Result<(), &'static str>,
    /// Hints are exact when no open lease can return units early (`HINT-02`).
    pub exact_hints: Result<(), &'static str>,
    /// A denial names every key that had no room, not only the first (`RES-08`).
    pub names_every_denied_key: Result<(), &'static str>,
    /// The state tells the units that were used without room, whatever the overage policy (`COM-03`).
    pub tells_uncovered: Result<(), &'static str>,
    /// A lease ID is recognised even when it comes back with none of the keys that it came with first.
    pub knows_leases_by_id: Result<(), &'static str>,
    /// Ended and denied leases are forgotten after this time (`RES-09`).
    pub forgets_after: Result<Duration, &'static str>,
    /// So many ended and denied leases are remembered; few enough that a test can go beyond (`RES-09`).
    pub remembers_at_most: Result<usize, &'static str>,
    /// Definitions survive a restart (`DEF-08`).
    pub keeps_definitions: Result<(), &'static str>,
    /// Leases survive a restart (`COM-07`).
    pub keeps_leases: Result<(), &'static str>,
    /// Two servers can share one truth (`COM-07`).
    pub second_server: Result<(), &'static str>,
}

/// One question of [`Powers`], as a fact names it that needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// [`Powers::exact_time`]
    ExactTime,
    /// [`Powers::exact_hints`]
    ExactHints,
    /// [`Powers::names_every_denied_key`]
    NamesEveryDeniedKey,
    /// [`Powers::tells_uncovered`]
    TellsUncovered,
    /// [`Powers::knows_leases_by_id`]
    KnowsLeasesById,
    /// [`Powers::forgets_after`]
    ForgetsAfter,
    /// [`Powers::remembers_at_most`]
    RemembersAtMost,
    /// [`Powers::keeps_definitions`]
    KeepsDefinitions,
    /// [`Powers::keeps_leases`]
    KeepsLeases,
    /// [`Powers::second_server`]
    SecondServer,
}

impl Powers {
    /// Why this power is missing; `None` if it is there.
    pub fn lacks(&self, power: Power) -> Option<&'static str> {
        match power {
            Power::ExactTime => self.exact_time.err(),
            Power::ExactHints => self.exact_hints.err(),
            Power::NamesEveryDeniedKey => self.names_every_denied_key.err(),
            Power::TellsUncovered => self.tells_uncovered.err(),
            Power::KnowsLeasesById => self.knows_leases_by_id.err(),
            Power::ForgetsAfter => self.forgets_after.err(),
            Power::RemembersAtMost => self.remembers_at_most.err(),
            Power::KeepsDefinitions => self.keeps_definitions.err(),
            Power::KeepsLeases => self.keeps_leases.err(),
            Power::SecondServer => self.second_server.err(),
        }
    }
}
