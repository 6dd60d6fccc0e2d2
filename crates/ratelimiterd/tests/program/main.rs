//! The program itself: started, asked, killed, fed with garbage.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on says so"
)]

mod check;
mod commands;
mod crash;
mod crowd;
mod documents;
mod encrypted;
mod limits_file;
mod process;
mod secrets;
mod start;
