//! The fixture that an implementer provides.

use std::future::Future;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::{Backend, LeaseId};

/// One fact's environment: a limiter without limits of this fixture, and control over its clock.
///
/// Every fact gets its own fixture. Limiters of several fixtures may share one server, since each
/// fact's keys begin with its own [`Fixture::prefix`].
///
/// The limiter uses the default hint constants.
pub trait Fixture {
    /// The limiter under test.
    type Limiter: Backend;

    /// What this implementer can show.
    fn capabilities(&self) -> Capabilities;

    /// A limiter on which no key with this fixture's prefix is defined.
    fn limiter(&self) -> impl Future<Output = Self::Limiter>;

    /// Lets time pass for the limiter: moves a fake clock, or waits on a real one.
    fn advance(&self, by: Duration) -> impl Future<Output = ()>;

    /// The current time, on a real clock: calls take some time, and a lifetime of seconds may be
    /// over before a fact checks it. `None` on a clock that only [`Fixture::advance`] moves.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// The prefix of this fixture's keys: unique, at most 64 bytes.
    fn prefix(&self) -> String {
        format!("conformance:{}:", self.lease())
    }

    /// A new lease ID.
    fn lease(&self) -> LeaseId {
        LeaseId::generate(MonotonicClock::new().now())
    }

    /// Stops the server behind the limiter and returns a limiter on its replacement. Called only if
    /// [`Capabilities::keeps_definitions`] or [`Capabilities::keeps_leases`] is `Ok`.
    fn restarted(&self) -> impl Future<Output = Self::Limiter> {
        async { unreachable!("a fixture with durable state implements `restarted`") }
    }

    /// A limiter on another server that shares the first one's state. Called only if
    /// [`Capabilities::second_server`] is `Ok`.
    fn another(&self) -> impl Future<Output = Self::Limiter> {
        async { unreachable!("a fixture with a second server implements `another`") }
    }
}

/// What an implementer can show: `Ok`, or `Err` with the reason why not, which the run prints.
///
/// There is no default: every fixture answers each question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// How late an expiry may become visible; less than a second.
    pub expiry_lag: Duration,
    /// How much later than the original a reconciled reservation may expire; at most a second.
    pub reconciled_expiry_lag: Duration,
    /// The largest capacity that it can count (`RES-07`).
    pub capacity_max: u64,
    /// Time moves only by [`Fixture::advance`], exactly as far as given.
    pub exact_time: Result<(), &'static str>,
    /// Time is a [`FakeClock`](ratelimiter::clock::FakeClock) from its usual beginning, so that hours pass at once.
    pub virtual_time: Result<(), &'static str>,
    /// Hints are exact when no open lease can return units early (`HINT-02`).
    pub exact_hints: Result<(), &'static str>,
    /// A denial names every key that had no room, not only the first (`RES-08`).
    pub names_every_denied_key: Result<(), &'static str>,
    /// The state includes the units used without room, whatever the overage policy (`COM-03`).
    pub tells_uncovered: Result<(), &'static str>,
    /// A lease ID is recognised even if it returns with none of its first keys.
    pub knows_leases_by_id: Result<(), &'static str>,
    /// Ended and denied leases are forgotten after this time (`RES-09`).
    pub forgets_after: Result<Duration, &'static str>,
    /// The most ended and denied leases that are remembered, if a test can exceed it (`RES-09`).
    pub remembers_at_most: Result<usize, &'static str>,
    /// Leases can be renewed (`REN-01`).
    pub renews: Result<(), &'static str>,
    /// Reserves can wait for room (`WAIT-01`).
    pub waits: Result<(), &'static str>,
    /// Limits are made from templates (`TPL-01`).
    pub templates: Result<(), &'static str>,
    /// A limit that is deleted, or made from a template and replaced, leaves nothing to the next one of
    /// its key: no units in use, no period.
    pub replaces_limits: Result<(), &'static str>,
    /// The most limits that are made from templates, if a test can exceed it (`TPL-07`).
    pub instances_at_most: Result<usize, &'static str>,
    /// The most that are made in a second, if a test can exceed it (`TPL-07`).
    pub new_instances_per_second: Result<usize, &'static str>,
    /// Definitions survive a restart (`DEF-08`).
    pub keeps_definitions: Result<(), &'static str>,
    /// Leases survive a restart (`COM-07`).
    pub keeps_leases: Result<(), &'static str>,
    /// Two servers can share one state (`COM-07`).
    pub second_server: Result<(), &'static str>,
}

/// One question of [`Capabilities`], as a fact's requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// [`Capabilities::exact_time`]
    ExactTime,
    /// [`Capabilities::virtual_time`]
    VirtualTime,
    /// [`Capabilities::exact_hints`]
    ExactHints,
    /// [`Capabilities::names_every_denied_key`]
    NamesEveryDeniedKey,
    /// [`Capabilities::tells_uncovered`]
    TellsUncovered,
    /// [`Capabilities::knows_leases_by_id`]
    KnowsLeasesById,
    /// [`Capabilities::forgets_after`]
    ForgetsAfter,
    /// [`Capabilities::remembers_at_most`]
    RemembersAtMost,
    /// [`Capabilities::renews`]
    Renews,
    /// [`Capabilities::waits`]
    Waits,
    /// [`Capabilities::templates`]
    Templates,
    /// [`Capabilities::replaces_limits`]
    ReplacesLimits,
    /// [`Capabilities::instances_at_most`]
    InstancesAtMost,
    /// [`Capabilities::new_instances_per_second`]
    NewInstancesPerSecond,
    /// [`Capabilities::keeps_definitions`]
    KeepsDefinitions,
    /// [`Capabilities::keeps_leases`]
    KeepsLeases,
    /// [`Capabilities::second_server`]
    SecondServer,
}

impl Capabilities {
    /// The reason why this capability is missing; `None` if it is there.
    pub fn lacks(&self, capability: Capability) -> Option<&'static str> {
        match capability {
            Capability::ExactTime => self.exact_time.err(),
            Capability::VirtualTime => self.virtual_time.err(),
            Capability::ExactHints => self.exact_hints.err(),
            Capability::NamesEveryDeniedKey => self.names_every_denied_key.err(),
            Capability::TellsUncovered => self.tells_uncovered.err(),
            Capability::KnowsLeasesById => self.knows_leases_by_id.err(),
            Capability::ForgetsAfter => self.forgets_after.err(),
            Capability::RemembersAtMost => self.remembers_at_most.err(),
            Capability::Renews => self.renews.err(),
            Capability::Waits => self.waits.err(),
            Capability::Templates => self.templates.err(),
            Capability::ReplacesLimits => self.replaces_limits.err(),
            Capability::InstancesAtMost => self.instances_at_most.err(),
            Capability::NewInstancesPerSecond => self.new_instances_per_second.err(),
            Capability::KeepsDefinitions => self.keeps_definitions.err(),
            Capability::KeepsLeases => self.keeps_leases.err(),
            Capability::SecondServer => self.second_server.err(),
        }
    }
}
