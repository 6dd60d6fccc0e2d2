//! Encryption of the connections: whom to trust, and who we are.

use std::fmt;

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::config_error::ConfigError;

/// What an encrypted connection (`rediss://`) needs besides the URL, in PEM format. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The certificates of the authorities to trust, instead of those of the system.
    pub ca: Option<Vec<u8>>,
    /// The certificate chain of this client, for a server that asks for one; with its key.
    pub cert: Option<Vec<u8>>,
    /// The key of that certificate.
    pub key: Option<Vec<u8>>,
}

impl TlsSettings {
    pub(crate) const fn is_empty(&self) -> bool {
        let Self { ca, cert, key } = self;
        ca.is_none() && cert.is_none() && key.is_none()
    }

    /// # Errors
    /// A certificate or the key cannot be used. The message does not quote it.
    pub(crate) fn certificates(&self) -> Result<TlsCertificates, ConfigError> {
        let Self { ca, cert, key } = self;
        // The client takes the provider of the process. A program that has chosen another one keeps it.
        if CryptoProvider::get_default().is_none() {
            // Another thread may have been faster.
            drop(ring::default_provider().install_default());
        }
        if let Some(ca) = ca {
            let mut roots = RootCertStore::empty();
            let added = roots.add_parsable_certificates(chain("ca", ca)?);
            if added.0 == 0 || added.1 > 0 {
                return Err(invalid("ca", "has a block that is not an X.509 certificate"));
            }
        }
        let client_tls = match (cert, key) {
            (None, None) => None,
            (Some(_), None) => return Err(invalid("cert", "needs its key, redis.tls.key")),
            (None, Some(_)) => return Err(invalid("key", "needs its certificate, redis.tls.cert")),
            (Some(cert), Some(key)) => {
                check_pair(cert, key)?;
                Some(ClientTlsConfig { client_cert: cert.clone(), client_key: key.clone() })
            }
        };
        Ok(TlsCertificates { client_tls, root_cert: ca.clone() })
    }
}

fn check_pair(cert: &[u8], key: &[u8]) -> Result<(), ConfigError> {
    let chain = chain("cert", cert)?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| invalid("key", "has no private key in PEM format"))?;
    match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(invalid("key", "does not match the first certificate in redis.tls.cert"))
        }
        Err(rustls::Error::InvalidCertificate(_)) => {
            Err(invalid("cert", "has a block that is not an X.509 certificate"))
        }
        Err(_) => Err(invalid("key", "is not an RSA, ECDSA or Ed25519 key")),
    }
}

fn chain(setting: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(invalid(setting, "has no certificate in PEM format")),
    }
}

fn invalid(setting: &'static str, reason: &'static str) -> ConfigError {
    ConfigError::Tls { setting, reason }
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ca, cert, key } = self;
        f.debug_struct("TlsSettings")
            .field("ca", &ca.is_some())
            .field("cert", &cert.is_some())
            .field("key", &key.is_some())
            .finish()
    }
}
