//! Answers that their callers have not read yet: what nobody reads is returned (`WAIT-04`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratelimiter::admission::{TurnAnswer, TurnBackend, no_answer_pause};
use ratelimiter::{CompleteError, LeaseId, ReserveError, ReserveRequest, Unanswered};

use super::{Answer, State, TOO_MANY_RETRY_AFTER, Waiters, caught};

/// How often the server tries to return a lease, or gives up for one, while the backend does not answer: about ten minutes long.
pub(super) const TRIES_MAX: u32 = 120;

/// What becomes of a lease that waits no more, until a caller has read its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unread {
    /// It has left without an answer of a shared backend, which may admit it until the server has given up.
    Leaving(Arc<ReserveRequest>),
    /// It was allowed, and the answer is on its way.
    Sent,
    /// It was allowed, all callers have gone away, and it returns what it has.
    Undoing,
}

impl Unread {
    pub(super) const fn leaving(&self) -> Option<&Arc<ReserveRequest>> {
        match self {
            Self::Leaving(request) => Some(request),
            Self::Sent | Self::Undoing => None,
        }
    }
}

/// A lease that was allowed, until one of its callers reads that. If the last one goes away before, the lease returns all that it has.
///
/// Dropped without the lock held.
#[derive(Debug)]
pub(super) struct UnreadAllow<B: TurnBackend> {
    waiters: Arc<Waiters<B>>,
    request: Arc<ReserveRequest>,
}

/// An answer on its way to a caller. All callers of a lease share the allow.
#[derive(Debug)]
pub(super) struct Delivery<B: TurnBackend> {
    pub(super) answer: Answer,
    /// The lease was admitted at once, and nobody else gets this answer.
    pub(super) is_new: bool,
    pub(super) allow: Option<Arc<UnreadAllow<B>>>,
}

impl<B: TurnBackend> UnreadAllow<B> {
    pub(super) fn new(
        waiters: &Arc<Waiters<B>>,
        state: &mut State<B>,
        request: Arc<ReserveRequest>,
    ) -> Arc<Self> {
        waiters.set_unread(state, request.lease, Unread::Sent);
        Arc::new(Self { waiters: Arc::clone(waiters), request })
    }

    /// A caller has the answer.
    pub(super) fn read(&self) {
        self.waiters.read(&mut self.waiters.lock(), self.request.lease);
    }
}

impl<B: TurnBackend> Delivery<B> {
    /// The answer, which its caller has now.
    pub(super) fn read(self) -> Answer {
        if let Some(allow) = self.allow {
            allow.read();
        }
        self.answer
    }

    /// If the lease was admitted at once, it is returned unless a caller reads that.
    pub(super) fn unread(self, waiters: &Arc<Waiters<B>>, request: &ReserveRequest) -> Self {
        if !self.is_new {
            return self;
        }
        let request = Arc::new(request.clone());
        let allow = UnreadAllow::new(waiters, &mut waiters.lock(), request);
        Self { allow: Some(allow), ..self }
    }
}

impl<B: TurnBackend> From<Answer> for Delivery<B> {
    /// An answer that nobody else gets.
    fn from(answer: Answer) -> Self {
        Self { answer, is_new: false, allow: None }
    }
}

impl<B: TurnBackend> From<Result<TurnAnswer, ReserveError>> for Delivery<B> {
    /// An answer that nobody else gets.
    fn from(answer: Result<TurnAnswer, ReserveError>) -> Self {
        let is_new = answer.as_ref().is_ok_and(|answer| answer.is_new);
        Self { answer: answer.map(|answer| answer.decision), is_new, allow: None }
    }
}

impl<B: TurnBackend> Waiters<B> {
    pub(super) fn set_unread(&self, state: &mut State<B>, lease: LeaseId, unread: Unread) {
        if state.unread.insert(lease, unread).is_none() {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The backend is about to answer a repeat or a renew of a lease: what it was allowed is not returned any more.
    ///
    /// # Errors
    /// It is being returned, or given up.
    pub(super) fn told(&self, state: &mut State<B>, lease: LeaseId) -> Result<(), Unanswered> {
        match state.unread.get(&lease) {
            Some(Unread::Sent) => self.read(state, lease),
            Some(Unread::Undoing | Unread::Leaving(_)) => return Err(given_up()),
            None => {}
        }
        Ok(())
    }

    /// The answer to a lease is unread no more.
    pub(super) fn read(&self, state: &mut State<B>, lease: LeaseId) {
        if state.unread.remove(&lease).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl<B: TurnBackend> Drop for UnreadAllow<B> {
    fn drop(&mut self) {
        match self.waiters.lock().unread.get_mut(&self.request.lease) {
            Some(unread @ Unread::Sent) => *unread = Unread::Undoing,
            Some(Unread::Undoing | Unread::Leaving(_)) | None => return,
        }
        let undo = undo(Arc::clone(&self.waiters), Arc::clone(&self.request));
        self.waiters.runtime.spawn(Box::pin(undo));
    }
}

pub(super) fn given_up() -> Unanswered {
    let reason = "an earlier request with this lease ID is being given up".to_owned();
    Unanswered { reason, retry_after: TOO_MANY_RETRY_AFTER }
}

/// Returns all that a lease has, which was allowed for nobody.
async fn undo<B: TurnBackend>(waiters: Arc<Waiters<B>>, request: Arc<ReserveRequest>) {
    let mut tries = 1;
    let returned = loop {
        match caught(waiters.backend.return_lease(&request)).await {
            Err(CompleteError::Unanswered(Unanswered { retry_after, .. })) if tries < TRIES_MAX => {
                waiters.runtime.sleep(no_answer_pause(tries, retry_after, 0.0)).await;
                tries += 1;
            }
            returned => break returned,
        }
    };
    waiters.read(&mut waiters.lock(), request.lease);
    match returned {
        Ok(freed) => waiters.released(&freed),
        Err(error) => {
            tracing::warn!(lease = %request.lease, %error, "cannot return what nobody waits for");
        }
    }
}
