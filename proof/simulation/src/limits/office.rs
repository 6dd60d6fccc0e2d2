//! A server's administration of limits, in the steps of `ratelimiterd`'s: context, apply, commit, and follow the file.
//!
//! The real one does its file work on threads, which no seed decides about. This one has a disk of plain data that can
//! be slow or full, and a crash leaves the old file or the new one, as renaming does.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use ratelimiter::{
    Backend, DefineError, Limit, LimitKey, LimitStatus, RegisteredLimit, Registry, Unanswered,
};
use ratelimiter_tigerbeetle::ledger::Ledger;
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;

use super::plan::{DiskBehaviour, DiskFault};
use crate::executor::Executor;

/// For how long a change waits for another server's.
const CHANGE_PATIENCE: Duration = Duration::from_secs(4);
/// For how long the regular work waits for another server's change.
const TICK_PATIENCE: Duration = Duration::from_millis(200);

/// The limits file that all servers share.
#[derive(Default)]
pub(super) struct LimitsFile {
    lock: tokio::sync::Mutex<()>,
    content: Mutex<Content>,
}

#[derive(Clone, Default)]
struct Content {
    stamp: u64,
    registry: Registry,
    /// Limits whose change was staged and not confirmed; what is staged stays beside the file, whoever crashes.
    unconfirmed: BTreeSet<LimitKey>,
}

pub(super) struct Office<L> {
    executor: Executor,
    limiter: Arc<TigerBeetleLimiter<L>>,
    file: Arc<LimitsFile>,
    book: tokio::sync::Mutex<Book>,
    has_started: AtomicBool,
}

#[derive(Default)]
struct Book {
    registry: Registry,
    stamp: u64,
    parted: BTreeSet<LimitKey>,
    is_unconfirmed: bool,
    is_behind: bool,
}

impl LimitsFile {
    pub(super) fn write(&self, registry: &Registry) {
        let mut content = self.content();
        content.stamp += 1;
        content.registry = registry.clone();
    }

    pub(super) fn read(&self) -> Registry {
        self.content().registry.clone()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Ledger> Office<L> {
    pub(super) fn new(
        executor: Executor,
        limiter: Arc<TigerBeetleLimiter<L>>,
        file: Arc<LimitsFile>,
    ) -> Self {
        let (book, has_started) = (tokio::sync::Mutex::default(), AtomicBool::new(false));
        Self { executor, limiter, file, book, has_started }
    }

    pub(super) fn limiter(&self) -> &TigerBeetleLimiter<L> {
        &self.limiter
    }

    /// Why nothing can be decided yet.
    pub(super) fn not_started(&self) -> Result<(), Unanswered> {
        let started = self.has_started.load(Ordering::Relaxed);
        if started { Ok(()) } else { Err(unanswered("the definitions are not there yet")) }
    }

    pub(super) async fn define(
        &self,
        limit: Limit,
        disk: DiskBehaviour,
    ) -> Result<LimitStatus, DefineError> {
        self.not_started()?;
        let mut book = self.book.lock().await;
        let _lock = self.lock_file(CHANGE_PATIENCE).await?;
        self.refresh(&mut book).await?;
        let key = limit.key.clone();
        let mut next = book.registry.clone();
        next.put(book.registry.plan(limit.clone())?);
        let step = Duration::from_millis(disk.slow_ms);
        self.executor.sleep(step).await;
        if disk.full == DiskFault::WhenStaged {
            return Err(unanswered("the disk is full").into());
        }
        self.file.content().unconfirmed.insert(key.clone());
        let status = match self.limiter.define(limit).await {
            Ok(status) => status,
            Err(error) => {
                book.is_unconfirmed = matches!(error, DefineError::Unanswered(_));
                if !book.is_unconfirmed {
                    self.file.content().unconfirmed.remove(&key);
                }
                return Err(error);
            }
        };
        self.executor.sleep(step).await;
        self.file.content().unconfirmed.remove(&key);
        if disk.full == DiskFault::WhenCommitted {
            self.undo(&mut book, &key).await;
            book.is_behind = true;
            return Err(unanswered("the disk is full").into());
        }
        self.file.write(&next);
        book.registry = next;
        book.follow(&key, status);
        self.catch_up(&mut book);
        Ok(status)
    }

    async fn undo(&self, book: &mut Book, key: &LimitKey) {
        let undone = match book.registry.get(key).cloned() {
            Some(registered) => self.limiter.restore(registered).await.is_ok(),
            None => self.limiter.delete(key).await.is_ok(),
        };
        match undone {
            true => book.parted.remove(key),
            false => book.parted.insert(key.clone()),
        };
    }

    async fn undo_again(&self, book: &mut Book) {
        if book.parted.is_empty() && !book.is_unconfirmed {
            return;
        }
        let Ok(_lock) = self.lock_file(CHANGE_PATIENCE).await else {
            return;
        };
        if self.refresh(book).await.is_err() {
            return;
        }
        for key in book.parted.clone() {
            self.undo(book, &key).await;
        }
    }

    pub(super) async fn tick(&self) {
        if !self.start().await {
            return;
        }
        self.limiter.tick().await;
        let mut book = self.book.lock().await;
        self.follow_file(&mut book).await;
        self.undo_again(&mut book).await;
        let mut settled = Vec::new();
        for key in book.decreasing() {
            if self.limiter.waits(&key) == Some(false) {
                settled.push(key);
            }
        }
        if book.is_behind || !settled.is_empty() {
            self.keep_settled(&mut book, &settled).await;
        }
    }

    async fn start(&self) -> bool {
        if self.not_started().is_ok() {
            return true;
        }
        let mut book = self.book.lock().await;
        let started = match self.lock_file(CHANGE_PATIENCE).await {
            Ok(_lock) => self.refresh(&mut book).await.is_ok(),
            Err(_) => false,
        };
        self.has_started.store(started, Ordering::Relaxed);
        started
    }

    async fn follow_file(&self, book: &mut Book) {
        if self.file.content().stamp == book.stamp {
            return;
        }
        if let Ok(_lock) = self.lock_file(TICK_PATIENCE).await {
            // What the cluster does not answer is tried again by the next tick.
            drop(self.refresh(book).await);
        }
    }

    async fn keep_settled(&self, book: &mut Book, settled: &[LimitKey]) {
        let Ok(_lock) = self.lock_file(TICK_PATIENCE).await else {
            return;
        };
        if self.refresh(book).await.is_err() {
            return;
        }
        for key in settled {
            book.follow(key, LimitStatus::Active);
        }
        self.catch_up(book);
    }

    fn catch_up(&self, book: &mut Book) {
        if std::mem::take(&mut book.is_behind) {
            self.file.write(&book.registry);
        }
    }

    /// Makes book and backend what the file says, and shuts out what was not confirmed.
    async fn refresh(&self, book: &mut Book) -> Result<(), Unanswered> {
        let Content { stamp, registry, unconfirmed } = self.file.content().clone();
        if stamp != book.stamp || !unconfirmed.is_empty() {
            let is_other = |registered: &&RegisteredLimit| {
                let key = &registered.limit.key;
                book.registry.get(key) != Some(registered) || unconfirmed.contains(key)
            };
            let others: Vec<_> = registry.iter().filter(is_other).cloned().collect();
            let statuses = self.limiter.restore_all(others.clone(), &unconfirmed).await?;
            for (registered, status) in others.into_iter().zip(statuses) {
                let key = registered.limit.key.clone();
                book.registry.put(registered);
                book.follow(&key, status);
            }
            book.stamp = stamp;
            self.file.content().unconfirmed.clear();
        }
        book.is_unconfirmed = false;
        Ok(())
    }

    async fn lock_file(
        &self,
        patience: Duration,
    ) -> Result<tokio::sync::MutexGuard<'_, ()>, Unanswered> {
        let lock = std::pin::pin!(self.file.lock.lock());
        match select(lock, self.executor.sleep(patience)).await {
            Either::Left((lock, _)) => Ok(lock),
            Either::Right(_) => Err(unanswered("another server is changing the limits")),
        }
    }
}

impl Book {
    fn follow(&mut self, key: &LimitKey, status: LimitStatus) {
        let Some(registered) = self.registry.get_mut(key) else {
            return;
        };
        if status == LimitStatus::Active && registered.waits() {
            registered.settle();
            self.is_behind = true;
        }
    }

    fn decreasing(&self) -> Vec<LimitKey> {
        let decreasing = self.registry.iter().filter(|limit| limit.waits());
        decreasing.map(|registered| registered.limit.key.clone()).collect()
    }
}

fn unanswered(reason: &str) -> Unanswered {
    Unanswered { reason: reason.to_owned(), retry_after: Duration::from_secs(1) }
}
