//! Waiting inside reserve (`WAIT-01`): a layer over any backend.
//!
//! A reserve that may wait and finds no room waits here until it is admitted or its time is over. The [admission
//! policy](ratelimiter::admission) decides whose turn it is, as in the client's scheduler. One task, the driver, asks the backend for
//! all waiters. A waiter is a place in a queue and a channel; it has no task and no timer of its own.
//!
//! No room is missed: the driver asks for a waiter after it entered, and a complete tells the driver of the limits that may have room
//! again. A complete that began when nobody waited looks for waiters when it has ended.

mod driver;
mod unread;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use ratelimiter::admission::{Admission, Removed, STARVING_AFTER, Turn, TurnAnswer, WaiterId};
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{
    CompleteError, CompleteRequest, Decision, Denial, DenialReason, LeaseId, LimitKey,
    Requirements, ReserveError, ReserveRequest, Unanswered, Wait,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::unread::{Unread, UnreadAllow};
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
pub struct Waiting<B: HostedBackend> {
    waiters: Arc<Waiters<B>>,
    /// Ends the driver.
    stop: CancellationToken,
}

#[derive(Debug)]
struct Waiters<B: HostedBackend> {
    backend: Arc<B>,
    clock: Arc<dyn Clock>,
    runtime: Arc<dyn Runtime>,
    count_max: usize,
    /// Leases that wait, and those whose answers are unread. While there are none, no request takes the lock.
    count: AtomicUsize,
    state: Mutex<State<B>>,
    /// Wakes the driver.
    changed: Notify,
    /// All limits may have room.
    limits_changed: Arc<Notify>,
}

#[derive(Debug)]
struct State<B: HostedBackend> {
    admission: Admission<Waiter<B>>,
    by_lease: HashMap<LeaseId, WaiterId>,
    /// When each caller gives up.
    deadlines: BTreeSet<(Timestamp, WaiterId, CallerNumber)>,
    /// Callers so far.
    callers: u64,
    /// Waiters of a shared backend that have left without an answer of it.
    leaving: Vec<Waiter<B>>,
    /// When the next look for room is due, on a shared backend.
    look_at: Timestamp,
    is_looking: bool,
    /// Leases that were allowed, and whose callers have not read that.
    unread: HashMap<LeaseId, Unread>,
    is_shut_down: bool,
}

type CallerNumber = u64;

/// A lease that waits.
#[derive(Debug)]
struct Waiter<B: HostedBackend> {
    request: Arc<ReserveRequest>,
    /// The last answer of the backend.
    denial: Denial,
    /// Whoever repeats the request joins.
    callers: Vec<Caller<B>>,
}

#[derive(Debug)]
struct Caller<B: HostedBackend> {
    number: CallerNumber,
    deadline: Timestamp,
    sender: oneshot::Sender<Delivery<B>>,
}

/// An answer on its way to a caller. All callers of a lease share the allow.
#[derive(Debug)]
struct Delivery<B: HostedBackend> {
    answer: Answer,
    allow: Option<Arc<UnreadAllow<B>>>,
}

/// A caller that waits. Dropping it forgets the caller, and with the last one the waiter (`WAIT-04`).
struct WaitingCaller<B: HostedBackend> {
    waiters: Arc<Waiters<B>>,
    request: Arc<ReserveRequest>,
    number: CallerNumber,
    delivery: oneshot::Receiver<Delivery<B>>,
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
            leaving: Vec::new(),
            look_at: clock.now(),
            is_looking: false,
            unread: HashMap::new(),
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
        self.waiters.lock().by_lease.len()
    }

    /// Answers all waiters with their denials. From now on nobody waits.
    pub fn shut_down(&self) {
        let mut state = self.waiters.lock();
        state.is_shut_down = true;
        for (_, waiter) in state.admission.remove_all() {
            self.waiters.forget(&mut state, &waiter.work);
            if self.waiters.backend.is_shared() {
                self.waiters.leave_later(&mut state, waiter.work);
                continue;
            }
            let denied = Ok(Decision::Denied(waiter.work.denial.clone()));
            waiter.work.answer(&denied, None);
        }
    }

    /// Reserves, and waits for room as long as the request wants.
    ///
    /// # Errors
    /// As the backend's reserve.
    pub async fn reserve(&self, request: &ReserveRequest) -> Result<TimedDecision, ReserveError> {
        let (delivery, waited) = self.waiters.reserve(request).await;
        Ok((delivery.read()?, waited))
    }

    /// As [`Waiting::reserve`] of each. If one waits and the caller goes away, those that were allowed are returned.
    pub async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<TimedDecision, ReserveError>> {
        if requests.iter().any(|request| request.wait.is_some()) {
            let since = self.waiters.clock.now();
            let reserve = async |request| {
                let (delivery, waited) = self.waiters.reserve(request).await;
                (delivery.keep(&self.waiters, request, since), waited)
            };
            let answers = join_all(requests.iter().map(reserve)).await;
            let read = |(delivery, waited): (Delivery<B>, _)| Ok((delivery.read()?, waited));
            return answers.into_iter().map(read).collect();
        }
        if self.waiters.any() {
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
    fn lock(&self) -> MutexGuard<'_, State<B>> {
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

    /// The answer to a request, and how long it waited, if it asked to.
    async fn reserve(
        self: &Arc<Self>,
        request: &ReserveRequest,
    ) -> (Delivery<B>, Option<Duration>) {
        let since = request.wait.is_some().then(|| self.clock.now());
        let delivery = match (&request.wait, self.join(request).await) {
            (_, Some(joined)) => joined,
            (Some(wait), None) if !wait.at_most().is_zero() => {
                self.reserve_or_wait(request, wait).await
            }
            (Some(_) | None, None) => self.reserve_at_once(request).await.into(),
        };
        (delivery, since.map(|since| self.clock.now().since(since)))
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

    async fn reserve_or_wait(
        self: &Arc<Self>,
        request: &ReserveRequest,
        wait: &Wait,
    ) -> Delivery<B> {
        let behind = self.held_up_by(request);
        let turn = Turn { behind: behind.as_ref(), attempt: Some(0) };
        let denial = match self.backend.reserve_in_turn(request, turn).await {
            Ok(TurnAnswer { decision: Decision::Denied(denial), ask_again_after: Some(_) }) => {
                denial
            }
            Ok(TurnAnswer { decision, .. }) => return Ok(decision).into(),
            Err(error) => return Err(error).into(),
        };
        match self.enter(request, wait, denial) {
            Ok(caller) => caller.delivery().await,
            Err(answer) => answer.into(),
        }
    }

    /// The answer to a request whose lease waits: it joins the wait, or is denied if it does not wait itself.
    async fn join(self: &Arc<Self>, request: &ReserveRequest) -> Option<Delivery<B>> {
        if !self.any() {
            return None;
        }
        let wait = request.wait.as_ref().filter(|wait| !wait.at_most().is_zero());
        let joined = {
            let mut state = self.lock();
            match state.unread.get(&request.lease) {
                // The backend repeats the answer.
                Some(Unread::Sent) => self.read(&mut state, request.lease),
                Some(Unread::Undoing) => return Some(Err(interrupted().into()).into()),
                None => {}
            }
            let id = *state.by_lease.get(&request.lease)?;
            let waiter = state.waiter(id);
            let denial = waiter.denial.clone();
            match wait {
                _ if !is_same(&waiter.request.requirements, &request.requirements) => {
                    Err(Err(ReserveError::LeaseConflict))
                }
                Some(wait) => self.enter_locked(&mut state, request, wait, denial),
                None => Err(Ok(Decision::Denied(denial))),
            }
        };
        Some(match joined {
            Ok(caller) => caller.delivery().await,
            Err(answer) => answer.into(),
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
        state: &mut State<B>,
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
        if let Removed::Waiting(mut waiter) = state.admission.remove(id) {
            self.forget(state, &waiter.work);
            for caller in std::mem::take(&mut waiter.work.callers) {
                caller.deny(&waiter.work.denial);
            }
            self.leave_later(state, waiter.work);
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

    /// The driver ends a waiter that has left the admission: a shared backend must not admit it any more.
    fn leave_later(&self, state: &mut State<B>, waiter: Waiter<B>) {
        if self.backend.is_shared() {
            state.leaving.push(waiter);
        }
        self.changed.notify_one();
    }

    /// The waiter has left the admission.
    fn forget(&self, state: &mut State<B>, waiter: &Waiter<B>) {
        let id = state.by_lease.remove(&waiter.request.lease).expect(WAITS);
        for caller in &waiter.callers {
            state.deadlines.remove(&(caller.deadline, id, caller.number));
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// The answer to a lease is unread no more.
    fn read(&self, state: &mut State<B>, lease: LeaseId) {
        if state.unread.remove(&lease).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Forgets all waiters, whose callers get no answer.
    fn abandon_all(&self) {
        let mut state = self.lock();
        state.admission = Admission::new(usize::MAX, STARVING_AFTER);
        state.by_lease.clear();
        state.deadlines.clear();
        state.is_looking = false;
        self.count.store(state.unread.len(), Ordering::SeqCst);
    }
}

impl<B: HostedBackend> WaitingCaller<B> {
    async fn delivery(mut self) -> Delivery<B> {
        let delivered = (&mut self.delivery).await;
        delivered.unwrap_or_else(|_| Err(interrupted().into()).into())
    }
}

impl<B: HostedBackend> Delivery<B> {
    /// The answer, which its caller has now.
    fn read(self) -> Answer {
        if let Some(allow) = self.allow {
            allow.read();
        }
        self.answer
    }

    /// If the lease was allowed since then, it is returned unless a caller reads that.
    fn keep(self, waiters: &Arc<Waiters<B>>, request: &ReserveRequest, since: Timestamp) -> Self {
        match &self {
            Self { answer: Ok(Decision::Allowed { reserved_at, .. }), allow: None }
                if *reserved_at >= since =>
            {
                let request = Arc::new(request.clone());
                let allow = UnreadAllow::new(waiters, &mut waiters.lock(), request);
                Self { allow: Some(allow), ..self }
            }
            _ => self,
        }
    }
}

impl<B: HostedBackend> From<Answer> for Delivery<B> {
    /// An answer that nobody else gets.
    fn from(answer: Answer) -> Self {
        Self { answer, allow: None }
    }
}

impl<B: HostedBackend> State<B> {
    fn waiter(&mut self, id: WaiterId) -> &mut Waiter<B> {
        &mut self.admission.get_mut(id).expect(WAITS).work
    }
}

impl<B: HostedBackend> Waiter<B> {
    /// Answers all callers.
    fn answer(self, answer: &Answer, allow: Option<&Arc<UnreadAllow<B>>>) {
        for caller in self.callers {
            // The caller may have gone away.
            drop(caller.sender.send(Delivery { answer: answer.clone(), allow: allow.cloned() }));
        }
    }
}

impl<B: HostedBackend> Caller<B> {
    /// Its time is over, and others go on waiting for the same lease.
    fn deny(self, denial: &Denial) {
        drop(self.sender.send(Ok(Decision::Denied(denial.clone())).into()));
    }
}

impl<B: HostedBackend> Drop for WaitingCaller<B> {
    fn drop(&mut self) {
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
            self.waiters.leave_later(state, waiter.work);
        }
    }
}

impl<B: HostedBackend> Drop for Waiting<B> {
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
mod ledger_tests;
#[cfg(test)]
mod tests;
