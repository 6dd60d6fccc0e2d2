//! The HTTP limiter over real sockets: its requests, and its handling of responses.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed unwrap or a panic is a failed test"
)]

mod batches;
mod definitions;
mod encrypted;
mod errors;
mod requests;
mod scripted_server;
