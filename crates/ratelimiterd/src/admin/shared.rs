//! Several servers on one backend and one limits file.
//!
//! A change takes the file's lock, takes over what others have written, and writes. The others look at the file several
//! times a second and take over what has changed, under the same lock, so that nobody acts on a content that is being
//! replaced. Definitions go from the file into the backend when the file changes, never by themselves: two servers with
//! different files on one backend disagree once for each change, and do not flap.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use ratelimiter::{DeleteError, LimitKey, RegisteredLimit, Registry, Unanswered};
use ratelimiter_wire::LimitsDocument;

use super::Admin;
use super::book::{Book, on_disk};
use super::change::{NotMade, unanswered};
use crate::hosted::HostedBackend;
use crate::limits_file::{ChangeLock, Leftover, NotOwned};

/// For how long a change waits for another server's.
const CHANGE_PATIENCE: Duration = Duration::from_secs(4);
/// For how long the regular work waits for another server's change, before it goes on without.
const TICK_PATIENCE: Duration = Duration::from_millis(200);
/// So many limits are named when they are taken over while the server runs; more are only counted.
const NAMED_MAX: usize = 100;

/// Whether the file may be changed now.
enum Turn {
    /// Nobody else changes it.
    Ours(ChangeLock),
    /// Nobody can lock it from here, so it is only read. A file that others replace meanwhile is read again.
    ReadOnly(io::Error),
    /// Another server is changing it.
    Theirs,
}

impl<B: HostedBackend> Admin<B> {
    /// Takes the definitions over into a shared backend, if that was not done yet; true once it is done.
    pub(super) async fn start(&self) -> bool {
        if self.not_started().is_none() {
            return true;
        }
        let mut book = self.book.lock().await;
        let started = self.start_with(&mut book).await;
        let mut waiting = self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *waiting = started.err().map(|unanswered| unanswered.reason);
        if waiting.is_none() {
            let limits = book.registry().len();
            tracing::info!(limits, "the backend has the definitions");
        }
        waiting.is_none()
    }

    async fn start_with(&self, book: &mut Book) -> Result<(), Unanswered> {
        self.backend.ready().await.map_err(|not_ready| unanswered(not_ready.to_string()))?;
        match self.turn(book, CHANGE_PATIENCE).await {
            Turn::Ours(lock) => self.refresh(book, Some(&lock)).await,
            Turn::ReadOnly(_) => self.refresh(book, None).await,
            Turn::Theirs => Err(unanswered(THEIRS.to_owned())),
        }
    }

    /// Begins a change: from here on no other server makes one, and what they have made is taken over.
    ///
    /// # Errors
    /// The file is not ours to change, now or at all, or others' changes could not be taken over.
    pub(super) async fn begin_change(
        &self,
        book: &mut Book,
    ) -> Result<Option<ChangeLock>, NotMade> {
        if let Some(unanswered) = self.not_started() {
            return Err(unanswered.into());
        }
        if book.owned.is_none() {
            self.own_late(book).await?;
        }
        if !self.backend.is_shared() {
            return Ok(None);
        }
        match self.turn(book, CHANGE_PATIENCE).await {
            Turn::Ours(lock) => {
                self.refresh(book, Some(&lock)).await?;
                Ok(Some(lock))
            }
            Turn::ReadOnly(error) => Err(not_locked(&error)),
            Turn::Theirs => Err(unanswered(THEIRS.to_owned()).into()),
        }
    }

    /// Makes the file this server's, which was not possible at its start.
    async fn own_late(&self, book: &mut Book) -> Result<(), NotMade> {
        let owned = super::own(&book.file, super::claim(&*self.backend), self.addr).await;
        let owned = owned.map_err(|not_owned| match not_owned {
            NotOwned::Taken { by } => NotMade::ReadOnly { reason: format!("it is in use by {by}") },
            NotOwned::NoLock(error) => not_locked(&error),
        })?;
        // Nobody else's any more, but somebody's in between perhaps. A shared backend takes that over.
        if !self.backend.is_shared() {
            let file = book.file.clone();
            let stamp = on_disk(move || file.stamp()).await;
            if stamp.map_err(|error| NotMade::of("it cannot be read", &error))? != book.stamp {
                return Err(NotMade::ReadOnly { reason: CHANGED_SINCE.to_owned() });
            }
        }
        book.owned = Some(owned);
        Ok(())
    }

    async fn turn(&self, book: &Book, patience: Duration) -> Turn {
        match book.file.lock(patience).await {
            Ok(Some(lock)) => Turn::Ours(lock),
            Ok(None) => Turn::Theirs,
            Err(error) => Turn::ReadOnly(error),
        }
    }

    /// Takes over what other servers, or people, have written; and shuts out what a server has begun and not confirmed,
    /// which may be gone for good.
    pub(super) async fn follow_file(&self, book: &mut Book) {
        let file = book.file.clone();
        // Where the folder cannot be listed there is no lock to be had either.
        let seen = on_disk(move || Ok((file.stamp()?, file.staged_paths().unwrap_or_default())));
        match seen.await {
            Ok((stamp, staged)) if stamp == book.stamp && staged.is_subset(&book.stuck) => return,
            Ok(_) => {}
            Err(error) => return book.report(&error.to_string(), "the limits file cannot be read"),
        }
        let refreshed = match self.turn(book, TICK_PATIENCE).await {
            Turn::Ours(lock) => self.refresh(book, Some(&lock)).await,
            Turn::ReadOnly(_) => self.refresh(book, None).await,
            // Whoever has it is about to write; there will be more to take over.
            Turn::Theirs => return,
        };
        if let Err(Unanswered { reason, .. }) = refreshed {
            book.report(&reason, "the limits file is not followed; trying again");
        }
    }

    /// Notes what has come to its end by itself, unless another server was faster. Brings the right to write it, which is a
    /// lock where others write too; `None` if there is none now.
    pub(super) async fn settle(
        &self,
        book: &mut Book,
        settled: &[LimitKey],
    ) -> Option<Option<ChangeLock>> {
        let mut ours = None;
        if self.backend.is_shared() {
            match self.turn(book, TICK_PATIENCE).await {
                Turn::Ours(lock) => {
                    self.refresh(book, Some(&lock)).await.ok()?;
                    ours = Some(lock);
                }
                Turn::ReadOnly(_) | Turn::Theirs => return None,
            }
        }
        for key in settled {
            book.settle(key);
        }
        Some(ours)
    }

    /// Makes book and backend what the file says. A file that is gone or has faults changes nothing: it is a person's
    /// mistake, and not the wish that all limits go. One that was never there holds no limits.
    ///
    /// Under the lock, what others have staged and not confirmed is shut out of the backend too.
    async fn refresh(&self, book: &mut Book, lock: Option<&ChangeLock>) -> Result<(), Unanswered> {
        let (file, before, is_locked) = (book.file.clone(), book.stamp, lock.is_some());
        let was_empty = book.registry().is_empty();
        let read = on_disk(move || {
            let stamp = file.stamp()?;
            let leftovers = if is_locked { file.leftovers()? } else { Vec::new() };
            if stamp == before && leftovers.is_empty() {
                return Ok(None);
            }
            let is_new = stamp.is_none() && before.is_none() && was_empty;
            let loaded = if is_new { file.load() } else { file.load_existing() };
            Ok(Some((stamp, leftovers, loaded)))
        });
        let read = read.await.map_err(|error| unanswered(error.to_string()))?;
        if let Some((stamp, leftovers, loaded)) = read {
            let LimitsDocument { registry, kept, notes } =
                loaded.map_err(|error| unanswered(error.to_string()))?;
            let unconfirmed =
                leftovers.iter().flat_map(|leftover| leftover.unconfirmed(&registry)).collect();
            self.take_over(book, &registry, &unconfirmed).await?;
            if book.kept != kept {
                book.report_notes(&notes);
                book.kept = kept;
            }
            book.stamp = stamp;
            book.is_reported = false;
            let lock = lock.cloned();
            let removed = on_disk(move || {
                let removed = leftovers.into_iter().map(Leftover::remove);
                let stuck = removed.filter_map(Result::err).collect();
                drop(lock);
                Ok(stuck)
            });
            book.stuck = removed.await.expect("removing does not fail");
            for path in &book.stuck {
                let path = path.display();
                tracing::warn!(%path, "what was staged cannot be removed; remove it by hand");
            }
        }
        Ok(())
    }

    async fn take_over(
        &self,
        book: &mut Book,
        registry: &Registry,
        unconfirmed: &BTreeSet<LimitKey>,
    ) -> Result<(), Unanswered> {
        let is_other = |registered: &&RegisteredLimit| {
            let key = &registered.limit.key;
            book.registry().get(key) != Some(registered) || unconfirmed.contains(key)
        };
        let others: Vec<_> = registry.iter().filter(is_other).cloned().collect();
        let restored = self.backend.restore_all(others.clone(), unconfirmed).await;
        let statuses = restored.map_err(|error| {
            unanswered(format!("the backend does not take the limits: {error}"))
        })?;
        let is_named = self.not_started().is_none() && others.len() <= NAMED_MAX;
        if !is_named {
            tracing::info!(limits = others.len(), "limits taken over from the limits file");
        }
        for (registered, status) in others.into_iter().zip(statuses) {
            let key = registered.limit.key.clone();
            book.put(registered);
            book.follow(&key, status);
            if is_named {
                tracing::info!(%key, ?status, "limit taken over from the limits file");
            }
        }
        let is_gone = |key: &LimitKey| registry.get(key).is_none();
        let keys = book.registry().iter().map(|registered| registered.limit.key.clone());
        for key in keys.filter(is_gone).collect::<Vec<_>>() {
            match self.backend.delete(&key).await {
                Ok(()) | Err(DeleteError::UnknownKey { .. }) => {}
                Err(error) => return Err(unanswered(error.to_string())),
            }
            book.remove(&key);
            tracing::info!(%key, "limit gone from the limits file");
        }
        Ok(())
    }
}

pub(super) const CHANGED_SINCE: &str =
    "it has changed since this server read it at its start; restart this server";
const THEIRS: &str = "another server is changing the limits";

fn not_locked(error: &io::Error) -> NotMade {
    NotMade::of("it cannot be locked", error)
}
