//! Advisory locks, which end with the session that has them.

use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::OwnedMutexGuard;

use super::ANSWER_TIMEOUT;
use super::session::Database;
use crate::disk::LockMode;
use crate::medium::Held;

/// An advisory lock of a session.
#[derive(Debug)]
pub(super) struct SessionLock {
    database: Arc<Database>,
    /// The number of the session.
    number: u64,
    key: i64,
    mode: LockMode,
    /// Keeps out other changes of this server; an advisory lock does not keep out its own session.
    _changing: Option<OwnedMutexGuard<()>>,
}

impl SessionLock {
    /// A lock that the current session has. It is released when this is dropped, also by a caller that is gone. Only for
    /// work on the session, so that its number does not change in the meantime.
    pub(super) fn new(
        database: Arc<Database>,
        key: i64,
        mode: LockMode,
        changing: Option<OwnedMutexGuard<()>>,
    ) -> Self {
        let number = database.number();
        Self { database, number, key, mode, _changing: changing }
    }
}

impl Held for SessionLock {
    fn is_held(&self) -> bool {
        self.database.number() == self.number
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Outside of the runtime the connection ends soon, and the lock with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (database, number) = (Arc::clone(&self.database), self.number);
        let (key, mode) = (self.key, self.mode);
        runtime.spawn(async move {
            let current = Arc::clone(&database);
            let unlocked = database.run(ANSWER_TIMEOUT, Vec::new(), move |session| {
                async move {
                    match current.number() == number {
                        true => session.unlock(key, mode).await,
                        false => Ok(()),
                    }
                }
                .boxed()
            });
            // If that fails, the connection is ended, and the lock with it.
            drop(unlocked.await);
        });
    }
}
