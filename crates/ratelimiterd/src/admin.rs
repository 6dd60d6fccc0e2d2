//! Changing limits: one change at a time, in the backend and where the definitions are stored.
//!
//! Most backends are given their definitions by the server, which stores them in a document; both change together. A backend that
//! keeps its own definitions is only asked to change them. Either way a change completes even if the client disconnects.

mod change;
mod change_log;
mod definition_store;
mod kept;
mod shared_file;
mod stored;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{DefineError, DeleteError, Limit, LimitKey, LimitStatus, Unanswered};
use ratelimiter_waiting::Runtime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use self::change::ChangeError;
use self::change::{Progress, unanswered};
use self::kept::KeptDefinitions;
use self::stored::StoredDefinitions;
use crate::hosted::HostedBackend;
use crate::limits_file::LoadError;
use crate::medium::RegistryPlace;

/// Retry hint of a change that could not be stored.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Defines and deletes limits.
#[derive(Debug)]
pub struct Admin<B> {
    runtime: Arc<dyn Runtime>,
    definitions: Definitions<B>,
    changed: Arc<Notify>,
}

/// Who keeps the definitions.
#[derive(Debug)]
enum Definitions<B> {
    /// The server, in a document.
    Stored(Box<StoredDefinitions<B>>),
    /// The backend.
    Kept(KeptDefinitions<B>),
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
    /// Loads the definitions from a file or a database into the backend, unless the backend keeps them. A shared backend may
    /// not answer yet; the first tick that reaches it does this then.
    ///
    /// # Errors
    /// Another server owns the definitions, they cannot be read or have errors, or the backend rejects the limits.
    ///
    /// # Panics
    /// The place is not one for this backend.
    pub async fn restore(
        backend: Arc<B>,
        place: impl Into<RegistryPlace>,
        addr: SocketAddr,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, RestoreError> {
        let place = place.into();
        let limits_max = place.limits_max();
        let medium = place.medium(&runtime);
        let is_kept = backend.keeps_definitions();
        assert_eq!(medium.is_none(), is_kept, "a backend keeps its definitions, or a medium does");
        let definitions = match medium {
            None => Definitions::Kept(KeptDefinitions::new(backend, limits_max).await),
            Some(medium) => {
                let runtime = Arc::clone(&runtime);
                let stored = StoredDefinitions::restore(backend, medium, addr, runtime);
                Definitions::Stored(Box::new(stored.await?))
            }
        };
        Ok(Self { runtime, definitions, changed: Arc::default() })
    }

    /// Is notified when limits may have changed, successfully or not.
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Defines or changes a limit. When this returns, the definition is as safe as its place is.
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
        let define = |admin: Arc<Self>, progress| async move {
            match &admin.definitions {
                Definitions::Stored(stored) => stored.define(limits, &progress).await,
                Definitions::Kept(kept) => kept.define(limits, &progress).await,
            }
        };
        self.run_to_end(timeout, define).await
    }

    /// Deletes a limit. When this returns, it is deleted where the definitions are stored, too.
    ///
    /// # Errors
    /// As the backend's delete, and when the deletion could not be stored, as for [`Admin::define`].
    pub async fn delete(
        self: &Arc<Self>,
        key: LimitKey,
        timeout: Duration,
    ) -> Result<(), ChangeError<DeleteError>> {
        let delete = |admin: Arc<Self>, progress| async move {
            match &admin.definitions {
                Definitions::Stored(stored) => stored.delete(&key, &progress).await,
                Definitions::Kept(kept) => kept.delete(&key, &progress).await,
            }
        };
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

    /// Runs the backend's background work. Of definitions in a document, applies what others have written there, and stores
    /// the decreases that have been applied.
    ///
    /// The backend may not answer. `stop` ends the waiting, but not a write.
    pub async fn tick(&self, stop: &CancellationToken) {
        match &self.definitions {
            Definitions::Stored(stored) => stored.tick(stop).await,
            Definitions::Kept(kept) => kept.tick(&*self.runtime, stop).await,
        }
    }
}

impl<B> Admin<B> {
    /// Lets another server have the definitions. Nothing can be changed after that.
    pub(crate) async fn close(&self) {
        match &self.definitions {
            Definitions::Stored(stored) => stored.close().await,
            Definitions::Kept(_) => {}
        }
    }

    /// Number of limits at the start, if it was known.
    pub(crate) const fn limit_count(&self) -> Option<usize> {
        match &self.definitions {
            Definitions::Stored(stored) => Some(stored.limit_count),
            Definitions::Kept(kept) => kept.limit_count,
        }
    }

    /// Adds the metrics of a registry in a database, in Prometheus' text format.
    pub(crate) fn write_metrics(&self, text: &mut String) {
        match &self.definitions {
            Definitions::Stored(stored) => stored.write_metrics(text),
            Definitions::Kept(_) => {}
        }
    }

    /// Why requests cannot be answered yet; `None` once the backend has the definitions.
    pub fn not_started(&self) -> Option<Unanswered> {
        match &self.definitions {
            Definitions::Stored(stored) => stored.not_started(),
            Definitions::Kept(_) => None,
        }
    }
}

fn task_panicked() -> Unanswered {
    unanswered("the change was interrupted".to_owned())
}

#[cfg(test)]
mod tests;
