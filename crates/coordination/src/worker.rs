//! Workers: they claim messages, call the topic's handler, and settle the claims.
//!
//! Delivery is at least once: a worker that dies between its effect and its acknowledgement leaves
//! a claim that expires, is reaped, and is handled again.

pub(crate) mod backoff;
mod dispatch;
pub(crate) mod handler;
pub(crate) mod inbox_dispatcher;
mod lanes;
pub(crate) mod metrics;
pub(crate) mod outbox_dispatcher;
pub(crate) mod scheduler_worker;
pub(crate) mod settings;
