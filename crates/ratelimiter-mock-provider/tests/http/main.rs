//! The provider over real sockets.

#![allow(missing_docs, reason = "tests")]

mod answers;
mod faults;
mod harness;
mod limits;
mod seen;
