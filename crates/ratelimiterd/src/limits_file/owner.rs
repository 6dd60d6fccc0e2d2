//! Ownership of a limits file (`OPS-06`): one server's alone, or that of all servers on one shared backend.
//!
//! A server on memory writes what it knows, and knows nothing of others. Two of them on one file would take turns in
//! losing each other's definitions, so the second does not start. It is a lock of the operating system that says so,
//! which goes with its process, however that ends.

use std::fs::TryLockError;
use std::io;
use std::net::SocketAddr;

use super::{FileLock, LimitsFile, is_permanent};
use crate::disk::{Access, DiskFile, LockMode};

/// The most that is read of who the owner is.
const OWNER_BYTES_MAX: u64 = 200;

/// Why a limits file cannot be had.
#[derive(Debug)]
pub(crate) enum OwnError {
    /// Others have it.
    InUse { by: String },
    /// There can be no lock where the file is, for example because nothing can be written there.
    CannotLock(io::Error),
}

impl LimitsFile {
    /// Takes the file for a server that listens there, alone or with others. It is the server's until the lock and its
    /// clones are dropped.
    ///
    /// # Errors
    /// See [`OwnError`].
    pub(crate) fn own(&self, mode: LockMode, addr: SocketAddr) -> Result<FileLock, OwnError> {
        let file = self.open_sibling("owner").map_err(|error| self.own_error(mode, error))?;
        match file.try_lock(mode) {
            Ok(()) => {
                if mode == LockMode::Exclusive {
                    // Whom the next one is told of; the lock holds without it, on a full disk for example.
                    drop(file.write(format!("PID {} on {addr}\n", std::process::id()).as_bytes()));
                }
                Ok(FileLock(file))
            }
            Err(TryLockError::WouldBlock) => Err(OwnError::InUse { by: describe_owner(&*file) }),
            Err(TryLockError::Error(error)) => Err(OwnError::CannotLock(error)),
        }
    }

    /// Whoever may not write where the file is cannot own it, and can see whether somebody else does.
    fn own_error(&self, mode: LockMode, error: io::Error) -> OwnError {
        if is_permanent(&error)
            && let Ok(file) = self.disk.open(&self.sibling_path("owner"), Access::Read)
            && let Err(TryLockError::WouldBlock) = file.try_lock(mode)
        {
            return OwnError::InUse { by: describe_owner(&*file) };
        }
        OwnError::CannotLock(error)
    }
}

/// Who has the lock. Those that share it are not named, since there may be any number of them.
fn describe_owner(file: &dyn DiskFile) -> String {
    if file.try_lock(LockMode::Shared).is_ok() {
        return "servers with server.backend: tigerbeetle".to_owned();
    }
    let text = file.read(OWNER_BYTES_MAX).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match text.as_deref().unwrap_or_default().trim() {
        "" => "another server".to_owned(),
        owner => format!("the server with {owner}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use_by(owned: Result<FileLock, OwnError>) -> String {
        match owned {
            Err(OwnError::InUse { by }) => by,
            other => panic!("somebody has it: {other:?}"),
        }
    }

    /// OPS-06
    #[test]
    fn ops_06_a_file_belongs_to_one_server_or_to_those_that_share_a_backend() {
        let folder = tempfile::tempdir().unwrap();
        let file = LimitsFile::new(folder.path().join("data/limits.json"));
        let addr: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let alone = file.own(LockMode::Exclusive, addr).unwrap();
        let owner = format!("the server with PID {} on {addr}", std::process::id());
        assert_eq!(in_use_by(file.own(LockMode::Exclusive, addr)), owner);
        assert_eq!(in_use_by(file.own(LockMode::Shared, addr)), owner);
        drop(alone);
        let together = [file.own(LockMode::Shared, addr), file.own(LockMode::Shared, addr)];
        assert!(together.iter().all(Result::is_ok));
        let others = "servers with server.backend: tigerbeetle";
        assert_eq!(in_use_by(file.own(LockMode::Exclusive, addr)), others);
        drop(together);
        assert!(file.own(LockMode::Exclusive, addr).is_ok());
    }
}
