//! Every rule, through the limiter behind a URL and through the batcher, around a limiter in memory whose time is moved by
//! hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod batched_in_process;
mod batched_over_http;
mod hosted;
mod over_http_2;
