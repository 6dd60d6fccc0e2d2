//! What the five prototypes share: steps that are printed and judged, the scenarios that several of them play, and servers of
//! their own.

#![allow(clippy::print_stdout, reason = "the programs print what they do")]

pub mod cluster;
pub mod latencies;
pub mod reconcile;
pub mod semantics;
pub mod server_process;
mod steps;

pub use steps::{Error, Steps};
