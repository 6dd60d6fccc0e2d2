//! Outbox, inbox, scheduler and system leases that survive: in SQLite and in PostgreSQL.
//!
//! | provider | for | how |
//! | --- | --- | --- |
//! | [`SqliteProvider`] | one machine, nothing to install | one file, write-ahead log, SQLite built in |
//! | [`PostgresProvider`] | many machines | `FOR UPDATE SKIP LOCKED`, the server's clock, `LISTEN`/`NOTIFY` |
//!
//! Both implement all traits of [`coordination`] and pass its whole suite, so what is said there
//! holds here. Opening a provider makes its tables; on PostgreSQL that can be a step, and a role, of
//! its own ([`PostgresProvider::migrate`], [`PostgresProvider::open`]).
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use coordination::{
//!     CancellationToken, Handler, HandlerError, NewOutboxMessage, Outbox, OutboxDispatcher,
//!     OutboxMessage, Payload, Topic, TopicHandlers, WorkerSettings,
//! };
//! use coordination_sql::SqliteProvider;
//!
//! struct Print(CancellationToken);
//!
//! impl Handler<OutboxMessage> for Print {
//!     async fn handle(&self, message: OutboxMessage) -> Result<(), HandlerError> {
//!         println!("order {:?}", message.payload.as_text());
//!         self.0.cancel();
//!         Ok(())
//!     }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! let outbox = SqliteProvider::open(folder.path().join("shop.sqlite")).await?;
//! let topic = Topic::new("order.placed")?;
//! let id = outbox.enqueue(NewOutboxMessage::new(topic.clone(), Payload::new("42")?)).await?;
//!
//! let done = CancellationToken::new();
//! let handlers = TopicHandlers::new().on(topic, Print(done.clone()));
//! let dispatcher =
//!     OutboxDispatcher::new(outbox.clone(), handlers, WorkerSettings::default())?;
//! dispatcher.run(done).await;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! # The application's own transaction
//!
//! [`Provider::enqueue_in`] adds a message to the outbox in a transaction of the application: the
//! message is there if and only if what it tells of is. [`Provider::receive_in`] does the same for
//! the inbox, and [`Provider::ack_in`] acknowledges an inbox message together with what its handler
//! wrote, which makes *at least once* into *exactly once* for effects in the same database.
//!
//! # What it costs
//!
//! A claim looks at what is due and at nothing else: done, dead and waiting items are not in the
//! index that it walks, whatever their number. On PostgreSQL a claim is one statement, and so is an
//! acknowledgement of many items. On SQLite a transaction is what costs: [`Provider::enqueue_all`]
//! adds many messages in one. A worker that waits for work holds one more connection, on which the
//! server tells it; the poll is for what has become due.
//!
//! # When the database is away
//!
//! Opening a provider says at once what is wrong ([`OpenError`]). Later every call fails with a
//! [`ProviderError`](coordination::ProviderError) whose source is a [`Failure`]; connections are
//! made anew by the next call, the listener does so by itself, and workers go on where they were.
//!
//! # Features
//!
//! `sqlite` and `postgres`, both on by default; `testing` has a private PostgreSQL for tests.

#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "the statements know both dialects, whichever driver is built")
)]

mod config;
mod engine;
mod failure;
#[cfg(feature = "postgres")]
mod listener;
mod migrations;
#[cfg(feature = "postgres")]
mod postgres;
mod provider;
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
