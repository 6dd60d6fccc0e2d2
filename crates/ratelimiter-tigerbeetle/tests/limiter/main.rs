//! The limiter on a model of TigerBeetle, in virtual time.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod clocks;
mod conformance;
mod context;
mod differential;
mod disagreement;
mod expiry_lag;
mod faults;
mod fixture;
mod fresh_cluster;
mod hot_path;
mod instances;
mod interleavings;
mod late_requests;
mod many_limits;
mod on_model;
mod periods;
mod recording_ledger;
mod scenarios;
mod templates;
mod waiting;
