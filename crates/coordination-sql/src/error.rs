//! Database errors.

use std::time::Duration;

use coordination::ProviderError;
use thiserror::Error;

/// Why a database did not answer. `database` is named without its password.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum DatabaseError {
    /// No connection was available.
    #[error(
        "no_connection: none to {database} within {waited:?}; it is unreachable, or all connections \
         are in use"
    )]
    NoConnection { database: String, waited: Duration },
    /// The database did not answer a statement.
    #[error("no_answer: {database} did not answer within {waited:?}")]
    NoAnswer { database: String, waited: Duration },
    /// Another connection held the write lock of the file for too long.
    #[error("database_locked: {database} was locked by another writer for {waited:?}")]
    Locked { database: String, waited: Duration },
    /// A column has a value that this crate never writes.
    #[error("unreadable_column: {column}: {reason}")]
    Unreadable { column: &'static str, reason: String },
    /// An error of the database or of the connection.
    #[error(transparent)]
    Driver(#[from] sqlx::Error),
}

impl DatabaseError {
    /// Wraps the error of an operation, such as `outbox claim`.
    pub(crate) fn of(operation: &'static str) -> impl FnOnce(DatabaseError) -> ProviderError {
        move |error| ProviderError::new(operation, error)
    }
}
