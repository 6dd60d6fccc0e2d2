//! Staged files that were not committed: the process ended before that, or the outcome of the change is unknown.
//!
//! A server stages while it holds the file's lock. A server that gets the lock next and finds a staged file knows for
//! which limits a change was begun that may still reach the backend, and can prevent that (`TB-08`). An incomplete staged
//! file means that nothing was begun, because a change begins only after staging.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use ratelimiter::{LeaseId, LimitKey, Registry};
use ratelimiter_wire::{LIMITS_FILE_BYTES_MAX, read_limits_file};

use super::{LimitsFile, folder_of};
use crate::disk::Access;

/// Staged content that was not committed.
#[derive(Debug)]
pub(crate) struct StagedDocument {
    /// The path of the file, or its name in a database.
    pub(crate) name: PathBuf,
    registry: Option<Registry>,
}

impl LimitsFile {
    /// The staged files that were left behind. The caller must hold the lock.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn uncommitted(&self) -> io::Result<Vec<StagedDocument>> {
        let read = |path: PathBuf| {
            let file = self.disk.open(&path, Access::Read);
            let bytes = file.and_then(|file| file.read(LIMITS_FILE_BYTES_MAX as u64 + 1));
            StagedDocument::new(path, bytes.ok().as_deref())
        };
        Ok(self.staged_paths()?.into_iter().map(read).collect())
    }

    /// The paths of staged files. Without the lock, one may belong to a change that a server is making right now.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn staged_paths(&self) -> io::Result<BTreeSet<PathBuf>> {
        let folder = folder_of(&self.path);
        let names = match self.disk.read_dir(folder) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(error),
        };
        let staged = names.iter().filter(|name| self.is_staged_name(&name.to_string_lossy()));
        Ok(staged.map(|name| folder.join(name)).collect())
    }

    /// Removes a staged file, once nothing in it is unconfirmed.
    ///
    /// # Errors
    /// Its path, if it cannot be removed; it will be found again.
    pub(crate) fn remove_staged(&self, path: &Path) -> Result<(), PathBuf> {
        match self.disk.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(path.to_owned()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// `limits.json.<the server's name>.tmp`; earlier versions left the name out.
    fn is_staged_name(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&*self.file_name().to_string_lossy());
        let between = rest.and_then(|rest| rest.strip_suffix(".tmp"));
        let is_name = |name: &str| name.parse::<LeaseId>().is_ok();
        between.is_some_and(|between| {
            between.is_empty() || between.strip_prefix('.').is_some_and(is_name)
        })
    }
}

impl StagedDocument {
    /// Content that cannot be read changes no limit.
    pub(crate) fn new(name: PathBuf, bytes: Option<&[u8]>) -> Self {
        Self { name, registry: bytes.and_then(|bytes| read_limits_file(bytes).ok()) }
    }

    /// The limits for which a change may have been begun: those that differ from the limits file's `registry`.
    pub(crate) fn unconfirmed(&self, registry: &Registry) -> BTreeSet<LimitKey> {
        let Some(staged) = &self.registry else {
            return BTreeSet::new();
        };
        let both = staged.iter().chain(registry.iter());
        let keys = both.map(|registered| &registered.limit.key);
        keys.filter(|key| staged.get(key) != registry.get(key)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ratelimiter::{Capacity, Limit, LimitKind, RegisteredLimit, Window};
    use ratelimiter_wire::PreservedFields;

    use super::*;

    fn registry(limits: &[(&str, u64)]) -> Registry {
        let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
        let limit = |(key, capacity): &(&str, u64)| {
            Limit::new(LimitKey::new(*key).unwrap(), kind, Capacity::new(*capacity).unwrap())
        };
        limits.iter().map(limit).map(RegisteredLimit::in_force).collect()
    }

    /// TB-08
    #[test]
    fn tb_08_an_uncommitted_staged_file_names_the_limits_it_would_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.json");
        let file = LimitsFile::new(&path);
        let old = registry(&[("a", 1), ("b", 1), ("c", 1)]);
        file.stage(&old, &PreservedFields::default()).unwrap().commit().unwrap();
        assert!(file.uncommitted().unwrap().is_empty());
        file.stage(&old, &PreservedFields::default()).unwrap().discard();
        assert!(file.uncommitted().unwrap().is_empty());

        let new = registry(&[("a", 2), ("b", 1), ("d", 1)]);
        drop(LimitsFile::new(&path).stage(&new, &PreservedFields::default()).unwrap());
        fs::write(folder.path().join("limits.json.tmp"), "[ {").unwrap();
        fs::write(folder.path().join("limits.json.mine.tmp"), "a person's own").unwrap();
        let uncommitted = file.uncommitted().unwrap();
        assert_eq!(uncommitted.len(), 2, "of this server or of another");
        let keys: BTreeSet<_> =
            uncommitted.iter().flat_map(|staged| staged.unconfirmed(&old)).collect();
        let keys: Vec<_> = keys.iter().map(LimitKey::as_str).collect();
        assert_eq!(keys, ["a", "c", "d"]);
        assert!(uncommitted.iter().all(|staged| file.remove_staged(&staged.name).is_ok()));
        assert!(file.uncommitted().unwrap().is_empty());
        assert!(folder.path().join("limits.json.mine.tmp").exists());
    }
}
