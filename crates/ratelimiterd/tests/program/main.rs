//! The program as a process: commands, signals, crashes, invalid input.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a failed step fails the test")]

mod callers;
mod check;
mod commands;
mod crash;
mod crowd;
mod documents;
mod encrypted;
mod gateway;
mod limits_file;
mod process;
mod secrets;
mod start;
