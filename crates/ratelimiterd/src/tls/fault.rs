//! What can be wrong with a certificate or its key.

use std::path::{Path, PathBuf};

/// Why a server cannot be known by a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", prefix(path.as_deref()))]
pub struct TlsError {
    /// Which of the config's two values it is about.
    pub field: TlsField,
    /// Which file, if one is named.
    pub path: Option<PathBuf>,
    /// What is wrong.
    pub fault: TlsFault,
}

/// One of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsField {
    /// `server.tls.cert`
    Cert,
    /// `server.tls.key`
    Key,
}

/// What can be wrong with a certificate or its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// Only the other file is named.
    #[error("is missing; a certificate and its key are given together")]
    Missing,
    /// The file is not there, or may not be read.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
    /// There is something else in the file's place.
    #[error("is {what}, not a file")]
    NotAFile {
        /// What is there.
        what: &'static str,
    },
    /// The file is larger than any certificate chain.
    #[error("has more than {bytes_max} bytes, which no certificate chain and no key has")]
    TooLarge {
        /// The most that is read.
        bytes_max: u64,
    },
    /// Other users of the machine have access to the key.
    #[error(
        "every user of this machine has access to the key (mode {mode:03o}); take it away with `chmod o-rwx`"
    )]
    KeyOpenToOthers {
        /// The file's permissions.
        mode: u32,
    },
    /// The file holds nothing of the kind.
    #[error("holds no {what} in PEM form (a block that begins with {begin})")]
    NotPem {
        /// What was looked for.
        what: &'static str,
        /// How that would begin.
        begin: &'static str,
    },
    /// The key needs a password, for which nobody is there at a server's start.
    #[error(
        "the key is encrypted with a password, which a server cannot ask for; decrypt it with `openssl pkey`"
    )]
    KeyEncrypted,
    /// The key does not belong to the certificate.
    #[error("the key does not match the first certificate in {}, which must be the server's own", cert.display())]
    KeyMismatch {
        /// Which certificate.
        cert: PathBuf,
    },
    /// It was read, but cannot be used.
    #[error("cannot be used: {reason}")]
    Unusable {
        /// Why.
        reason: String,
    },
}

impl TlsError {
    pub(super) fn of(field: TlsField, path: &Path, fault: TlsFault) -> Self {
        Self { field, path: Some(path.to_owned()), fault }
    }
}

impl TlsField {
    /// The value's path in a config.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Cert => "server.tls.cert",
            Self::Key => "server.tls.key",
        }
    }

    /// The one that goes with it.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Cert => Self::Key,
            Self::Key => Self::Cert,
        }
    }
}

fn prefix(path: Option<&Path>) -> String {
    path.map(|path| format!("{}: ", path.display())).unwrap_or_default()
}
