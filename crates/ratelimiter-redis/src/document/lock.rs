//! The locks of a server on a document.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::RedisDocument;

/// The tokens of locks, each unique to one time that a server took a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldLocks {
    pub(super) owner: Option<String>,
    pub(super) change: Option<String>,
}

/// A lock. It ends when this is dropped, or is lost before.
#[derive(Debug)]
#[must_use = "writing needs the lock"]
pub struct DocumentLock {
    document: Arc<RedisDocument>,
    kind: LockKind,
    token: String,
    /// Redis may have it, so it is released.
    is_asked_for: bool,
    /// Keeps out other changes of this server.
    _changing: Option<OwnedMutexGuard<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockKind {
    Owner,
    Change,
}

/// A write that has no answer yet. If it gets none, its locks are given up, also if its caller stops waiting.
pub(super) struct Unconfirmed<'a> {
    pub(super) document: &'a RedisDocument,
    pub(super) held: &'a HeldLocks,
}

impl DocumentLock {
    /// A lock that is about to be asked for. It is released even if the answer is lost.
    pub(super) fn new(
        document: &Arc<RedisDocument>,
        kind: LockKind,
        changing: Option<OwnedMutexGuard<()>>,
    ) -> Self {
        let token = document.next_name();
        let document = Arc::clone(document);
        Self { document, kind, token, is_asked_for: true, _changing: changing }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Redis has given the lock.
    pub(super) fn confirm(&self) {
        let token = Some(self.token.clone());
        let mut held = self.document.held();
        match self.kind {
            LockKind::Owner => held.owner = token,
            LockKind::Change => held.change = token,
        }
    }

    /// Redis has not given the lock.
    pub(super) fn deny(&mut self) {
        self.is_asked_for = false;
    }

    /// False if it was lost, as far as this server knows. Whether it was is certain only when Redis has answered a write.
    pub fn is_held(&self) -> bool {
        let held = self.document.held();
        let current = match self.kind {
            LockKind::Owner => &held.owner,
            LockKind::Change => &held.change,
        };
        current.as_ref() == Some(&self.token)
    }
}

impl Drop for DocumentLock {
    fn drop(&mut self) {
        self.document.give_up(Some(&self.token));
        if !self.is_asked_for {
            return;
        }
        // Outside of the runtime its TTL ends it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (document, token) = (Arc::clone(&self.document), Some(self.token.clone()));
        let (owner, change) = match self.kind {
            LockKind::Owner => (token, None),
            LockKind::Change => (None, token),
        };
        runtime.spawn(async move { document.release(&HeldLocks { owner, change }).await });
    }
}

impl Unconfirmed<'_> {
    /// There was an answer.
    pub(super) fn confirm(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        let HeldLocks { owner, change } = self.held;
        for token in [owner, change] {
            self.document.give_up(token.as_deref());
        }
    }
}
