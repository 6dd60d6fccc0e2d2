//! One session with the cluster: a thread with one client.
//!
//! It has at most one call in flight (`TB-11`), or one wave of queries (`TB-23`). It is a thread
//! and not a task, because it waits in microseconds, resolves names, and must not depend on the
//! caller's runtime. It enforces deadlines, because the client has none (`TB-10`).

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use tigerbeetle as tb;
use tokio::sync::oneshot;

use super::address::{self, AddressProbe};
use super::batch_limit::BatchLimit;
use super::config::WAVE_QUERIES_MAX;
use super::observer::{Observation, Operation};
use super::request::{self, Batch};
use super::session_pool::{SessionPool, SessionRole, SessionTask};
use super::wave::{self, QueryTooLarge, WaveResult};
use crate::ledger::{ItemTooLarge, LedgerError, SessionProblem};

/// The longest sleep of a waiting session before it checks the deadlines again.
const DEADLINE_STEP: Duration = Duration::from_millis(20);
/// A new session needs 0.6 s; one that needs longer than this is reported and keeps trying.
const REGISTER_TIMEOUT: Duration = Duration::from_millis(1500);
/// How often a session that does not work checks whether the cluster has moved.
const ADDRESS_PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before a session that could not be opened is tried again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// A keep-alive is answered in a millisecond; a cluster that needs longer than this does not
/// answer.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// For this long after an answer a session cannot have become the oldest of 64, unless as many
/// others registered within this time and the round trip. Only then is a wave submitted: an
/// eviction between its calls would abort the process.
const NOT_EVICTED_FOR: Duration = Duration::from_millis(200);
/// The account that warm-ups and keep-alives look up; it need not exist.
const KEEP_ALIVE_ACCOUNT: u128 = 1;

pub(super) struct Session {
    pool: Arc<SessionPool>,
    index: usize,
    waker: Waker,
}

/// Why a client was given up.
enum SessionEnd {
    Lost(SessionProblem),
    Closing,
}

enum WaitOutcome<T> {
    Done(T),
    Late,
    Closing,
}

impl Session {
    /// Runs until the ledger is closed, with one client after another.
    pub(super) fn run(pool: Arc<SessionPool>, index: usize) {
        let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
        let session = Self { pool, index, waker };
        while let SessionEnd::Lost(problem) = session.serve() {
            // Reopen at once after an eviction or a new address; other causes may persist.
            let at_once =
                matches!(problem, SessionProblem::Evicted | SessionProblem::AddressChanged);
            session.pool.set_health(index, Err(problem));
            if !at_once && session.pause(REOPEN_PAUSE).is_err() {
                break;
            }
        }
    }

    /// Opens one client and uses it until it is lost.
    fn serve(&self) -> SessionEnd {
        let addresses = match self.resolve() {
            Ok(addresses) => addresses,
            Err(ended) => return ended,
        };
        let joined = address::joined(&addresses);
        let client = match tb::Client::new(self.pool.config.cluster_id, &joined) {
            Ok(client) => client,
            Err(error) => {
                let reason = error.to_string();
                return SessionEnd::Lost(SessionProblem::ClientNotStarted { reason });
            }
        };
        let ended = self.register(&client, &addresses).and_then(|()| {
            self.pool.set_health(self.index, Ok(()));
            self.process_queue(&client, &addresses)
        });
        // Close before anything else is submitted: an evicted client that is not closed aborts the
        // process at its next call. The result of the close does not matter.
        let closing = pin!(client.close());
        let _close_result = self.block_on(closing);
        match ended {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    /// Sends the first request of a session. It takes 0.6 s, and is never answered if something is
    /// wrong.
    fn register(&self, client: &tb::Client, addresses: &[SocketAddr]) -> Result<(), SessionEnd> {
        let started_at = self.pool.now();
        let mut call = pin!(client.lookup_accounts(&[KEEP_ALIVE_ACCOUNT]));
        let mut late_at = started_at.after(REGISTER_TIMEOUT);
        loop {
            match self.wait(call.as_mut(), &mut Vec::new(), Some(late_at)) {
                WaitOutcome::Done(Ok(_)) => {
                    self.pool.record_answer();
                    return Ok(());
                }
                WaitOutcome::Done(Err(error)) => return Err(SessionEnd::Lost(problem(error))),
                WaitOutcome::Closing => return Err(SessionEnd::Closing),
                WaitOutcome::Late => {
                    let probe = self.probe_addresses(addresses)?;
                    let waited = self.pool.now().since(started_at);
                    let problem = match probe {
                        Ok(AddressProbe { reachable, unreachable, .. }) => {
                            SessionProblem::NotRegistered { waited, reachable, unreachable }
                        }
                        Err(problem) => problem,
                    };
                    self.pool.set_health(self.index, Err(problem));
                    late_at = self.pool.now().after(ADDRESS_PROBE_INTERVAL);
                }
            }
        }
    }

    /// Sends one batch after another from the queue.
    fn process_queue(
        &self,
        client: &tb::Client,
        addresses: &[SocketAddr],
    ) -> Result<std::convert::Infallible, SessionEnd> {
        let max_batch_events = self.pool.config.max_batch_events;
        let mut limits = [BatchLimit::new(max_batch_events); Operation::ALL.len()];
        let mut items_expected = 0;
        // When the last answer arrived. Not when its request was sent: with a slow cluster that
        // would always be too long ago, and every query would be sent alone.
        let mut answered_at = None;
        loop {
            let is_fresh = |at: Timestamp| self.pool.now().since(at) < NOT_EVICTED_FOR;
            let events_max = |operation: Operation| match self.pool.role {
                SessionRole::Write => limits[operation.index()].next(),
                SessionRole::Read if answered_at.is_some_and(is_fresh) => WAVE_QUERIES_MAX,
                SessionRole::Read => 1,
            };
            match self.pool.next_task(self.index, items_expected, events_max) {
                SessionTask::Close => return Err(SessionEnd::Closing),
                SessionTask::KeepAlive => {
                    let call = client.lookup_accounts(&[KEEP_ALIVE_ACCOUNT]);
                    let late_after = KEEP_ALIVE_TIMEOUT.min(self.pool.config.request_timeout);
                    let answer = self.answer(pin!(call), &mut Vec::new(), addresses, late_after)?;
                    answer.map_err(|error| SessionEnd::Lost(problem(error)))?;
                    self.pool.record_answer();
                    answered_at = Some(self.pool.now());
                    items_expected = 0;
                }
                SessionTask::Send(operation, batch) => {
                    items_expected = batch.len();
                    match self.pool.role {
                        SessionRole::Write => {
                            let limit = &mut limits[operation.index()];
                            self.send(client, addresses, operation, batch, limit)?;
                        }
                        SessionRole::Read => {
                            let is_answered =
                                self.send_wave(client, addresses, operation, batch)?;
                            answered_at = is_answered.then(|| self.pool.now());
                        }
                    }
                }
            }
        }
    }

    /// Sends one batch and distributes the reply, or requeues the batch.
    fn send(
        &self,
        client: &tb::Client,
        addresses: &[SocketAddr],
        operation: Operation,
        mut batch: Batch,
        limit: &mut BatchLimit,
    ) -> Result<(), SessionEnd> {
        let pool = &self.pool;
        let events = batch.iter().map(|queued| queued.events).sum();
        let items = batch.len();
        pool.observer.observe(&Observation::RequestSent { operation, items, events });
        pool.set_busy(self.index, true);
        let sent_at = pool.now();
        let mut call = request::call(client, &batch);
        let late_after = pool.config.request_timeout;
        let answer = self.answer(call.as_mut(), &mut batch, addresses, late_after);
        pool.set_busy(self.index, false);
        match answer {
            Ok(Ok(reply)) => {
                limit.accept(events);
                pool.record_answer();
                let took = pool.now().since(sent_at);
                pool.observer.observe(&Observation::RequestAnswered { operation, events, took });
                request::answer(batch, reply);
                Ok(())
            }
            Ok(Err(tb::Error::TooMuchData)) => {
                limit.refuse(events);
                pool.observer.observe(&Observation::BatchRefused { operation, events });
                if items > 1 {
                    pool.requeue(operation, batch);
                } else {
                    let error = ItemTooLarge { events, refused_events: events };
                    batch.iter_mut().for_each(|queued| pool.fail(&mut queued.item, error.into()));
                }
                Ok(())
            }
            Ok(Err(error)) => {
                // The client reports that nothing was applied, which is not always true.
                self.requeue_sent(operation, batch);
                Err(SessionEnd::Lost(problem(error)))
            }
            Err(ended) => Err(self.abandon(operation, batch, ended)),
        }
    }

    /// Sends one wave and distributes the replies; queries without a reply are requeued. Returns
    /// whether the cluster has answered.
    fn send_wave(
        &self,
        client: &tb::Client,
        addresses: &[SocketAddr],
        operation: Operation,
        mut batch: Batch,
    ) -> Result<bool, SessionEnd> {
        let pool = &self.pool;
        let events = batch.len();
        pool.observer.observe(&Observation::RequestSent { operation, items: events, events });
        let sent_at = pool.now();
        let wave = pin!(wave::submit(client, &batch));
        let late_after = pool.config.request_timeout;
        let WaveResult { answers, broken } =
            match self.answer(wave, &mut batch, addresses, late_after) {
                Ok(wave) => wave,
                Err(ended) => return Err(self.abandon(operation, batch, ended)),
            };
        let mut unanswered = Batch::new();
        let mut is_answered = false;
        for (mut queued, answer) in batch.into_iter().zip(answers) {
            match answer {
                Some(Ok(reply)) => {
                    is_answered = true;
                    queued.item.answer(Ok(reply));
                }
                Some(Err(QueryTooLarge)) => {
                    let error = ItemTooLarge { events: 1, refused_events: 1 };
                    pool.fail(&mut queued.item, error.into());
                }
                None => unanswered.push(queued),
            }
        }
        if let Some(error) = broken {
            self.requeue_sent(operation, unanswered);
            return Err(SessionEnd::Lost(problem(error)));
        }
        assert!(unanswered.is_empty(), "a wave ends when every query has its answer");
        if is_answered {
            pool.record_answer();
        }
        let took = pool.now().since(sent_at);
        pool.observer.observe(&Observation::RequestAnswered { operation, events, took });
        Ok(is_answered)
    }

    /// Requeues or fails a batch that is in flight when its session ends.
    fn abandon(&self, operation: Operation, batch: Batch, ended: SessionEnd) -> SessionEnd {
        match ended {
            SessionEnd::Lost(_) => self.requeue_sent(operation, batch),
            SessionEnd::Closing => self.fail_unanswered(batch),
        }
        ended
    }

    fn requeue_sent(&self, operation: Operation, mut batch: Batch) {
        batch.iter_mut().for_each(|queued| queued.sent = true);
        self.pool.requeue(operation, batch);
    }

    fn fail_unanswered(&self, batch: Batch) {
        let now = self.pool.now();
        for mut queued in batch {
            let waited = now.since(queued.queued_at);
            self.pool.fail(&mut queued.item, LedgerError::NoAnswer { waited });
        }
    }

    /// Waits for the answer to a call without a deadline, and reports the session as unavailable
    /// while it is late.
    fn answer<T>(
        &self,
        mut call: Pin<&mut (impl Future<Output = T> + ?Sized)>,
        batch: &mut Batch,
        addresses: &[SocketAddr],
        late_after: Duration,
    ) -> Result<T, SessionEnd> {
        let sent_at = self.pool.now();
        let mut late_at = sent_at.after(late_after);
        let mut was_late = false;
        loop {
            match self.wait(call.as_mut(), batch, Some(late_at)) {
                WaitOutcome::Done(answer) => {
                    if was_late {
                        self.pool.set_health(self.index, Ok(()));
                    }
                    return Ok(answer);
                }
                WaitOutcome::Closing => return Err(SessionEnd::Closing),
                WaitOutcome::Late => {
                    let waited = self.pool.now().since(sent_at);
                    let problem = SessionProblem::NoAnswer { waited };
                    self.pool.set_health(self.index, Err(problem));
                    if was_late {
                        // The call itself shows when the cluster answers.
                        let _probe = self.probe_addresses(addresses)?;
                    }
                    was_late = true;
                    late_at = self.pool.now().after(ADDRESS_PROBE_INTERVAL);
                }
            }
        }
    }

    /// Waits for `future` until `late_at`, enforcing the deadlines of all callers in the meantime.
    fn wait<T>(
        &self,
        mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
        batch: &mut Batch,
        late_at: Option<Timestamp>,
    ) -> WaitOutcome<T> {
        let mut context = Context::from_waker(&self.waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return WaitOutcome::Done(output);
            }
            let now = self.pool.now();
            self.pool.expire_queued(now);
            self.expire_sent(batch, now);
            if self.pool.is_closing() {
                return WaitOutcome::Closing;
            }
            if late_at.is_some_and(|late_at| now >= late_at) {
                return WaitOutcome::Late;
            }
            let until_late = late_at.map_or(DEADLINE_STEP, |late_at| late_at.since(now));
            thread::park_timeout(until_late.min(DEADLINE_STEP));
        }
    }

    /// Fails the callers whose deadline passes while their request is in flight.
    fn expire_sent(&self, batch: &mut Batch, now: Timestamp) {
        for queued in batch {
            let waited = now.since(queued.queued_at);
            if waited >= self.pool.config.request_timeout {
                self.pool.fail_late(&mut queued.item, waited);
            }
        }
    }

    fn resolve(&self) -> Result<Vec<SocketAddr>, SessionEnd> {
        self.run_blocking(address::resolve)?.map_err(SessionEnd::Lost)
    }

    /// Checks the addresses again and ends the session if they have changed. A name that does not
    /// resolve at the moment is no reason to give up a session that may recover.
    fn probe_addresses(
        &self,
        addresses: &[SocketAddr],
    ) -> Result<Result<AddressProbe, SessionProblem>, SessionEnd> {
        let probe = self.run_blocking(address::probe)?;
        if probe.as_ref().is_ok_and(|probe| probe.resolved != addresses) {
            return Err(SessionEnd::Lost(SessionProblem::AddressChanged));
        }
        Ok(probe)
    }

    /// Runs blocking work on its own thread, so that deadlines are enforced in the meantime.
    fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&[address::Address]) -> Result<T, SessionProblem> + Send + 'static,
    ) -> Result<Result<T, SessionProblem>, SessionEnd> {
        let (sender, receiver) = oneshot::channel();
        let addresses = self.pool.config.addresses.clone();
        // A closing session drops the receiver.
        thread::spawn(move || drop(sender.send(work(&addresses))));
        match self.wait(pin!(receiver), &mut Vec::new(), None) {
            WaitOutcome::Done(found) => Ok(found.expect("the thread sends before it ends")),
            WaitOutcome::Late => unreachable!("no moment was given"),
            WaitOutcome::Closing => Err(SessionEnd::Closing),
        }
    }

    /// Sleeps while enforcing deadlines.
    fn pause(&self, duration: Duration) -> Result<(), SessionEnd> {
        let until = self.pool.now().after(duration);
        match self.wait(pin!(std::future::pending::<()>()), &mut Vec::new(), Some(until)) {
            WaitOutcome::Done(()) | WaitOutcome::Late => Ok(()),
            WaitOutcome::Closing => Err(SessionEnd::Closing),
        }
    }

    fn block_on<T>(&self, mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> T {
        let mut context = Context::from_waker(&self.waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            thread::park();
        }
    }
}

impl Drop for Session {
    /// Also runs after a panic, which only a bug here or in an observer can cause: callers must not
    /// wait for a dead session.
    fn drop(&mut self) {
        if thread::panicking() {
            let reason = "its thread has panicked".to_owned();
            self.pool.set_health(self.index, Err(SessionProblem::Lost { reason }));
        }
        self.pool.set_ended(self.index);
    }
}

/// Maps the client's error.
fn problem(error: tb::Error) -> SessionProblem {
    match error {
        tb::Error::ClientEvicted => SessionProblem::Evicted,
        tb::Error::ClientReleaseTooHigh => SessionProblem::ClientTooNew,
        tb::Error::ClientReleaseTooLow => SessionProblem::ClientTooOld,
        tb::Error::TooMuchData
        | tb::Error::ClientClosed
        | tb::Error::InvalidOperation
        | tb::Error::InvalidDataSize
        | _ => SessionProblem::Lost { reason: error.to_string() },
    }
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
