//! Waiting inside reserve (`WAIT-01`): a layer over any backend.
//!
//! A reserve that may wait and finds no room waits here until it is admitted or its time is over. The [admission
//! policy](ratelimiter::admission) decides whose turn it is, as in the client's scheduler. One task, the driver, asks the backend for
//! all waiters. A waiter is a place in a queue and a channel; it has no task and no timer of its own.
//!
//! No room is missed: the driver asks for a waiter after it entered, and a complete tells the driver of the limits that may have room
//! again. A complete that began when nobody waited looks for waiters when it has ended.

mod driver;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use ratelimiter::admission::{Admission, Removed, STARVING_AFTER, Turn, TurnAnswer, WaiterId};
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{
    CompleteError, CompleteRequest, Decision, Denial, DenialReason, LeaseId, LimitKey, RenewError,
    RenewRequest, Renewal, Requirements, ReserveError, ReserveRequest, Unanswered, Wait,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::hosted::HostedBackend;
use crate::runtime::Runtime;

/// The most callers that wait for one lease.
const CALLERS_PER_LEASE_MAX: usize = 16;
/// Retry hint of a request that may not wait because too many do.
const TOO_MANY_RETRY_AFTER: Duration = Duration::from_secs(1);

const WAITS: &str = "a lease with an entry waits";

type Answer = Result<Decision, ReserveError>;

/// A decision, and how long the caller waited for it, if it asked to.
pub type TimedDecision = (Decision, Option<Duration>);

/// A backend whose reserves may wait.
#[derive(Debug)]
pub struct Waiting<B> {
    waiters: Arc<Waiters<B>>,
    /// Ends the driver.
    stop: CancellationToken,
}

#[derive(Debug)]
struct Waiters<B> {
    backend: Arc<B>,
    clock: Arc<dyn Clock>,
    runtime: Arc<dyn Runtime>,
    count_max: usize,
    /// While nobody waits, no request takes the lock.
    count: AtomicUsize,
    state: Mutex<State>,
    /// Wakes the driver.
    changed: Notify,
    /// All limits may have room.
    limits_changed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    admission: Admission<Waiter>,
    by_lease: HashMap<LeaseId, WaiterId>,
    /// When each caller gives up.
    deadlines: BTreeSet<(Timestamp, WaiterId, CallerNumber)>,
    /// Callers so far.
    callers: u64,
    /// Leases that were admitted when nobody waited for them any more, and return what they have.
    undoing: HashSet<LeaseId>,
    is_shut_down: bool,
}

type CallerNumber = u64;

/// A lease that waits.
#[derive(Debug)]
struct Waiter {
    request: Arc<ReserveRequest>,
    /// The last answer of the backend.
    denial: Denial,
    /// Whoever repeats the request joins.
    callers: Vec<Caller>,
}

#[derive(Debug)]
struct Caller {
    number: CallerNumber,
    deadline: Timestamp,
    sender: oneshot::Sender<Delivery>,
}

/// An answer on its way to a caller.
#[derive(Debug)]
struct Delivery {
    answer: Answer,
    /// No other caller gets it too.
    is_only: bool,
}

/// A caller that waits. Dropping it forgets the caller, and with the last one the waiter (`WAIT-04`).
struct WaitingCaller<B: HostedBackend> {
    waiters: Arc<Waiters<B>>,
    request: Arc<ReserveRequest>,
    number: CallerNumber,
    delivery: oneshot::Receiver<Delivery>,
}

impl<B: HostedBackend> Waiting<B> {
    /// A layer over a backend, for at most `waiters_max` leases that wait. `limits_changed` is notified when limits other than by a
    /// reserve or complete may have room.
    pub fn new(
        backend: Arc<B>,
        clock: Arc<dyn Clock>,
        runtime: &Arc<dyn Runtime>,
        waiters_max: usize,
        limits_changed: Arc<Notify>,
    ) -> Self {
        let state = State {
            admission: Admission::new(usize::MAX, STARVING_AFTER),
            by_lease: HashMap::new(),
            deadlines: BTreeSet::new(),
            callers: 0,
            undoing: HashSet::new(),
            is_shut_down: false,
        };
        let waiters = Arc::new(Waiters {
            backend,
            clock,
            runtime: Arc::clone(runtime),
            count_max: waiters_max,
            count: AtomicUsize::new(0),
            state: Mutex::new(state),
            changed: Notify::new(),
            limits_changed,
        });
        let stop = CancellationToken::new();
        runtime.spawn(Box::pin(driver::drive(Arc::clone(&waiters), stop.clone())));
        Self { waiters, stop }
    }

    /// Number of leases that wait.
    pub fn count(&self) -> usize {
        self.waiters.count.load(Ordering::Relaxed)
    }

    /// Answers all waiters with their denials. From now on nobody waits.
    pub fn shut_down(&self) {
        let mut state = self.waiters.lock();
        state.is_shut_down = true;
        for (_, waiter) in state.admission.remove_all() {
            self.waiters.forget(&mut state, &waiter.work);
            let denied = Ok(Decision::Denied(waiter.work.denial.clone()));
            waiter.work.answer(&denied);
        }
    }

    /// Reserves, and waits for room as long as the request wants.
    ///
    /// # Errors
    /// As the backend's reserve.
    pub async fn reserve(&self, request: &ReserveRequest) -> Result<TimedDecision, ReserveError> {
        let waiters = &self.waiters;
        let since = request.wait.is_some().then(|| waiters.clock.now());
        let decision = match (&request.wait, waiters.join(request).await) {
            (_, Some(joined)) => joined?,
            (Some(wait), None) if !wait.at_most().is_zero() => {
                waiters.reserve_or_wait(request, wait).await?
            }
            (Some(_) | None, None) => waiters.reserve_at_once(request).await?,
        };
        Ok((decision, since.map(|since| waiters.clock.now().since(since))))
    }

    /// As [`Waiting::reserve`] of each.
    pub async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<TimedDecision, ReserveError>> {
        if self.waiters.any() || requests.iter().any(|request| request.wait.is_some()) {
            return join_all(requests.iter().map(|request| self.reserve(request))).await;
        }
        let answers = self.waiters.backend.reserve_batch(requests).await;
        answers.into_iter().map(|answer| Ok((answer?, None))).collect()
    }

    /// Completes a lease, and lets waiters ask for what it had.
    ///
    /// # Errors
    /// As the backend's complete.
    pub async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        if self.waiters.any() {
            self.waiters.withdraw(request.lease);
            let freed = self.waiters.backend.complete_freeing(request).await?;
            self.waiters.released(&freed);
            return Ok(());
        }
        self.waiters.backend.complete(request).await?;
        // Some may have come in the meantime, and asked just before there was room.
        if self.waiters.any() {
            self.waiters.limits_changed.notify_one();
        }
        Ok(())
    }

    /// Renews a lease, and lets waiters ask for what it gave back.
    ///
    /// # Errors
    /// As the backend's renew.
    pub async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        let (renewal, freed) = self.waiters.backend.renew_freeing(request).await?;
        if !freed.is_empty() && self.waiters.any() {
            self.waiters.released(&freed);
        }
        Ok(renewal)
    }

    /// As [`Waiting::complete`] of each.
    pub async fn complete_batch(
        &self,
        requests: &[CompleteRequest],
    ) -> Vec<Result<(), CompleteError>> {
        if self.waiters.any() {
            return join_all(requests.iter().map(|request| self.complete(request))).await;
        }
        let answers = self.waiters.backend.complete_batch(requests).await;
        if self.waiters.any() {
            self.waiters.limits_changed.notify_one();
        }
        answers
    }
}

impl<B: HostedBackend> Waiters<B> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    fn released(&self, keys: &[LimitKey]) {
        self.lock().admission.released(keys);
        self.changed.notify_one();
    }

    /// The limit for which others wait, so that this request must not be admitted before them.
    fn held_up_by(&self, request: &ReserveRequest) -> Option<LimitKey> {
        if !self.any() {
            return None;
        }
        let now = self.clock.now();
        self.lock().admission.would_hold_up(now, &request.requirements).cloned()
    }

    async fn reserve_at_once(&self, request: &ReserveRequest) -> Answer {
        match self.held_up_by(request) {
            None => self.backend.reserve(request).await,
            Some(behind) => {
                let turn = Turn { behind: Some(&behind), attempt: None };
                Ok(self.backend.reserve_in_turn(request, turn).await?.decision)
            }
        }
    }

    async fn reserve_or_wait(self: &Arc<Self>, request: &ReserveRequest, wait: &Wait) -> Answer {
        let behind = self.held_up_by(request);
        let turn = Turn { behind: behind.as_ref(), attempt: Some(0) };
        let denial = match self.backend.reserve_in_turn(request, turn).await? {
            TurnAnswer { decision: Decision::Denied(denial), ask_again_after: Some(_) } => denial,
            TurnAnswer { decision, .. } => return Ok(decision),
        };
        match self.enter(request, wait, denial) {
            Ok(caller) => caller.answer().await,
            Err(answer) => answer,
        }
    }

    /// The answer to a request whose lease waits: it joins the wait, or is denied if it does not wait itself.
    async fn join(self: &Arc<Self>, request: &ReserveRequest) -> Option<Answer> {
        if !self.any() {
            return None;
        }
        let wait = request.wait.as_ref().filter(|wait| !wait.at_most().is_zero());
        let joined = {
            let mut state = self.lock();
            if state.undoing.contains(&request.lease) {
                return Some(Err(interrupted().into()));
            }
            let id = *state.by_lease.get(&request.lease)?;
            let denial = state.waiter(id).denial.clone();
            match wait {
                Some(wait) => self.enter_locked(&mut state, request, wait, denial),
                None => Err(Ok(Decision::Denied(denial))),
            }
        };
        Some(match joined {
            Ok(caller) => caller.answer().await,
            Err(answer) => answer,
        })
    }

    /// Begins to wait, or joins whoever waits with this lease.
    ///
    /// # Errors
    /// The answer, if nobody may wait.
    fn enter(
        self: &Arc<Self>,
        request: &ReserveRequest,
        wait: &Wait,
        denial: Denial,
    ) -> Result<WaitingCaller<B>, Answer> {
        self.enter_locked(&mut self.lock(), request, wait, denial)
    }

    fn enter_locked(
        self: &Arc<Self>,
        state: &mut State,
        request: &ReserveRequest,
        wait: &Wait,
        denial: Denial,
    ) -> Result<WaitingCaller<B>, Answer> {
        let deadline = self.clock.now().after(wait.at_most());
        if state.is_shut_down {
            return Err(Ok(Decision::Denied(denial)));
        }
        let joined = state.by_lease.get(&request.lease).copied();
        let callers = joined.map_or(0, |id| state.waiter(id).callers.len());
        if state.by_lease.len() >= self.count_max && joined.is_none()
            || callers >= CALLERS_PER_LEASE_MAX
        {
            let reason = DenialReason::TooManyWaiters { keys: denial.keys().to_vec() };
            let denial = Denial { reason, retry_after: TOO_MANY_RETRY_AFTER };
            return Err(Ok(Decision::Denied(denial)));
        }
        let id = match joined {
            Some(id) if !is_same(&state.waiter(id).request.requirements, &request.requirements) => {
                return Err(Err(ReserveError::LeaseConflict));
            }
            Some(id) => id,
            None => {
                let request = Arc::new(request.clone());
                let (lease, queue) = (request.lease, wait.queue());
                let waiter = Waiter { request: Arc::clone(&request), denial, callers: Vec::new() };
                let id = state.admission.add("", queue, &request.requirements, waiter);
                state.by_lease.insert(lease, id);
                self.count.fetch_add(1, Ordering::SeqCst);
                id
            }
        };
        state.callers += 1;
        let number = state.callers;
        let (sender, delivery) = oneshot::channel();
        state.deadlines.insert((deadline, id, number));
        let waiter = state.waiter(id);
        waiter.callers.push(Caller { number, deadline, sender });
        let request = Arc::clone(&waiter.request);
        self.changed.notify_one();
        Ok(WaitingCaller { waiters: Arc::clone(self), request, number, delivery })
    }

    /// A lease is completed: if it waits, its callers are denied, and nothing is admitted for them any more.
    fn withdraw(&self, lease: LeaseId) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(id) = state.by_lease.get(&lease).copied() else { return };
        if let Removed::Waiting(waiter) = state.admission.remove(id) {
            self.forget(state, &waiter.work);
            let denied = Ok(Decision::Denied(waiter.work.denial.clone()));
            waiter.work.answer(&denied);
            self.changed.notify_one();
            return;
        }
        // It asks: without callers, what it gets is returned.
        let waiter = state.waiter(id);
        for caller in std::mem::take(&mut waiter.callers) {
            state.deadlines.remove(&(caller.deadline, id, caller.number));
            let denial = state.waiter(id).denial.clone();
            caller.deny(&denial);
        }
    }

    /// The waiter has left the admission.
    fn forget(&self, state: &mut State, waiter: &Waiter) {
        let id = state.by_lease.remove(&waiter.request.lease).expect(WAITS);
        for caller in &waiter.callers {
            state.deadlines.remove(&(caller.deadline, id, caller.number));
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<B: HostedBackend> WaitingCaller<B> {
    async fn answer(mut self) -> Answer {
        match (&mut self.delivery).await {
            Ok(delivery) => delivery.answer,
            Err(_) => Err(interrupted().into()),
        }
    }
}

impl State {
    /// Forgets all waiters, whose callers get no answer.
    fn abandon_all(&mut self) {
        self.admission = Admission::new(usize::MAX, STARVING_AFTER);
        self.by_lease.clear();
        self.deadlines.clear();
    }

    fn waiter(&mut self, id: WaiterId) -> &mut Waiter {
        &mut self.admission.get_mut(id).expect(WAITS).work
    }
}

impl Waiter {
    /// Answers all callers; false if none is left.
    fn answer(self, answer: &Answer) -> bool {
        let is_only = self.callers.len() == 1;
        let mut is_taken = false;
        for caller in self.callers {
            let delivery = Delivery { answer: answer.clone(), is_only };
            is_taken |= caller.sender.send(delivery).is_ok();
        }
        is_taken
    }
}

impl Caller {
    /// Its time is over, and others go on waiting for the same lease.
    fn deny(self, denial: &Denial) {
        let answer = Ok(Decision::Denied(denial.clone()));
        drop(self.sender.send(Delivery { answer, is_only: false }));
    }
}

impl<B: HostedBackend> Drop for WaitingCaller<B> {
    fn drop(&mut self) {
        // An answer that is sent from now on reaches nobody, which the driver notices.
        self.delivery.close();
        // It left just before it would have read its answer.
        if let Ok(Delivery { answer: Ok(Decision::Allowed { .. }), is_only: true }) =
            self.delivery.try_recv()
        {
            self.waiters.lock().undoing.insert(self.request.lease);
            let undo = Arc::clone(&self.waiters).undo(Arc::clone(&self.request));
            self.waiters.runtime.spawn(Box::pin(undo));
            return;
        }
        let mut guard = self.waiters.lock();
        let state = &mut *guard;
        let Some(id) = state.by_lease.get(&self.request.lease).copied() else {
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
            self.waiters.forget(state, &waiter.work);
            self.waiters.changed.notify_one();
        }
    }
}

impl<B> Drop for Waiting<B> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Whether two requests of one lease need the same, in any order (`RES-04`).
fn is_same(one: &Requirements, other: &Requirements) -> bool {
    one.len() == other.len() && one.iter().all(|need| other.iter().any(|same| same == need))
}

fn interrupted() -> Unanswered {
    let reason = "the server stopped while the request waited".to_owned();
    Unanswered { reason, retry_after: TOO_MANY_RETRY_AFTER }
}

#[cfg(test)]
mod tests;
