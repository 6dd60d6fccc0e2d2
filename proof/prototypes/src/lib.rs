//! Shared parts of the five prototypes: printed steps, scenarios that several of them run, and servers.

#![allow(clippy::print_stdout, reason = "the programs print their steps")]

pub mod cluster;
pub mod reconcile;
pub mod semantics;
pub mod server_process;
mod steps;

pub use steps::{Error, Steps};
