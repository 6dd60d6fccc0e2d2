//! Definitions that are stored in a document, and restored from there into the backend.
//!
//! A change is staged, applied in the backend, and committed (`DEF-08`). In a backend that is not shared it is applied last, since no
//! rollback brings back what was counted there.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use ratelimiter::{DefineError, DeleteError, Limit, LimitKey, LimitStatus, StateError, Unanswered};
use ratelimiter_waiting::Runtime;
use ratelimiter_wire::LimitsDocument;
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::change::{ChangeError, ChangeRefused, Progress, unanswered};
use super::change_log::{log_defined, log_deleted};
use super::definition_store::{DefinitionStore, StagedChange};
use super::{RETRY_AFTER, RestoreError};
use crate::disk::LockMode;
use crate::hosted::HostedBackend;
use crate::limits_file::{OwnError, is_permanent};
use crate::medium::{Lock, Medium};
use crate::metrics::Text;

/// The definitions in the registry's document and in the backend.
#[derive(Debug)]
pub(super) struct StoredDefinitions<B> {
    pub(super) backend: Arc<B>,
    pub(super) runtime: Arc<dyn Runtime>,
    /// Where the server listens; shown to other servers that want the same definitions.
    pub(super) addr: SocketAddr,
    medium: Arc<dyn Medium>,
    pub(super) store: Mutex<DefinitionStore>,
    /// Number of limits at the start.
    pub(super) limit_count: usize,
    /// Whether the backend has the definitions. Every request checks this; once it is true, without a lock.
    pub(super) is_ready: AtomicBool,
    /// Why the backend does not have them yet.
    pub(super) not_ready_reason: std::sync::Mutex<String>,
}

impl<B: HostedBackend> StoredDefinitions<B> {
    /// Loads the definitions into the backend. A shared backend may not answer yet; the first tick that reaches it does
    /// this then.
    pub(super) async fn restore(
        backend: Arc<B>,
        medium: Arc<dyn Medium>,
        addr: SocketAddr,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, RestoreError> {
        medium.open().await?;
        let owned = own(&*backend, &*medium, addr).await;
        if let Err(OwnError::InUse { by }) = owned {
            let (registry, instead) = medium.describe();
            return Err(RestoreError::InUse { registry, by, instead });
        }
        let (version, document) = medium.load().await?;
        let LimitsDocument { registry, preserved: unknown_fields, notes } = document;
        // A server that cannot write cannot overwrite the definitions of others.
        if let Err(OwnError::CannotLock(error)) = &owned {
            let registry = medium.place();
            tracing::warn!(%registry, %error, "the registry cannot be locked; it is read-only here");
        }
        let is_owned = owned.is_ok();
        let limit_count = registry.len();
        let mut store = DefinitionStore::new(Arc::clone(&medium), owned.ok());
        store.log_notes(&notes);
        let is_shared = backend.is_shared();
        if !is_shared {
            let limits: Vec<_> = registry.iter().cloned().collect();
            let restored = backend.restore_all(limits.clone(), &BTreeSet::new()).await;
            let statuses = restored.map_err(|reason| RestoreError::Backend { reason })?;
            for (registered, status) in limits.into_iter().zip(statuses) {
                let key = registered.limit.key.clone();
                store.put(registered);
                store.note_status(&key, status);
            }
            (store.unknown_fields, store.version_seen) = (unknown_fields, version);
            if is_owned {
                // A memory backend has no late changes, so what a dead process has staged means nothing.
                medium.clear_staged().await;
            }
        }
        let reason = "the backend does not have the definitions yet".to_owned();
        Ok(Self {
            backend,
            runtime,
            addr,
            medium,
            store: Mutex::new(store),
            limit_count,
            is_ready: AtomicBool::new(!is_shared),
            not_ready_reason: std::sync::Mutex::new(reason),
        })
    }

    pub(super) async fn define(
        &self,
        limits: Vec<Limit>,
        progress: &Progress,
    ) -> Result<Vec<LimitStatus>, ChangeError<DefineError>> {
        let mut store = self.store.lock().await;
        let lock = self.lock_for_change(&mut store).await?;
        let lock = lock.as_ref();
        let keys: Vec<_> = limits.iter().map(|limit| limit.key.clone()).collect();
        let next = store.plan(&limits)?;
        let is_shared = self.backend.is_shared();
        if !is_shared {
            self.backend.check(&limits).await?;
        }
        let staged = store.stage(&next, lock).await.map_err(|error| not_written(&error))?;
        if let Err(withdrawn) = progress.begin() {
            staged.discard().await;
            return Err(withdrawn.into());
        }
        let statuses = match is_shared {
            true => self.apply_and_commit(&mut store, limits, &keys, staged, lock).await?,
            false => self.commit_and_apply(&mut store, limits, &keys, staged, lock).await?,
        };
        for (key, status) in keys.iter().zip(&statuses) {
            let planned = next.get(key).expect("it was planned");
            log_defined(store.registry().get(key), planned, *status);
            store.put(planned.clone());
            store.note_status(key, *status);
        }
        store.write_if_needed(lock).await;
        Ok(statuses)
    }

    /// For a shared backend, which may leave a definition without an answer.
    async fn apply_and_commit(
        &self,
        store: &mut DefinitionStore,
        limits: Vec<Limit>,
        keys: &[LimitKey],
        staged: StagedChange,
        lock: Option<&Lock>,
    ) -> Result<Vec<LimitStatus>, ChangeError<DefineError>> {
        let statuses = match self.backend.define_all(limits).await {
            Ok(statuses) => statuses,
            Err(error @ DefineError::Unanswered(_)) => {
                // It may still take effect, even after this server has ended. The next tick of any server reverts it.
                staged.leave_uncommitted();
                return Err(error.into());
            }
            Err(error) => {
                self.restore_backend(store, keys, staged).await;
                return Err(error.into());
            }
        };
        if let Err(error) = staged.commit().await {
            return Err(self.roll_back(store, keys, lock, &error).await.into());
        }
        Ok(statuses)
    }

    /// For a backend that is not shared. The definitions were checked; a conflict may have come up since.
    async fn commit_and_apply(
        &self,
        store: &mut DefinitionStore,
        limits: Vec<Limit>,
        keys: &[LimitKey],
        staged: StagedChange,
        lock: Option<&Lock>,
    ) -> Result<Vec<LimitStatus>, ChangeError<DefineError>> {
        if let Err(error) = staged.commit().await {
            return Err(self.roll_back(store, &[], lock, &error).await.into());
        }
        let defined = self.backend.define_all(limits).await;
        if defined.is_err() {
            self.restore_backend(store, keys, StagedChange::default()).await;
            // The registry is as it was. A tick writes it if that fails now.
            store.needs_write = true;
            store.write_if_needed(lock).await;
        }
        Ok(defined?)
    }

    pub(super) async fn delete(
        &self,
        key: &LimitKey,
        progress: &Progress,
    ) -> Result<(), ChangeError<DeleteError>> {
        let mut store = self.store.lock().await;
        let lock = self.lock_for_change(&mut store).await?;
        let lock = lock.as_ref();
        let is_shared = self.backend.is_shared();
        if !is_shared && self.backend.state(key).await.map_err(state_unread)?.is_none() {
            return Err(DeleteError::UnknownKey { key: key.clone() }.into());
        }
        let mut next = store.registry().clone();
        next.remove(key);
        let staged = store.stage(&next, lock).await.map_err(|error| not_written(&error))?;
        if let Err(withdrawn) = progress.begin() {
            staged.discard().await;
            return Err(withdrawn.into());
        }
        if is_shared && let Err(error) = self.backend.delete(key).await {
            staged.discard().await;
            return Err(error.into());
        }
        if let Err(error) = staged.commit().await {
            let keys = std::slice::from_ref(key);
            return Err(self.roll_back(&mut store, keys, lock, &error).await.into());
        }
        // What this process has counted goes with the limit, and no rollback brings it back; so the file comes first.
        if !is_shared {
            self.backend.delete(key).await?;
        }
        log_deleted(key, store.registry().get(key));
        store.remove(key);
        Ok(())
    }

    /// Rolls back a change that the backend has applied and the document perhaps not. The document comes first: it may
    /// have the new content without being flushed, and a rollback that reaches the backend after a crash of this server
    /// would contradict it (`TB-08`). A document that cannot be replaced is unchanged.
    async fn roll_back(
        &self,
        store: &mut DefinitionStore,
        keys: &[LimitKey],
        lock: Option<&Lock>,
        error: &io::Error,
    ) -> ChangeRefused {
        let is_permanent = is_permanent(error);
        if !is_permanent {
            tracing::error!(%error, "the registry cannot be written");
        }
        let is_unchanged = is_permanent || store.is_document_unchanged(lock).await;
        store.needs_write |= !is_unchanged;
        let is_old = is_unchanged || store.write_if_needed(lock).await;
        // If this succeeds, the folder was flushed, and the document has either content for good. Who finds it restores that.
        let staged = store.stage_without(keys, lock).await;
        let mut is_restored = false;
        if is_old {
            is_restored = self.restore_backend(store, keys, staged).await;
        } else if let Some((key, others)) = keys.split_first() {
            staged.leave_uncommitted();
            store.pending_rollbacks.extend(keys.iter().cloned());
            let others = others.len();
            tracing::error!(%key, others, "a failed change is still in force, at least until the registry can be written");
        }
        if is_permanent && is_restored {
            return ChangeRefused::of("the registry cannot be replaced", error);
        }
        let outcome = match (is_old, is_restored) {
            (true, true) => "so the change is rolled back",
            (true, false) => "so the change is rolled back as soon as the backend answers",
            (false, _) => "nor restored now; whether the change takes effect is not known yet",
        };
        unanswered(format!("the registry cannot be written, {outcome}: {error}")).into()
    }

    /// Restores limits in the backend from the registry, after a change that failed or could not be stored. False if the
    /// backend does not answer; the next tick tries again.
    ///
    /// What is staged differs from the document in these limits. It stays until the backend has answered, so that another
    /// server restores them if this one ends (`TB-08`).
    async fn restore_backend(
        &self,
        store: &mut DefinitionStore,
        keys: &[LimitKey],
        staged: StagedChange,
    ) -> bool {
        let registered = keys.iter().filter_map(|key| store.registry().get(key));
        let registered: Vec<_> = registered.cloned().collect();
        let is_restored = registered.is_empty()
            || self.backend.restore_all(registered, &BTreeSet::new()).await.is_ok();
        let mut new_pending = Vec::new();
        for key in keys {
            let is_undone = match store.registry().get(key) {
                Some(_) => is_restored,
                None => {
                    let deleted = self.backend.delete(key).await;
                    matches!(deleted, Ok(()) | Err(DeleteError::UnknownKey { .. }))
                }
            };
            if is_undone {
                store.pending_rollbacks.remove(key);
            } else if store.pending_rollbacks.insert(key.clone()) {
                new_pending.push(key);
            }
        }
        if let Some((key, others)) = new_pending.split_first() {
            let others = others.len();
            tracing::error!(%key, others, "a failed change is still in force; rolling back when the backend answers");
        }
        let is_undone = !keys.iter().any(|key| store.pending_rollbacks.contains(key));
        match is_undone {
            true => staged.discard().await,
            false => staged.leave_uncommitted(),
        }
        is_undone
    }

    async fn retry_rollbacks(&self, store: &mut DefinitionStore) {
        // While the document may have the failed change, the backend keeps it, too.
        if store.pending_rollbacks.is_empty() || store.needs_write {
            return;
        }
        // If another server has changed these limits in the meantime, its change counts.
        let Ok(lock) = self.lock_for_change(store).await else {
            return;
        };
        let keys: Vec<_> = store.pending_rollbacks.iter().cloned().collect();
        let staged = store.stage_without(&keys, lock.as_ref()).await;
        self.restore_backend(store, &keys, staged).await;
    }

    /// Runs the backend's background work, applies what others have written, and stores the decreases that have been
    /// applied.
    ///
    /// The backend may not answer. `stop` ends the waiting, but not a write.
    pub(super) async fn tick(&self, stop: &CancellationToken) {
        let worked = stop.run_until_cancelled(self.tick_before_write());
        if let Some(Some((mut store, lock))) = worked.await {
            store.write_if_needed(lock.as_ref()).await;
        }
    }

    /// All of a tick except the write. Returns the store and the lock if there is something to write.
    async fn tick_before_write(&self) -> Option<(MutexGuard<'_, DefinitionStore>, Option<Lock>)> {
        if !self.initialize().await {
            return None;
        }
        self.backend.tick(&*self.runtime).await;
        let mut store = self.store.lock().await;
        if self.backend.is_shared() {
            self.sync_from_file(&mut store).await;
        }
        self.keep_ownership(&mut store).await;
        self.retry_rollbacks(&mut store).await;
        let mut settled = Vec::new();
        for key in store.decreasing() {
            // Without an answer nothing changes; the next tick asks again.
            if self.backend.waits(&key).await == Ok(Some(false)) {
                settled.push(key);
            }
        }
        if !store.needs_write && settled.is_empty() {
            return None;
        }
        let lock = self.persist_committed(&mut store, &settled).await?;
        store.is_owned().then_some((store, lock))
    }
}

impl<B> StoredDefinitions<B> {
    pub(super) async fn close(&self) {
        self.medium.close().await;
    }

    /// Adds the metrics of a registry in a database, in Prometheus' text format.
    pub(super) fn write_metrics(&self, text: &mut String) {
        let Some(is_connected) = self.medium.is_connected() else { return };
        let name = "ratelimiter_registry_connected";
        let mut own = Text::default();
        own.family(name, "gauge", "Whether the database of the registry answers.");
        own.sample(name, &[], u8::from(is_connected));
        text.push_str(&own.into_string());
    }

    /// Why requests cannot be answered yet; `None` once the backend has the definitions.
    pub(super) fn not_started(&self) -> Option<Unanswered> {
        if self.is_ready.load(Ordering::Acquire) {
            return None;
        }
        let reason = self.not_ready_reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(Unanswered { reason, retry_after: RETRY_AFTER })
    }
}

pub(super) async fn own<B: HostedBackend>(
    backend: &B,
    medium: &dyn Medium,
    addr: SocketAddr,
) -> Result<Lock, OwnError> {
    let mode = if backend.is_shared() { LockMode::Shared } else { LockMode::Exclusive };
    medium.own(mode, addr).await
}

fn not_written(error: &io::Error) -> ChangeRefused {
    ChangeRefused::of("the registry cannot be written", error)
}

fn state_unread(error: StateError) -> DeleteError {
    match error {
        StateError::Unanswered(unanswered) => unanswered.into(),
        StateError::Refused(refused) => refused.into(),
    }
}
