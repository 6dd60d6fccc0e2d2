//! The sessions of one queue: state shared with callers, health, waiters.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use tokio::sync::oneshot;

use super::config::ClusterConfig;
use super::observer::{Observation, Observer, Operation};
use super::queue::{Queue, Readiness};
use super::request::{Batch, PendingRequest, Reply, Request};
use crate::ledger::{ItemTooLarge, LedgerError, SessionProblem};
use crate::lock::lock;

/// The pending answer of one caller.
pub(super) type Answer = oneshot::Receiver<Result<Reply, LedgerError>>;

/// What the sessions of one queue do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionRole {
    /// Everything but queries, one request at a time per session.
    Write,
    /// Queries, by one session, in waves.
    Read,
}

/// The queue of one role and the sessions that serve it.
pub(super) struct SessionPool {
    pub(super) config: ClusterConfig,
    pub(super) role: SessionRole,
    pub(super) clock: MonotonicClock,
    pub(super) observer: Arc<dyn Observer>,
    state: Mutex<State>,
    /// One per session, all used with `state`.
    wakes: Vec<Condvar>,
}

struct State {
    queue: Queue<PendingRequest>,
    sessions: Vec<Session>,
    /// How long the last caller that timed out had waited, if nothing was answered since.
    unanswered_for: Option<Duration>,
    /// Notified once, at the next change of a session's health.
    watchers: Vec<oneshot::Sender<()>>,
    closing: bool,
}

#[derive(Debug)]
struct Session {
    /// `Err` until it works.
    health: Result<(), SessionProblem>,
    /// Set while it sleeps: the number of queued items that wakes it.
    sleeps_until_items: Option<usize>,
    busy: bool,
    ended: bool,
}

#[derive(Debug)]
pub(super) enum SessionTask {
    Send(Operation, Batch),
    KeepAlive,
    Close,
}

impl SessionPool {
    pub(super) fn new(
        config: ClusterConfig,
        role: SessionRole,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let (sessions, queue_max) = match role {
            SessionRole::Write => (config.sessions, config.queue_events_max),
            SessionRole::Read => (1, config.queue_reads_max),
        };
        let session = || Session {
            health: Err(SessionProblem::Opening),
            sleeps_until_items: None,
            busy: false,
            ended: false,
        };
        let state = State {
            queue: Queue::new(queue_max),
            sessions: (0..sessions).map(|_| session()).collect(),
            unanswered_for: None,
            watchers: Vec::new(),
            closing: false,
        };
        let wakes = (0..sessions).map(|_| Condvar::new()).collect();
        Self {
            config,
            role,
            clock: MonotonicClock::new(),
            observer,
            state: Mutex::new(state),
            wakes,
        }
    }

    pub(super) fn sessions(&self) -> usize {
        self.wakes.len()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Queues a request and wakes a session if one should take it.
    pub(super) fn submit(&self, request: Request) -> Result<Answer, LedgerError> {
        let result = self.enqueue(request);
        if let Err(error) = &result {
            self.observer.observe(&Observation::CallFailed { error: error.clone() });
        }
        result
    }

    fn enqueue(&self, request: Request) -> Result<Answer, LedgerError> {
        let (operation, events) = (request.operation(), request.events());
        if events > self.config.max_batch_events {
            let refused_events = self.config.max_batch_events + 1;
            return Err(ItemTooLarge { events, refused_events }.into());
        }
        let (pending, answer) = PendingRequest::new(request);
        let now = self.now();
        let mut state = self.lock();
        if state.closing {
            return Err(LedgerError::Closed);
        }
        state.queue.push(operation, pending, events, now)?;
        let items = state.queue.items();
        let worth_waking =
            |session: &Session| session.sleeps_until_items.is_some_and(|wanted| items >= wanted);
        let sleeper = state.sessions.iter().position(worth_waking);
        if let Some(index) = sleeper {
            state.sessions[index].sleeps_until_items = None;
            drop(state);
            self.wakes[index].notify_one();
        }
        Ok(answer)
    }

    /// Waits for the next task of session `index`; `events_max` bounds its batch.
    pub(super) fn next_task(
        &self,
        index: usize,
        items_expected: usize,
        events_max: impl Fn(Operation) -> usize,
    ) -> SessionTask {
        let free_since = self.now();
        let linger_until = free_since.after(self.config.flush_interval);
        let keep_alive_at = free_since.after(self.config.keep_alive_interval);
        let mut state = self.lock();
        loop {
            if state.closing {
                return SessionTask::Close;
            }
            let now = self.now();
            let linger = (now < linger_until).then_some(items_expected);
            let (until, items) = match state.queue.readiness(linger) {
                Readiness::Ready(operation) => {
                    let batch = state.queue.take(operation, events_max(operation));
                    return SessionTask::Send(operation, batch);
                }
                Readiness::Linger => (linger_until, items_expected),
                Readiness::Empty if now >= keep_alive_at => return SessionTask::KeepAlive,
                Readiness::Empty => (keep_alive_at, 1),
            };
            state.sessions[index].sleeps_until_items = Some(items);
            let woken = self.wakes[index].wait_timeout(state, until.since(now));
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
            state.sessions[index].sleeps_until_items = None;
        }
    }

    /// Fails the callers whose deadline passed while they were queued.
    pub(super) fn expire_queued(&self, now: Timestamp) {
        let (expired, problem) = {
            let mut state = self.lock();
            let expired = state.queue.expire(now, self.config.request_timeout);
            if let Some(first) = expired.first() {
                state.unanswered_for = Some(now.since(first.queued_at));
            }
            (expired, state.problem())
        };
        for mut queued in expired {
            let waited = now.since(queued.queued_at);
            let error = match &problem {
                _ if queued.sent => LedgerError::NoAnswer { waited },
                Some(problem) => LedgerError::NoSession(problem.clone()),
                None => LedgerError::NotSent { waited },
            };
            self.fail(&mut queued.item, error);
        }
    }

    /// Fails a caller whose deadline has passed. The health reports it from then on.
    pub(super) fn fail_late(&self, pending: &mut PendingRequest, waited: Duration) {
        if !pending.is_answered() {
            self.lock().unanswered_for = Some(waited);
            self.fail(pending, LedgerError::NoAnswer { waited });
        }
    }

    pub(super) fn record_answer(&self) {
        self.lock().unanswered_for = None;
    }

    /// Fails one caller, unless it has its answer.
    pub(super) fn fail(&self, pending: &mut PendingRequest, error: LedgerError) {
        if pending.is_answered() {
            return;
        }
        self.observer.observe(&Observation::CallFailed { error: error.clone() });
        pending.answer(Err(error));
    }

    /// Puts a batch back to the front, to be sent again with the same IDs, by any session. Callers
    /// that have already timed out are dropped.
    pub(super) fn requeue(&self, operation: Operation, mut batch: Batch) {
        batch.retain(|queued| !queued.item.is_answered());
        self.lock().queue.requeue(operation, batch);
        self.wakes.iter().for_each(Condvar::notify_one);
    }

    pub(super) fn set_busy(&self, index: usize, busy: bool) {
        let count = {
            let mut state = self.lock();
            state.sessions[index].busy = busy;
            state.sessions.iter().filter(|session| session.busy).count()
        };
        self.observer.observe(&Observation::SessionsBusy { count });
    }

    /// Records whether a session works, and notifies the watchers.
    pub(super) fn set_health(&self, index: usize, health: Result<(), SessionProblem>) {
        let watchers = {
            let mut state = self.lock();
            if state.sessions[index].health == health {
                return;
            }
            state.sessions[index].health.clone_from(&health);
            std::mem::take(&mut state.watchers)
        };
        match health {
            Ok(()) => {
                tracing::info!(role = ?self.role, session = index, "tigerbeetle session ready");
                self.observer.observe(&Observation::SessionReady);
            }
            Err(problem) => {
                let role = self.role;
                tracing::warn!(?role, session = index, %problem, "tigerbeetle session unavailable");
                self.observer.observe(&Observation::SessionTroubled { problem });
            }
        }
        notify(watchers);
    }

    /// The health of all sessions, and a receiver for its next change.
    pub(super) fn watch(&self) -> (Vec<Result<(), SessionProblem>>, oneshot::Receiver<()>) {
        let (watcher, changed) = oneshot::channel();
        let mut state = self.lock();
        state.watchers.retain(|watcher| !watcher.is_closed());
        state.watchers.push(watcher);
        (state.sessions.iter().map(|session| session.health.clone()).collect(), changed)
    }

    /// Waits until every session works; returns the first problem.
    pub(super) async fn warm_up(&self) -> Result<(), SessionProblem> {
        loop {
            let (sessions, changed) = self.watch();
            let opening = |health: &Result<_, _>| *health == Err(SessionProblem::Opening);
            if let Some(problem) =
                sessions.iter().find(|health| health.is_err() && !opening(health))
            {
                return problem.clone();
            }
            if sessions.iter().all(Result::is_ok) {
                return Ok(());
            }
            // An error means a change as well: check again.
            drop(changed.await);
        }
    }

    /// Waits until at least one session works.
    pub(super) async fn ready(&self) {
        loop {
            let (sessions, changed) = self.watch();
            if sessions.iter().any(Result::is_ok) {
                return;
            }
            drop(changed.await);
        }
    }

    /// Waits until every session has ended.
    pub(super) async fn ended(&self) {
        loop {
            let (_, changed) = self.watch();
            if self.lock().sessions.iter().all(|session| session.ended) {
                return;
            }
            drop(changed.await);
        }
    }

    /// `Ok` while at least one session works and no caller has timed out since the last answer.
    pub(super) fn health(&self) -> Result<(), SessionProblem> {
        let state = self.lock();
        let no_answer = |waited| SessionProblem::NoAnswer { waited };
        let problem = state.problem().or(state.unanswered_for.map(no_answer));
        problem.map_or(Ok(()), Err)
    }

    /// Stops sending. Queued requests fail; the sessions give up what is in flight.
    pub(super) fn close(&self) {
        let queued = {
            let mut state = self.lock();
            state.closing = true;
            state.queue.drain()
        };
        self.wakes.iter().for_each(Condvar::notify_one);
        for mut queued in queued {
            let waited = self.now().since(queued.queued_at);
            let sent = queued.sent;
            let error = if sent { LedgerError::NoAnswer { waited } } else { LedgerError::Closed };
            self.fail(&mut queued.item, error);
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Records that a session's thread has ended. After the last one the queue is closed.
    pub(super) fn set_ended(&self, index: usize) {
        let (watchers, is_last) = {
            let mut state = self.lock();
            state.sessions[index].ended = true;
            let is_last = state.sessions.iter().all(|session| session.ended);
            (std::mem::take(&mut state.watchers), is_last)
        };
        if is_last {
            self.close();
        }
        notify(watchers);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Why no session works, or `None` if one does.
    fn problem(&self) -> Option<SessionProblem> {
        if self.sessions.iter().any(|session| session.health.is_ok()) {
            return None;
        }
        self.sessions.first().and_then(|session| session.health.clone().err())
    }
}

fn notify(watchers: Vec<oneshot::Sender<()>>) {
    for watcher in watchers {
        // The receiver may have been dropped.
        let _gone = watcher.send(());
    }
}
