//! Changing limits: one change at a time, in the backend and on disk together.
//!
//! A change is staged on disk, applied in the backend, and committed on disk (`DEF-08`). It runs to its end even when
//! whoever asked for it has gone away, so that the two never part.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{
    DefineError, DeleteError, Limit, LimitKey, LimitStatus, RegisteredLimit, Registry, Unanswered,
};
use tokio::sync::Mutex;

use crate::hosted::HostedBackend;
use crate::limits_file::{LimitsFile, LoadError, Staged};

/// When to repeat a change that could not be kept.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The limits' administration.
#[derive(Debug)]
pub(crate) struct Admin<B> {
    backend: Arc<B>,
    book: Mutex<Book>,
}

/// The definitions as the file has them, or should have them.
#[derive(Debug)]
struct Book {
    file: LimitsFile,
    registry: Registry,
    /// The file could not follow the registry; the next tick tries again.
    is_behind: bool,
    /// It was said that the file is behind, and need not be said again.
    is_reported: bool,
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
    /// Takes the definitions from the file over into the backend.
    ///
    /// # Errors
    /// The file has faults, or the backend does not take what it says.
    pub(crate) async fn restore(backend: Arc<B>, file: LimitsFile) -> Result<Self, RestoreError> {
        let registry = file.load()?;
        let mut book =
            Book { file, registry: Registry::new(), is_behind: false, is_reported: false };
        for registered in registry.iter() {
            let restored = backend.restore(registered.clone()).await;
            let status = restored.map_err(|reason| RestoreError::Backend {
                key: registered.limit.key.clone(),
                reason,
            })?;
            book.registry.put(registered.clone());
            book.follow(&registered.limit.key, status);
        }
        Ok(Self { backend, book: Mutex::new(book) })
    }

    /// How many limits there are.
    pub(crate) async fn limit_count(&self) -> usize {
        self.book.lock().await.registry.len()
    }

    /// Defines a limit, or changes one. When this answers, the definition is safe on disk.
    ///
    /// # Errors
    /// As the backend's define, and when the definition could not be kept. Nothing has changed then.
    pub(crate) async fn define(self: &Arc<Self>, limit: Limit) -> Result<LimitStatus, DefineError> {
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

    async fn carry_out_define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let mut book = self.book.lock().await;
        let key = limit.key.clone();
        let before = book.registry.get(&key).cloned();
        let mut next = book.registry.clone();
        next.put(book.registry.plan(limit.clone())?);
        let staged = book.stage(&next).await.map_err(|error| not_kept(&error))?;
        let status = match self.backend.define(limit).await {
            Ok(status) => status,
            Err(error) => {
                staged.discard().await;
                return Err(error);
            }
        };
        if let Err(error) = staged.commit().await {
            self.undo(&key, before).await;
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
        let mut next = book.registry.clone();
        let before = next.remove(key);
        let staged = book.stage(&next).await.map_err(|error| not_kept(&error))?;
        if let Err(error) = self.backend.delete(key).await {
            staged.discard().await;
            return Err(error);
        }
        if let Err(error) = staged.commit().await {
            self.undo(key, before).await;
            book.is_behind = true;
            return Err(not_kept(&error).into());
        }
        book.registry = next;
        tracing::info!(%key, "limit deleted");
        Ok(())
    }

    /// Puts the backend back where the registry is, after a change that could not be kept.
    async fn undo(&self, key: &LimitKey, before: Option<RegisteredLimit>) {
        let undone = match before {
            Some(registered) => self.backend.restore(registered).await.map(|_| ()).is_ok(),
            None => self.backend.delete(key).await.is_ok(),
        };
        if !undone {
            tracing::error!(%key, "a limit that could not be kept stays in force until a restart");
        }
    }

    /// Lets the backend do its regular work, and keeps what has changed by itself: decreases that came to their end.
    pub(crate) async fn tick(&self) {
        self.backend.tick().await;
        let mut book = self.book.lock().await;
        let is_decreasing =
            |registered: &&RegisteredLimit| registered.status != LimitStatus::Active;
        let keys = book.registry.iter().filter(is_decreasing).map(|r| r.limit.key.clone());
        for key in keys.collect::<Vec<_>>() {
            // No answer, no change: the next tick asks again.
            if let Ok(Some(state)) = self.backend.state(&key).await {
                book.follow(&key, state.status);
            }
        }
        book.catch_up().await;
    }
}

impl Book {
    /// A registry that the file already has needs no staging.
    async fn stage(&self, next: &Registry) -> io::Result<MaybeStaged> {
        if *next == self.registry && !self.is_behind {
            return Ok(MaybeStaged(None));
        }
        let (file, next) = (self.file.clone(), next.clone());
        Ok(MaybeStaged(Some(on_disk(move || file.stage(&next)).await?)))
    }

    /// The backend says that a decrease has come to its end.
    fn follow(&mut self, key: &LimitKey, status: LimitStatus) {
        let registered = self
            .registry
            .get_mut(key)
            .expect("the backend was asked about a limit of the registry");
        if status == LimitStatus::Active && registered.status != LimitStatus::Active {
            registered.settle();
            self.is_behind = true;
            tracing::info!(%key, capacity = %registered.limit.capacity, "decrease applied");
        }
    }

    /// Writes the file if it is behind. It may stay behind: what it says until then is a decrease that a restart
    /// carries out again.
    async fn catch_up(&mut self) {
        if !self.is_behind {
            return;
        }
        let written = match self.stage(&self.registry).await {
            Ok(staged) => staged.commit().await,
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => (self.is_behind, self.is_reported) = (false, false),
            Err(error) if !self.is_reported => {
                let path = self.file.path().display();
                tracing::warn!(%path, %error, "the limits file is behind; trying again");
                self.is_reported = true;
            }
            Err(_) => {}
        }
    }
}

/// A staged content, if there was anything to change.
struct MaybeStaged(Option<Staged>);

impl MaybeStaged {
    async fn commit(self) -> io::Result<()> {
        match self.0 {
            Some(staged) => on_disk(move || staged.commit()).await,
            None => Ok(()),
        }
    }

    async fn discard(self) {
        if let Some(staged) = self.0 {
            let discarded = on_disk(move || {
                staged.discard();
                Ok(())
            });
            discarded.await.expect("discarding does not fail");
        }
    }
}

/// Runs disk work where it holds up nobody.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn not_kept(error: &io::Error) -> Unanswered {
    tracing::error!(%error, "the limits file cannot be written");
    let reason = format!("the limits file cannot be written, so nothing was changed: {error}");
    Unanswered { reason, retry_after: RETRY_AFTER }
}

fn interrupted() -> Unanswered {
    Unanswered { reason: "the change was interrupted".to_owned(), retry_after: RETRY_AFTER }
}
