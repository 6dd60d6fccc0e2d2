//! Changing limits: one change at a time, in the backend and in the registry's document together.
//!
//! A change is staged, applied in the backend, and committed (`DEF-08`). In a backend that is not shared it is applied last, since no
//! rollback brings back what was counted there. It completes even if the client disconnects, so that backend and document stay
//! consistent.

mod change;
mod change_log;
mod definition_store;
mod shared_file;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ratelimiter::{DefineError, DeleteError, Limit, LimitKey, LimitStatus, StateError, Unanswered};
use ratelimiter_wire::LimitsDocument;
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use self::change::ChangeError;
use self::change::{ChangeRefused, Progress, unanswered};
use self::change_log::{log_defined, log_deleted};
use self::definition_store::{DefinitionStore, StagedChange};
use crate::disk::LockMode;
use crate::hosted::HostedBackend;
use crate::limits_file::{LoadError, OwnError, is_permanent};
use crate::medium::{Lock, Medium, RegistryPlace};
use crate::metrics::Text;
use crate::runtime::Runtime;

/// Retry hint of a change that could not be stored.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Defines and deletes limits, in the backend and in the registry's document.
#[derive(Debug)]
pub struct Admin<B> {
    backend: Arc<B>,
    runtime: Arc<dyn Runtime>,
    /// Where the server listens; shown to other servers that want the same definitions.
    addr: SocketAddr,
    medium: Arc<dyn Medium>,
    store: Mutex<DefinitionStore>,
    /// Number of limits at the start.
    limit_count: usize,
    /// Whether the backend has the definitions. Every request checks this; once it is true, without a lock.
    is_ready: AtomicBool,
    /// Why the backend does not have them yet.
    not_ready_reason: std::sync::Mutex<String>,
    changed: Arc<Notify>,
}

/// Why the definitions could not be restored.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum RestoreError {
    /// Another server owns the definitions (`OPS-06`).
    #[error("{registry} is in use by {by}; stop that, or give this server {instead}")]
    InUse { registry: String, by: String, instead: &'static str },
    /// The limits file, or the document in a database, cannot be used.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The backend rejected the limits.
    #[error("the backend rejected the limits: {reason}")]
    Backend { reason: DefineError },
}

impl<B: HostedBackend> Admin<B> {
    /// Loads the definitions from a file or a database into the backend. A shared backend may not answer yet; the first
    /// tick that reaches it does this then.
    ///
    /// # Errors
    /// Another server owns the definitions, they cannot be read or have errors, or the backend rejects the limits.
    pub async fn restore(
        backend: Arc<B>,
        place: impl Into<RegistryPlace>,
        addr: SocketAddr,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, RestoreError> {
        let medium = place.into().medium(&runtime);
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
            changed: Arc::default(),
        })
    }

    /// Is notified when limits may have changed, successfully or not.
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Defines or changes a limit. When this returns, the definition is safe on disk.
    ///
    /// # Errors
    /// As the backend's define, and when the definition could not be stored. Nothing has changed then, and nothing will,
    /// unless the message says that the outcome is not known yet.
    pub async fn define(
        self: &Arc<Self>,
        limit: Limit,
        timeout: Duration,
    ) -> Result<LimitStatus, ChangeError<DefineError>> {
        Ok(self.define_all(vec![limit], timeout).await?[0])
    }

    /// Defines or changes limits with distinct keys, all or none, with one write of the file (`OPS-03`). Returns one
    /// status per limit, in order.
    ///
    /// # Errors
    /// As for [`Admin::define`].
    pub async fn define_all(
        self: &Arc<Self>,
        limits: Vec<Limit>,
        timeout: Duration,
    ) -> Result<Vec<LimitStatus>, ChangeError<DefineError>> {
        let define =
            |admin: Arc<Self>, progress| async move { admin.apply_define(limits, &progress).await };
        self.run_to_end(timeout, define).await
    }

    /// Deletes a limit. When this returns, it is deleted on disk too.
    ///
    /// # Errors
    /// As the backend's delete, and when the deletion could not be stored, as for [`Admin::define`].
    pub async fn delete(
        self: &Arc<Self>,
        key: LimitKey,
        timeout: Duration,
    ) -> Result<(), ChangeError<DeleteError>> {
        let delete =
            |admin: Arc<Self>, progress| async move { admin.apply_delete(&key, &progress).await };
        self.run_to_end(timeout, delete).await
    }

    /// Starts a change and waits for it. It runs to its end even if the caller stops waiting.
    async fn run_to_end<T, E, F>(
        self: &Arc<Self>,
        timeout: Duration,
        change: impl FnOnce(Arc<Self>, Progress) -> F,
    ) -> Result<T, ChangeError<E>>
    where
        T: Send + 'static,
        E: From<Unanswered> + Send + 'static,
        F: Future<Output = Result<T, ChangeError<E>>> + Send + 'static,
    {
        let progress = Progress::default();
        // The caller's span names it in the log (`OPS-04`).
        let change = change(Arc::clone(self), progress.clone()).in_current_span();
        let changed = self.changed();
        let change = self.runtime.run(async move {
            let ended = change.await;
            changed.notify_one();
            ended
        });
        let ended = async { change.await.unwrap_or_else(|_| Err(task_panicked().into())) };
        progress.wait_for_outcome(&*self.runtime, timeout, ended).await
    }

    async fn apply_define(
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

    async fn apply_delete(
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
    pub async fn tick(&self, stop: &CancellationToken) {
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

impl<B> Admin<B> {
    /// Number of limits at the start.
    pub(crate) const fn limit_count(&self) -> usize {
        self.limit_count
    }

    /// Adds the metrics of a registry in a database, in Prometheus' text format.
    pub(crate) fn write_metrics(&self, text: &mut String) {
        let Some(is_connected) = self.medium.is_connected() else { return };
        let name = "ratelimiter_registry_connected";
        let mut own = Text::default();
        own.family(name, "gauge", "Whether the database of the registry answers.");
        own.sample(name, &[], u8::from(is_connected));
        text.push_str(&own.into_string());
    }

    /// Why requests cannot be answered yet; `None` once the backend has the definitions.
    pub fn not_started(&self) -> Option<Unanswered> {
        if self.is_ready.load(Ordering::Acquire) {
            return None;
        }
        let reason = self.not_ready_reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(Unanswered { reason, retry_after: RETRY_AFTER })
    }
}

async fn own<B: HostedBackend>(
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

fn task_panicked() -> Unanswered {
    unanswered("the change was interrupted".to_owned())
}

#[cfg(test)]
mod tests;
