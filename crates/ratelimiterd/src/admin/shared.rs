//! Several servers on one backend and one limits file.
//!
//! A change takes the file's lock, takes over what others have written, and writes. The others look at the file several
//! times a second and take over what has changed, under the same lock, so that nobody acts on a content that is being
//! replaced. Definitions go from the file into the backend when the file changes, never by themselves: two servers with
//! different files on one backend disagree once for each change, and do not flap.

use std::time::Duration;

use ratelimiter::{DefineError, DeleteError, LimitKey, Registry, Unanswered};

use super::book::{Book, on_disk};
use super::{Admin, RETRY_AFTER};
use crate::hosted::HostedBackend;
use crate::limits_file::ChangeLock;

/// For how long a change waits for another server's.
const CHANGE_PATIENCE: Duration = Duration::from_secs(4);
/// For how long the regular work waits for another server's change, before it goes on without.
const TICK_PATIENCE: Duration = Duration::from_millis(200);

impl<B: HostedBackend> Admin<B> {
    /// Takes the definitions over into a shared backend, if that was not done yet; true once it is done.
    pub(super) async fn start(&self) -> bool {
        if self.not_started().is_none() {
            return true;
        }
        let mut book = self.book.lock().await;
        let started = match self.lock_file(&book, CHANGE_PATIENCE).await {
            Ok(lock) => self.start_locked(&mut book, &lock).await,
            Err(unanswered) => Err(unanswered),
        };
        let mut waiting = self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *waiting = started.err().map(|unanswered| unanswered.reason);
        if waiting.is_none() {
            let limits = book.registry.len();
            tracing::info!(limits, "the backend has the definitions");
        }
        waiting.is_none()
    }

    /// A file that does not exist yet holds no limits.
    async fn start_locked(&self, book: &mut Book, lock: &ChangeLock) -> Result<(), Unanswered> {
        self.backend.ready().await.map_err(|not_ready| unanswered(not_ready.to_string()))?;
        let file = book.file.clone();
        let stamp = on_disk(move || file.stamp()).await.map_err(|e| unanswered(e.to_string()))?;
        if stamp.is_none() {
            return Ok(());
        }
        self.refresh(book, lock).await
    }

    /// Begins a change: from here on no other server makes one, and what they have made is taken over.
    ///
    /// # Errors
    /// Another server keeps the lock, or its changes could not be taken over.
    pub(super) async fn begin_change(
        &self,
        book: &mut Book,
    ) -> Result<Option<ChangeLock>, Unanswered> {
        if !self.backend.is_shared() {
            return Ok(None);
        }
        let lock = self.lock_file(book, CHANGE_PATIENCE).await?;
        self.refresh(book, &lock).await?;
        Ok(Some(lock))
    }

    async fn lock_file(&self, book: &Book, patience: Duration) -> Result<ChangeLock, Unanswered> {
        match book.file.lock(patience).await {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => Err(unanswered("another server is changing the limits".to_owned())),
            Err(error) => Err(unanswered(format!("the limits file cannot be locked: {error}"))),
        }
    }

    /// Takes over what other servers, or people, have written.
    pub(super) async fn follow_file(&self, book: &mut Book) {
        let file = book.file.clone();
        match on_disk(move || file.stamp()).await {
            Ok(stamp) if stamp == book.stamp => return,
            Ok(_) => {}
            Err(error) => return book.report(&error.to_string(), "the limits file cannot be read"),
        }
        let Ok(lock) = self.lock_file(book, TICK_PATIENCE).await else {
            // Whoever has it is about to write; there will be more to take over.
            return;
        };
        if let Err(Unanswered { reason, .. }) = self.refresh(book, &lock).await {
            book.report(&reason, "the limits file is not followed; trying again");
        }
    }

    /// Writes what has come to its end by itself, unless another server was faster.
    pub(super) async fn keep_settled(&self, book: &mut Book, settled: &[LimitKey]) {
        let lock = match self.backend.is_shared() {
            true => self.lock_file(book, TICK_PATIENCE).await.map(Some),
            false => Ok(None),
        };
        let Ok(lock) = lock else {
            return;
        };
        if let Some(lock) = &lock
            && self.refresh(book, lock).await.is_err()
        {
            return;
        }
        for key in settled {
            book.follow(key, ratelimiter::LimitStatus::Active);
        }
        book.catch_up().await;
    }

    /// Makes book and backend what the file says. A file that is gone or has faults changes nothing: it is a person's
    /// mistake, and not the wish that all limits go.
    async fn refresh(&self, book: &mut Book, _lock: &ChangeLock) -> Result<(), Unanswered> {
        let file = book.file.clone();
        let read = on_disk(move || {
            let stamp = file.stamp()?;
            Ok((stamp, file.load_existing()))
        });
        let (stamp, loaded) = read.await.map_err(|error| unanswered(error.to_string()))?;
        if stamp == book.stamp {
            return Ok(());
        }
        let registry = loaded.map_err(|error| unanswered(error.to_string()))?;
        self.take_over(book, registry).await?;
        book.stamp = stamp;
        book.is_reported = false;
        Ok(())
    }

    async fn take_over(&self, book: &mut Book, registry: Registry) -> Result<(), Unanswered> {
        for registered in registry.iter() {
            let key = &registered.limit.key;
            if book.registry.get(key) == Some(registered) {
                continue;
            }
            let restored = self.backend.restore(registered.clone()).await;
            let status = restored.map_err(|error| not_taken(key, &error))?;
            book.registry.put(registered.clone());
            book.follow(key, status);
            tracing::info!(%key, ?status, "limit taken over from the limits file");
        }
        let is_gone = |key: &LimitKey| registry.get(key).is_none();
        let keys = book.registry.iter().map(|registered| registered.limit.key.clone());
        for key in keys.filter(is_gone).collect::<Vec<_>>() {
            match self.backend.delete(&key).await {
                Ok(()) | Err(DeleteError::UnknownKey { .. }) => {}
                Err(error) => return Err(unanswered(error.to_string())),
            }
            book.registry.remove(&key);
            tracing::info!(%key, "limit gone from the limits file");
        }
        Ok(())
    }
}

fn not_taken(key: &LimitKey, error: &DefineError) -> Unanswered {
    unanswered(format!("the backend does not take the limit {key}: {error}"))
}

fn unanswered(reason: String) -> Unanswered {
    Unanswered { reason, retry_after: RETRY_AFTER }
}
