#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! [`limiter`] implements the rules that all backends share. [`ledger`] is everything below them: one narrow trait, and the
//! cluster behind it. [`ids`] derives the account and transfer IDs that make every request repeatable. No other crate uses
//! TigerBeetle's client.

#![allow(clippy::doc_markdown, reason = "TigerBeetle is a name, not an item")]

pub mod ids;
pub mod ledger;
pub mod limiter;
mod lock;
