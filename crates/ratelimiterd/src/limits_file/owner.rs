//! Ownership of a limits file (`OPS-06`): one server's alone, or that of all servers on one shared backend.
//!
//! A server on memory writes what it knows, and knows nothing of others. Two of them on one file would take turns in
//! losing each other's definitions, so the second does not start. It is a lock of the operating system that says so,
//! which goes with its process, however that ends.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use super::{LimitsFile, folder_of, is_permanent};

/// The most that is read of who the owner is.
const OWNER_BYTES_MAX: u64 = 200;

/// How a server uses its limits file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Nobody else may use it.
    Exclusive,
    /// Others may use it who do so together, too.
    Shared,
}

/// The right to use a limits file. It ends when this and its clones are dropped, or with the process.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    _file: Arc<File>,
}

/// Why a limits file cannot be had.
#[derive(Debug)]
pub(crate) enum OwnError {
    /// Others have it.
    InUse {
        /// Who, for people.
        by: String,
    },
    /// There can be no lock where the file is, for example because nothing can be written there.
    CannotLock(io::Error),
}

impl LimitsFile {
    /// Takes the file for a server that listens there.
    ///
    /// # Errors
    /// See [`OwnError`].
    pub(crate) fn own(&self, ownership: Ownership, addr: SocketAddr) -> Result<Owned, OwnError> {
        let mut file = self.open_owner().map_err(|error| self.ownership_error(ownership, error))?;
        match ownership.try_lock(&file) {
            Ok(()) => {
                if ownership == Ownership::Exclusive {
                    // Whom the next one is told of; the lock holds without it, on a full disk for example.
                    drop(write_owner(&mut file, addr));
                }
                Ok(Owned { _file: Arc::new(file) })
            }
            Err(TryLockError::WouldBlock) => Err(OwnError::InUse { by: describe_owner(file) }),
            Err(TryLockError::Error(error)) => Err(OwnError::CannotLock(error)),
        }
    }

    /// Whoever may not write where the file is cannot own it, and can see whether somebody else does.
    fn ownership_error(&self, ownership: Ownership, error: io::Error) -> OwnError {
        if is_permanent(&error)
            && let Ok(file) = File::open(self.sibling_path("owner"))
            && let Err(TryLockError::WouldBlock) = ownership.try_lock(&file)
        {
            return OwnError::InUse { by: describe_owner(file) };
        }
        OwnError::CannotLock(error)
    }

    fn open_owner(&self) -> io::Result<File> {
        fs::create_dir_all(folder_of(&self.path))?;
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true).open(self.sibling_path("owner"))
    }
}

impl Ownership {
    fn try_lock(self, file: &File) -> Result<(), TryLockError> {
        match self {
            Self::Exclusive => file.try_lock(),
            Self::Shared => file.try_lock_shared(),
        }
    }
}

fn write_owner(file: &mut File, addr: SocketAddr) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "PID {} on {addr}", std::process::id())
}

/// Who has the lock. Those that share it are not named, since there may be any number of them.
fn describe_owner(mut file: File) -> String {
    if file.try_lock_shared().is_ok() {
        return "servers with server.backend: tigerbeetle".to_owned();
    }
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(OWNER_BYTES_MAX).read_to_string(&mut text));
    match (read, text.trim()) {
        (Err(_), _) | (_, "") => "another server".to_owned(),
        (Ok(_), owner) => format!("the server with {owner}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use_by(owned: Result<Owned, OwnError>) -> String {
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
        let alone = file.own(Ownership::Exclusive, addr).unwrap();
        let owner = format!("the server with PID {} on {addr}", std::process::id());
        assert_eq!(in_use_by(file.own(Ownership::Exclusive, addr)), owner);
        assert_eq!(in_use_by(file.own(Ownership::Shared, addr)), owner);
        drop(alone);
        let together = [file.own(Ownership::Shared, addr), file.own(Ownership::Shared, addr)];
        assert!(together.iter().all(Result::is_ok));
        let others = "servers with server.backend: tigerbeetle";
        assert_eq!(in_use_by(file.own(Ownership::Exclusive, addr)), others);
        drop(together);
        assert!(file.own(Ownership::Exclusive, addr).is_ok());
    }
}
