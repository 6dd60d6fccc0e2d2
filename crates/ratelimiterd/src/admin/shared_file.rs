//! Several servers on one backend and one limits file, or one registry in a database.
//!
//! A change locks the document, loads what others have written, and writes. The other servers check it several times a
//! second and load what has changed, under the same lock, so that none acts on content that is being replaced.
//! Definitions are applied only when the document changes, so two servers with different files on one backend do not
//! overwrite each other in a loop.

use std::collections::BTreeSet;
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ratelimiter::{DeleteError, LimitKey, RegisteredLimit, Registry, Unanswered};
use ratelimiter_wire::LimitsDocument;

use super::change::{ChangeRefused, unanswered};
use super::definition_store::DefinitionStore;
use super::stored::{StoredDefinitions, own};
use crate::hosted::HostedBackend;
use crate::limits_file::OwnError;
use crate::medium::{Changes, Lock};

/// How long a change waits for the change of another server.
const CHANGE_LOCK_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a tick waits for the change of another server before it goes on without the lock.
const TICK_LOCK_TIMEOUT: Duration = Duration::from_millis(200);
/// Interval of attempts to lock.
const LOCK_RETRY_EVERY: Duration = Duration::from_millis(20);
/// The most limits that are logged by key when they are loaded while the server runs; more are only counted.
const KEYS_LOGGED_MAX: usize = 100;

/// The result of trying to lock the document.
enum LockAttempt {
    /// No other server changes it.
    Acquired(Lock),
    /// It cannot be locked here, so it is only read. If others replace it in the meantime, it is read again.
    Impossible(io::Error),
    /// Another server is changing it.
    HeldByOther,
}

/// Why ownership cannot be acquired while the server runs.
enum NotOwned {
    /// Another server has it, or had it and made changes.
    ByAnother { reason: String },
    /// The storage failed.
    Failed { what: &'static str, error: io::Error },
}

impl<B: HostedBackend> StoredDefinitions<B> {
    /// Loads the definitions into a shared backend, if that was not done yet; true once it is done.
    pub(super) async fn initialize(&self) -> bool {
        if self.not_started().is_none() {
            return true;
        }
        let mut store = self.store.lock().await;
        let started = self.try_initialize(&mut store).await;
        if let Err(Unanswered { reason, .. }) = started {
            *self.not_ready_reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
            return false;
        }
        self.is_ready.store(true, Ordering::Release);
        let limits = store.registry().len();
        tracing::info!(limits, "definitions restored");
        true
    }

    async fn try_initialize(&self, store: &mut DefinitionStore) -> Result<(), Unanswered> {
        self.backend.ready().await.map_err(|not_ready| unanswered(not_ready.to_string()))?;
        match self.try_lock(store, CHANGE_LOCK_TIMEOUT).await {
            LockAttempt::Acquired(lock) => self.reload(store, Some(&lock)).await,
            LockAttempt::Impossible(_) => self.reload(store, None).await,
            LockAttempt::HeldByOther => Err(unanswered(LOCK_HELD_BY_OTHER.to_owned())),
        }
    }

    /// Begins a change: locks out other servers, and loads what they have changed.
    ///
    /// # Errors
    /// The document cannot be changed, now or at all, or the changes of others could not be loaded.
    pub(super) async fn lock_for_change(
        &self,
        store: &mut DefinitionStore,
    ) -> Result<Option<Lock>, ChangeRefused> {
        if let Some(unanswered) = self.not_started() {
            return Err(unanswered.into());
        }
        if !store.is_owned() {
            let owned = self.acquire_ownership_late(store).await;
            owned.map_err(|not_owned| match not_owned {
                NotOwned::ByAnother { reason } => ChangeRefused::ReadOnly { reason },
                NotOwned::Failed { what, error } => ChangeRefused::of(what, &error),
            })?;
        }
        if !self.backend.is_shared() {
            return Ok(None);
        }
        match self.try_lock(store, CHANGE_LOCK_TIMEOUT).await {
            LockAttempt::Acquired(lock) => {
                self.reload(store, Some(&lock)).await?;
                Ok(Some(lock))
            }
            LockAttempt::Impossible(error) => Err(ChangeRefused::of(NOT_LOCKED, &error)),
            LockAttempt::HeldByOther => Err(unanswered(LOCK_HELD_BY_OTHER.to_owned()).into()),
        }
    }

    /// Acquires ownership, which was not possible at the start, or was lost with the connection to a database.
    async fn acquire_ownership_late(&self, store: &mut DefinitionStore) -> Result<(), NotOwned> {
        let owned = own(&*self.backend, &*store.medium, self.addr).await;
        let owned = owned.map_err(|error| match error {
            OwnError::InUse { by } => {
                NotOwned::ByAnother { reason: format!("it is in use by {by}") }
            }
            OwnError::CannotLock(error) => NotOwned::Failed { what: NOT_LOCKED, error },
        })?;
        // Another server may have owned and changed it in between. With a shared backend, the next reload loads that.
        if !self.backend.is_shared() {
            let unchanged = store.medium.is_unchanged(store.version_seen.clone()).await;
            let unreadable = |error| NotOwned::Failed { what: UNREADABLE, error };
            if !unchanged.map_err(unreadable)? {
                return Err(NotOwned::ByAnother { reason: CHANGED_SINCE_START.to_owned() });
            }
            // A database that failed over or was restored may have lost what this server wrote last.
            store.needs_write |= store.owned.is_some();
        }
        store.owned = Some(owned);
        Ok(())
    }

    /// Acquires ownership again if it was lost with the connection to a database, before another server does.
    pub(super) async fn keep_ownership(&self, store: &mut DefinitionStore) {
        if !self.backend.is_shared()
            && let Err(error) = store.medium.ping().await
        {
            return store.log_problem_once(&error.to_string(), UNREADABLE);
        }
        if store.owned.is_none() || store.is_owned() || store.medium.is_connected() != Some(true) {
            return;
        }
        let reason = match self.acquire_ownership_late(store).await {
            Ok(()) => {
                store.is_problem_logged = false;
                return;
            }
            Err(NotOwned::ByAnother { reason }) => reason,
            Err(NotOwned::Failed { what, error }) => format!("{what}: {error}"),
        };
        store.log_problem_once(&reason, "the registry does not belong to this server any more");
    }

    async fn try_lock(&self, store: &DefinitionStore, timeout: Duration) -> LockAttempt {
        let attempt = async {
            loop {
                match store.medium.try_lock().await {
                    Ok(Some(lock)) => return LockAttempt::Acquired(lock),
                    Ok(None) => {}
                    Err(error) => return LockAttempt::Impossible(error),
                }
                self.runtime.sleep(LOCK_RETRY_EVERY).await;
            }
        };
        self.runtime.timeout(timeout, attempt).await.unwrap_or(LockAttempt::HeldByOther)
    }

    /// Loads what other servers or people have written, and prevents changes from taking effect that a server has begun
    /// and not confirmed, because it may never come back.
    pub(super) async fn sync_from_file(&self, store: &mut DefinitionStore) {
        match store.medium.peek().await {
            Ok((version, staged))
                if version == store.version_seen && staged.is_subset(&store.unremovable) =>
            {
                return;
            }
            Ok(_) => {}
            Err(error) => return store.log_problem_once(&error.to_string(), UNREADABLE),
        }
        let reloaded = match self.try_lock(store, TICK_LOCK_TIMEOUT).await {
            LockAttempt::Acquired(lock) => self.reload(store, Some(&lock)).await,
            LockAttempt::Impossible(_) => self.reload(store, None).await,
            // That server is about to write, so there will be more to load.
            LockAttempt::HeldByOther => return,
        };
        if let Err(Unanswered { reason, .. }) = reloaded {
            store.log_problem_once(&reason, "the registry cannot be loaded; retrying");
        }
    }

    /// Records decreases that have been applied, unless another server was faster. Returns the lock that a write needs if
    /// the document is shared; `None` if it cannot be had now.
    pub(super) async fn persist_committed(
        &self,
        store: &mut DefinitionStore,
        settled: &[LimitKey],
    ) -> Option<Option<Lock>> {
        let mut ours = None;
        if self.backend.is_shared() {
            match self.try_lock(store, TICK_LOCK_TIMEOUT).await {
                LockAttempt::Acquired(lock) => {
                    self.reload(store, Some(&lock)).await.ok()?;
                    ours = Some(lock);
                }
                LockAttempt::Impossible(_) | LockAttempt::HeldByOther => return None,
            }
        }
        for key in settled {
            store.mark_decrease_applied(key);
        }
        Some(ours)
    }

    /// Loads the document into the store and the backend. A missing one or one with errors changes nothing: it is a
    /// mistake, not a request to delete all limits. A document that never existed has no limits.
    ///
    /// Under the lock, changes that others have staged and not confirmed are prevented from taking effect too.
    async fn reload(
        &self,
        store: &mut DefinitionStore,
        lock: Option<&Lock>,
    ) -> Result<(), Unanswered> {
        let changes = store.medium.read_changes(store.version_seen.clone(), lock.is_some());
        let changes = changes.await.map_err(|error| unanswered(error.to_string()))?;
        if let Some(Changes { version, document, uncommitted }) = changes {
            let is_new =
                version.is_none() && store.version_seen.is_none() && store.registry().is_empty();
            let LimitsDocument { registry, preserved: unknown_fields, notes } = match document {
                Err(error) if is_new && error.is_missing() => store.medium.empty(),
                document => document.map_err(|error| unanswered(error.to_string()))?,
            };
            let unconfirmed =
                uncommitted.iter().flat_map(|staged| staged.unconfirmed(&registry)).collect();
            self.apply_registry(store, &registry, &unconfirmed).await?;
            if store.unknown_fields != unknown_fields {
                store.log_notes(&notes);
                store.unknown_fields = unknown_fields;
            }
            store.version_seen = version;
            store.is_problem_logged = false;
            // Without ownership it may be that of another owner, which needs no lock for a change.
            let locks = store.owned.iter().chain(lock).cloned().collect();
            store.unremovable = store.medium.remove_staged(uncommitted, locks).await;
            for path in &store.unremovable {
                let path = path.display();
                tracing::warn!(%path, "staged file cannot be removed; remove it by hand");
            }
        }
        Ok(())
    }

    async fn apply_registry(
        &self,
        store: &mut DefinitionStore,
        registry: &Registry,
        unconfirmed: &BTreeSet<LimitKey>,
    ) -> Result<(), Unanswered> {
        let is_other = |registered: &&RegisteredLimit| {
            let key = &registered.limit.key;
            store.registry().get(key) != Some(registered) || unconfirmed.contains(key)
        };
        let others: Vec<_> = registry.iter().filter(is_other).cloned().collect();
        let restored = self.backend.restore_all(others.clone(), unconfirmed).await;
        let statuses = restored
            .map_err(|error| unanswered(format!("the backend rejected the limits: {error}")))?;
        let is_named = self.not_started().is_none() && others.len() <= KEYS_LOGGED_MAX;
        if !is_named {
            tracing::info!(limits = others.len(), "limits loaded from the registry");
        }
        for (registered, status) in others.into_iter().zip(statuses) {
            let key = registered.limit.key.clone();
            store.put(registered);
            store.note_status(&key, status);
            if is_named {
                tracing::info!(%key, ?status, "limit loaded from the registry");
            }
        }
        // A limit that is in neither may be one of several of which a change has reached the backend in part.
        let is_gone = |key: &&LimitKey| registry.get(key).is_none();
        let keys = store.registry().iter().map(|registered| &registered.limit.key);
        let gone: BTreeSet<_> = keys.chain(unconfirmed).filter(is_gone).cloned().collect();
        for key in gone {
            match self.backend.delete(&key).await {
                Ok(()) | Err(DeleteError::UnknownKey { .. }) => {}
                Err(error) => return Err(unanswered(error.to_string())),
            }
            if store.remove(&key) {
                tracing::info!(%key, "limit removed from the registry");
            }
        }
        Ok(())
    }
}

pub(super) const CHANGED_SINCE_START: &str =
    "it has changed since this server read it at its start; restart this server";
const LOCK_HELD_BY_OTHER: &str = "another server is changing the limits";
const NOT_LOCKED: &str = "the registry cannot be locked";
const UNREADABLE: &str = "the registry cannot be read";
