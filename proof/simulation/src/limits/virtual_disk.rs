//! A disk of plain data, which the servers of a run share: what each of them sees, whose locks there are, and what a loss
//! of power leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs::TryLockError;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimiter::clock::Clock;
use ratelimiterd::disk::{Access, Disk, DiskFile, FileKind, FileMetadata, FileVersion, LockMode};

use crate::executor::SimulatedClock;
use crate::flaw::Flaw;

/// A disk with one folder. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct VirtualDisk {
    folder: OsString,
    clock: SimulatedClock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    entries: Entries,
    /// The folder as it was flushed, and after each change since then.
    unflushed: Vec<Entries>,
    locks: Vec<Lock>,
    handle_count: u64,
    /// Processes that have ended: whatever of them still runs changes nothing.
    ended: BTreeSet<u64>,
}

/// Inodes by their paths, as plain text: paths are compared part by part, which is slow without optimisation.
type Entries = BTreeMap<OsString, usize>;

#[derive(Debug)]
struct Inode {
    bytes: Vec<u8>,
    /// What it had when it was last flushed.
    flushed: Option<Vec<u8>>,
    modified_at: (i64, i64),
}

#[derive(Debug)]
struct Lock {
    inode: usize,
    process: u64,
    handle: u64,
    mode: LockMode,
}

/// The disk as one process sees it.
#[derive(Clone)]
pub(super) struct ProcessDisk {
    disk: VirtualDisk,
    process: u64,
    faults: Arc<dyn DiskFaults>,
    flaw: Option<Flaw>,
}

/// What goes wrong with the calls of a process.
pub(super) trait DiskFaults: Send + Sync {
    /// Called before each call.
    ///
    /// # Errors
    /// The call fails; a write has written a part.
    fn before(&self, call: DiskCall) -> io::Result<()>;
}

/// What a process asks a disk for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DiskCall {
    /// Looks at something, or reads it.
    Read,
    /// Opens a file to change it.
    Open,
    Write,
    SyncFile,
    SyncFolder,
    Rename,
    Remove,
    Lock,
}

/// Nothing goes wrong.
pub(super) struct NoFaults;

struct OpenFile {
    process: ProcessDisk,
    /// `None` is the folder.
    inode: Option<usize>,
    handle: u64,
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl VirtualDisk {
    pub(super) fn new(folder: impl Into<OsString>, clock: SimulatedClock) -> Self {
        Self {
            folder: folder.into(),
            clock,
            state: Arc::new(Mutex::new(State {
                unflushed: vec![Entries::new()],
                ..State::default()
            })),
        }
    }

    /// The disk as a process sees it, with a deliberate bug or without.
    pub(super) fn process(
        &self,
        process: u64,
        faults: Arc<dyn DiskFaults>,
        flaw: Option<Flaw>,
    ) -> Arc<ProcessDisk> {
        Arc::new(ProcessDisk { disk: self.clone(), process, faults, flaw })
    }

    /// A process ends: its locks are gone, and what it has written stays.
    pub(super) fn end(&self, process: u64) {
        let mut state = self.state();
        state.ended.insert(process);
        state.locks.retain(|lock| lock.process != process);
    }

    /// Capability is lost: of the changes to the folder that were not flushed only the first ones are there, and of a file's
    /// content that was not flushed a part, or what was flushed before.
    pub(super) fn lose_power(&self, seed: u64) {
        let state = &mut *self.state();
        let at = fastrand::Rng::with_seed(seed).usize(..state.unflushed.len());
        state.entries = state.unflushed.swap_remove(at);
        state.unflushed = vec![state.entries.clone()];
        for (number, inode) in state.inodes.iter_mut().enumerate() {
            // Each has a generator of its own, since an owner's content has a length that differs between runs.
            inode.lose_power(&mut fastrand::Rng::with_seed(seed ^ (number as u64 + 1)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inode {
    fn lose_power(&mut self, random: &mut fastrand::Rng) {
        match self.flushed.take() {
            Some(flushed) if flushed == self.bytes || random.bool() => self.bytes = flushed,
            Some(_) | None => self.bytes.truncate(random.usize(..=self.bytes.len())),
        }
        self.flushed = Some(self.bytes.clone());
    }
}

impl State {
    /// The folder has changed.
    fn note_entries(&mut self) {
        self.unflushed.push(self.entries.clone());
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        self.entries.get(path.as_os_str()).copied().ok_or_else(not_found)
    }

    fn metadata(&self, inode: usize) -> FileMetadata {
        let Inode { bytes, modified_at, .. } = &self.inodes[inode];
        let (modified_at, bytes) = (*modified_at, bytes.len() as u64);
        let version = FileVersion { inode: inode as u64, modified_at, bytes };
        FileMetadata { kind: FileKind::File, version }
    }
}

impl ProcessDisk {
    /// The disk for this call, unless the call fails.
    fn call(&self, call: DiskCall) -> io::Result<MutexGuard<'_, State>> {
        self.faults.before(call)?;
        self.state()
    }

    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.ended.contains(&self.process) {
            return Err(io::Error::other("the process has ended"));
        }
        Ok(state)
    }

    fn modified_at(&self) -> (i64, i64) {
        let nanos = i64::try_from(self.disk.clock.now().unix_nanos()).expect("it is not 2262 yet");
        (nanos / 1_000_000_000, nanos % 1_000_000_000)
    }

    fn folder_metadata() -> FileMetadata {
        let version = FileVersion { inode: u64::MAX, modified_at: (0, 0), bytes: 0 };
        FileMetadata { kind: FileKind::Folder, version }
    }
}

impl Disk for ProcessDisk {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        self.call(DiskCall::Read).map(drop)
    }

    fn read_dir(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let state = self.call(DiskCall::Read)?;
        if folder.as_os_str() != self.disk.folder {
            return Err(not_found());
        }
        if self.flaw == Some(Flaw::HidesStagedFiles) {
            return Ok(Vec::new());
        }
        let name = |path: &OsString| Path::new(path).file_name().map(OsString::from);
        Ok(state.entries.keys().filter_map(name).collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<FileMetadata> {
        let state = self.call(DiskCall::Read)?;
        if path.as_os_str() == self.disk.folder {
            return Ok(Self::folder_metadata());
        }
        Ok(state.metadata(state.file(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let is_read = access == Access::Read;
        let mut state = self.call(if is_read { DiskCall::Read } else { DiskCall::Open })?;
        let inode = match state.file(path) {
            _ if path.as_os_str() == self.disk.folder && is_read => None,
            _ if path.as_os_str() == self.disk.folder => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(inode) => Some(inode),
            Err(error) if is_read => return Err(error),
            Err(_) => {
                let inode = state.inodes.len();
                let (bytes, flushed) = (Vec::new(), None);
                state.inodes.push(Inode { bytes, flushed, modified_at: self.modified_at() });
                state.entries.insert(path.into(), inode);
                state.note_entries();
                Some(inode)
            }
        };
        if let (Some(inode), Access::Truncate) = (inode, access) {
            state.inodes[inode].bytes.clear();
        }
        let handle = state.handle_count;
        state.handle_count += 1;
        drop(state);
        Ok(Arc::new(OpenFile { process: self.clone(), inode, handle }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.call(DiskCall::Rename)?;
        let inode = state.file(from)?;
        state.entries.remove(from.as_os_str());
        state.entries.insert(to.into(), inode);
        state.note_entries();
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.call(DiskCall::Remove)?;
        state.file(path)?;
        state.entries.remove(path.as_os_str());
        state.note_entries();
        Ok(())
    }
}

impl OpenFile {
    fn inode(&self) -> io::Result<usize> {
        self.inode.ok_or_else(|| io::ErrorKind::IsADirectory.into())
    }
}

impl DiskFile for OpenFile {
    fn read(&self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let state = self.process.call(DiskCall::Read)?;
        let bytes = &state.inodes[self.inode()?].bytes;
        let count = usize::try_from(bytes_max).map_or(bytes.len(), |max| max.min(bytes.len()));
        Ok(bytes[..count].to_vec())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let fault = self.process.faults.before(DiskCall::Write);
        let modified_at = self.process.modified_at();
        let written = if fault.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        let inode = self.inode()?;
        let mut state = self.process.state()?;
        state.inodes[inode].bytes = written.to_vec();
        state.inodes[inode].modified_at = modified_at;
        fault
    }

    fn sync_all(&self) -> io::Result<()> {
        let Some(inode) = self.inode else {
            let mut state = self.process.call(DiskCall::SyncFolder)?;
            state.unflushed = vec![state.entries.clone()];
            return Ok(());
        };
        let mut state = self.process.call(DiskCall::SyncFile)?;
        if self.process.flaw != Some(Flaw::FlushesNothing) {
            let inode = &mut state.inodes[inode];
            inode.flushed = Some(inode.bytes.clone());
        }
        Ok(())
    }

    fn metadata(&self) -> io::Result<FileMetadata> {
        let state = self.process.call(DiskCall::Read)?;
        Ok(self.inode.map_or(ProcessDisk::folder_metadata(), |inode| state.metadata(inode)))
    }

    fn try_lock(&self, mode: LockMode) -> Result<(), TryLockError> {
        let (handle, process) = (self.handle, self.process.process);
        let inode = self.inode().map_err(TryLockError::Error)?;
        let mut state = self.process.call(DiskCall::Lock).map_err(TryLockError::Error)?;
        let is_in_the_way = |lock: &Lock| {
            let is_exclusive = mode == LockMode::Exclusive || lock.mode == LockMode::Exclusive;
            lock.inode == inode && lock.handle != handle && is_exclusive
        };
        let is_heeded = self.process.flaw != Some(Flaw::LocksNothing);
        if is_heeded && state.locks.iter().any(is_in_the_way) {
            return Err(TryLockError::WouldBlock);
        }
        state.locks.retain(|lock| lock.handle != handle);
        state.locks.push(Lock { inode, process, handle, mode });
        Ok(())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.process.disk.state().locks.retain(|lock| lock.handle != self.handle);
    }
}

impl DiskFaults for NoFaults {
    fn before(&self, _: DiskCall) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for ProcessDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessDisk").field("process", &self.process).finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("inode", &self.inode).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ratelimiter::clock::Timestamp;
    use ratelimiterd::disk::OsDisk;

    use super::*;
    use crate::executor::Executor;

    fn kind<T>(result: io::Result<T>) -> String {
        result.map_or_else(|error| format!("{:?}", error.kind()), |_| "ok".to_owned())
    }

    fn locked(file: &dyn DiskFile, mode: LockMode) -> String {
        let locked = match file.try_lock(mode) {
            Ok(()) => "locked",
            Err(TryLockError::WouldBlock) => "would block",
            Err(TryLockError::Error(_)) => "error",
        };
        locked.to_owned()
    }

    /// Calls as the limits file makes them, with what they come to.
    fn script(disk: &dyn Disk, folder: &Path) -> Vec<String> {
        let (path, staged) = (folder.join("limits.json"), folder.join("limits.json.tmp"));
        let mut seen = Vec::new();
        let mut see = |what: &str, result: String| seen.push(format!("{what}: {result}"));
        let names = || {
            let mut names = disk.read_dir(folder).unwrap();
            names.sort();
            format!("{names:?}")
        };
        let file_version = || disk.metadata(&path).unwrap().version;
        see("a folder that is there", kind(disk.create_dir_all(folder)));
        see("a missing folder", kind(disk.read_dir(&folder.join("none"))));
        see("a missing file", kind(disk.open(&path, Access::Read)));
        see("its metadata", kind(disk.metadata(&path)));
        see("its removal", kind(disk.remove_file(&path)));
        see("its renaming", kind(disk.rename(&staged, &path)));
        see("a folder opened to write", kind(disk.open(folder, Access::Truncate)));
        see("a folder is", format!("{:?}", disk.metadata(folder).unwrap().kind));
        let first = disk.open(&staged, Access::Truncate).unwrap();
        see("write", kind(first.write(b"one and more")));
        see("write in place", kind(first.write(b"one")));
        see("flush", kind(first.sync_all()));
        see("names", names());
        see("rename", kind(disk.rename(&staged, &path)));
        see("flush the folder", kind(disk.open(folder, Access::Read).unwrap().sync_all()));
        see("names", names());
        let before = file_version();
        see("is", format!("{:?}, {} bytes", disk.metadata(&path).unwrap().kind, before.bytes));
        let second = disk.open(&staged, Access::Truncate).unwrap();
        see("write", kind(second.write(b"two")));
        see("rename over it", kind(disk.rename(&staged, &path)));
        let text = |bytes: io::Result<Vec<u8>>| String::from_utf8(bytes.unwrap()).unwrap();
        let now = disk.open(&path, Access::Read).unwrap();
        see("read", text(now.read(10)));
        see("read a part", text(now.read(2)));
        see("it is another one", format!("{}", before != file_version()));
        see("the open one is not", format!("{}", before == first.metadata().unwrap().version));
        see("kept", text(disk.open(&path, Access::Keep).unwrap().read(10)));
        see("truncated", text(disk.open(&path, Access::Truncate).and_then(|_| now.read(10))));
        let lock = || disk.open(&folder.join("limits.json.lock"), Access::Keep).unwrap();
        let (one, two) = (lock(), lock());
        see("exclusive", locked(&*one, LockMode::Exclusive));
        see("a second", locked(&*two, LockMode::Exclusive));
        see("a second that would share", locked(&*two, LockMode::Shared));
        see("the first shares", locked(&*one, LockMode::Shared));
        see("a second", locked(&*two, LockMode::Exclusive));
        see("a second that would share", locked(&*two, LockMode::Shared));
        drop(one);
        see("a second alone", locked(&*two, LockMode::Exclusive));
        see("remove", kind(disk.remove_file(&path)));
        see("names", names());
        seen
    }

    #[test]
    fn a_virtual_disk_does_what_the_operating_systems_does() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Executor::starting_at(Timestamp::from_unix_ms(1_000)).clock(0);
        let disk = VirtualDisk::new(folder.path(), clock).process(1, Arc::new(NoFaults), None);
        let on_virtual = script(&*disk, folder.path());
        assert_eq!(on_virtual, script(&OsDisk, folder.path()));
    }

    #[test]
    fn a_process_that_has_ended_changes_nothing_and_keeps_no_lock() {
        let clock = Executor::starting_at(Timestamp::from_unix_ms(1_000)).clock(0);
        let disk = VirtualDisk::new("/limits", clock);
        let [one, two] = [1, 2].map(|process| disk.process(process, Arc::new(NoFaults), None));
        let path = Path::new("/limits/file");
        let [first, second] = [&one, &two].map(|disk| disk.open(path, Access::Keep).unwrap());
        first.write(b"first").unwrap();
        first.try_lock(LockMode::Exclusive).unwrap();
        assert_eq!(locked(&*second, LockMode::Shared), "would block");
        disk.end(1);
        assert!(first.write(b"late").is_err() && one.remove_file(path).is_err());
        assert_eq!(locked(&*second, LockMode::Exclusive), "locked");
        assert_eq!(second.read(10).unwrap(), b"first");
    }

    /// What each of many losses of power leaves of a file.
    fn left(flushes: impl Fn(&dyn Disk, &dyn DiskFile)) -> BTreeSet<Option<String>> {
        let left = |seed| {
            let clock = Executor::starting_at(Timestamp::from_unix_ms(1_000)).clock(0);
            let disk = VirtualDisk::new("/limits", clock);
            let process = disk.process(1, Arc::new(NoFaults), None);
            let path = Path::new("/limits/file");
            process.open(Path::new("/limits"), Access::Read).unwrap().sync_all().unwrap();
            let file = process.open(path, Access::Truncate).unwrap();
            file.write(b"ab").unwrap();
            flushes(&*process, &*file);
            disk.lose_power(seed);
            let file = process.open(path, Access::Read).ok()?;
            Some(String::from_utf8(file.read(10).unwrap()).unwrap())
        };
        (0..100).map(left).collect()
    }

    #[test]
    fn a_loss_of_power_takes_what_was_not_flushed() {
        let texts = |texts: &[&str]| texts.iter().map(|text| Some((*text).to_owned())).collect();
        let flush_folder = |disk: &dyn Disk| {
            disk.open(Path::new("/limits"), Access::Read).unwrap().sync_all().unwrap();
        };
        let nothing: BTreeSet<_> = left(|_, _| {});
        assert_eq!(nothing.len(), 4, "no file, or a part of it: {nothing:?}");
        let content = left(|_, file| file.sync_all().unwrap());
        assert_eq!(content, BTreeSet::from([None, Some("ab".to_owned())]));
        let entry: BTreeSet<_> = left(|disk, _| flush_folder(disk));
        assert_eq!(entry, texts(&["", "a", "ab"]));
        let both: BTreeSet<_> = left(|disk, file| {
            file.sync_all().unwrap();
            flush_folder(disk);
        });
        assert_eq!(both, texts(&["ab"]));
    }
}
