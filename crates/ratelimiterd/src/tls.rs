//! TLS certificate loading and reload.
//!
//! The certificate and its key are read from two PEM files, at the start and again on SIGHUP.

mod error;
pub(crate) mod pem;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;

pub use self::error::{TlsError, TlsErrorKind, TlsField};
use crate::config::TlsConfig;

/// The offered protocols, the preferred one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The two files, and the configuration last read from them.
#[derive(Debug)]
pub(crate) struct Tls {
    paths: TlsPaths,
    current: RwLock<Arc<ServerConfig>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TlsPaths {
    cert: PathBuf,
    key: PathBuf,
}

impl Tls {
    /// Reads the files of a config; `None` if it has none.
    ///
    /// # Errors
    /// Only one file is configured, or a file cannot be used.
    pub(crate) fn new(config: &TlsConfig) -> Result<Option<Self>, TlsError> {
        let TlsConfig { cert, key } = config;
        let paths = match (cert, key) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(missing(TlsField::Key)),
            (None, Some(_)) => return Err(missing(TlsField::Cert)),
            (Some(cert), Some(key)) => TlsPaths { cert: cert.clone(), key: key.clone() },
        };
        let current = RwLock::new(paths.read()?);
        Ok(Some(Self { paths, current }))
    }

    /// The configuration for the next handshake.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again. Open connections are not affected.
    ///
    /// # Errors
    /// A file cannot be used; the old certificate stays in force.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let new = self.paths.read()?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

impl TlsPaths {
    fn read(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let of_cert = |kind| TlsError::of(TlsField::Cert, &self.cert, kind);
        let of_key = |kind| TlsError::of(TlsField::Key, &self.key, kind);
        let chain = pem::certificates(&self.cert).map_err(of_cert)?;
        let key = pem::key(&self.key).map_err(of_key)?;
        let provider = Arc::new(ring::default_provider());
        // The key is checked before the pair, so that the error names the right file.
        let signing = provider.key_provider.load_private_key(key.clone_key());
        signing.map_err(|_| of_key(invalid("it is not an RSA, ECDSA or Ed25519 key")))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|error| {
            if let rustls::Error::InconsistentKeys(_) = error {
                return of_key(TlsErrorKind::KeyMismatch { cert: self.cert.clone() });
            }
            if let rustls::Error::InvalidCertificate(_) = error {
                return of_cert(invalid("a block is not an X.509 certificate"));
            }
            of_cert(invalid(error.to_string()))
        })?;
        config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

fn invalid(reason: impl Into<String>) -> TlsErrorKind {
    TlsErrorKind::Invalid { reason: reason.into() }
}

fn missing(field: TlsField) -> TlsError {
    TlsError { field, path: None, kind: TlsErrorKind::Missing }
}
