//! Deterministic simulation: many clients, several servers and every fault that we could think of, in virtual time,
//! from one seed, with every step held against an oracle that knows only what was promised.
//!
//! A seed makes a *plan*: a list of events with their faults, as plain data. Playing a plan is a function of the plan
//! alone, so a failing seed fails again, and a shrinker can take events and faults away while it still does. The four
//! worlds are [`worlds::TigerBeetleWorld`], [`worlds::MemoryWorld`], [`worlds::CoordinationWorld`] and [`worlds::DispatchWorld`];
//! each can be played with a [`flaw`](flaw::Flaw), a deliberate bug that is laid around the real code and never into it.
//!
//! Only tests and the command use this crate.

#![allow(clippy::missing_panics_doc, reason = "a simulation that meets the unexpected stops there")]

mod dispatch;
mod executor;
mod fault;
pub mod flaw;
mod limits;
mod outcome;
pub mod report;
pub mod run;
mod shrink;
mod work;
mod world;

pub use fault::{Fault, Faults};
pub use outcome::{Outcome, Promise, Violation};
pub use shrink::shortest;

/// What can be simulated.
pub mod worlds {
    pub use crate::dispatch::DispatchWorld;
    pub use crate::limits::memory::MemoryWorld;
    pub use crate::limits::tigerbeetle::TigerBeetleWorld;
    pub use crate::run::World;
    pub use crate::work::CoordinationWorld;
}
