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

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};
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
    /// Leases that are about to wait, those that wait, and those whose answers are unread. While there are none, no request takes the
    /// lock.
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
    /// Leases of a shared backend whose first attempts are under way. A repeat waits for them: it would end the wait that begins.
    entering: HashMap<LeaseId, Arc<tokio::sync::Mutex<()>>>,
    /// Waiters of a shared backend that have left without an answer of it, by when it is asked. They are [`Unread::Leaving`].
    leaving: BTreeMap<(Timestamp, LeaseId), Leaving<B>>,
    /// When the next look for room is due, on a shared backend.
    look_at: Timestamp,
    is_looking: bool,
    /// Why the last look had no answer.
    look_unanswered: Option<Unanswered>,
    /// Leases that wait no more, and whose callers have not read their answers.
    unread: HashMap<LeaseId, Unread>,
    is_shut_down: bool,
}

type CallerNumber = u64;

/// Another request of the lease came first.
struct LeaseIsKnown;

/// A lease that waits.
#[derive(Debug)]
struct Waiter<B: HostedBackend> {
    request: Arc<ReserveRequest>,
    /// The last answer of the backend: a denial, or why there was none.
    last: Result<Denial, Unanswered>,
    /// Whoever repeats the request joins.
    callers: Vec<Caller<B>>,
}

/// A waiter that has left without an answer.
#[derive(Debug)]
struct Leaving<B: HostedBackend> {
    waiter: Waiter<B>,
    /// How often the server gave up for it without an answer.
    give_ups: u32,
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
    /// The lease was admitted at once, and nobody else gets this answer.
    is_new: bool,
    allow: Option<Arc<UnreadAllow<B>>>,
}

/// The first attempt of a lease.
struct Entering<B: HostedBackend> {
    waiters: Arc<Waiters<B>>,
    lease: LeaseId,
    _turn: OwnedMutexGuard<()>,
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
            entering: HashMap::new(),
            leaving: BTreeMap::new(),
            look_at: clock.now(),
            is_looking: false,
            look_unanswered: None,
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
            if self.waiters.backend.is_shared() {
                self.waiters.leave_later(&mut state, waiter.work);
                continue;
            }
            self.waiters.forget(&mut state, &waiter.work);
            let denied = state.denied(&waiter.work);
            waiter.work.answer(&denied, None);
        }
    }

    /// Reserves, and waits for room as long as the request wants.
    ///
    /// # Errors
    /// As the backend's reserve.
    pub async fn reserve(&self, request: &ReserveRequest) -> Result<TimedDecision, ReserveError> {
        let (delivery, waited) = self.waiters.reserve(request, false).await;
        Ok((delivery.read()?, waited))
    }

    /// As [`Waiting::reserve`] of each. If one waits and the caller goes away, those that were allowed are returned.
    pub async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<TimedDecision, ReserveError>> {
        if requests.iter().any(|request| request.wait.is_some()) {
            let reserve = async |request| {
                let (delivery, waited) = self.waiters.reserve(request, true).await;
                (delivery.unread(&self.waiters, request), waited)
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

    /// The answer to a request, and how long it waited, if it asked to. If the caller `may_return` what it got, others are told so.
    async fn reserve(
        self: &Arc<Self>,
        request: &ReserveRequest,
        may_return: bool,
    ) -> (Delivery<B>, Option<Duration>) {
        let since = self.clock.now();
        let delivery = loop {
            if let Some(joined) = self.join(request, since).await {
                break joined;
            }
            let Some(wait) = request.wait.as_ref().filter(|wait| !wait.at_most().is_zero()) else {
                break self.reserve_at_once(request, may_return).await.into();
            };
            if let Ok(entering) = self.begin(request.lease) {
                let delivery = self.reserve_or_wait(request, wait, since, may_return, entering);
                break delivery.await;
            }
        };
        (delivery, request.wait.is_some().then(|| self.clock.now().since(since)))
    }

    async fn reserve_at_once(
        &self,
        request: &ReserveRequest,
        may_return: bool,
    ) -> Result<TurnAnswer, ReserveError> {
        let behind = self.held_up_by(request);
        let turn = Turn { behind: behind.as_ref(), attempt: None, may_return };
        self.backend.reserve_in_turn(request, turn).await
    }

    async fn reserve_or_wait(
        self: &Arc<Self>,
        request: &ReserveRequest,
        wait: &Wait,
        since: Timestamp,
        may_return: bool,
        entering: Option<Entering<B>>,
    ) -> Delivery<B> {
        let behind = self.held_up_by(request);
        let turn = Turn { behind: behind.as_ref(), attempt: Some(0), may_return };
        let answer = self.backend.reserve_in_turn(request, turn).await;
        let Ok(TurnAnswer { decision: Decision::Denied(denial), ask_again_after: Some(_), .. }) =
            answer
        else {
            return answer.into();
        };
        let entered = self.enter(request, wait, since, denial);
        drop(entering);
        match entered {
            Ok(caller) => caller.delivery().await,
            Err(answer) => answer.into(),
        }
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

    /// The answer to a request whose lease waits: it joins the wait, or is denied if it does not wait itself.
    async fn join(
        self: &Arc<Self>,
        request: &ReserveRequest,
        since: Timestamp,
    ) -> Option<Delivery<B>> {
        if !self.any() {
            return None;
        }
        self.wait_for_first_attempt(request.lease).await;
        let wait = request.wait.as_ref().filter(|wait| !wait.at_most().is_zero());
        let joined = {
            let mut state = self.lock();
            match state.unread.get(&request.lease) {
                // The backend repeats the answer.
                Some(Unread::Sent) => self.read(&mut state, request.lease),
                Some(Unread::Undoing | Unread::Leaving(_)) => {
                    return Some(given_up().into());
                }
                None => {}
            }
            let id = *state.by_lease.get(&request.lease)?;
            let waiter = state.waiter(id);
            match wait {
                _ if !is_same(&waiter.request.requirements, &request.requirements) => {
                    Err(Err(ReserveError::LeaseConflict))
                }
                Some(wait) => {
                    let denial = waiter.denial();
                    self.enter_locked(&mut state, request, wait, since, denial)
                }
                None => Err(state.denied_waiter(id)),
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
        since: Timestamp,
        denial: Denial,
    ) -> Result<WaitingCaller<B>, Answer> {
        self.enter_locked(&mut self.lock(), request, wait, since, denial)
    }

    fn enter_locked(
        self: &Arc<Self>,
        state: &mut State<B>,
        request: &ReserveRequest,
        wait: &Wait,
        since: Timestamp,
        denial: Denial,
    ) -> Result<WaitingCaller<B>, Answer> {
        let deadline = since.after(wait.at_most());
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
                let waiter = Waiter::new(Arc::clone(&request), Ok(denial));
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
            let denied = state.denied(&waiter.work);
            for caller in std::mem::take(&mut waiter.work.callers) {
                state.deadlines.remove(&(caller.deadline, id, caller.number));
                caller.answer(&denied);
            }
            self.leave_later(state, waiter.work);
            return;
        }
        // It asks: without callers, what it gets is returned.
        let callers = std::mem::take(&mut state.waiter(id).callers);
        let denied = state.denied_waiter(id);
        for caller in callers {
            state.deadlines.remove(&(caller.deadline, id, caller.number));
            caller.answer(&denied);
        }
    }

    /// The driver ends a waiter that has left the admission: a shared backend must not admit it any more.
    fn leave_later(&self, state: &mut State<B>, waiter: Waiter<B>) {
        if self.backend.is_shared() {
            let waiter = self.leave_unanswered(state, waiter);
            self.give_up_at(state, self.clock.now(), Leaving { waiter, give_ups: 0 });
        } else {
            self.forget(state, &waiter);
        }
        self.changed.notify_one();
    }

    /// A waiter has left the admission without an answer. Until the backend has said what became of it, no repeat is answered.
    fn leave_unanswered(&self, state: &mut State<B>, mut waiter: Waiter<B>) -> Waiter<B> {
        if self.backend.is_shared() {
            let leaving = Unread::Leaving(Arc::clone(&waiter.request));
            self.set_unread(state, waiter.request.lease, leaving);
        }
        self.forget(state, &waiter);
        let denied = state.denied(&waiter);
        if denied.is_err() {
            // The backend may take as long again.
            std::mem::take(&mut waiter.callers)
                .into_iter()
                .for_each(|caller| caller.answer(&denied));
        }
        waiter
    }

    fn give_up_at(&self, state: &mut State<B>, at: Timestamp, leaving: Leaving<B>) {
        let before = state.leaving.insert((at, leaving.waiter.request.lease), leaving);
        assert!(before.is_none(), "a lease that is given up does not wait");
    }

    /// The waiter has left the admission.
    fn forget(&self, state: &mut State<B>, waiter: &Waiter<B>) {
        let id = state.by_lease.remove(&waiter.request.lease).expect(WAITS);
        for caller in &waiter.callers {
            state.deadlines.remove(&(caller.deadline, id, caller.number));
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    fn set_unread(&self, state: &mut State<B>, lease: LeaseId, unread: Unread) {
        if state.unread.insert(lease, unread).is_none() {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The answer to a lease is unread no more.
    fn read(&self, state: &mut State<B>, lease: LeaseId) {
        if state.unread.remove(&lease).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Forgets all waiters, whose callers get no answer. The server gives up for them.
    fn abandon_all(&self) {
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let waiting = state.by_lease.values().filter_map(|id| state.admission.get(*id));
        let mut left: Vec<_> = waiting.map(|waiter| Arc::clone(&waiter.work.request)).collect();
        left.extend(state.unread.values().filter_map(Unread::leaving).cloned());
        state.admission = Admission::new(usize::MAX, STARVING_AFTER);
        state.by_lease.clear();
        state.deadlines.clear();
        state.leaving.clear();
        state.is_looking = false;
        if self.backend.is_shared() {
            for request in left {
                state.unread.insert(request.lease, Unread::Leaving(Arc::clone(&request)));
                let waiter = Waiter::new(request, Err(interrupted()));
                self.give_up_at(state, now, Leaving { waiter, give_ups: 0 });
            }
        }
        self.count.store(state.unread.len() + state.entering.len(), Ordering::SeqCst);
    }
}

impl<B: HostedBackend> WaitingCaller<B> {
    async fn delivery(mut self) -> Delivery<B> {
        let delivered = (&mut self.delivery).await;
        delivered.unwrap_or_else(|_| interrupted().into())
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

    /// If the lease was admitted at once, it is returned unless a caller reads that.
    fn unread(self, waiters: &Arc<Waiters<B>>, request: &ReserveRequest) -> Self {
        if !self.is_new {
            return self;
        }
        let request = Arc::new(request.clone());
        let allow = UnreadAllow::new(waiters, &mut waiters.lock(), request);
        Self { allow: Some(allow), ..self }
    }
}

impl<B: HostedBackend> From<Answer> for Delivery<B> {
    /// An answer that nobody else gets.
    fn from(answer: Answer) -> Self {
        Self { answer, is_new: false, allow: None }
    }
}

impl<B: HostedBackend> From<Unanswered> for Delivery<B> {
    fn from(unanswered: Unanswered) -> Self {
        Self { answer: Err(unanswered.into()), is_new: false, allow: None }
    }
}

impl<B: HostedBackend> From<Result<TurnAnswer, ReserveError>> for Delivery<B> {
    /// An answer that nobody else gets.
    fn from(answer: Result<TurnAnswer, ReserveError>) -> Self {
        let is_new = answer.as_ref().is_ok_and(|answer| answer.is_new);
        Self { answer: answer.map(|answer| answer.decision), is_new, allow: None }
    }
}

impl<B: HostedBackend> State<B> {
    fn waiter(&mut self, id: WaiterId) -> &mut Waiter<B> {
        &mut self.admission.get_mut(id).expect(WAITS).work
    }

    /// What a caller is told whose time is over: the last denial, or that the backend has not answered since.
    fn denied(&self, waiter: &Waiter<B>) -> Answer {
        match (&waiter.last, &self.look_unanswered) {
            (Err(unanswered), _) | (Ok(_), Some(unanswered)) => Err(unanswered.clone().into()),
            (Ok(denial), None) => Ok(Decision::Denied(denial.clone())),
        }
    }

    fn denied_waiter(&self, id: WaiterId) -> Answer {
        self.denied(&self.admission.get(id).expect(WAITS).work)
    }
}

impl<B: HostedBackend> Waiter<B> {
    const fn new(request: Arc<ReserveRequest>, last: Result<Denial, Unanswered>) -> Self {
        Self { request, last, callers: Vec::new() }
    }

    /// The last denial. If the backend has not answered since, its callers are told that instead.
    fn denial(&self) -> Denial {
        let none = |unanswered: &Unanswered| Denial {
            reason: DenialReason::NoRoom { keys: Vec::new() },
            retry_after: unanswered.retry_after,
        };
        self.last.clone().unwrap_or_else(|unanswered| none(&unanswered))
    }

    /// Answers all callers.
    fn answer(self, answer: &Answer, allow: Option<&Arc<UnreadAllow<B>>>) {
        for caller in self.callers {
            let delivery =
                Delivery { answer: answer.clone(), is_new: false, allow: allow.cloned() };
            // The caller may have gone away.
            drop(caller.sender.send(delivery));
        }
    }
}

impl<B: HostedBackend> Caller<B> {
    /// Its time is over, or the backend does not answer.
    fn answer(self, answer: &Answer) {
        drop(self.sender.send(answer.clone().into()));
    }
}

impl<B: HostedBackend> Drop for Entering<B> {
    fn drop(&mut self) {
        let mut state = self.waiters.lock();
        state.entering.remove(&self.lease).expect("a lease enters once");
        self.waiters.count.fetch_sub(1, Ordering::SeqCst);
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

fn given_up() -> Unanswered {
    let reason = "an earlier request with this lease ID is being given up".to_owned();
    Unanswered { reason, retry_after: TOO_MANY_RETRY_AFTER }
}

#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod tests;
