//! Answers that their callers have not read yet: what nobody reads is returned (`WAIT-04`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratelimiter::{Actual, Actuals, CompleteRequest, Requirement, ReserveRequest};

use super::{State, Waiters};
use crate::hosted::HostedBackend;

/// What becomes of a lease that was allowed, until a caller has read that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// The answer is on its way.
    Sent,
    /// All callers have gone away, and the lease returns what it has.
    Undoing,
}

/// A lease that was allowed, until one of its callers reads that. If the last one goes away before, the lease returns all that it has.
///
/// Dropped without the lock held.
#[derive(Debug)]
pub(super) struct UnreadAllow<B: HostedBackend> {
    waiters: Arc<Waiters<B>>,
    request: Arc<ReserveRequest>,
}

impl<B: HostedBackend> UnreadAllow<B> {
    pub(super) fn new(
        waiters: &Arc<Waiters<B>>,
        state: &mut State<B>,
        request: Arc<ReserveRequest>,
    ) -> Arc<Self> {
        if state.unread.insert(request.lease, Unread::Sent).is_none() {
            waiters.count.fetch_add(1, Ordering::SeqCst);
        }
        Arc::new(Self { waiters: Arc::clone(waiters), request })
    }

    /// A caller has the answer.
    pub(super) fn read(&self) {
        self.waiters.read(&mut self.waiters.lock(), self.request.lease);
    }
}

impl<B: HostedBackend> Drop for UnreadAllow<B> {
    fn drop(&mut self) {
        match self.waiters.lock().unread.get_mut(&self.request.lease) {
            Some(unread @ Unread::Sent) => *unread = Unread::Undoing,
            Some(Unread::Undoing) | None => return,
        }
        let undo = undo(Arc::clone(&self.waiters), Arc::clone(&self.request));
        self.waiters.runtime.spawn(Box::pin(undo));
    }
}

/// Returns all that a lease has, which was allowed for nobody.
async fn undo<B: HostedBackend>(waiters: Arc<Waiters<B>>, request: Arc<ReserveRequest>) {
    let mut unused = Vec::new();
    for Requirement { key, .. } in request.requirements.iter() {
        if let Ok(Some(state)) = waiters.backend.state(key).await
            && !state.limit.kind.is_concurrency()
        {
            unused.push(Actual { key: key.clone(), amount: 0 });
        }
    }
    let actuals = Actuals::new(unused).expect("as many as the requirements, with their keys");
    let complete = CompleteRequest::new(request.lease, actuals);
    let completed = waiters.backend.complete_freeing(&complete).await;
    waiters.read(&mut waiters.lock(), request.lease);
    match completed {
        Ok(freed) => waiters.released(&freed),
        Err(error) => {
            tracing::warn!(lease = %request.lease, %error, "cannot return what nobody waits for");
        }
    }
}
