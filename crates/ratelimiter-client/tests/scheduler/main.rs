//! The scheduler, on tokio's paused time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed unwrap or a panic is a failed test"
)]

mod complete;
mod fairness;
mod handles;
mod observing;
mod retries;
mod shutdown;
mod waiting;
mod world;
