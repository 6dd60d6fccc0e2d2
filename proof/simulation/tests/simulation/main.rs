//! The seeds that CI plays, and that the simulation is what it says: repeatable, able to fail, and readable when it does.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod determinism;
mod flaws;
mod seeds;
mod shrinking;
