#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! | provider | for | how |
//! | --- | --- | --- |
//! | [`SqliteProvider`] | one machine, nothing to install | one file, write-ahead log, SQLite built in |
//! | [`PostgresProvider`] | many machines | `FOR UPDATE SKIP LOCKED`, the server's clock, `LISTEN`/`NOTIFY` |
//!
//! Both implement all traits of [`coordination`] and pass its conformance suite. Opening a provider
//! creates its tables; on PostgreSQL that can be a separate step with a separate role
//! ([`PostgresProvider::migrate`], [`PostgresProvider::open`]).
//!
//! # The application's own transaction
//!
//! [`Provider::enqueue_in`] adds a message to the outbox in a transaction of the application.
//! [`Provider::receive_in`] does the same for the inbox, and [`Provider::ack_in`] acknowledges an
//! inbox message together with what its handler wrote, which turns *at least once* into *exactly
//! once* for effects in the same database.
//!
//! # Cost
//!
//! A claim reads only due items: done, dead and waiting ones are not in the partial index that it
//! uses. On PostgreSQL a claim is one statement, and so is the acknowledgement of many items. On
//! SQLite each transaction is expensive: [`Provider::enqueue_all`] adds many messages in one. A
//! worker that waits for work holds one additional connection for notifications; it polls for items
//! that become due.
//!
//! # Database outage
//!
//! Opening a provider fails at once with the reason ([`OpenError`]). Later every call fails with a
//! [`ProviderError`](coordination::ProviderError); the next call, the listener and the workers
//! reconnect.

#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "the statements know both dialects, whichever driver is built")
)]

mod config;
mod engine;
mod error;
#[cfg(feature = "postgres")]
mod listener;
mod migrations;
#[cfg(feature = "postgres")]
mod postgres;
mod provider;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
mod value;
mod waiters;
mod work;

#[cfg(feature = "postgres")]
pub use config::PostgresConfig;
#[cfg(feature = "sqlite")]
pub use config::SqliteConfig;
pub use config::{InvalidSchemaName, OpenError, SCHEMA_NAME_BYTES_MAX, SchemaName};
pub use engine::Database;
#[cfg(feature = "postgres")]
pub use engine::postgres::Postgres;
#[cfg(feature = "sqlite")]
pub use engine::sqlite::Sqlite;
pub use error::DatabaseError;
pub use migrations::NEWEST as NEWEST_MIGRATION;
#[cfg(feature = "postgres")]
pub use postgres::PostgresProvider;
pub use provider::Provider;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteProvider;

/// The driver, for the application's own statements and transactions.
pub use sqlx;
