//! Changing limits: one change at a time, in the backend and on disk together.
//!
//! A change is staged on disk, applied in the backend, and committed on disk (`DEF-08`). It runs to its end even when
//! whoever asked for it has gone away, so that the two never part.

mod book;
mod change;
mod shared;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ratelimiter::{DefineError, DeleteError, Limit, LimitKey, LimitStatus, Unanswered};
use ratelimiter_wire::LimitsDocument;
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use self::book::Book;
pub(crate) use self::change::ChangeError;
use self::change::{NotMade, Progress, unanswered};
use crate::hosted::HostedBackend;
use crate::limits_file::{ChangeLock, Claim, LimitsFile, LoadError, NotOwned, Owned, is_for_good};

/// When to repeat a change that could not be kept.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The limits' administration.
#[derive(Debug)]
pub(crate) struct Admin<B> {
    backend: Arc<B>,
    /// Where the server listens, for others that want the same file.
    addr: SocketAddr,
    book: Mutex<Book>,
    /// How many limits the file had at the start.
    limit_count: usize,
    /// Why a shared backend does not have the definitions yet; `None` once it has.
    waiting: std::sync::Mutex<Option<String>>,
}

/// Why the definitions could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The limits file belongs to others (`OPS-06`).
    #[error(
        "the limits file {} is in use by {by}; stop that, or give this server a file of its own (--limits)",
        path.display()
    )]
    Taken {
        /// Which file.
        path: PathBuf,
        /// Whose it is.
        by: String,
    },
    /// The limits file cannot be used.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The backend did not take the limits.
    #[error("the backend does not take the limits: {reason}")]
    Backend {
        /// Why.
        reason: DefineError,
    },
}

impl<B: HostedBackend> Admin<B> {
    /// Takes the definitions from the file over into the backend. A shared backend may not be there yet: its turn comes
    /// with the first tick that finds it.
    ///
    /// # Errors
    /// The file is another server's or has faults, or the backend does not take what it says.
    pub(crate) async fn restore(
        backend: Arc<B>,
        file: LimitsFile,
        addr: SocketAddr,
    ) -> Result<Self, RestoreError> {
        let owned = own(&file, claim(&*backend), addr).await;
        if let Err(NotOwned::Taken { by }) = owned {
            return Err(RestoreError::Taken { path: file.path().to_owned(), by });
        }
        // Before the content: what is written in between shows as a change.
        let stamp = file.stamp().unwrap_or_default();
        let LimitsDocument { registry, kept, notes } = file.load()?;
        // Whoever cannot write here cannot lose what others write.
        if let Err(NotOwned::NoLock(error)) = &owned {
            let path = file.path().display();
            tracing::warn!(%path, %error, "the limits file cannot be locked, and so not be changed here");
        }
        let is_owned = owned.is_ok();
        let limit_count = registry.len();
        let mut book = Book::new(file, owned.ok());
        book.report_notes(&notes);
        let mut waiting = None;
        if backend.is_shared() {
            waiting = Some("the backend does not have the definitions yet".to_owned());
        } else {
            let limits: Vec<_> = registry.iter().cloned().collect();
            let restored = backend.restore_all(limits.clone(), &BTreeSet::new()).await;
            let statuses = restored.map_err(|reason| RestoreError::Backend { reason })?;
            for (registered, status) in limits.into_iter().zip(statuses) {
                let key = registered.limit.key.clone();
                book.put(registered);
                book.follow(&key, status);
            }
            (book.kept, book.stamp) = (kept, stamp);
            if is_owned {
                // Nothing of a process outlives it here, so what it has staged is only in the way.
                let leftovers = book.file.leftovers().unwrap_or_default();
                leftovers.into_iter().for_each(|leftover| drop(leftover.remove()));
            }
        }
        let waiting = std::sync::Mutex::new(waiting);
        Ok(Self { backend, addr, book: Mutex::new(book), limit_count, waiting })
    }

    /// Defines a limit, or changes one. When this answers, the definition is safe on disk.
    ///
    /// # Errors
    /// As the backend's define, and when the definition could not be kept. Nothing has changed then, and nothing will;
    /// the one exception says that it is not known yet.
    pub(crate) async fn define(
        self: &Arc<Self>,
        limit: Limit,
        patience: Duration,
    ) -> Result<LimitStatus, ChangeError<DefineError>> {
        let (admin, progress) = (Arc::clone(self), Progress::default());
        let seen = progress.clone();
        let change = tokio::spawn(async move { admin.carry_out_define(limit, &seen).await });
        let ended = async { change.await.unwrap_or_else(|_| Err(interrupted().into())) };
        progress.outcome(patience, ended).await
    }

    /// Removes a limit. When this answers, it is gone from the disk too.
    ///
    /// # Errors
    /// As the backend's delete, and when the removal could not be kept; otherwise as [`Admin::define`].
    pub(crate) async fn delete(
        self: &Arc<Self>,
        key: LimitKey,
        patience: Duration,
    ) -> Result<(), ChangeError<DeleteError>> {
        let (admin, progress) = (Arc::clone(self), Progress::default());
        let seen = progress.clone();
        let change = tokio::spawn(async move { admin.carry_out_delete(&key, &seen).await });
        let ended = async { change.await.unwrap_or_else(|_| Err(interrupted().into())) };
        progress.outcome(patience, ended).await
    }

    async fn carry_out_define(
        &self,
        limit: Limit,
        progress: &Progress,
    ) -> Result<LimitStatus, ChangeError<DefineError>> {
        let mut book = self.book.lock().await;
        let lock = self.begin_change(&mut book).await?;
        let lock = lock.as_ref();
        let key = limit.key.clone();
        let limits_max = book.file.limits_max();
        if book.registry().get(&key).is_none() && book.registry().len() >= limits_max {
            return Err(ChangeError::TooManyLimits { limits_max });
        }
        if book.kept.unknown_kind_of(&key).is_some() {
            let is = "newer server's";
            return Err(DefineError::KindConflict { key, is }.into());
        }
        let planned = book.registry().plan(limit.clone())?;
        let mut next = book.registry().clone();
        next.put(planned.clone());
        let staged = book.stage(&next, lock).await.map_err(|error| not_written(&error))?;
        if let Err(withdrawn) = progress.begin() {
            staged.discard().await;
            return Err(withdrawn.into());
        }
        let status = match self.backend.define(limit).await {
            Ok(status) => status,
            Err(error) => {
                // It may still arrive at a backend that others have too, whoever is there then.
                let is_unknown = matches!(error, DefineError::Unanswered(_));
                match is_unknown && self.backend.is_shared() {
                    true => staged.leave(),
                    false => staged.discard().await,
                }
                return Err(error.into());
            }
        };
        if let Err(error) = staged.commit().await {
            return Err(self.take_back(&mut book, &key, lock, &error).await.into());
        }
        book.put(planned);
        book.follow(&key, status);
        book.catch_up(lock).await;
        tracing::info!(%key, ?status, "limit defined");
        Ok(status)
    }

    async fn carry_out_delete(
        &self,
        key: &LimitKey,
        progress: &Progress,
    ) -> Result<(), ChangeError<DeleteError>> {
        let mut book = self.book.lock().await;
        let lock = self.begin_change(&mut book).await?;
        let lock = lock.as_ref();
        let mut next = book.registry().clone();
        next.remove(key);
        let staged = book.stage(&next, lock).await.map_err(|error| not_written(&error))?;
        if let Err(withdrawn) = progress.begin() {
            staged.discard().await;
            return Err(withdrawn.into());
        }
        if let Err(error) = self.backend.delete(key).await {
            staged.discard().await;
            return Err(error.into());
        }
        if let Err(error) = staged.commit().await {
            return Err(self.take_back(&mut book, key, lock, &error).await.into());
        }
        book.remove(key);
        tracing::info!(%key, "limit deleted");
        Ok(())
    }

    /// Takes a change back that the backend has and the file not: here, in the backend, and in the file too, should it
    /// have got there without being safe. A file that cannot be replaced is as it was.
    async fn take_back(
        &self,
        book: &mut Book,
        key: &LimitKey,
        lock: Option<&ChangeLock>,
        error: &io::Error,
    ) -> NotMade {
        self.undo(book, key).await;
        if is_for_good(error) {
            return NotMade::of("it cannot be replaced", error);
        }
        tracing::error!(%error, "the limits file cannot be written");
        book.is_behind = true;
        let outcome = match book.catch_up(lock).await {
            true => "so the change is taken back",
            false => "nor put back now; whether the change takes effect is not known yet",
        };
        unanswered(format!("the limits file cannot be written, {outcome}: {error}")).into()
    }

    /// Puts the backend back where the registry is, after a change that could not be kept. What it does not answer is
    /// tried again by the next tick.
    async fn undo(&self, book: &mut Book, key: &LimitKey) {
        let undone = match book.registry().get(key).cloned() {
            Some(registered) => self.backend.restore(registered).await.is_ok(),
            None => {
                let deleted = self.backend.delete(key).await;
                matches!(deleted, Ok(()) | Err(DeleteError::UnknownKey { .. }))
            }
        };
        if undone {
            book.parted.remove(key);
        } else if book.parted.insert(key.clone()) {
            tracing::error!(%key, "a change that could not be kept is in force until the backend answers");
        }
    }

    async fn undo_again(&self, book: &mut Book) {
        if book.parted.is_empty() {
            return;
        }
        // Another server may have changed these limits meanwhile, and then its word counts.
        let Ok(_lock) = self.begin_change(book).await else {
            return;
        };
        for key in book.parted.clone() {
            self.undo(book, &key).await;
        }
    }

    /// Lets the backend do its regular work, takes over what others have written into the file, and keeps what has
    /// changed by itself: decreases that came to their end.
    ///
    /// It may wait for a backend that does not answer, and whoever stops a server does not wait with it; only what is being
    /// written is written to its end.
    pub(crate) async fn tick(&self, stop: &CancellationToken) {
        let worked = stop.run_until_cancelled(self.work());
        if let Some(Some((mut book, lock))) = worked.await {
            book.catch_up(lock.as_ref()).await;
        }
    }

    /// All of a tick but the writing: the definitions to be written, with the right to do so, if there is something.
    async fn work(&self) -> Option<(MutexGuard<'_, Book>, Option<ChangeLock>)> {
        if !self.start().await {
            return None;
        }
        self.backend.tick().await;
        let mut book = self.book.lock().await;
        if self.backend.is_shared() {
            self.follow_file(&mut book).await;
        }
        self.undo_again(&mut book).await;
        let mut settled = Vec::new();
        for key in book.decreasing() {
            // No answer, no change: the next tick asks again.
            if self.backend.waits(&key).await == Ok(Some(false)) {
                settled.push(key);
            }
        }
        if !book.is_behind && settled.is_empty() {
            return None;
        }
        let lock = self.settle(&mut book, &settled).await?;
        book.owned.is_some().then_some((book, lock))
    }
}

impl<B> Admin<B> {
    /// How many limits the file had at the start.
    pub(crate) const fn limit_count(&self) -> usize {
        self.limit_count
    }

    /// Why nothing can be decided yet; `None` once the backend has the definitions.
    pub(crate) fn not_started(&self) -> Option<Unanswered> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = waiting.clone()?;
        Some(Unanswered { reason, retry_after: RETRY_AFTER })
    }
}

fn claim(backend: &impl HostedBackend) -> Claim {
    if backend.is_shared() { Claim::Together } else { Claim::Alone }
}

async fn own(file: &LimitsFile, claim: Claim, addr: SocketAddr) -> Result<Owned, NotOwned> {
    let file = file.clone();
    let owned = tokio::task::spawn_blocking(move || file.own(claim, addr)).await;
    owned.unwrap_or_else(|error| Err(NotOwned::NoLock(io::Error::other(error))))
}

fn not_written(error: &io::Error) -> NotMade {
    NotMade::of("the limits file cannot be written", error)
}

fn interrupted() -> Unanswered {
    unanswered("the change was interrupted".to_owned())
}

#[cfg(test)]
mod tests;
