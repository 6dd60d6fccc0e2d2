//! Changing limits: one change at a time, in the backend and on disk together.
//!
//! A change is staged on disk, applied in the backend, and committed on disk (`DEF-08`). It runs to its end even when
//! whoever asked for it has gone away, so that the two never part.

mod book;
mod shared;

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ratelimiter::{DefineError, DeleteError, Limit, LimitKey, LimitStatus, Unanswered};
use tokio::sync::Mutex;

use self::book::Book;
use crate::hosted::HostedBackend;
use crate::limits_file::{LimitsFile, LoadError};

/// When to repeat a change that could not be kept.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The limits' administration.
#[derive(Debug)]
pub(crate) struct Admin<B> {
    backend: Arc<B>,
    book: Mutex<Book>,
    /// How many limits the file had at the start.
    limit_count: usize,
    /// Why a shared backend does not have the definitions yet; `None` once it has.
    waiting: std::sync::Mutex<Option<String>>,
}

/// Why a definition was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChangeError {
    /// There is no room for another limit.
    #[error(
        "{limits_max} limits are defined, which is all that registry.limits_max allows; delete some, or raise it"
    )]
    TooManyLimits { limits_max: usize },
    /// The backend says no, or it could not be kept.
    #[error(transparent)]
    Define(#[from] DefineError),
}

impl From<Unanswered> for ChangeError {
    fn from(unanswered: Unanswered) -> Self {
        Self::Define(unanswered.into())
    }
}

/// Why the definitions could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The limits file cannot be used.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The backend did not take a limit.
    #[error("the backend does not take the limit {key}: {reason}")]
    Backend {
        /// Which limit.
        key: LimitKey,
        /// Why.
        reason: DefineError,
    },
}

impl<B: HostedBackend> Admin<B> {
    /// Takes the definitions from the file over into the backend. A shared backend may not be there yet: its turn comes
    /// with the first tick that finds it.
    ///
    /// # Errors
    /// The file has faults, or the backend does not take what it says.
    pub(crate) async fn restore(backend: Arc<B>, file: LimitsFile) -> Result<Self, RestoreError> {
        let registry = file.load()?;
        let limit_count = registry.len();
        let mut book = Book::new(file);
        let mut waiting = None;
        if backend.is_shared() {
            waiting = Some("the backend does not have the definitions yet".to_owned());
        } else {
            for registered in registry.iter() {
                let restored = backend.restore(registered.clone()).await;
                let status = restored.map_err(|reason| RestoreError::Backend {
                    key: registered.limit.key.clone(),
                    reason,
                })?;
                book.registry.put(registered.clone());
                book.follow(&registered.limit.key, status);
            }
        }
        let waiting = std::sync::Mutex::new(waiting);
        Ok(Self { backend, book: Mutex::new(book), limit_count, waiting })
    }

    /// Defines a limit, or changes one. When this answers, the definition is safe on disk.
    ///
    /// # Errors
    /// As the backend's define, and when the definition could not be kept. Nothing has changed then.
    pub(crate) async fn define(self: &Arc<Self>, limit: Limit) -> Result<LimitStatus, ChangeError> {
        let admin = Arc::clone(self);
        let change = tokio::spawn(async move { admin.carry_out_define(limit).await });
        change.await.unwrap_or_else(|_| Err(interrupted().into()))
    }

    /// Removes a limit. When this answers, it is gone from the disk too.
    ///
    /// # Errors
    /// As the backend's delete, and when the removal could not be kept. Nothing has changed then.
    pub(crate) async fn delete(self: &Arc<Self>, key: LimitKey) -> Result<(), DeleteError> {
        let admin = Arc::clone(self);
        let change = tokio::spawn(async move { admin.carry_out_delete(&key).await });
        change.await.unwrap_or_else(|_| Err(interrupted().into()))
    }

    async fn carry_out_define(&self, limit: Limit) -> Result<LimitStatus, ChangeError> {
        let mut book = self.book.lock().await;
        let _lock = self.begin_change(&mut book).await?;
        let key = limit.key.clone();
        let limits_max = book.file.limits_max();
        if book.registry.get(&key).is_none() && book.registry.len() >= limits_max {
            return Err(ChangeError::TooManyLimits { limits_max });
        }
        let mut next = book.registry.clone();
        next.put(book.registry.plan(limit.clone())?);
        let staged = book.stage(&next).await.map_err(|error| not_kept(&error))?;
        let status = match self.backend.define(limit).await {
            Ok(status) => status,
            Err(error) => {
                staged.discard().await;
                return Err(error.into());
            }
        };
        if let Err(error) = staged.commit().await {
            self.undo(&mut book, &key).await;
            book.is_behind = true;
            return Err(not_kept(&error).into());
        }
        book.registry = next;
        book.follow(&key, status);
        book.catch_up().await;
        tracing::info!(%key, ?status, "limit defined");
        Ok(status)
    }

    async fn carry_out_delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let mut book = self.book.lock().await;
        let _lock = self.begin_change(&mut book).await?;
        let mut next = book.registry.clone();
        next.remove(key);
        let staged = book.stage(&next).await.map_err(|error| not_kept(&error))?;
        if let Err(error) = self.backend.delete(key).await {
            staged.discard().await;
            return Err(error);
        }
        if let Err(error) = staged.commit().await {
            self.undo(&mut book, key).await;
            book.is_behind = true;
            return Err(not_kept(&error).into());
        }
        book.registry = next;
        tracing::info!(%key, "limit deleted");
        Ok(())
    }

    /// Puts the backend back where the registry is, after a change that could not be kept. What it does not answer is
    /// tried again by the next tick.
    async fn undo(&self, book: &mut Book, key: &LimitKey) {
        let undone = match book.registry.get(key).cloned() {
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
    pub(crate) async fn tick(&self) {
        if !self.start().await {
            return;
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
            if let Ok(Some(state)) = self.backend.state(&key).await
                && !state.waits()
            {
                settled.push(key);
            }
        }
        if book.is_behind || !settled.is_empty() {
            self.keep_settled(&mut book, &settled).await;
        }
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

fn not_kept(error: &io::Error) -> Unanswered {
    tracing::error!(%error, "the limits file cannot be written");
    let reason = format!("the limits file cannot be written, so nothing was changed: {error}");
    Unanswered { reason, retry_after: RETRY_AFTER }
}

fn interrupted() -> Unanswered {
    Unanswered { reason: "the change was interrupted".to_owned(), retry_after: RETRY_AFTER }
}
