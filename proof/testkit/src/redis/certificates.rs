//! Certificates of servers with TLS, and of their clients.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// An authority of its own, and PEM files with what it signed. They are removed on drop.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificates {
    /// Makes an authority, a certificate for a server at `127.0.0.1`, and one for a client.
    pub fn new() -> Self {
        let made = Self { folder: tempfile::tempdir().expect("there is room for certificates") };
        let authority_key = new_key();
        // Two authorities have different names, as they do in life.
        let mut authority = params(&format!("authority-{:016x}", fastrand::u64(..)));
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = authority.self_signed(&authority_key).expect("a key signs");
        made.write("ca.pem", &certificate.pem());
        let issuer = Issuer::new(authority, authority_key);
        for (name, subject) in [("server", "127.0.0.1"), ("client", "client")] {
            let key = new_key();
            let certificate = params(subject).signed_by(&key, &issuer).expect("a key signs");
            made.write(&format!("{name}.pem"), &certificate.pem());
            made.write(&format!("{name}-key.pem"), &key.serialize_pem());
        }
        made
    }

    /// The authority.
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The certificate of a server.
    pub fn server(&self) -> PathBuf {
        self.path("server.pem")
    }

    /// Its key.
    pub fn server_key(&self) -> PathBuf {
        self.path("server-key.pem")
    }

    /// The certificate of a client.
    pub fn client(&self) -> PathBuf {
        self.path("client.pem")
    }

    /// Its key.
    pub fn client_key(&self) -> PathBuf {
        self.path("client-key.pem")
    }

    /// What a server needs to listen for TLS on a port.
    pub(super) fn arguments(&self, port: u16) -> Vec<String> {
        let path = |path: PathBuf| path.display().to_string();
        [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path(self.server())),
            ("--tls-key-file", path(self.server_key())),
            ("--tls-ca-cert-file", path(self.ca())),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Only its owner may read it.
    fn write(&self, name: &str, pem: &str) {
        let path = self.path(name);
        fs::write(&path, pem).expect("there is room for certificates");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&path, mode).expect("the file is ours");
    }
}

fn params(subject: &str) -> CertificateParams {
    let mut params = CertificateParams::new([subject.to_owned()]).expect("an address or a name");
    params.distinguished_name.push(DnType::CommonName, subject);
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}
