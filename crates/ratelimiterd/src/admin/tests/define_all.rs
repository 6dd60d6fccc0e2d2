//! OPS-03: a list of definitions is applied and stored as a whole, or not at all.

use std::ffi::OsString;
use std::fs::TryLockError;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use ratelimiter::HoldTimeout;
use ratelimiter::{LeaseId, Registry};
use ratelimiter_wire::read_limits_file;

use super::*;
use crate::disk::{Access, Disk, DiskFile, FileMetadata, OsDisk};

/// What a disk does from the call on at which it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// It recovers at once.
    Once,
    /// The process has ended there, in the middle of a write; or it goes on and the disk does not.
    Crash,
    /// It goes on, except that no replaced file is flushed.
    CommitFlush,
}

/// The operating system's disk, which counts its calls, and may fail at one of them.
#[derive(Debug, Clone)]
struct FaultyDisk {
    calls: Arc<AtomicUsize>,
    commits: Arc<AtomicUsize>,
    failure: Failure,
    /// The number of the call that fails.
    fails_at: Arc<AtomicUsize>,
    /// A file was replaced, and nothing was flushed since.
    is_unflushed: Arc<AtomicBool>,
}

#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    file: Arc<dyn DiskFile>,
}

impl FaultyDisk {
    fn new(failure: Failure) -> Self {
        let fails_at = Arc::new(AtomicUsize::new(usize::MAX));
        let (calls, commits, is_unflushed) = (Arc::default(), Arc::default(), Arc::default());
        Self { calls, commits, failure, fails_at, is_unflushed }
    }

    /// The call with this number from now on fails.
    fn fail_at(&self, call: usize) {
        self.calls.store(0, Ordering::Relaxed);
        self.fails_at.store(call, Ordering::Relaxed);
    }

    /// True if the failure has happened.
    fn has_failed(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.fails_at.load(Ordering::Relaxed)
    }

    fn call(&self) -> io::Result<()> {
        let (number, at) =
            (self.calls.fetch_add(1, Ordering::Relaxed), self.fails_at.load(Ordering::Relaxed));
        let fails = match self.failure {
            Failure::Once => number == at,
            Failure::Crash => number >= at,
            Failure::CommitFlush => false,
        };
        if fails { Err(io::Error::other("the disk fails")) } else { Ok(()) }
    }
}

impl Disk for FaultyDisk {
    fn create_dir_all(&self, folder: &Path) -> io::Result<()> {
        self.call()?;
        OsDisk.create_dir_all(folder)
    }

    fn read_dir(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.call()?;
        OsDisk.read_dir(folder)
    }

    fn metadata(&self, path: &Path) -> io::Result<FileMetadata> {
        self.call()?;
        OsDisk.metadata(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        self.call()?;
        Ok(Arc::new(FaultyFile { disk: self.clone(), file: OsDisk.open(path, access)? }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        let is_armed = self.fails_at.load(Ordering::Relaxed) != usize::MAX;
        self.is_unflushed.store(is_armed, Ordering::Relaxed);
        OsDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        OsDisk.remove_file(path)
    }
}

impl DiskFile for FaultyFile {
    fn read(&self, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.disk.call()?;
        self.file.read(bytes_max)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let called = self.disk.call();
        let written = if called.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        self.file.write(written)?;
        called
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.call()?;
        let is_commit = self.disk.is_unflushed.swap(false, Ordering::Relaxed);
        if is_commit && self.disk.failure == Failure::CommitFlush {
            return Err(io::Error::other("the folder is not flushed"));
        }
        self.file.sync_all()
    }

    fn metadata(&self) -> io::Result<FileMetadata> {
        self.disk.call()?;
        self.file.metadata()
    }

    fn try_lock(&self, mode: LockMode) -> Result<(), TryLockError> {
        self.disk.call().map_err(TryLockError::Error)?;
        self.file.try_lock(mode)
    }
}

fn file_on(disk: &FaultyDisk, folder: &tempfile::TempDir) -> LimitsFile {
    let path = folder.path().join("limits.json");
    LimitsFile::on(Arc::new(disk.clone()), path, LeaseId::from_u128(7))
}

fn concurrency(key: &str, capacity: u64) -> Limit {
    let timeout = HoldTimeout::from_seconds(60).unwrap();
    Limit { kind: LimitKind::Concurrency { timeout }, ..limit(key, capacity) }
}

/// `a=1 b=2`: the limits of the backend.
fn in_backend(backend: &FaultyBackend) -> String {
    let states = backend.memory.states_now(&Page::default());
    let state = |state: &LimitState| format!("{}={}", state.limit.key, state.limit.capacity);
    states.iter().map(state).collect::<Vec<_>>().join(" ")
}

/// The same of the file.
fn on_disk(folder: &tempfile::TempDir) -> String {
    let registry: Registry = read_limits_file(file(folder).as_bytes()).unwrap();
    let limit =
        |registered: &RegisteredLimit| format!("{}={}", registered.limit.key, registered.target());
    registry.iter().map(limit).collect::<Vec<_>>().join(" ")
}

/// The list that turns [`OLD`] into [`NEW`], in another order than that of the keys.
fn list() -> Vec<Limit> {
    vec![limit("d", 4), limit("b", 9), limit("a", 7)]
}

const OLD: &str = "a=1 b=2 c=3";
const NEW: &str = "a=7 b=9 c=3 d=4";

async fn define_old(admin: &Arc<Admin<FaultyBackend>>) {
    let old = vec![limit("a", 1), limit("b", 2), limit("c", 3)];
    assert_eq!(admin.define_all(old, TIMEOUT).await, Ok(vec![LimitStatus::Active; 3]));
}

/// OPS-03
#[tokio::test]
async fn ops_03_a_list_is_stored_with_one_commit() {
    for is_shared in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (backend, disk) = (FaultyBackend::new(is_shared, 100), FaultyDisk::new(Failure::Once));
        let admin = start_on(file_on(&disk, &folder), &backend).await;
        define_old(&admin).await;
        assert_eq!(disk.commits.swap(0, Ordering::Relaxed), 1);
        let mut limits = list();
        limits.push(limit("p", 0));
        let statuses = admin.define_all(limits, TIMEOUT).await.unwrap();
        let (active, paused) = (LimitStatus::Active, LimitStatus::Paused);
        assert_eq!(statuses, [active, active, active, paused], "in the order of the list");
        assert_eq!(disk.commits.swap(0, Ordering::Relaxed), 1);
        assert_eq!(on_disk(&folder), format!("{NEW} p=0"));
        assert_eq!(in_backend(&backend), format!("{NEW} p=0"));
        admin.define_all(list(), TIMEOUT).await.unwrap();
        assert_eq!(disk.commits.load(Ordering::Relaxed), 0, "an equal list writes nothing");
    }
}

/// OPS-03
#[tokio::test]
async fn ops_03_a_conflict_anywhere_in_a_list_changes_nothing() {
    for is_shared in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let backend = FaultyBackend::new(is_shared, 100);
        let path = folder.path().join("limits.json");
        let admin = start_on(LimitsFile::new(path).with_limits_max(4), &backend).await;
        define_old(&admin).await;
        let mut conflicting = list();
        conflicting.push(concurrency("c", 1));
        let conflict = DefineError::KindConflict { key: limit("c", 1).key, is: "rolling" };
        assert_eq!(admin.define_all(conflicting, TIMEOUT).await, Err(conflict.into()));
        let mut too_many = list();
        too_many.push(limit("e", 1));
        let expected = Err(ChangeError::TooManyLimits { limits_max: 4 });
        assert_eq!(admin.define_all(too_many, TIMEOUT).await, expected);
        assert_eq!((on_disk(&folder).as_str(), in_backend(&backend).as_str()), (OLD, OLD));
        assert_eq!(staged_count(&folder), 0);
        admin.define_all(list(), TIMEOUT).await.unwrap();
        assert_eq!(on_disk(&folder), NEW, "as many as allowed");
    }
}

/// OPS-03: of the list, the backend has applied what comes before the limit without an answer.
#[tokio::test]
async fn ops_03_no_answer_midway_is_rolled_back_and_may_be_repeated() {
    for is_shared in [false, true] {
        for (at, lost) in list().into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let backend = FaultyBackend::new(is_shared, 100);
            let admin = start(&folder, &backend).await;
            define_old(&admin).await;
            *backend.no_answer_for.lock().unwrap() = Some(lost.key);
            reason(admin.define_all(list(), TIMEOUT).await);
            assert_eq!(on_disk(&folder), OLD, "{at}");
            if is_shared {
                assert_eq!(staged_count(&folder), 1, "the other servers know");
                admin.tick(&CancellationToken::new()).await;
                let keys: BTreeSet<_> = list().into_iter().map(|limit| limit.key).collect();
                assert_eq!(backend.take_unconfirmed(), [keys], "none of them takes effect later");
            }
            assert_eq!(staged_count(&folder), 0);
            assert_eq!((on_disk(&folder).as_str(), in_backend(&backend).as_str()), (OLD, OLD));
            *backend.no_answer_for.lock().unwrap() = None;
            assert_eq!(admin.define_all(list(), TIMEOUT).await.unwrap().len(), 3);
            assert_eq!((on_disk(&folder).as_str(), in_backend(&backend).as_str()), (NEW, NEW));
        }
    }
}

/// OPS-03, TB-08: the server that took the list does not come back.
#[tokio::test]
async fn ops_03_a_list_without_an_answer_is_rolled_back_by_the_next_server() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(true, 100);
    let admin = start(&folder, &backend).await;
    define_old(&admin).await;
    *backend.no_answer_for.lock().unwrap() = Some(list()[2].key.clone());
    reason(admin.define_all(list(), TIMEOUT).await);
    assert_eq!(in_backend(&backend), "a=1 b=9 c=3 d=4", "a part of it");
    drop(admin);
    drop(start(&folder, &backend).await);
    assert_eq!((on_disk(&folder).as_str(), in_backend(&backend).as_str()), (OLD, OLD));
    assert_eq!(staged_count(&folder), 0);
}

/// OPS-03: a backend that does not even answer the rollback is rolled back by a tick.
#[tokio::test]
async fn ops_03_a_rollback_without_an_answer_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(false, 100);
    let admin = start(&folder, &backend).await;
    define_old(&admin).await;
    *backend.no_answer_for.lock().unwrap() = Some(list()[2].key.clone());
    backend.restores.store(false, Ordering::Relaxed);
    reason(admin.define_all(list(), TIMEOUT).await);
    admin.tick(&CancellationToken::new()).await;
    assert_eq!((on_disk(&folder).as_str(), in_backend(&backend).as_str()), (OLD, "a=1 b=9 c=3"));
    backend.restores.store(true, Ordering::Relaxed);
    admin.tick(&CancellationToken::new()).await;
    assert_eq!((on_disk(&folder).as_str(), in_backend(&backend).as_str()), (OLD, OLD));
}

/// OPS-03, DEF-08
#[tokio::test]
async fn ops_03_a_disk_failure_at_each_step_leaves_all_of_a_list_or_nothing() {
    for is_shared in [false, true] {
        let (mut failures, mut call) = (0, 0);
        loop {
            let folder = tempfile::tempdir().unwrap();
            let backend = FaultyBackend::new(is_shared, 100);
            let disk = FaultyDisk::new(Failure::Once);
            let admin = start_on(file_on(&disk, &folder), &backend).await;
            define_old(&admin).await;
            disk.fail_at(call);
            let answer = admin.define_all(list(), TIMEOUT).await;
            if !disk.has_failed() {
                break;
            }
            let expected = if answer.is_ok() { NEW } else { OLD };
            assert_eq!(in_backend(&backend), expected, "call {call}");
            assert_eq!(on_disk(&folder), expected, "call {call}");
            admin.tick(&CancellationToken::new()).await;
            assert_eq!(in_backend(&backend), expected, "call {call}");
            (failures, call) = (failures + usize::from(answer.is_err()), call + 1);
        }
        assert!(failures >= 7, "folder, open, write, flush, flush, folder, rename, flush");
    }
}

/// TB-08: a rollback may arrive after a crash, so it is not sent while the file may have the change.
#[tokio::test]
async fn tb_08_a_disk_that_goes_on_failing_at_any_step_never_has_what_was_rolled_back() {
    let (mut unknown_count, mut call) = (0, 0);
    loop {
        let folder = tempfile::tempdir().unwrap();
        let (backend, disk) = (FaultyBackend::new(true, 100), FaultyDisk::new(Failure::Crash));
        let admin = start_on(file_on(&disk, &folder), &backend).await;
        define_old(&admin).await;
        disk.fail_at(call);
        let answer = admin.define_all(list(), TIMEOUT).await;
        if !disk.has_failed() {
            break;
        }
        for _ in 0..2 {
            let is_rolled_back = in_backend(&backend) == OLD;
            assert!(!is_rolled_back || on_disk(&folder) == OLD, "call {call}");
            admin.tick(&CancellationToken::new()).await;
        }
        disk.fail_at(usize::MAX);
        for _ in 0..3 {
            admin.tick(&CancellationToken::new()).await;
        }
        let found = on_disk(&folder);
        assert_eq!(in_backend(&backend), found, "call {call}");
        let is_unknown = answer.is_err() && reason(answer).contains("not known yet");
        assert!(is_unknown || found == OLD, "call {call}: an answer stands");
        (unknown_count, call) = (unknown_count + usize::from(is_unknown), call + 1);
    }
    assert!(unknown_count >= 2, "rename, flush");
}

/// TB-08: the server whose rollback was not answered does not come back.
#[tokio::test]
async fn tb_08_a_rollback_without_an_answer_is_made_by_the_others() {
    let (mut rollbacks, mut call) = (0, 0);
    loop {
        let folder = tempfile::tempdir().unwrap();
        let (backend, disk) = (FaultyBackend::new(true, 100), FaultyDisk::new(Failure::Once));
        let dies = start_on(file_on(&disk, &folder), &backend).await;
        let stays = start(&folder, &backend).await;
        define_old(&dies).await;
        for admin in [&dies, &stays] {
            admin.tick(&CancellationToken::new()).await;
        }
        backend.restores.store(false, Ordering::Relaxed);
        disk.fail_at(call);
        let answer = dies.define_all(list(), TIMEOUT).await;
        if !disk.has_failed() {
            break;
        }
        drop(dies);
        backend.restores.store(true, Ordering::Relaxed);
        rollbacks += usize::from(in_backend(&backend) != on_disk(&folder));
        stays.tick(&CancellationToken::new()).await;
        let expected = if answer.is_ok() { NEW } else { OLD };
        assert_eq!(on_disk(&folder), expected, "call {call}");
        assert_eq!(in_backend(&backend), expected, "call {call}");
        assert_eq!(staged_count(&folder), 0, "call {call}");
        call += 1;
    }
    assert!(rollbacks >= 3, "folder, rename, flush");
}

/// TB-08: neither the change nor its rollback is flushed, and the server does not come back.
#[tokio::test]
async fn tb_08_a_change_that_can_neither_be_stored_nor_be_rolled_back_is_settled_by_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (backend, disk) = (FaultyBackend::new(true, 100), FaultyDisk::new(Failure::CommitFlush));
    let dies = start_on(file_on(&disk, &folder), &backend).await;
    let stays = start(&folder, &backend).await;
    define_old(&dies).await;
    stays.tick(&CancellationToken::new()).await;
    disk.fail_at(0);
    let changes = vec![limit("b", 9), limit("a", 7)];
    let answer = reason(dies.define_all(changes, TIMEOUT).await);
    assert!(answer.contains("not known yet"), "{answer}");
    assert_ne!(in_backend(&backend), on_disk(&folder), "the backend keeps the change");
    drop(dies);
    stays.tick(&CancellationToken::new()).await;
    assert_eq!(in_backend(&backend), on_disk(&folder));
    assert_eq!(staged_count(&folder), 0);
}

/// OPS-03, DEF-08
#[tokio::test]
async fn ops_03_a_crash_at_each_step_leaves_the_old_or_the_new_file() {
    for is_shared in [false, true] {
        let (mut old_count, mut new_count, mut call) = (0, 0, 0);
        loop {
            let folder = tempfile::tempdir().unwrap();
            let backend = FaultyBackend::new(is_shared, 100);
            let disk = FaultyDisk::new(Failure::Crash);
            let admin = start_on(file_on(&disk, &folder), &backend).await;
            define_old(&admin).await;
            disk.fail_at(call);
            let answer = admin.define_all(list(), TIMEOUT).await;
            if !disk.has_failed() {
                break;
            }
            drop(admin);
            // What is in memory dies with the process; a shared backend stays.
            let backend = if is_shared { backend } else { FaultyBackend::new(false, 100) };
            drop(start(&folder, &backend).await);
            let found = on_disk(&folder);
            assert_eq!(in_backend(&backend), found, "call {call}");
            assert_eq!(staged_count(&folder), 0, "call {call}");
            match found.as_str() {
                OLD => old_count += 1,
                NEW => new_count += 1,
                other => panic!("call {call}: {other}"),
            }
            assert!(found == NEW || answer.is_err(), "call {call}: an answer stands");
            call += 1;
        }
        assert!(old_count >= 6 && new_count >= 1, "{old_count} and {new_count}");
    }
}

/// OPS-03: as many as a list may have.
#[tokio::test]
async fn ops_03_ten_thousand_limits_are_one_change() {
    let folder = tempfile::tempdir().unwrap();
    let count = ratelimiter_wire::DEFINITIONS_MAX;
    let (backend, disk) = (FaultyBackend::new(false, count), FaultyDisk::new(Failure::Once));
    let admin = start_on(file_on(&disk, &folder), &backend).await;
    let limits = (0..count).map(|number| limit(&format!("{number:05}"), 1)).collect();
    // Only a hang takes as long.
    let statuses = admin.define_all(limits, 100 * TIMEOUT).await.unwrap();
    assert_eq!(statuses, vec![LimitStatus::Active; count]);
    assert_eq!(disk.commits.load(Ordering::Relaxed), 1);
    assert_eq!(backend.memory.states_now(&Page::default()).len(), count);
    assert_eq!(read_limits_file(file(&folder).as_bytes()).unwrap().len(), count);
}
