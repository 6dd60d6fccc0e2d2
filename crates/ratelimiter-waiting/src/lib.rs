#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! [`Waiting`] is over any [`TurnBackend`]. The [admission policy](ratelimiter::admission) decides whose turn it is, as in the client's
//! scheduler. One task, the driver, asks the backend for all waiters. A waiter is a place in a queue and a channel; it has no task and no
//! timer of its own.
//!
//! No room is missed: the driver asks for a waiter after it entered, and a complete tells the driver of the limits that may have room
//! again. A complete that began when nobody waited looks for waiters when it has ended.

mod driver;
mod entry;
mod leaving;
mod runtime;
mod unread;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use ratelimiter::admission::{Admission, STARVING_AFTER, Turn, TurnAnswer, TurnBackend, WaiterId};
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{
    CompleteError, CompleteRequest, Decision, Denial, DenialReason, LeaseId, LimitKey, RenewError,
    RenewRequest, Renewal, ReserveError, ReserveRequest, Unanswered,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::leaving::Leaving;
pub use self::runtime::{Runtime, TokioRuntime};
use self::unread::{Delivery, Unread, UnreadAllow};

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
pub struct Waiting<B: TurnBackend> {
    waiters: Arc<Waiters<B>>,
    /// Ends the driver.
    stop: CancellationToken,
}

#[derive(Debug)]
struct Waiters<B: TurnBackend> {
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
struct State<B: TurnBackend> {
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

/// A lease that waits.
#[derive(Debug)]
struct Waiter<B: TurnBackend> {
    request: Arc<ReserveRequest>,
    /// The last answer of the backend: a denial, or why there was none.
    last: Result<Denial, Unanswered>,
    /// An attempt had no answer, so it may be admitted.
    has_unanswered: bool,
    /// Whoever repeats the request joins.
    callers: Vec<Caller<B>>,
}

#[derive(Debug)]
struct Caller<B: TurnBackend> {
    number: CallerNumber,
    deadline: Timestamp,
    sender: oneshot::Sender<Delivery<B>>,
}

impl<B: TurnBackend> Waiting<B> {
    /// A layer over a backend, for at most `waiters_max` leases that wait. `limits_changed` is notified when limits other than by a
    /// renew or complete may have room.
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
            self.waiters.withdraw(request.lease).await;
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
    /// As the backend's renew. No answer while the lease is being returned (`WAIT-04`).
    pub async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        if self.waiters.any() {
            self.waiters.told(&mut self.waiters.lock(), request.lease)?;
        }
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

impl<B: TurnBackend> Waiters<B> {
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
        if request.wait.is_none() && !self.any() {
            return (self.reserve_at_once(request, may_return).await.into(), None);
        }
        let since = self.clock.now();
        // Boxed, so that it takes no memory while the caller waits.
        let delivery = match Box::pin(self.reserve_or_wait(request, since, may_return)).await {
            Ok(mut caller) => caller.delivery().await,
            Err(delivery) => delivery,
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
}

impl<B: TurnBackend> State<B> {
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

impl<B: TurnBackend> Waiter<B> {
    fn new(request: Arc<ReserveRequest>, last: Result<Denial, Unanswered>) -> Self {
        // Most have one caller.
        Self { request, has_unanswered: last.is_err(), last, callers: Vec::with_capacity(1) }
    }

    /// Whether a request of the same lease needs the same, in any order (`RES-04`).
    fn is_for(&self, request: &ReserveRequest) -> bool {
        let (own, other) = (&self.request.requirements, &request.requirements);
        own.len() == other.len() && own.iter().all(|need| other.iter().any(|same| same == need))
    }

    /// The last denial. If the backend has not answered since, its callers are told that instead.
    fn denial(&self) -> Denial {
        match &self.last {
            Ok(denial) => denial.clone(),
            Err(Unanswered { retry_after, .. }) => {
                let reason = DenialReason::NoRoom { keys: Vec::new() };
                Denial { reason, retry_after: *retry_after }
            }
        }
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

impl<B: TurnBackend> Caller<B> {
    /// Its time is over, or the backend does not answer.
    fn answer(self, answer: &Answer) {
        drop(self.sender.send(answer.clone().into()));
    }
}

impl<B: TurnBackend> Drop for Waiting<B> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The answer of the backend; none if it panicked.
async fn caught<T, E: From<Unanswered>>(asked: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let answer = AssertUnwindSafe(asked).catch_unwind().await;
    answer.unwrap_or_else(|_| Err(interrupted().into()))
}

fn interrupted() -> Unanswered {
    let reason = "the server stopped while the request waited".to_owned();
    Unanswered { reason, retry_after: TOO_MANY_RETRY_AFTER }
}

#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod tests;
