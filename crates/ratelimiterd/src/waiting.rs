//! Waiting inside reserve (`WAIT-01`): a layer over any backend.
//!
//! A reserve that may wait and finds no room waits here until it is admitted or its time is over. The [admission
//! policy](ratelimiter::admission) decides whose turn it is, as in the client's scheduler. One task, the driver, asks the backend for
//! all waiters. A waiter is a place in a queue and a channel; it has no task and no timer of its own.
//!
//! No room is missed: a waiter enters before the driver asks for it, and a complete tells the driver of the limits of which
//! something has returned. One that began when nobody waited looks again when it has ended.

mod driver;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use ratelimiter::admission::{Admission, Removed, STARVING_AFTER, WaiterId};
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{
    CompleteError, CompleteRequest, Decision, Denial, DenialReason, LeaseId, LimitKey, Limiter,
    ReserveError, ReserveRequest, Unanswered, Wait,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::hosted::HostedBackend;
use crate::runtime::Runtime;

/// Retry hint of a request that may not wait because too many do.
const TOO_MANY_RETRY_AFTER: Duration = Duration::from_secs(1);

type Answer = Result<Decision, ReserveError>;

/// A backend whose reserves may wait.
#[derive(Debug)]
pub struct Waiting<B> {
    shared: Arc<Shared<B>>,
    /// Ends the driver.
    stop: CancellationToken,
}

#[derive(Debug)]
struct Shared<B> {
    backend: Arc<B>,
    clock: Arc<dyn Clock>,
    runtime: Arc<dyn Runtime>,
    waiters_max: usize,
    /// Number of waiters. While there are none, no request takes the lock.
    count: AtomicUsize,
    state: Mutex<State>,
    /// Wakes the driver.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    admission: Admission<Waiter>,
    by_lease: HashMap<LeaseId, WaiterId>,
    /// When each waiter gives up.
    deadlines: BTreeSet<(Timestamp, WaiterId)>,
    /// Callers so far.
    callers: u64,
    is_shut_down: bool,
}

/// A reserve that waits.
#[derive(Debug)]
struct Waiter {
    request: Arc<ReserveRequest>,
    deadline: Timestamp,
    /// The last answer of the backend.
    denial: Denial,
    /// Whoever repeats the request joins.
    callers: Vec<(u64, oneshot::Sender<Answer>)>,
}

/// A caller that waits. Dropping it forgets the caller, and with the last one the waiter (`WAIT-04`).
struct WaitingCaller<'a, B> {
    shared: &'a Shared<B>,
    lease: LeaseId,
    number: u64,
    answer: oneshot::Receiver<Answer>,
}

impl<B: HostedBackend> Waiting<B> {
    /// A layer over a backend, for at most `waiters_max` waiters.
    pub fn new(
        backend: Arc<B>,
        clock: Arc<dyn Clock>,
        runtime: Arc<dyn Runtime>,
        waiters_max: usize,
    ) -> Self {
        let state = State {
            admission: Admission::new(usize::MAX, STARVING_AFTER),
            by_lease: HashMap::new(),
            deadlines: BTreeSet::new(),
            callers: 0,
            is_shut_down: false,
        };
        let shared = Arc::new(Shared {
            backend,
            clock,
            runtime: Arc::clone(&runtime),
            waiters_max,
            count: AtomicUsize::new(0),
            state: Mutex::new(state),
            changed: Notify::new(),
        });
        let stop = CancellationToken::new();
        runtime.spawn(Box::pin(driver::drive(Arc::clone(&shared), stop.clone())));
        Self { shared, stop }
    }

    /// Number of waiters.
    pub fn waiters(&self) -> usize {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Answers all waiters with their denials. From now on nobody waits.
    pub fn shut_down(&self) {
        let mut state = self.shared.lock();
        state.is_shut_down = true;
        for (_, waiter) in state.admission.remove_all() {
            self.shared.forget(&mut state, &waiter.work);
            waiter.work.deny();
        }
    }

    /// Something may have returned to these limits.
    pub fn released(&self, keys: &[LimitKey]) {
        if self.shared.has_waiters() {
            self.shared.lock().admission.released(keys);
            self.shared.changed.notify_one();
        }
    }
}

impl<B: HostedBackend> Limiter for Waiting<B> {
    async fn reserve(&self, request: &ReserveRequest) -> Answer {
        let shared = &*self.shared;
        let behind = shared.held_up_by(request);
        let Some(wait) = request.wait.as_ref().filter(|wait| !wait.at_most().is_zero()) else {
            return match behind {
                None => shared.backend.reserve(request).await,
                Some(behind) => shared.backend.reserve_behind(request, &behind).await,
            };
        };
        let denial = match behind {
            None => match shared.backend.attempt(request, 0).await {
                Ok(Decision::Denied(denial)) => denial,
                answer => return answer,
            },
            Some(behind) => Denial {
                reason: DenialReason::NoRoom { keys: vec![behind] },
                retry_after: Duration::ZERO,
            },
        };
        let mut caller = shared.enter(request, wait, denial)?;
        (&mut caller.answer).await.unwrap_or_else(|_| Err(interrupted().into()))
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let shared = &*self.shared;
        if shared.has_waiters() {
            let freed = shared.backend.complete_freeing(request).await?;
            self.released(&freed);
            return Ok(());
        }
        shared.backend.complete(request).await?;
        // Some came meanwhile, and may have asked just before the room came back.
        if shared.has_waiters() {
            shared.lock().admission.released_all();
            shared.changed.notify_one();
        }
        Ok(())
    }

    async fn reserve_batch(&self, requests: &[ReserveRequest]) -> Vec<Answer> {
        let is_plain = !self.shared.has_waiters() && requests.iter().all(|one| one.wait.is_none());
        if is_plain {
            return self.shared.backend.reserve_batch(requests).await;
        }
        join_all(requests.iter().map(|request| self.reserve(request))).await
    }

    async fn complete_batch(&self, requests: &[CompleteRequest]) -> Vec<Result<(), CompleteError>> {
        if !self.shared.has_waiters() {
            let answers = self.shared.backend.complete_batch(requests).await;
            if self.shared.has_waiters() {
                self.shared.lock().admission.released_all();
                self.shared.changed.notify_one();
            }
            return answers;
        }
        join_all(requests.iter().map(|request| self.complete(request))).await
    }
}

impl<B: HostedBackend> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_waiters(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// The limit for which others wait, so that this request must not be admitted before them.
    fn held_up_by(&self, request: &ReserveRequest) -> Option<LimitKey> {
        if !self.has_waiters() {
            return None;
        }
        let now = self.clock.now();
        let state = self.lock();
        state.admission.would_hold_up(now, &request.requirements).map(|(key, _)| key.clone())
    }

    /// Begins to wait, or joins whoever waits with this lease.
    ///
    /// # Errors
    /// The answer, if nobody may wait.
    fn enter(
        &self,
        request: &ReserveRequest,
        wait: &Wait,
        denial: Denial,
    ) -> Result<WaitingCaller<'_, B>, Answer> {
        let (sender, answer) = oneshot::channel();
        let deadline = self.clock.now().after(wait.at_most());
        let mut state = self.lock();
        let state = &mut *state;
        state.callers += 1;
        let number = state.callers;
        if state.is_shut_down {
            return Err(Ok(Decision::Denied(denial)));
        }
        if let Some(id) = state.by_lease.get(&request.lease) {
            let waiter = &mut state.admission.get_mut(*id).expect("a lease that waits").work;
            if waiter.request.requirements != request.requirements {
                return Err(Err(ReserveError::LeaseConflict));
            }
            waiter.callers.push((number, sender));
            if deadline > waiter.deadline {
                state.deadlines.remove(&(waiter.deadline, *id));
                waiter.deadline = deadline;
                state.deadlines.insert((deadline, *id));
            }
        } else {
            if state.by_lease.len() >= self.waiters_max {
                let reason = DenialReason::TooManyWaiters;
                let denial = Denial { reason, retry_after: TOO_MANY_RETRY_AFTER };
                return Err(Ok(Decision::Denied(denial)));
            }
            let waiter = Waiter {
                request: Arc::new(request.clone()),
                deadline,
                denial,
                callers: vec![(number, sender)],
            };
            let id = state.admission.add("", wait.queue(), &request.requirements, waiter);
            state.by_lease.insert(request.lease, id);
            state.deadlines.insert((deadline, id));
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        self.changed.notify_one();
        Ok(WaitingCaller { shared: self, lease: request.lease, number, answer })
    }

    /// The waiter has left the admission.
    fn forget(&self, state: &mut State, waiter: &Waiter) {
        let id = state.by_lease.remove(&waiter.request.lease).expect("a waiter has a lease");
        state.deadlines.remove(&(waiter.deadline, id));
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Waiter {
    /// Answers all callers; false if none is left.
    fn answer(self, answer: &Answer) -> bool {
        let sent = self.callers.into_iter().map(|(_, caller)| caller.send(answer.clone()).is_ok());
        sent.fold(false, |any, one| any || one)
    }

    fn deny(self) {
        let denied = Ok(Decision::Denied(self.denial.clone()));
        self.answer(&denied);
    }
}

impl<B: HostedBackend> Drop for WaitingCaller<'_, B> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let Some(id) = state.by_lease.get(&self.lease).copied() else {
            return;
        };
        let waiter = &mut state.admission.get_mut(id).expect("a lease that waits").work;
        waiter.callers.retain(|(number, _)| *number != self.number);
        if waiter.callers.is_empty()
            && let Removed::Waiting(waiter) = state.admission.remove(id)
        {
            self.shared.forget(&mut state, &waiter.work);
            self.shared.changed.notify_one();
        }
    }
}

impl<B> Drop for Waiting<B> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn interrupted() -> Unanswered {
    let reason = "the server stopped while the request waited".to_owned();
    Unanswered { reason, retry_after: TOO_MANY_RETRY_AFTER }
}
