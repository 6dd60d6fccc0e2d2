//! The certificate by which a server is known, and its key: read from two PEM files, at the start and again on SIGHUP.

mod fault;
mod pem;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;

pub use self::fault::{TlsError, TlsFault, TlsField};
use crate::config::TlsConfig;

/// What is spoken inside, the preferred first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The two files, and what was read from them last.
#[derive(Debug)]
pub(crate) struct Tls {
    paths: Paths,
    current: RwLock<Arc<ServerConfig>>,
}

/// Where a certificate and its key are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Paths {
    cert: PathBuf,
    key: PathBuf,
}

impl Tls {
    /// Reads what a config names; `None` if it names nothing.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub(crate) fn new(config: &TlsConfig) -> Result<Option<Self>, TlsError> {
        let TlsConfig { cert, key } = config;
        let paths = match (cert, key) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(missing(TlsField::Key)),
            (None, Some(_)) => return Err(missing(TlsField::Cert)),
            (Some(cert), Some(key)) => Paths { cert: cert.clone(), key: key.clone() },
        };
        let current = RwLock::new(paths.read()?);
        Ok(Some(Self { paths, current }))
    }

    /// What the next handshake shows.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again. Connections that are open stay as they are.
    ///
    /// # Errors
    /// What is wrong with the files; the old certificate stays in force.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let new = self.paths.read()?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

impl Paths {
    fn read(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let of_cert = |fault| TlsError::of(TlsField::Cert, &self.cert, fault);
        let of_key = |fault| TlsError::of(TlsField::Key, &self.key, fault);
        let chain = pem::certificates(&self.cert).map_err(of_cert)?;
        let key = pem::key(&self.key).map_err(of_key)?;
        let provider = Arc::new(ring::default_provider());
        // Looked at before the two together, so that it is said which of them is at fault.
        let signing = provider.key_provider.load_private_key(key.clone_key());
        signing.map_err(|_| of_key(unusable("it is no RSA, ECDSA or Ed25519 key")))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|error| {
            if let rustls::Error::InconsistentKeys(_) = error {
                return of_key(TlsFault::KeyMismatch { cert: self.cert.clone() });
            }
            if let rustls::Error::InvalidCertificate(_) = error {
                return of_cert(unusable("a block is no X.509 certificate"));
            }
            of_cert(unusable(error.to_string()))
        })?;
        config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

fn unusable(reason: impl Into<String>) -> TlsFault {
    TlsFault::Unusable { reason: reason.into() }
}

fn missing(field: TlsField) -> TlsError {
    TlsError { field, path: None, fault: TlsFault::Missing }
}
