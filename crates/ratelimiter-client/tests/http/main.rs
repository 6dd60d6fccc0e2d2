//! The limiter behind a URL, over real sockets: what it sends, and what it makes of whatever comes back.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test whose world does not come about has failed"
)]

mod batches;
mod encrypted;
mod errors;
mod requests;
mod scripted_server;
