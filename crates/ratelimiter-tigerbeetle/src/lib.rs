//! The limiter backend that keeps reservations as TigerBeetle pending transfers.
//!
//! The only crate that knows TigerBeetle's words. [`ledger`] is everything below the limiter's
//! semantics: one narrow trait, and the cluster behind it. [`ids`] derives the account and transfer IDs that make every request repeatable.

#![allow(clippy::doc_markdown, reason = "TigerBeetle is a name, not an item")]

pub mod ids;
pub mod ledger;
pub mod limiter;
