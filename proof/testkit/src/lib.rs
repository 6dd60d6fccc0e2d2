//! What the tests of several crates share.
//!
//! [`RunSeed`] is the seed of a run, [`shortest`] shrinks what fails. The feature `limiter` has scripts of limiter calls; `tigerbeetle`
//! and `postgres` start real servers.

#[cfg(feature = "postgres")]
pub mod postgres;
mod program;
mod run_seed;
#[cfg(feature = "limiter")]
pub mod script;
mod shortest;
#[cfg(any(feature = "postgres", feature = "tigerbeetle"))]
mod suite;
#[cfg(feature = "tigerbeetle")]
pub mod tigerbeetle;

pub use program::copy_program;
pub use run_seed::{RunSeed, VARIABLE};
pub use shortest::shortest;
#[cfg(any(feature = "postgres", feature = "tigerbeetle"))]
pub use suite::Suite;
