//! How a request begins to wait, or joins a wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratelimiter::admission::{Removed, Turn, TurnAnswer, TurnBackend};
use ratelimiter::clock::Timestamp;
use ratelimiter::{Decision, Denial, DenialReason, LeaseId, ReserveError, ReserveRequest, Wait};
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::unread::Delivery;
use super::{
    Answer, CALLERS_PER_LEASE_MAX, Caller, CallerNumber, State, TOO_MANY_RETRY_AFTER, Waiter,
    Waiters, interrupted,
};

/// The first attempt of a lease.
struct Entering<B: TurnBackend> {
    waiters: Arc<Waiters<B>>,
    lease: LeaseId,
    _turn: OwnedMutexGuard<()>,
}

/// Another request of the lease came first.
struct LeaseIsKnown;

/// A caller that waits. Dropping it forgets the caller, and with the last one the waiter (`WAIT-04`).
pub(super) struct WaitingCaller<B: TurnBackend> {
    waiters: Arc<Waiters<B>>,
    lease: LeaseId,
    number: CallerNumber,
    delivery: oneshot::Receiver<Delivery<B>>,
}

impl<B: TurnBackend> Waiters<B> {
    /// Reserves; without room the request begins to wait, or joins whoever waits with its lease, if it may.
    ///
    /// # Errors
    /// The answer, if it does not wait.
    pub(super) async fn reserve_or_wait(
        self: &Arc<Self>,
        request: &ReserveRequest,
        since: Timestamp,
        may_return: bool,
    ) -> Result<WaitingCaller<B>, Delivery<B>> {
        let wait = request.wait.as_ref().filter(|wait| !wait.at_most().is_zero());
        let (wait, entering) = loop {
            if let Some(joined) = self.join(request, wait, since).await {
                return joined.map_err(Delivery::from);
            }
            let Some(wait) = wait else {
                return Err(self.reserve_at_once(request, may_return).await.into());
            };
            if let Ok(entering) = self.begin(request.lease) {
                break (wait, entering);
            }
        };
        let behind = self.held_up_by(request);
        let turn = Turn { behind: behind.as_ref(), attempt: Some(0), may_return };
        let answer = self.backend.reserve_in_turn(request, turn).await;
        let Ok(TurnAnswer { decision: Decision::Denied(denial), ask_again_after: Some(_), .. }) =
            answer
        else {
            return Err(answer.into());
        };
        let entered = self.enter(&mut self.lock(), request, wait, since, denial);
        drop(entering);
        entered.map_err(Delivery::from)
    }

    /// Begins the first attempt of a lease.
    ///
    /// # Errors
    /// Another request of the lease came first.
    fn begin(self: &Arc<Self>, lease: LeaseId) -> Result<Option<Entering<B>>, LeaseIsKnown> {
        if !self.backend.is_shared() {
            return Ok(None);
        }
        let mut state = self.lock();
        if state.by_lease.contains_key(&lease)
            || state.unread.contains_key(&lease)
            || state.entering.contains_key(&lease)
        {
            return Err(LeaseIsKnown);
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        let guard = Arc::clone(&turn).try_lock_owned().expect("nobody else has it yet");
        state.entering.insert(lease, turn);
        self.count.fetch_add(1, Ordering::SeqCst);
        Ok(Some(Entering { waiters: Arc::clone(self), lease, _turn: guard }))
    }

    /// Waits for the first attempt of a lease, if one is under way.
    async fn wait_for_first_attempt(&self, lease: LeaseId) {
        loop {
            let Some(turn) = self.lock().entering.get(&lease).cloned() else { return };
            drop(turn.lock().await);
        }
    }

    /// Joins whoever waits with this lease.
    ///
    /// # Errors
    /// The answer, if it does not wait.
    async fn join(
        self: &Arc<Self>,
        request: &ReserveRequest,
        wait: Option<&Wait>,
        since: Timestamp,
    ) -> Option<Result<WaitingCaller<B>, Answer>> {
        if !self.any() {
            return None;
        }
        self.wait_for_first_attempt(request.lease).await;
        let mut state = self.lock();
        if let Err(given_up) = self.told(&mut state, request.lease) {
            return Some(Err(Err(given_up.into())));
        }
        let id = *state.by_lease.get(&request.lease)?;
        let waiter = state.waiter(id);
        Some(match wait {
            _ if !waiter.is_for(request) => Err(Err(ReserveError::LeaseConflict)),
            Some(wait) => {
                let denial = waiter.denial();
                self.enter(&mut state, request, wait, since, denial)
            }
            None => Err(state.denied_waiter(id)),
        })
    }

    /// Begins to wait, or joins whoever waits with this lease.
    ///
    /// # Errors
    /// The answer, if nobody may wait.
    fn enter(
        self: &Arc<Self>,
        state: &mut State<B>,
        request: &ReserveRequest,
        wait: &Wait,
        since: Timestamp,
        denial: Denial,
    ) -> Result<WaitingCaller<B>, Answer> {
        let (lease, deadline) = (request.lease, since.after(wait.at_most()));
        let joined = state.by_lease.get(&lease).copied();
        if joined.is_some_and(|id| !state.waiter(id).is_for(request)) {
            return Err(Err(ReserveError::LeaseConflict));
        }
        if state.is_shut_down {
            return Err(Ok(Decision::Denied(denial)));
        }
        let is_full = match joined {
            Some(id) => state.waiter(id).callers.len() >= CALLERS_PER_LEASE_MAX,
            None => state.by_lease.len() >= self.count_max,
        };
        if is_full {
            let reason = DenialReason::TooManyWaiters { keys: denial.keys().to_vec() };
            let denial = Denial { reason, retry_after: TOO_MANY_RETRY_AFTER };
            return Err(Ok(Decision::Denied(denial)));
        }
        let id = joined.unwrap_or_else(|| {
            let waiter = Waiter::new(Arc::new(request.clone()), Ok(denial));
            let id = state.admission.add("", wait.queue(), &request.requirements, waiter);
            state.by_lease.insert(lease, id);
            self.count.fetch_add(1, Ordering::SeqCst);
            id
        });
        state.callers += 1;
        let number = state.callers;
        let (sender, delivery) = oneshot::channel();
        state.deadlines.insert((deadline, id, number));
        state.waiter(id).callers.push(Caller { number, deadline, sender });
        self.changed.notify_one();
        Ok(WaitingCaller { waiters: Arc::clone(self), lease, number, delivery })
    }
}

impl<B: TurnBackend> WaitingCaller<B> {
    pub(super) async fn delivery(&mut self) -> Delivery<B> {
        let delivered = (&mut self.delivery).await;
        delivered.unwrap_or_else(|_| Answer::Err(interrupted().into()).into())
    }
}

impl<B: TurnBackend> Drop for Entering<B> {
    fn drop(&mut self) {
        let mut state = self.waiters.lock();
        state.entering.remove(&self.lease).expect("a lease enters once");
        self.waiters.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<B: TurnBackend> Drop for WaitingCaller<B> {
    fn drop(&mut self) {
        let mut guard = self.waiters.lock();
        let state = &mut *guard;
        let Some(id) = state.by_lease.get(&self.lease).copied() else {
            return;
        };
        let waiter = state.waiter(id);
        let Some(at) = waiter.callers.iter().position(|caller| caller.number == self.number) else {
            return;
        };
        let caller = waiter.callers.swap_remove(at);
        let is_last = waiter.callers.is_empty();
        state.deadlines.remove(&(caller.deadline, id, caller.number));
        // One that asks ends with its answer.
        if is_last && let Removed::Waiting(waiter) = state.admission.remove(id) {
            self.waiters.leave_later(state, waiter.work);
        }
    }
}
