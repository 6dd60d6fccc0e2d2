//! Errors of a TLS certificate or its key.

use std::path::{Path, PathBuf};

/// The TLS certificate or its key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", prefix(path.as_deref()))]
pub struct TlsError {
    /// The config value with the error.
    pub field: TlsField,
    /// The file; `None` if it is not configured.
    pub path: Option<PathBuf>,
    /// The reason.
    pub kind: TlsErrorKind,
}

/// A config value that names a TLS file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsField {
    /// `server.tls.cert`
    Cert,
    /// `server.tls.key`
    Key,
}

/// Reasons why a certificate or its key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum TlsErrorKind {
    /// Only the other file is configured.
    #[error("is missing; configure the certificate and its key together")]
    Missing,
    /// The file does not exist, or permission is denied.
    #[error("cannot be read: {reason}")]
    Unreadable { reason: String },
    /// The path is not a regular file.
    #[error("is {what}, not a file")]
    NotAFile { what: &'static str },
    /// The file is larger than any certificate chain or key.
    #[error("has more than {bytes_max} bytes, too many for a certificate chain or a key")]
    TooLarge { bytes_max: u64 },
    /// All users of the machine have access to the key.
    #[error(
        "all users of this machine have access to the key (mode {mode:03o}); remove it with `chmod o-rwx`"
    )]
    KeyOpenToOthers { mode: u32 },
    /// The file contains no such PEM block.
    #[error("contains no {what} in PEM format (a block that begins with {begin})")]
    NotPem { what: &'static str, begin: &'static str },
    /// The key needs a password, which the server cannot ask for.
    #[error(
        "the key is encrypted with a password, which a server cannot ask for; decrypt it with `openssl pkey`"
    )]
    KeyEncrypted,
    /// The key does not belong to the certificate.
    #[error("the key does not match the first certificate in {}, which must be the server's own", cert.display())]
    KeyMismatch { cert: PathBuf },
    /// The content is invalid.
    #[error("cannot be used: {reason}")]
    Invalid { reason: String },
}

impl TlsError {
    pub(super) fn of(field: TlsField, path: &Path, kind: TlsErrorKind) -> Self {
        Self { field, path: Some(path.to_owned()), kind }
    }
}

impl TlsField {
    /// The path of the value in a config.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Cert => "server.tls.cert",
            Self::Key => "server.tls.key",
        }
    }

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
