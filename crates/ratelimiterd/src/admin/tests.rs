mod define_all;

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use ratelimiter::admission::TurnBackend;
use ratelimiter::{
    Backend, Capacity, CompleteError, CompleteRequest, Decision, ForgiveError, HoldTimeout,
    LeaseId, LeasePage, LeasesError, LimitKind, LimitState, Limiter, MemoryLimiter, OpenLease,
    Page, RegisteredLimit, ReleaseError, Requirements, ReserveError, ReserveRequest, StateError,
    Window,
};
use ratelimiter_waiting::TokioRuntime;
use tokio::sync::{Notify, Semaphore};

use super::change::ChangeRefused;
use super::definition_store::DefinitionStore;
use super::*;
use crate::disk::LockMode;
use crate::limits_file::OwnError;
use crate::{LimitsFile, NotReady};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A memory backend whose definitions can be delayed or left without an answer, and which can claim to be shared.
#[derive(Debug)]
struct FaultyBackend {
    memory: MemoryLimiter,
    is_shared: bool,
    answers: AtomicBool,
    /// The definition of this limit alone gets no answer.
    no_answer_for: std::sync::Mutex<Option<LimitKey>>,
    restores: AtomicBool,
    /// One permit for each definition that may proceed.
    turns: Semaphore,
    asked: Notify,
    /// The unconfirmed limits of each restore that had some.
    unconfirmed: std::sync::Mutex<Vec<BTreeSet<LimitKey>>>,
}

impl FaultyBackend {
    fn new(is_shared: bool, turns: usize) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryLimiter::new(),
            is_shared,
            answers: AtomicBool::new(true),
            no_answer_for: std::sync::Mutex::default(),
            restores: AtomicBool::new(true),
            turns: Semaphore::new(turns),
            asked: Notify::new(),
            unconfirmed: std::sync::Mutex::default(),
        })
    }

    fn take_unconfirmed(&self) -> Vec<BTreeSet<LimitKey>> {
        std::mem::take(&mut self.unconfirmed.lock().unwrap())
    }
}

impl Limiter for FaultyBackend {
    async fn reserve(&self, _: &ReserveRequest) -> Result<Decision, ReserveError> {
        pending().await
    }

    async fn complete(&self, _: &CompleteRequest) -> Result<(), CompleteError> {
        pending().await
    }
}

impl Backend for FaultyBackend {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.asked.notify_one();
        self.turns.acquire().await.unwrap().forget();
        let is_lost = self.no_answer_for.lock().unwrap().as_ref() == Some(&limit.key);
        if is_lost || !self.answers.load(Ordering::Relaxed) {
            return Err(unanswered("no answer".to_owned()).into());
        }
        Backend::define(&self.memory, limit).await
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        Backend::delete(&self.memory, key).await
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        Backend::state(&self.memory, key).await
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        Backend::states(&self.memory, page).await
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        self.memory.leases(page).await
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.memory.release(lease).await
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        self.memory.forgive(key).await
    }
}

impl TurnBackend for FaultyBackend {
    fn is_shared(&self) -> bool {
        self.is_shared
    }
}

impl HostedBackend for FaultyBackend {
    async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        HostedBackend::restore(&self.memory, registered).await
    }

    async fn check(&self, limits: &[Limit]) -> Result<(), DefineError> {
        self.memory.check(limits).await
    }

    async fn restore_all(
        &self,
        limits: Vec<RegisteredLimit>,
        unconfirmed: &BTreeSet<LimitKey>,
    ) -> Result<Vec<LimitStatus>, DefineError> {
        if !self.restores.load(Ordering::Relaxed) {
            return Err(unanswered("no answer".to_owned()).into());
        }
        if !unconfirmed.is_empty() {
            self.unconfirmed.lock().unwrap().push(unconfirmed.clone());
        }
        self.memory.restore_all(limits, unconfirmed).await
    }

    async fn visible_states(
        &self,
        page: &Page,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        self.memory.visible_states(page, is_visible).await
    }

    async fn visible_leases(
        &self,
        page: &LeasePage,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        self.memory.visible_leases(page, is_visible).await
    }

    async fn ready(&self) -> Result<(), NotReady> {
        Ok(())
    }

    async fn tick(&self, _: &dyn Runtime) {}

    fn open_leases(&self) -> Option<u64> {
        None
    }
}

fn limit(key: &str, capacity: u64) -> Limit {
    let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
    Limit::new(LimitKey::new(key).unwrap(), kind, Capacity::new(capacity).unwrap())
}

async fn start(
    folder: &tempfile::TempDir,
    backend: &Arc<FaultyBackend>,
) -> Arc<Admin<FaultyBackend>> {
    start_on(LimitsFile::new(folder.path().join("limits.json")), backend).await
}

async fn start_on(file: LimitsFile, backend: &Arc<FaultyBackend>) -> Arc<Admin<FaultyBackend>> {
    let addr = "127.0.0.1:1".parse().unwrap();
    let admin = Arc::new(
        Admin::restore(Arc::clone(backend), file, addr, Arc::new(TokioRuntime)).await.unwrap(),
    );
    admin.tick(&CancellationToken::new()).await;
    assert_eq!(admin.not_started(), None);
    admin
}

fn file(folder: &tempfile::TempDir) -> String {
    std::fs::read_to_string(folder.path().join("limits.json")).unwrap_or_default()
}

fn staged_count(folder: &tempfile::TempDir) -> usize {
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".tmp")).count()
}

fn reason<T>(answer: Result<T, ChangeError<DefineError>>) -> String {
    match answer {
        Err(ChangeError::Backend(DefineError::Unanswered(Unanswered { reason, .. }))) => reason,
        _ => panic!("there was an answer"),
    }
}

/// DEF-08: a change that was answered with "nothing was changed" does not take effect later.
#[tokio::test(start_paused = true)]
async fn def_08_a_change_that_has_not_begun_in_time_is_withdrawn() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(false, 0);
    let admin = start(&folder, &backend).await;
    let first = tokio::spawn({
        let admin = Arc::clone(&admin);
        async move { admin.define(limit("first", 1), 100 * TIMEOUT).await }
    });
    backend.asked.notified().await;
    let second = reason(admin.define(limit("second", 1), TIMEOUT).await);
    assert!(second.contains("nothing was changed, and nothing will be"), "{second}");
    backend.turns.add_permits(10);
    assert_eq!(first.await.unwrap(), Ok(LimitStatus::Active));
    // Changes take turns, so after this one the second has had its own.
    assert_eq!(admin.define(limit("third", 1), TIMEOUT).await, Ok(LimitStatus::Active));
    let keys: Vec<_> = backend.memory.states_now(&Page::default());
    let keys: Vec<_> = keys.iter().map(|state| state.limit.key.as_str()).collect();
    assert_eq!(keys, ["first", "third"]);
    assert!(!file(&folder).contains("\"second\""));
}

/// DEF-08: a change that has begun gets the same time again to end.
#[tokio::test(start_paused = true)]
async fn def_08_a_change_that_has_begun_is_answered_with_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(false, 0);
    let admin = start(&folder, &backend).await;
    let slow = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move {
            backend.asked.notified().await;
            let waited = tokio::time::timeout(TIMEOUT + TIMEOUT / 2, pending::<()>()).await;
            assert!(waited.is_err());
            backend.turns.add_permits(1);
        }
    });
    assert_eq!(admin.define(limit("slow", 1), TIMEOUT).await, Ok(LimitStatus::Active));
    slow.await.unwrap();
    assert!(file(&folder).contains("slow"));
}

/// DEF-08: even if the backend never answers, there is an answer, and it claims no more than is known.
#[tokio::test(start_paused = true)]
async fn def_08_a_change_that_does_not_end_is_reported_as_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(false, 0);
    let admin = start(&folder, &backend).await;
    let answer = reason(admin.define(limit("k", 1), TIMEOUT).await);
    assert!(answer.contains("not known yet"), "{answer}");
}

/// DEF-08: the answer does not claim a rollback if a file that may have the change cannot be restored.
#[tokio::test]
async fn def_08_a_change_that_can_be_neither_stored_nor_rolled_back_is_reported_as_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.json");
    let backend = FaultyBackend::new(false, 10);
    let admin = start(&folder, &backend).await;
    admin.define(limit("k", 1), TIMEOUT).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let answer = reason(admin.define(limit("k", 2), TIMEOUT).await);
    assert!(answer.contains("not known yet"), "{answer}");
    assert_eq!(backend.memory.state_now(&limit("k", 1).key).unwrap().limit, limit("k", 1));
    std::fs::remove_dir(&path).unwrap();
    admin.tick(&CancellationToken::new()).await;
    assert!(file(&folder).contains("\"capacity\": 1"), "it is put back when that is possible");
}

/// DEF-08: a memory backend goes on counting what is reserved when a delete is rolled back.
#[tokio::test]
async fn def_08_a_delete_that_cannot_be_stored_forgets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.json");
    let backend = FaultyBackend::new(false, 10);
    let admin = start(&folder, &backend).await;
    let Limit { key, .. } = limit("k", 5);
    admin.define(limit("k", 5), TIMEOUT).await.unwrap();
    let lease = LeaseId::generate(backend.memory.now());
    let requirements = Requirements::of([(key.clone(), 3)]).unwrap();
    let decision = backend.memory.reserve_now(&ReserveRequest::new(lease, requirements)).unwrap();
    assert!(decision.is_allowed());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    admin.delete(key.clone(), TIMEOUT).await.unwrap_err();
    assert_eq!(backend.memory.state_now(&key).unwrap().usage.used, 3);
    std::fs::remove_dir(&path).unwrap();
    admin.delete(key.clone(), TIMEOUT).await.unwrap();
    assert_eq!(backend.memory.state_now(&key), None);
    let unknown = DeleteError::UnknownKey { key: key.clone() };
    assert_eq!(admin.delete(key, TIMEOUT).await, Err(unknown.into()));
}

/// Reserves 3 units for a new lease.
fn reserve_3(backend: &FaultyBackend, key: &LimitKey) -> bool {
    let lease = LeaseId::generate(backend.memory.now());
    let requirements = Requirements::of([(key.clone(), 3)]).unwrap();
    backend.memory.reserve_now(&ReserveRequest::new(lease, requirements)).unwrap().is_allowed()
}

/// TPL-03, DEF-08: a definition that takes over an instance in use and cannot be stored forgets nothing.
#[tokio::test]
async fn tpl_03_a_definition_that_cannot_be_stored_leaves_the_instance_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.json");
    let backend = FaultyBackend::new(false, 10);
    let admin = start(&folder, &backend).await;
    admin.define(limit("t:*", 5), TIMEOUT).await.unwrap();
    let Limit { key, .. } = limit("t:a", 9);
    assert!(reserve_3(&backend, &key));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    admin.define(limit("t:a", 9), TIMEOUT).await.unwrap_err();
    let state = backend.memory.state_now(&key).unwrap();
    assert_eq!((state.usage.used, state.limit.capacity.get()), (3, 5));
    assert!(!reserve_3(&backend, &key), "the capacity is 5");
}

/// TPL-04, DEF-08: a template that takes over instances with another kind and cannot be stored forgets nothing.
#[tokio::test]
async fn tpl_04_a_template_that_cannot_be_stored_leaves_the_instances_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.json");
    let backend = FaultyBackend::new(false, 10);
    let admin = start(&folder, &backend).await;
    admin.define(limit("t:**", 5), TIMEOUT).await.unwrap();
    let Limit { key, .. } = limit("t:a:x", 5);
    assert!(reserve_3(&backend, &key));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let timeout = HoldTimeout::from_seconds(60).unwrap();
    let other = Limit { kind: LimitKind::Concurrency { timeout }, ..limit("t:a:*", 5) };
    admin.define(other, TIMEOUT).await.unwrap_err();
    assert_eq!(backend.memory.state_now(&key).unwrap().usage.used, 3);
}

/// TPL-03, DEF-08: an instance of another kind came into use after the check; the file gets its old content back.
#[tokio::test]
async fn tpl_03_a_conflict_after_the_check_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(false, 1);
    let admin = start(&folder, &backend).await;
    admin.define(limit("t:*", 5), TIMEOUT).await.unwrap();
    backend.asked.notified().await;
    let before = file(&folder);
    let timeout = HoldTimeout::from_seconds(60).unwrap();
    let other = Limit { kind: LimitKind::Concurrency { timeout }, ..limit("t:a", 9) };
    let key = other.key.clone();
    let change = tokio::spawn({
        let admin = Arc::clone(&admin);
        async move { admin.define(other, TIMEOUT).await }
    });
    backend.asked.notified().await;
    assert!(file(&folder).contains("t:a"), "it is committed before it is applied");
    assert!(reserve_3(&backend, &key));
    backend.turns.add_permits(1);
    let conflict = DefineError::KindConflict { key: key.clone(), is: "rolling" };
    assert_eq!(change.await.unwrap(), Err(conflict.into()));
    assert_eq!(backend.memory.state_now(&key).unwrap().usage.used, 3);
    assert_eq!(file(&folder), before);
    assert_eq!(staged_count(&folder), 0);
}

/// TPL-03, DEF-08: the old content is written at a tick if that was not possible at once.
#[tokio::test]
async fn tpl_03_a_file_that_could_not_be_written_after_a_conflict_is_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.json");
    let backend = FaultyBackend::new(false, 1);
    let admin = start(&folder, &backend).await;
    admin.define(limit("t:*", 5), TIMEOUT).await.unwrap();
    backend.asked.notified().await;
    let before = file(&folder);
    let timeout = HoldTimeout::from_seconds(60).unwrap();
    let other = Limit { kind: LimitKind::Concurrency { timeout }, ..limit("t:a", 9) };
    let key = other.key.clone();
    let change = tokio::spawn({
        let admin = Arc::clone(&admin);
        async move { admin.define(other, TIMEOUT).await }
    });
    backend.asked.notified().await;
    assert!(reserve_3(&backend, &key));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    backend.turns.add_permits(1);
    let conflict = DefineError::KindConflict { key: key.clone(), is: "rolling" };
    assert_eq!(change.await.unwrap(), Err(conflict.into()));
    std::fs::remove_dir(&path).unwrap();
    admin.tick(&CancellationToken::new()).await;
    assert_eq!(file(&folder), before);
    assert_eq!(backend.memory.state_now(&key).unwrap().usage.used, 3);
}

/// TB-08: the staged file stays until a tick of this or another server has made sure that the change cannot take effect.
#[tokio::test]
async fn tb_08_a_change_without_an_answer_is_known_to_the_next_server() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(true, 10);
    let admin = start(&folder, &backend).await;
    admin.define(limit("k", 1), TIMEOUT).await.unwrap();
    backend.answers.store(false, Ordering::Relaxed);
    let key = BTreeSet::from([limit("k", 2).key]);
    for is_crash in [false, true] {
        reason(admin.define(limit("k", 2), TIMEOUT).await);
        assert_eq!((staged_count(&folder), backend.take_unconfirmed().len()), (1, 0));
        match is_crash {
            false => admin.tick(&CancellationToken::new()).await,
            true => drop(start(&folder, &backend).await),
        }
        assert_eq!(backend.take_unconfirmed(), std::slice::from_ref(&key));
        assert_eq!(staged_count(&folder), 0, "it is said once");
        assert!(file(&folder).contains("\"capacity\": 1"), "the change is withdrawn");
    }
}

/// TB-08: the others do not wait for a server that never comes back.
#[tokio::test]
async fn tb_08_a_change_that_a_dead_server_has_begun_is_prevented_by_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(true, 10);
    let (dies, stays) = (start(&folder, &backend).await, start(&folder, &backend).await);
    dies.define(limit("k", 5), TIMEOUT).await.unwrap();
    stays.tick(&CancellationToken::new()).await;
    backend.answers.store(false, Ordering::Relaxed);
    reason(dies.define(limit("k", 50), TIMEOUT).await);
    drop(dies);
    assert_eq!((staged_count(&folder), backend.take_unconfirmed().len()), (1, 0));
    stays.tick(&CancellationToken::new()).await;
    assert_eq!(backend.take_unconfirmed(), [BTreeSet::from([limit("k", 5).key])]);
    assert_eq!(staged_count(&folder), 0);
    stays.tick(&CancellationToken::new()).await;
    assert_eq!(backend.take_unconfirmed(), [], "it is said once");
}

/// TB-08: without a staged file nothing is unconfirmed.
#[tokio::test]
async fn tb_08_a_start_after_a_clean_end_finds_nothing_unconfirmed() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FaultyBackend::new(true, 10);
    let admin = start(&folder, &backend).await;
    admin.define(limit("k", 1), TIMEOUT).await.unwrap();
    admin.delete(limit("k", 1).key, TIMEOUT).await.unwrap();
    admin.define(limit("l", 1), TIMEOUT).await.unwrap();
    drop(start(&folder, &backend).await);
    assert_eq!(backend.take_unconfirmed(), []);
}

/// A file that cannot be locked is read-only.
#[tokio::test]
async fn a_file_that_cannot_be_locked_is_served_and_not_changed() {
    for is_shared in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"[{"key":"k","kind":"rolling","capacity":7,"window_seconds":60}]"#;
        std::fs::write(folder.path().join("limits.json"), text).unwrap();
        for lock in ["limits.json.lock", "limits.json.owner"] {
            std::fs::create_dir(folder.path().join(lock)).unwrap();
        }
        let backend = FaultyBackend::new(is_shared, 10);
        let admin = start(&folder, &backend).await;
        let state = backend.memory.state_now(&limit("k", 7).key).unwrap();
        assert_eq!(state.limit.capacity.get(), 7);
        let answer = reason(admin.define(limit("k", 8), TIMEOUT).await);
        assert!(answer.contains("the registry cannot be locked: Is a directory"), "{answer}");
        assert_eq!(file(&folder), text);
        std::fs::remove_dir(folder.path().join("limits.json.lock")).unwrap();
        std::fs::remove_dir(folder.path().join("limits.json.owner")).unwrap();
        let answer = admin.define(limit("k", 8), TIMEOUT).await;
        assert_eq!(answer, Ok(LimitStatus::Active), "when it can be locked, it can be changed");
    }
}

/// OPS-06: a memory server that could not own its file at the start does not overwrite later changes of others.
#[tokio::test]
async fn ops_06_a_file_that_another_server_has_changed_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let owner = folder.path().join("limits.json.owner");
    std::fs::create_dir(&owner).unwrap();
    let late = start(&folder, &FaultyBackend::new(false, 10)).await;
    std::fs::remove_dir(&owner).unwrap();
    let other = start(&folder, &FaultyBackend::new(false, 10)).await;
    other.define(limit("theirs", 1), TIMEOUT).await.unwrap();
    drop(other);
    let text = file(&folder);
    let changed = ChangeRefused::ReadOnly { reason: shared_file::CHANGED_SINCE_START.to_owned() };
    assert_eq!(late.define(limit("ours", 1), TIMEOUT).await, Err(changed.into()));
    assert_eq!(file(&folder), text);
    drop(start(&folder, &FaultyBackend::new(false, 10)).await);
}

/// OPS-06: a server that is stopped during a write releases the file when the write has ended.
#[tokio::test]
async fn ops_06_a_staged_change_keeps_the_lock_until_it_is_committed() {
    let folder = tempfile::tempdir().unwrap();
    let file = LimitsFile::new(folder.path().join("limits.json"));
    let addr = "127.0.0.1:1".parse().unwrap();
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
    let medium = RegistryPlace::from(file.clone()).medium(&runtime).unwrap();
    let owned = medium.own(LockMode::Exclusive, addr).await.ok();
    let store = DefinitionStore::new(Arc::clone(&medium), owned);
    let lock = medium.try_lock().await.unwrap();
    let next = [RegisteredLimit::in_force(limit("k", 1))].into_iter().collect();
    let staged = store.stage(&next, lock.as_ref()).await.unwrap();
    drop((store, lock));
    assert!(file.try_lock().unwrap().is_none());
    assert!(matches!(file.own(LockMode::Exclusive, addr), Err(OwnError::InUse { .. })));
    staged.commit().await.unwrap();
    assert!(file.try_lock().unwrap().is_some());
    assert!(file.own(LockMode::Exclusive, addr).is_ok());
}

/// OPS-06: servers on one file change it one after another, and a change does not wait forever.
#[tokio::test(start_paused = true)]
async fn ops_06_a_change_waits_for_another_servers_and_then_gives_up() {
    let folder = tempfile::tempdir().unwrap();
    let admin = start(&folder, &FaultyBackend::new(true, 10)).await;
    let others = LimitsFile::new(folder.path().join("limits.json"));
    let lock = others.try_lock().unwrap().unwrap();
    let change = tokio::spawn({
        let admin = Arc::clone(&admin);
        async move { admin.define(limit("k", 1), TIMEOUT).await }
    });
    let waited = tokio::time::timeout(Duration::from_secs(1), pending::<()>()).await;
    assert!(waited.is_err() && !change.is_finished());
    drop(lock);
    assert_eq!(change.await.unwrap(), Ok(LimitStatus::Active));
    let _lock = others.try_lock().unwrap().unwrap();
    let answer = reason(admin.define(limit("k", 2), TIMEOUT).await);
    assert_eq!(answer, "another server is changing the limits");
}

/// OPS-05: unknown fields of a limit are deleted with the limit.
#[tokio::test]
async fn ops_05_unknown_fields_do_not_outlive_their_limit() {
    for is_shared in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"version":2,"limits":[
            {"key":"a","kind":"rolling","capacity":7,"window_seconds":60,"owner":"search"},
            {"key":"b","kind":"rolling","capacity":7,"window_seconds":60,"owner":"chat"}]}"#;
        std::fs::write(folder.path().join("limits.json"), text).unwrap();
        let admin = start(&folder, &FaultyBackend::new(is_shared, 10)).await;
        admin.delete(limit("a", 7).key, TIMEOUT).await.unwrap();
        admin.define(limit("a", 7), TIMEOUT).await.unwrap();
        let text = file(&folder);
        assert!(!text.contains("search") && text.contains("chat"), "{text}");
    }
}

#[test]
fn permanent_write_errors_are_told_from_temporary_ones() {
    use io::ErrorKind as Kind;
    let is_read_only = |kind: Kind| match ChangeRefused::of("it cannot be written", &kind.into()) {
        ChangeRefused::ReadOnly { reason } => {
            assert!(reason.starts_with("it cannot be written: "), "{reason}");
            true
        }
        ChangeRefused::Unanswered(_) => false,
    };
    // The latter two where the file itself is a mount point.
    let never = [Kind::PermissionDenied, Kind::ReadOnlyFilesystem];
    assert!(never.into_iter().chain([Kind::ResourceBusy, Kind::CrossesDevices]).all(is_read_only));
    assert!(![Kind::StorageFull, Kind::NotADirectory, Kind::Other].into_iter().any(is_read_only));
}
