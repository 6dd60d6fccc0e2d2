//! The scheduler on paused time: nothing here sleeps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so")]

mod complete;
mod fairness;
mod handles;
mod observing;
mod retries;
mod shutdown;
mod waiting;
mod world;
