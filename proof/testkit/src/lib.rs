//! What the tests of several crates share.
//!
//! [`RunSeed`] is the seed of a run, [`shortest`] shrinks what fails, [`Process`] and [`Server`] are child processes. Features: `waiting` waits in
//! async tests, `limiter` has scripts of limiter calls and what clients know of their leases, `coordination` a wrapper around providers,
//! `tigerbeetle`, `postgres` and `redis` start real servers, `proxy` a proxy between them.

#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a test fails by panicking")]

#[cfg(feature = "limiter")]
pub mod admissions;
#[cfg(any(feature = "redis", feature = "tigerbeetle"))]
mod binary;
#[cfg(feature = "coordination")]
pub mod coordination;
#[cfg(feature = "postgres")]
pub mod postgres;
mod process;
#[cfg(feature = "proxy")]
mod proxy;
#[cfg(feature = "redis")]
pub mod redis;
mod run_seed;
#[cfg(feature = "limiter")]
pub mod script;
mod server;
mod shortest;
#[cfg(any(feature = "postgres", feature = "redis", feature = "tigerbeetle"))]
mod suite;
#[cfg(feature = "tigerbeetle")]
pub mod tigerbeetle;
#[cfg(feature = "waiting")]
mod waiting;

use std::time::Duration;

pub use process::{Process, copy_program, this_program};
#[cfg(feature = "proxy")]
pub use proxy::Proxy;
pub use run_seed::{RunSeed, VARIABLE};
pub use server::{Server, ask, without_settings};
pub use shortest::shortest;
#[cfg(any(feature = "postgres", feature = "redis", feature = "tigerbeetle"))]
pub use suite::Suite;
#[cfg(feature = "waiting")]
pub use waiting::{eventually, pass, run, within};

/// Longer than anything takes that a test waits for, on a busy machine too: only a hang exceeds it, and no test passes because of it. In
/// paused time these are virtual seconds.
pub const PATIENCE: Duration = Duration::from_secs(300);
