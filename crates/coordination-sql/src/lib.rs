//! Outbox, inbox, scheduler and system leases that survive: in SQLite and in PostgreSQL.

mod config;
mod engine;
mod failure;
mod inbox;
mod leases;
#[cfg(feature = "postgres")]
mod listener;
mod migrations;
mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
mod provider;
mod scheduler;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
#[cfg(feature = "testing")]
pub mod testing;
mod value;
mod wake;
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
pub use failure::Failure;
pub use migrations::NEWEST as NEWEST_MIGRATION;
#[cfg(feature = "postgres")]
pub use postgres::PostgresProvider;
pub use provider::Provider;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteProvider;

/// The driver, for the application's own statements and transactions.
pub use sqlx;
