//! The server over a real socket, in process, on a fake clock.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a failed step fails the test")]

mod admin;
mod auth;
mod batch;
mod bounds;
mod calendar;
mod certificates;
mod conformance;
mod definitions;
mod encrypted;
mod gateway;
mod harness;
mod hostile;
mod leases;
mod no_answer;
mod operation;
mod outcomes;
mod panics;
mod persistence;
mod renew;
mod shadow;
mod shapes;
mod stop;
mod templates;
mod waiting;
