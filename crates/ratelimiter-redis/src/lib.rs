#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! [`RedisLimiter`] implements the rules that all backends share. [`RedisDocument`] stores the definitions of another backend. Everything that must be atomic is a script of its own in `src/scripts`; this
//! crate resolves definitions, sends one script call per request, and interprets the answer. No other crate uses a Redis client.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of the client's values and errors, which have many kinds, a few matter"
)]

mod address;
mod cluster;
mod config;
mod config_error;
mod connections;
mod definitions;
mod document;
mod io_error;
mod limiter;
mod observations;
mod options;
mod problem;
mod reply;
mod script;
mod sentinels;
mod server_info;
mod server_url;
mod tls;

pub use config::{RedisConfig, RedisSettings, is_redis_url};
pub use config_error::{CONNECTIONS_MAX, ConfigError, PREFIX_BYTES_MAX, REQUEST_TIMEOUT_MS_MAX};
pub use document::{
    DocumentAccess, DocumentContent, DocumentError, DocumentLock, DocumentPeek, DocumentVersion,
    HeldLocks, Ownership, RedisDocument, StagedText,
};
pub use limiter::{CAPACITY_MAX, RedisLimiter};
pub use observations::Observations;
pub use options::{RedisOptions, TimeSource};
pub use problem::RedisProblem;
pub use server_info::ServerInfo;
pub use tls::TlsSettings;
