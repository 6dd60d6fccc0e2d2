//! Deterministic simulation of limiters and coordination workers.
//!
//! Clients, servers, workers and faults run in virtual time from one seed; an oracle that knows only what was asked and
//! answered checks every step. A seed makes a *plan*: a list of events with their faults, as plain data. Playing a plan is
//! a function of the plan alone, so a failing seed fails again, and a shrinker can drop events and faults while it still
//! does. The worlds are [`worlds::TigerBeetleWorld`], [`worlds::MemoryWorld`] and [`worlds::CoordinationWorld`]; each can be
//! played with a [`flaw`](flaw::Flaw), a deliberate bug that is planted around the real code and never in it.
//!
//! Only tests and the command use this crate.

#![allow(clippy::missing_panics_doc, reason = "a simulation that meets the unexpected stops there")]

mod executor;
mod fault;
pub mod flaw;
mod limits;
mod outcome;
pub mod report;
pub mod run;
mod shrink;
mod workers;
pub mod world;

pub use fault::{Fault, Faults};
pub use outcome::{Invariant, Outcome, Violation};
pub use shrink::shortest;

/// What can be simulated.
pub mod worlds {
    pub use crate::limits::memory::MemoryWorld;
    pub use crate::limits::tigerbeetle::TigerBeetleWorld;
    pub use crate::workers::CoordinationWorld;
    pub use crate::world::World;
}
