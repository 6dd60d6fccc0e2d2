//! Ownership of a limits file (`OPS-06`): by one server, or by all servers on one shared backend.
//!
//! A memory server writes its own definitions and does not know of others. Two of them on one file would overwrite each
//! other's definitions, so the second does not start. Ownership is a lock of the operating system, which ends with its
//! process, however that ends.

use std::fs::TryLockError;
use std::io;
use std::net::SocketAddr;

use super::{FileLock, LimitsFile, is_permanent};
use crate::disk::{Access, DiskFile, LockMode};

/// The most bytes that are read of the owner's description.
const OWNER_BYTES_MAX: u64 = 200;

/// Servers that share the definitions are not named, because there may be any number of them.
const SHARED_OWNERS: &str = "servers with server.backend: tigerbeetle";

/// Why a limits file cannot be owned.
#[derive(Debug)]
pub(crate) enum OwnError {
    /// Another server owns it.
    InUse { by: String },
    /// The file cannot be locked, for example because its folder is read-only.
    CannotLock(io::Error),
}

impl OwnError {
    /// In use by the only server with this description, or by servers that share the definitions.
    pub(crate) fn in_use_by(owner: Option<String>) -> Self {
        let by = owner.map(|owner| format!("the server with {owner}"));
        Self::InUse { by: by.unwrap_or_else(|| SHARED_OWNERS.to_owned()) }
    }
}

impl LimitsFile {
    /// Makes a server that listens on `addr` the owner of the file, until the lock and its clones are dropped.
    ///
    /// # Errors
    /// See [`OwnError`].
    pub(crate) fn own(&self, mode: LockMode, addr: SocketAddr) -> Result<FileLock, OwnError> {
        let file = self.open_sibling("owner").map_err(|error| self.own_error(mode, error))?;
        match file.try_lock(mode) {
            Ok(()) => {
                if mode == LockMode::Exclusive {
                    // For the error of the next server. The lock holds even if this fails, as on a full disk.
                    drop(file.write(format!("PID {} on {addr}\n", std::process::id()).as_bytes()));
                }
                Ok(FileLock(file))
            }
            Err(TryLockError::WouldBlock) => Err(OwnError::InUse { by: describe_owner(&*file) }),
            Err(TryLockError::Error(error)) => Err(OwnError::CannotLock(error)),
        }
    }

    /// A server without write access cannot own the file, but it can find out whether another server does.
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

/// Describes the owner.
fn describe_owner(file: &dyn DiskFile) -> String {
    if file.try_lock(LockMode::Shared).is_ok() {
        return SHARED_OWNERS.to_owned();
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
            other => panic!("it should be in use: {other:?}"),
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
