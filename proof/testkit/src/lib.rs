//! What the tests of several crates share.
//!
//! [`RunSeed`] is the seed of a run. With the feature `tigerbeetle`, `testkit::tigerbeetle` starts real servers.

mod program;
mod run_seed;
#[cfg(feature = "tigerbeetle")]
mod suite;
#[cfg(feature = "tigerbeetle")]
pub mod tigerbeetle;

pub use program::copy_program;
pub use run_seed::{RunSeed, VARIABLE};
#[cfg(feature = "tigerbeetle")]
pub use suite::Suite;
