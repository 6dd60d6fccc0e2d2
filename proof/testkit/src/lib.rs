//! What the tests of several crates share.
//!
//! [`RunSeed`] is the seed of a run. The features `tigerbeetle` and `postgres` start real servers; `coordination` has
//! a wrapper around coordination providers.

#[cfg(feature = "coordination")]
pub mod coordination;
#[cfg(feature = "postgres")]
pub mod postgres;
mod program;
mod run_seed;
#[cfg(any(feature = "postgres", feature = "tigerbeetle"))]
mod suite;
#[cfg(feature = "tigerbeetle")]
pub mod tigerbeetle;

pub use program::copy_program;
pub use run_seed::{RunSeed, VARIABLE};
#[cfg(any(feature = "postgres", feature = "tigerbeetle"))]
pub use suite::Suite;
