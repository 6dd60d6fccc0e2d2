//! Why work on the database failed.

use std::io;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{}", message(.0))]
    Driver(#[from] sqlx::Error),
    #[error("no answer within {} ms", waited.as_millis())]
    NoAnswer { waited: Duration },
    #[error("{problem}")]
    NotConnected { problem: String },
    /// It has locks of its own, which keep nobody out of the primary.
    #[error("it is a standby, where nothing can be changed; registry.url must name the primary")]
    Standby,
    /// Other servers wait for it.
    #[error("a lock could not be released: {}", message(.0))]
    NotUnlocked(sqlx::Error),
    /// Another server may have had the lock in the meantime.
    #[error("the connection was lost, and the lock with it")]
    LockLost,
    /// A pooler gives each transaction a session of its own, which cannot hold locks.
    #[error(
        "the connection changes its session; connect without a pooler, or with one that pools sessions, not transactions"
    )]
    SessionChanged,
    #[error("it was changed by somebody else in the meantime")]
    Changed,
    #[error("there is no document")]
    Missing,
    #[error("the work on it panicked")]
    Panicked,
}

/// The role lacks a privilege.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// The database was made read-only. That holds for a session from its start, so a new one may be able to write.
const READ_ONLY_TRANSACTION: &str = "25006";
/// Waiting for a lock took longer than the session allows.
const LOCK_NOT_AVAILABLE: &str = "55P03";
const DISK_FULL: &str = "53100";
/// Classes of errors that end a session: connection exceptions, and a server that is stopped or crashed.
const ENDING: [&str; 2] = ["08", "57P"];

impl Failure {
    /// Whether the connection is of no use any more.
    pub(super) fn ends_session(&self) -> bool {
        match self {
            Self::Driver(error) => match code(error) {
                Some(code) => ENDING.iter().any(|class| code.starts_with(class)),
                None => true,
            },
            Self::NoAnswer { .. } | Self::SessionChanged | Self::NotUnlocked(_) => true,
            Self::NotConnected { .. }
            | Self::Standby
            | Self::LockLost
            | Self::Changed
            | Self::Missing
            | Self::Panicked => false,
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.has_code(READ_ONLY_TRANSACTION)
    }

    pub(super) fn is_lock_timeout(&self) -> bool {
        self.has_code(LOCK_NOT_AVAILABLE)
    }

    fn has_code(&self, expected: &str) -> bool {
        matches!(self, Self::Driver(error) if code(error).as_deref() == Some(expected))
    }

    /// The error, for who knows which registry it is.
    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.kind(), self.to_string())
    }

    /// The error, with the name of the registry.
    pub(super) fn error_of(&self, place: &str) -> io::Error {
        io::Error::new(self.kind(), format!("{place}: {self}"))
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Driver(error) => match code(error).as_deref() {
                Some(INSUFFICIENT_PRIVILEGE) => io::ErrorKind::PermissionDenied,
                Some(DISK_FULL) => io::ErrorKind::StorageFull,
                Some(_) | None => io::ErrorKind::Other,
            },
            Self::NoAnswer { .. } => io::ErrorKind::TimedOut,
            Self::NotConnected { .. } | Self::LockLost => io::ErrorKind::NotConnected,
            Self::Missing => io::ErrorKind::NotFound,
            Self::Standby
            | Self::NotUnlocked(_)
            | Self::SessionChanged
            | Self::Changed
            | Self::Panicked => io::ErrorKind::Other,
        }
    }
}

/// The database's own words, without the line of its source code.
fn message(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

fn code(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.map(std::borrow::Cow::into_owned)
}
