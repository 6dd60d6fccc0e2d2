//! Conformance tests for coordination providers.
//!
//! A provider implements [`Fixture`] and writes one line per primitive; each scenario becomes a
//! separate `#[test]`:
//!
//! ```
//! mod prim_inmemory {
//!     use coordination_conformance::MemoryFixture;
//!
//!     coordination_conformance::general_suite!(MemoryFixture);
//!     coordination_conformance::outbox_suite!(MemoryFixture);
//!     coordination_conformance::inbox_suite!(MemoryFixture);
//!     coordination_conformance::scheduler_suite!(MemoryFixture);
//!     coordination_conformance::lease_suite!(MemoryFixture);
//! }
//! # fn main() {}
//! ```
//!
//! The module carries the provider's name, so the tests are called `prim_inmemory::outbox_001_…`,
//! `prim_sqlite::outbox_001_…`, and a failing one prints its ID: `PRIM-SQLITE-OUTBOX-001 does not
//! hold: …`. A provider in memory adds [`in_memory_suite!`], one that outlives its process
//! [`durable_suite!`].
//!
//! [`cases`] is the same list as values, for tables and for tests of the suite itself.

#![allow(
    clippy::missing_panics_doc,
    reason = "a scenario that does not hold panics: that is how a test fails"
)]

mod fixture;
mod memory_fixture;
mod sample;
mod scenario;

pub mod durable;
pub mod general;
pub mod in_memory;
pub mod inbox;
pub mod leases;
pub mod outbox;
pub mod scheduler;
pub mod table;

pub use fixture::{DurableFixture, Fixture};
pub use memory_fixture::MemoryFixture;
pub use scenario::{Case, Outcome, Scenario, run};

/// The scenarios of every provider: general, outbox, inbox, scheduler and leases.
pub fn scenarios() -> Vec<Scenario> {
    [
        general::SCENARIOS,
        outbox::SCENARIOS,
        inbox::SCENARIOS,
        scheduler::SCENARIOS,
        leases::SCENARIOS,
    ]
    .concat()
}

/// The [`scenarios`], ready to run for one provider.
pub fn cases<F: Fixture>() -> Vec<Case> {
    [
        general::cases::<F>(),
        outbox::cases::<F>(),
        inbox::cases::<F>(),
        scheduler::cases::<F>(),
        leases::cases::<F>(),
    ]
    .concat()
}
