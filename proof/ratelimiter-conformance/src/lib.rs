//! The conformance suite of limiters.
//!
//! The rules of the reference are written here once, as facts about a [`Fixture`]: a new limiter
//! and control over its clock. [`conformance!`] makes each fact a test, named after its rule, so an
//! implementer's test file is a fixture and one macro call:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use ratelimiter::MemoryLimiter;
//! use ratelimiter::clock::FakeClock;
//! use ratelimiter::memory::MemoryOptions;
//! use ratelimiter_conformance::{Fixture, Capabilities};
//!
//! #[derive(Default)]
//! struct InMemory {
//!     clock: Arc<FakeClock>,
//! }
//!
//! impl Fixture for InMemory {
//!     type Limiter = MemoryLimiter;
//!
//!     fn capabilities(&self) -> Capabilities {
//!         Capabilities {
//!             expiry_lag: Duration::ZERO,
//!             reconciled_expiry_lag: Duration::ZERO,
//!             capacity_max: ratelimiter::CAPACITY_MAX,
//!             exact_time: Ok(()),
//!             virtual_time: Ok(()),
//!             exact_hints: Ok(()),
//!             names_every_denied_key: Ok(()),
//!             tells_uncovered: Ok(()),
//!             knows_leases_by_id: Ok(()),
//!             forgets_after: Ok(Duration::from_secs(600)),
//!             remembers_at_most: Err("the bound of a million is not worth reaching here"),
//!             renews: Ok(()),
//!             waits: Err("it answers at once"),
//!             templates: Ok(()),
//!             replaces_limits: Ok(()),
//!             instances_at_most: Err("the bound of a million is not worth reaching here"),
//!             new_instances_per_second: Err("nor is that of a thousand a second"),
//!             keeps_definitions: Err("its state is gone with the process"),
//!             keeps_leases: Err("its state is gone with the process"),
//!             second_server: Err("one process is all there is"),
//!         }
//!     }
//!
//!     async fn limiter(&self) -> MemoryLimiter {
//!         MemoryLimiter::with_options(MemoryOptions::for_tests(self.clock.clone()))
//!     }
//!
//!     async fn advance(&self, by: Duration) {
//!         self.clock.advance(by);
//!     }
//! }
//!
//! mod conformance {
//!     ratelimiter_conformance::conformance! {
//!         fixture: super::InMemory::default(),
//!         skips: [
//!             res_09_the_oldest_ended_leases_are_forgotten_first,
//!             def_08_definitions_survive_a_restart,
//!             // …
//!         ],
//!     }
//! }
//! ```
//!
//! A fact that an implementer cannot show is skipped visibly: the fixture gives the reason in its
//! [`Capabilities`], the run prints it to standard error, and the implementer's test file lists the
//! skipped facts, which a test compares with what was really skipped.

#![allow(clippy::missing_panics_doc, reason = "a fact that does not hold panics")]

mod context;
mod facts;
mod fixture;
mod script;
mod stderr;
pub mod suite;
mod world;

pub use fixture::{Capabilities, Capability, Fixture};
