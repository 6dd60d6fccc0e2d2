//! One session with the cluster: a thread of its own with one client, and at most one call under
//! way (`TB-11`), or one wave of queries (`TB-23`).
//!
//! A thread and not a task: it waits in microseconds, resolves names, and does not depend on the
//! caller's runtime being alive. Deadlines are kept here, because the client has none (`TB-10`).

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

use super::address::{self, Survey};
use super::batch_limit::BatchLimit;
use super::config::WAVE_QUERIES_MAX;
use super::observer::{Observation, Operation};
use super::request::{self, Batch};
use super::shared::{Duty, Next, Shared};
use super::wave::{self, QueryTooLarge, Wave};
use crate::ledger::{ItemTooLarge, LedgerError, SessionProblem};

/// The longest a waiting session sleeps before it looks at the deadlines again.
const DEADLINE_STEP: Duration = Duration::from_millis(20);
/// A fresh session needs 0.6 s; one that needs longer than this is reported, and goes on trying.
const REGISTER_TIMEOUT: Duration = Duration::from_millis(1500);
/// How often a session in trouble looks whether the cluster has moved.
const SURVEY_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait before a session that could not be opened is tried again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// A probe is answered in a millisecond; a cluster that needs longer than this does not answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// For so long after an answer a session has not become the oldest of 64, unless as many others
/// registered within this and the round trip. Only then is a wave submitted: an eviction that came
/// between its calls would abort the process.
const NOT_EVICTED_FOR: Duration = Duration::from_millis(200);
/// What warm-ups and keep-alives look up; whether it exists does not matter.
const PROBE_ACCOUNT: u128 = 1;

pub(super) struct Session {
    shared: Arc<Shared>,
    index: usize,
    waker: Waker,
}

/// Why a client is of no use any more.
enum Ended {
    Lost(SessionProblem),
    Closing,
}

/// How a wait ended.
enum Waited<T> {
    Done(T),
    Late,
    Closing,
}

impl Session {
    /// Serves until the ledger is closed, with as many clients as it takes.
    pub(super) fn run(shared: Arc<Shared>, index: usize) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let session = Self { shared, index, waker };
        while let Ended::Lost(problem) = session.serve() {
            // An evicted session starts afresh at once; what else ends one may last.
            let at_once =
                matches!(problem, SessionProblem::Evicted | SessionProblem::AddressChanged);
            session.shared.set_health(index, Err(problem));
            if !at_once && session.pause(REOPEN_PAUSE).is_err() {
                break;
            }
        }
    }

    /// The life of one client.
    fn serve(&self) -> Ended {
        let addresses = match self.resolve() {
            Ok(addresses) => addresses,
            Err(ended) => return ended,
        };
        let joined = address::joined(&addresses);
        let client = match tb::Client::new(self.shared.config.cluster_id, &joined) {
            Ok(client) => client,
            Err(error) => {
                let reason = error.to_string();
                return Ended::Lost(SessionProblem::ClientNotStarted { reason });
            }
        };
        let ended = self.register(&client, &addresses).and_then(|()| {
            self.shared.set_health(self.index, Ok(()));
            self.take_turns(&client, &addresses)
        });
        // Before anything else is submitted anywhere: an evicted client that is not closed aborts
        // the process at its next call. What it says about its end does not matter any more.
        let closing = pin!(client.close());
        let _last_word = self.block_on(closing);
        match ended {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    /// The first request of a session, which takes 0.6 s, and for ever if something is wrong.
    fn register(&self, client: &tb::Client, addresses: &[SocketAddr]) -> Result<(), Ended> {
        let started_at = self.shared.now();
        let mut call = pin!(client.lookup_accounts(&[PROBE_ACCOUNT]));
        let mut late_at = started_at.after(REGISTER_TIMEOUT);
        loop {
            match self.wait(call.as_mut(), &mut Vec::new(), Some(late_at)) {
                Waited::Done(Ok(_)) => {
                    self.shared.note_answer();
                    return Ok(());
                }
                Waited::Done(Err(error)) => return Err(Ended::Lost(problem(error))),
                Waited::Closing => return Err(Ended::Closing),
                Waited::Late => {
                    let survey = self.survey(addresses)?;
                    let waited = self.shared.now().since(started_at);
                    let problem = match survey {
                        Ok(Survey { reachable, unreachable, .. }) => {
                            SessionProblem::NotRegistered { waited, reachable, unreachable }
                        }
                        Err(problem) => problem,
                    };
                    self.shared.set_health(self.index, Err(problem));
                    late_at = self.shared.now().after(SURVEY_INTERVAL);
                }
            }
        }
    }

    /// Takes batch after batch out of the queue.
    fn take_turns(
        &self,
        client: &tb::Client,
        addresses: &[SocketAddr],
    ) -> Result<std::convert::Infallible, Ended> {
        let max_batch_events = self.shared.config.max_batch_events;
        let mut limits = [BatchLimit::new(max_batch_events); Operation::ALL.len()];
        let mut items_expected = 0;
        // When the last answer came. Not when its question was sent: with a slow cluster that would always
        // be too long ago, and every query would go alone.
        let mut heard_at = None;
        loop {
            let is_fresh = |at: Timestamp| self.shared.now().since(at) < NOT_EVICTED_FOR;
            let events_max = |operation: Operation| match self.shared.duty {
                Duty::Write => limits[operation.index()].next(),
                Duty::Read if heard_at.is_some_and(is_fresh) => WAVE_QUERIES_MAX,
                Duty::Read => 1,
            };
            match self.shared.next(self.index, items_expected, events_max) {
                Next::Close => return Err(Ended::Closing),
                Next::KeepAlive => {
                    let call = client.lookup_accounts(&[PROBE_ACCOUNT]);
                    let late_after = PROBE_TIMEOUT.min(self.shared.config.request_timeout);
                    let answer = self.answer(pin!(call), &mut Vec::new(), addresses, late_after)?;
                    answer.map_err(|error| Ended::Lost(problem(error)))?;
                    self.shared.note_answer();
                    heard_at = Some(self.shared.now());
                    items_expected = 0;
                }
                Next::Send(operation, batch) => {
                    items_expected = batch.len();
                    match self.shared.duty {
                        Duty::Write => {
                            let limit = &mut limits[operation.index()];
                            self.send(client, addresses, operation, batch, limit)?;
                        }
                        Duty::Read => {
                            let is_heard = self.send_wave(client, addresses, operation, batch)?;
                            heard_at = is_heard.then(|| self.shared.now());
                        }
                    }
                }
            }
        }
    }

    /// Sends one batch and deals out the answer, or puts the batch back for another try.
    fn send(
        &self,
        client: &tb::Client,
        addresses: &[SocketAddr],
        operation: Operation,
        mut batch: Batch,
        limit: &mut BatchLimit,
    ) -> Result<(), Ended> {
        let shared = &self.shared;
        let events = batch.iter().map(|queued| queued.events).sum();
        let items = batch.len();
        shared.observer.observe(&Observation::RequestSent { operation, items, events });
        shared.set_busy(self.index, true);
        let sent_at = shared.now();
        let mut call = request::call(client, &batch);
        let late_after = shared.config.request_timeout;
        let answer = self.answer(call.as_mut(), &mut batch, addresses, late_after);
        shared.set_busy(self.index, false);
        match answer {
            Ok(Ok(reply)) => {
                limit.accept(events);
                shared.note_answer();
                let took = shared.now().since(sent_at);
                shared.observer.observe(&Observation::RequestAnswered { operation, events, took });
                request::answer(batch, reply);
                Ok(())
            }
            Ok(Err(tb::Error::TooMuchData)) => {
                limit.refuse(events);
                shared.observer.observe(&Observation::BatchRefused { operation, events });
                if items > 1 {
                    shared.give_back(operation, batch);
                } else {
                    let error = ItemTooLarge { events, refused_events: events };
                    batch.iter_mut().for_each(|job| shared.fail(&mut job.item, error.into()));
                }
                Ok(())
            }
            Ok(Err(error)) => {
                // The client says that nothing happened, which is not always so.
                self.give_back_sent(operation, batch);
                Err(Ended::Lost(problem(error)))
            }
            Err(ended) => Err(self.abandon(operation, batch, ended)),
        }
    }

    /// Sends one wave and deals out the answers; what has none is put back for another try. Says
    /// whether the cluster has answered.
    fn send_wave(
        &self,
        client: &tb::Client,
        addresses: &[SocketAddr],
        operation: Operation,
        mut batch: Batch,
    ) -> Result<bool, Ended> {
        let shared = &self.shared;
        let events = batch.len();
        shared.observer.observe(&Observation::RequestSent { operation, items: events, events });
        let sent_at = shared.now();
        let wave = pin!(wave::submit(client, &batch));
        let late_after = shared.config.request_timeout;
        let Wave { answers, broken } = match self.answer(wave, &mut batch, addresses, late_after) {
            Ok(wave) => wave,
            Err(ended) => return Err(self.abandon(operation, batch, ended)),
        };
        let mut unanswered = Batch::new();
        let mut is_heard = false;
        for (mut queued, answer) in batch.into_iter().zip(answers) {
            match answer {
                Some(Ok(reply)) => {
                    is_heard = true;
                    queued.item.answer(Ok(reply));
                }
                Some(Err(QueryTooLarge)) => {
                    let error = ItemTooLarge { events: 1, refused_events: 1 };
                    shared.fail(&mut queued.item, error.into());
                }
                None => unanswered.push(queued),
            }
        }
        if let Some(error) = broken {
            self.give_back_sent(operation, unanswered);
            return Err(Ended::Lost(problem(error)));
        }
        assert!(unanswered.is_empty(), "a wave ends when every query has its answer");
        if is_heard {
            shared.note_answer();
        }
        let took = shared.now().since(sent_at);
        shared.observer.observe(&Observation::RequestAnswered { operation, events, took });
        Ok(is_heard)
    }

    /// What becomes of a batch that is under way when its session ends.
    fn abandon(&self, operation: Operation, batch: Batch, ended: Ended) -> Ended {
        match ended {
            Ended::Lost(_) => self.give_back_sent(operation, batch),
            Ended::Closing => self.fail_unanswered(batch),
        }
        ended
    }

    fn give_back_sent(&self, operation: Operation, mut batch: Batch) {
        batch.iter_mut().for_each(|queued| queued.sent = true);
        self.shared.give_back(operation, batch);
    }

    fn fail_unanswered(&self, batch: Batch) {
        let now = self.shared.now();
        for mut queued in batch {
            let waited = now.since(queued.queued_at);
            self.shared.fail(&mut queued.item, LedgerError::NoAnswer { waited });
        }
    }

    /// Waits for the answer to a call without end, and says meanwhile that there is none.
    fn answer<T>(
        &self,
        mut call: Pin<&mut (impl Future<Output = T> + ?Sized)>,
        batch: &mut Batch,
        addresses: &[SocketAddr],
        late_after: Duration,
    ) -> Result<T, Ended> {
        let sent_at = self.shared.now();
        let mut late_at = sent_at.after(late_after);
        let mut was_late = false;
        loop {
            match self.wait(call.as_mut(), batch, Some(late_at)) {
                Waited::Done(answer) => {
                    if was_late {
                        self.shared.set_health(self.index, Ok(()));
                    }
                    return Ok(answer);
                }
                Waited::Closing => return Err(Ended::Closing),
                Waited::Late => {
                    let waited = self.shared.now().since(sent_at);
                    let problem = SessionProblem::NoAnswer { waited };
                    self.shared.set_health(self.index, Err(problem));
                    if was_late {
                        // Whether it answers shows at the call itself.
                        let _seen = self.survey(addresses)?;
                    }
                    was_late = true;
                    late_at = self.shared.now().after(SURVEY_INTERVAL);
                }
            }
        }
    }

    /// Waits for `future` until `late_at`, and keeps the deadlines of all callers meanwhile.
    fn wait<T>(
        &self,
        mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
        batch: &mut Batch,
        late_at: Option<Timestamp>,
    ) -> Waited<T> {
        let mut context = Context::from_waker(&self.waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Waited::Done(output);
            }
            let now = self.shared.now();
            self.shared.expire_queued(now);
            self.expire_sent(batch, now);
            if self.shared.is_closing() {
                return Waited::Closing;
            }
            if late_at.is_some_and(|late_at| now >= late_at) {
                return Waited::Late;
            }
            let until_late = late_at.map_or(DEADLINE_STEP, |late_at| late_at.since(now));
            thread::park_timeout(until_late.min(DEADLINE_STEP));
        }
    }

    /// Tells the callers whose time is up while their request is under way.
    fn expire_sent(&self, batch: &mut Batch, now: Timestamp) {
        for queued in batch {
            let waited = now.since(queued.queued_at);
            if waited >= self.shared.config.request_timeout {
                self.shared.fail_late(&mut queued.item, waited);
            }
        }
    }

    fn resolve(&self) -> Result<Vec<SocketAddr>, Ended> {
        self.elsewhere(address::resolve)?.map_err(Ended::Lost)
    }

    /// Looks at the addresses again; ends the session if they are others now. A name that does not
    /// resolve at the moment is no reason to give up a session that may still heal.
    fn survey(&self, addresses: &[SocketAddr]) -> Result<Result<Survey, SessionProblem>, Ended> {
        let survey = self.elsewhere(address::survey)?;
        if survey.as_ref().is_ok_and(|survey| survey.resolved != addresses) {
            return Err(Ended::Lost(SessionProblem::AddressChanged));
        }
        Ok(survey)
    }

    /// Does what may block for long on a thread of its own, so that deadlines are kept meanwhile.
    fn elsewhere<T: Send + 'static>(
        &self,
        look: impl FnOnce(&[address::Address]) -> Result<T, SessionProblem> + Send + 'static,
    ) -> Result<Result<T, SessionProblem>, Ended> {
        let (sender, receiver) = oneshot::channel();
        let addresses = self.shared.config.addresses.clone();
        // A session that is closing does not wait for what was found.
        thread::spawn(move || drop(sender.send(look(&addresses))));
        match self.wait(pin!(receiver), &mut Vec::new(), None) {
            Waited::Done(found) => Ok(found.expect("the thread sends before it ends")),
            Waited::Late => unreachable!("no moment was given"),
            Waited::Closing => Err(Ended::Closing),
        }
    }

    /// Waits for time to pass, keeping deadlines.
    fn pause(&self, duration: Duration) -> Result<(), Ended> {
        let until = self.shared.now().after(duration);
        match self.wait(pin!(std::future::pending::<()>()), &mut Vec::new(), Some(until)) {
            Waited::Done(()) | Waited::Late => Ok(()),
            Waited::Closing => Err(Ended::Closing),
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
    /// Also after a panic, which only a bug in here or in an observer can cause: callers must not
    /// wait for a session that is not there.
    fn drop(&mut self) {
        if thread::panicking() {
            let reason = "its thread has panicked".to_owned();
            self.shared.set_health(self.index, Err(SessionProblem::Lost { reason }));
        }
        self.shared.set_ended(self.index);
    }
}

/// What the client's word means.
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

/// Wakes a session's thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
