//! The conformance suite on the HTTP limiter and on the batcher, with a memory limiter on a fake clock.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod batched_in_process;
mod batched_over_http;
mod hosted;
mod over_http_2;
