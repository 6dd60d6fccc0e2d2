//! The definitions, and the document that stores them.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ratelimiter::{
    DefineError, Limit, LimitKey, LimitStatus, RegisteredLimit, Registry, TEMPLATES_MAX,
};
use ratelimiter_wire::{FileError, PreservedFields};

use super::change::ChangeError;
use crate::limits_file::is_mount_point;
use crate::medium::{Lock, Medium, Staged, Version};

/// The most notes on the file that are logged one by one; the rest is counted.
const NOTES_LOGGED_MAX: usize = 20;

/// The definitions and the document that stores them.
#[derive(Debug)]
pub(super) struct DefinitionStore {
    pub(super) medium: Arc<dyn Medium>,
    /// Ownership of the document; `None` while it cannot be locked.
    pub(super) owned: Option<Lock>,
    registry: Registry,
    /// The limits of the registry that are decreasing.
    decreasing: BTreeSet<LimitKey>,
    /// Fields and limits of the document that this version does not know.
    pub(super) unknown_fields: PreservedFields,
    /// The version of the document that was loaded last; with a memory backend, the one at the start.
    pub(super) version_seen: Option<Version>,
    /// Limits whose failed change is still to be rolled back in the backend.
    pub(super) pending_rollbacks: BTreeSet<LimitKey>,
    /// Staged files that cannot be removed, although nothing in them is unconfirmed.
    pub(super) unremovable: BTreeSet<PathBuf>,
    /// The document differs from the registry; the next tick writes it.
    pub(super) needs_write: bool,
    /// A problem with the document was logged; it is not logged again.
    pub(super) is_problem_logged: bool,
}

/// The staged document of a change; none if the content would be the same.
#[derive(Default)]
pub(super) struct StagedChange(Option<Box<dyn Staged>>);

impl DefinitionStore {
    pub(super) fn new(medium: Arc<dyn Medium>, owned: Option<Lock>) -> Self {
        Self {
            unknown_fields: medium.empty().preserved,
            medium,
            owned,
            registry: Registry::new(),
            decreasing: BTreeSet::new(),
            version_seen: None,
            pending_rollbacks: BTreeSet::new(),
            unremovable: BTreeSet::new(),
            needs_write: false,
            is_problem_logged: false,
        }
    }

    /// Whether this server owns the document now.
    pub(super) fn is_owned(&self) -> bool {
        self.owned.as_ref().is_some_and(Lock::is_held)
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn put(&mut self, registered: RegisteredLimit) {
        let key = &registered.limit.key;
        match registered.waits() {
            true => self.decreasing.insert(key.clone()),
            false => self.decreasing.remove(key),
        };
        self.registry.put(registered);
    }

    /// Removes a limit; false if there was none.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        self.decreasing.remove(key);
        self.unknown_fields.forget(key);
        self.registry.remove(key).is_some()
    }

    /// The registry after these definitions.
    ///
    /// # Errors
    /// One of them conflicts with the kind of a limit, or there would be too many limits or templates.
    pub(super) fn plan(&self, limits: &[Limit]) -> Result<Registry, ChangeError<DefineError>> {
        let mut next = self.registry.clone();
        for limit in limits {
            if self.unknown_fields.unknown_kind_of(&limit.key).is_some() {
                let (key, is) = (limit.key.clone(), "newer server's");
                return Err(DefineError::KindConflict { key, is }.into());
            }
            next.put(self.registry.plan(limit.clone())?);
        }
        let limits_max = self.medium.limits_max();
        if next.len() > limits_max.max(self.registry.len()) {
            return Err(ChangeError::TooManyLimits { limits_max });
        }
        let template_count = next.template_count();
        if template_count > TEMPLATES_MAX && template_count > self.registry.template_count() {
            return Err(DefineError::TooManyTemplates { templates_max: TEMPLATES_MAX }.into());
        }
        Ok(next)
    }

    /// Stages a registry, unless the document has it already.
    pub(super) async fn stage(
        &self,
        next: &Registry,
        lock: Option<&Lock>,
    ) -> io::Result<StagedChange> {
        if *next == self.registry && !self.needs_write {
            return Ok(StagedChange(None));
        }
        let locks = self.owned.iter().chain(lock).cloned().collect();
        let staged = self.medium.stage(next, &self.unknown_fields, locks).await?;
        Ok(StagedChange(Some(staged)))
    }

    /// Stages the registry without these limits, if that is possible: who finds it restores them in the backend.
    pub(super) async fn stage_without(
        &self,
        keys: &[LimitKey],
        lock: Option<&Lock>,
    ) -> StagedChange {
        let mut without = self.registry.clone();
        let removed: Vec<_> = keys.iter().filter_map(|key| without.remove(key)).collect();
        match removed.is_empty() {
            true => StagedChange::default(),
            false => self.stage(&without, lock).await.unwrap_or_default(),
        }
    }

    /// Whether the document is certainly the one that was loaded last.
    pub(super) async fn is_document_unchanged(&self, lock: Option<&Lock>) -> bool {
        let peeked = self.medium.peek().await;
        // If the locks were lost with the connection, a write may still be on its way to the database.
        let is_locked = self.is_owned() && lock.is_none_or(Lock::is_held);
        is_locked && peeked.is_ok_and(|(version, _)| version == self.version_seen)
    }

    /// Records the status after the backend has applied a definition. A pause may be pending or not; the next tick finds
    /// out.
    pub(super) fn note_status(&mut self, key: &LimitKey, status: LimitStatus) {
        if status == LimitStatus::Active {
            self.mark_decrease_applied(key);
        }
    }

    /// Records that the limit has no pending decrease any more.
    pub(super) fn mark_decrease_applied(&mut self, key: &LimitKey) {
        // Another server may have deleted the limit in the meantime.
        let Some(registered) = self.registry.get_mut(key) else {
            return;
        };
        if registered.waits() {
            registered.settle();
            self.decreasing.remove(key);
            self.needs_write = true;
            tracing::info!(%key, capacity = %registered.limit.capacity, "decrease applied");
        }
    }

    /// The limits that are decreasing, according to the document.
    pub(super) fn decreasing(&self) -> Vec<LimitKey> {
        self.decreasing.iter().cloned().collect()
    }

    /// Writes the document if it differs from the registry; true if it is up to date then. Until it is, it has a
    /// decrease that a restart would repeat, or a change that could neither be stored nor be rolled back.
    pub(super) async fn write_if_needed(&mut self, lock: Option<&Lock>) -> bool {
        if !self.needs_write {
            return true;
        }
        let written = match self.stage(&self.registry, lock).await {
            Ok(staged) => staged.commit().await,
            Err(error) => Err(error),
        };
        let is_written = written.is_ok();
        match written {
            Ok(()) => (self.needs_write, self.is_problem_logged) = (false, false),
            Err(error) if is_mount_point(&error) => {
                // Retrying at each tick cannot help, and would write and flush the whole file. The next change retries.
                self.needs_write = false;
                self.log_problem_once(&error.to_string(), "the registry cannot be replaced");
            }
            Err(error) => {
                self.log_problem_once(&error.to_string(), "the registry is out of date; retrying");
            }
        }
        is_written
    }

    /// Logs a problem with the document, once. A lost connection to a database was logged already.
    pub(super) fn log_problem_once(&mut self, reason: &str, what: &'static str) {
        if !self.is_problem_logged && self.medium.is_connected() != Some(false) {
            let registry = self.medium.place();
            tracing::warn!(%registry, reason, "{what}");
            self.is_problem_logged = true;
        }
    }

    /// Logs what this version does not know of the document (`OPS-05`).
    pub(super) fn log_notes(&self, notes: &[FileError]) {
        let registry = self.medium.place();
        for note in notes.iter().take(NOTES_LOGGED_MAX) {
            tracing::warn!(%registry, %note, "the registry was written by a newer version");
        }
        if let Some(more) = notes.len().checked_sub(NOTES_LOGGED_MAX).filter(|more| *more > 0) {
            tracing::warn!(%registry, more, "the registry was written by a newer version");
        }
    }
}

impl StagedChange {
    pub(super) async fn commit(self) -> io::Result<()> {
        match self.0 {
            Some(staged) => staged.commit().await,
            None => Ok(()),
        }
    }

    pub(super) async fn discard(self) {
        if let Some(staged) = self.0 {
            staged.discard().await;
        }
    }

    /// Leaves what is staged, so that the next tick of this or another server finds it.
    pub(super) fn leave_uncommitted(self) {}
}
