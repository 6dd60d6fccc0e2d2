//! How a database fails to answer, in words that say what to look at.

use std::time::Duration;

use coordination::ProviderError;
use thiserror::Error;

/// Why there was no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// No connection could be had.
    #[error(
        "no_connection: none to {database} within {waited:?}; it is unreachable, or all connections \
         are in use"
    )]
    NoConnection {
        /// The database, without its password.
        database: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The database had the statement and said nothing.
    #[error("no_answer: {database} did not answer within {waited:?}")]
    NoAnswer {
        /// The database, without its password.
        database: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Another connection had the write lock of the file for too long.
    #[error("database_locked: {database} was locked by another writer for {waited:?}")]
    Locked {
        /// The file.
        database: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A column has a value that this crate never writes.
    #[error("unreadable_column: {column}: {reason}")]
    Unreadable {
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The database or the connection to it says so itself.
    #[error(transparent)]
    Driver(#[from] sqlx::Error),
}

impl DatabaseError {
    /// The failure of an operation, such as `outbox claim`.
    pub(crate) fn of(operation: &'static str) -> impl FnOnce(DatabaseError) -> ProviderError {
        move |failure| ProviderError::new(operation, failure)
    }
}
