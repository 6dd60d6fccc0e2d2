//! PEM files with certificates and keys.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsFault;

/// The most bytes of a file; a chain of certificates has some ten thousand.
const PEM_BYTES_MAX: u64 = 1024 * 1024;
/// What others may do with a file, of its permissions.
const MODE_OTHERS: u32 = 0o007;
const MODE_ALL: u32 = 0o777;
/// How a certificate begins.
const CERTIFICATE_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// How a key begins; older forms that say RSA or EC are read too.
const KEY_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
/// What an encrypted key has, in a new and an old form.
const KEY_ENCRYPTED: [&str; 2] =
    ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"];

/// All certificates of a file, the server's own first.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let bytes = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(Error::NoItemsFound) => {
            let (what, begin) = ("certificate", CERTIFICATE_BEGIN);
            Err(TlsFault::NotPem { what, begin })
        }
        Err(error) => Err(unusable(&error)),
    }
}

/// The first key of a file that nobody but its owner and its group has access to.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFault> {
    let bytes = read(path)?;
    let mode = fs::metadata(path).map_err(|error| unreadable(&error))?.mode() & MODE_ALL;
    if mode & MODE_OTHERS != 0 {
        return Err(TlsFault::KeyOpenToOthers { mode });
    }
    if is_encrypted(&bytes) {
        return Err(TlsFault::KeyEncrypted);
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        if let Error::NoItemsFound = error {
            return TlsFault::NotPem { what: "private key", begin: KEY_BEGIN };
        }
        unusable(&error)
    })
}

fn is_encrypted(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    KEY_ENCRYPTED.iter().any(|mark| text.contains(mark))
}

/// The bytes of a file. Opening a pipe would wait for whoever writes to it.
fn read(path: &Path) -> Result<Vec<u8>, TlsFault> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a directory" } else { "a pipe, a socket or a device" };
        return Err(TlsFault::NotAFile { what });
    }
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes));
    let count = read.map_err(|error| unreadable(&error))?;
    if count as u64 > PEM_BYTES_MAX {
        return Err(TlsFault::TooLarge { bytes_max: PEM_BYTES_MAX });
    }
    Ok(bytes)
}

fn unreadable(error: &std::io::Error) -> TlsFault {
    TlsFault::Unreadable { reason: error.to_string() }
}

/// The parser's own words may quote the file, which may be a key: only the kind of fault is told.
fn unusable(error: &Error) -> TlsFault {
    let reason = match error {
        Error::MissingSectionEnd { .. } => "a block has no end (-----END …-----)",
        Error::IllegalSectionStart { .. } => "a block's first line is not -----BEGIN …-----",
        Error::Base64Decode(_) => "a block is not base64",
        Error::SectionTooLarge => "a block is too large",
        Error::Io(_) | Error::NoItemsFound | _ => "it is not PEM",
    };
    TlsFault::Unusable { reason: reason.to_owned() }
}
