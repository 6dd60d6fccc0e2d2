//! The limiter on a model of TigerBeetle, in virtual time.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod conformance;
mod fixture;
mod on_model;
mod scenarios;
mod scene;
