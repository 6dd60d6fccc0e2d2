//! Reads certificates and keys from PEM files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsErrorKind;
use crate::disk::{Disk, OsDisk};

/// The most bytes of a file; a certificate chain has about ten thousand.
const PEM_BYTES_MAX: u64 = 1024 * 1024;
/// Permission bits of users other than the owner and the group.
const MODE_OTHERS: u32 = 0o007;
const MODE_ALL: u32 = 0o777;
const CERTIFICATE_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// First line of a PKCS #8 key; the older RSA and EC formats are accepted too.
const KEY_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
/// Markers of an encrypted key: PKCS #8 and the older format.
const KEY_ENCRYPTED: [&str; 2] =
    ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"];

/// All certificates of a file; the first is the server's.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsErrorKind> {
    certificates_in(&read(path)?)
}

/// All certificates in the bytes of a file.
pub(crate) fn certificates_in(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsErrorKind> {
    let certificates = CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(Error::NoItemsFound) => {
            let (what, begin) = ("certificate", CERTIFICATE_BEGIN);
            Err(TlsErrorKind::NotPem { what, begin })
        }
        Err(error) => Err(invalid(&error)),
    }
}

/// The first key of a file, to which only its owner and its group may have access.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsErrorKind> {
    key_in(path, &read(path)?)
}

/// The first key in the bytes of a file.
pub(crate) fn key_in(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsErrorKind> {
    let mode = fs::metadata(path).map_err(|error| unreadable(&error))?.mode() & MODE_ALL;
    if mode & MODE_OTHERS != 0 {
        return Err(TlsErrorKind::KeyOpenToOthers { mode });
    }
    if is_encrypted(bytes) {
        return Err(TlsErrorKind::KeyEncrypted);
    }
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| {
        if let Error::NoItemsFound = error {
            return TlsErrorKind::NotPem { what: "private key", begin: KEY_BEGIN };
        }
        invalid(&error)
    })
}

fn is_encrypted(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    KEY_ENCRYPTED.iter().any(|mark| text.contains(mark))
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsErrorKind> {
    let disk: &dyn Disk = &OsDisk;
    match disk.read_file(path, PEM_BYTES_MAX + 1) {
        Ok(Ok(bytes)) if bytes.len() as u64 > PEM_BYTES_MAX => {
            Err(TlsErrorKind::TooLarge { bytes_max: PEM_BYTES_MAX })
        }
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(what)) => Err(TlsErrorKind::NotAFile { what }),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &std::io::Error) -> TlsErrorKind {
    TlsErrorKind::Unreadable { reason: error.to_string() }
}

/// The parser's message may quote the file, which may be a key, so only the kind of error is reported.
fn invalid(error: &Error) -> TlsErrorKind {
    let reason = match error {
        Error::MissingSectionEnd { .. } => "a block has no end (-----END …-----)",
        Error::IllegalSectionStart { .. } => "a block's first line is not -----BEGIN …-----",
        Error::Base64Decode(_) => "a block is not base64",
        Error::SectionTooLarge => "a block is too large",
        Error::Io(_) | Error::NoItemsFound | _ => "it is not PEM",
    };
    TlsErrorKind::Invalid { reason: reason.to_owned() }
}
