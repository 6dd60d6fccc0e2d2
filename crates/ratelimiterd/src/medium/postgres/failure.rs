//! Why work on the database failed.

use std::io;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Driver(#[from] sqlx::Error),
    #[error("no answer within {} ms", waited.as_millis())]
    NoAnswer { waited: Duration },
    #[error("{problem}")]
    NotConnected { problem: String },
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
/// The server is a standby; a new connection may find the one that took over.
const READ_ONLY_TRANSACTION: &str = "25006";
const DISK_FULL: &str = "53100";
/// Classes of errors that end a session: connection exceptions, and a server that is stopped or crashed.
const ENDING: [&str; 2] = ["08", "57P"];

impl Failure {
    /// Whether the connection is of no use any more.
    pub(super) fn ends_session(&self) -> bool {
        match self {
            Self::Driver(error) => match code(error) {
                Some(code) => {
                    code == READ_ONLY_TRANSACTION
                        || ENDING.iter().any(|class| code.starts_with(class))
                }
                None => true,
            },
            Self::NoAnswer { .. } | Self::SessionChanged => true,
            Self::NotConnected { .. }
            | Self::LockLost
            | Self::Changed
            | Self::Missing
            | Self::Panicked => false,
        }
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
            Self::SessionChanged | Self::Changed | Self::Panicked => io::ErrorKind::Other,
        }
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.map(std::borrow::Cow::into_owned)
}
