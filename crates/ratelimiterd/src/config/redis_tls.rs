//! The PEM files of an encrypted connection to Redis.

use std::fmt;
use std::path::{Path, PathBuf};

use ratelimiter_redis::TlsSettings;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::tls::{TlsErrorKind, pem};

/// What an encrypted URL of Redis (`rediss://`) needs besides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisTlsConfig {
    /// The certificates of the authorities to trust, instead of those of the system.
    #[serde(deserialize_with = "certificates")]
    pub ca: Option<PemFile>,
    /// The certificate that this server shows to Redis, if Redis asks for one.
    #[serde(deserialize_with = "certificates")]
    pub cert: Option<PemFile>,
    /// The key of that certificate.
    #[serde(deserialize_with = "key")]
    pub key: Option<PemFile>,
}

/// A PEM file, which is read with the config. `Debug` shows its path.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    path: PathBuf,
    pem: Vec<u8>,
}

impl PemFile {
    /// Reads a file with certificates.
    ///
    /// # Errors
    /// It cannot be read, or has none.
    pub fn certificates(path: &Path) -> Result<Self, TlsErrorKind> {
        Self::read(path, |bytes| pem::certificates_in(bytes).map(drop))
    }

    /// Reads a file with a private key, to which only its owner and its group may have access.
    ///
    /// # Errors
    /// It cannot be read, others may read it, or it has no key.
    pub fn key(path: &Path) -> Result<Self, TlsErrorKind> {
        Self::read(path, |bytes| pem::key_in(path, bytes).map(drop))
    }

    fn read(
        path: &Path,
        check: impl FnOnce(&[u8]) -> Result<(), TlsErrorKind>,
    ) -> Result<Self, TlsErrorKind> {
        let pem = pem::read(path)?;
        check(&pem)?;
        Ok(Self { path: path.to_owned(), pem })
    }
}

impl RedisTlsConfig {
    /// As the backend needs them.
    pub(super) fn settings(&self) -> TlsSettings {
        let Self { ca, cert, key } = self;
        let pem = |file: &Option<PemFile>| file.as_ref().map(|file| file.pem.clone());
        TlsSettings { ca: pem(ca), cert: pem(cert), key: pem(key) }
    }
}

impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PemFile({})", self.path.display())
    }
}

fn certificates<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PemFile>, D::Error> {
    file(from, PemFile::certificates)
}

fn key<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PemFile>, D::Error> {
    file(from, PemFile::key)
}

fn file<'de, D: Deserializer<'de>>(
    from: D,
    read: fn(&Path) -> Result<PemFile, TlsErrorKind>,
) -> Result<Option<PemFile>, D::Error> {
    let path = Option::<PathBuf>::deserialize(from)?;
    let read = |path: &PathBuf| {
        read(path).map_err(|kind| D::Error::custom(format!("{}: {kind}", path.display())))
    };
    path.as_ref().map(read).transpose()
}
