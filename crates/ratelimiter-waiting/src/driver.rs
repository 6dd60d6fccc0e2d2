//! The driver: asks the backend for waiters whose turn has come, and ends those whose time is over.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, poll};
use ratelimiter::admission::{Removed, Turn, TurnAnswer, TurnBackend, WaiterId, no_answer_pause};
use ratelimiter::clock::Timestamp;
use ratelimiter::{Decision, Denial, LimitKey, ReserveError, ReserveRequest, Unanswered};
use tokio_util::sync::CancellationToken;

use super::unread::TRIES_MAX;
use super::{Leaving, State, UnreadAllow, Waiter, Waiters, caught};

type Work<B> = FuturesUnordered<BoxFuture<'static, Done<B>>>;

/// What the driver has done for a waiter.
enum Done<B: TurnBackend> {
    /// It asked the backend.
    Asked(WaiterId, Result<TurnAnswer, ReserveError>),
    /// It got the ordinary answer for one that has left.
    Ended(Box<Leaving<B>>, Result<TurnAnswer, ReserveError>),
    /// It looked for room, and these limits may have some.
    Looked(Result<Vec<LimitKey>, Unanswered>),
}

/// How many waiters ask in a row before other tasks run.
const ASKS_IN_A_ROW: usize = 64;

pub(super) async fn drive<B: TurnBackend>(waiters: Arc<Waiters<B>>, stop: CancellationToken) {
    // A panic of the policy must not leave waiters without an answer.
    while AssertUnwindSafe(run(&waiters, &stop)).catch_unwind().await.is_err() {
        tracing::error!("the task of waiting requests panicked; they get no answer");
        waiters.abandon_all();
    }
}

async fn run<B: TurnBackend>(waiters: &Arc<Waiters<B>>, stop: &CancellationToken) {
    let mut work = Work::new();
    loop {
        let mut asks = 0;
        while let Some(mut ask) = waiters.next_ask() {
            // Most answers are there at once. Each counts before the next waiter asks.
            match poll!(&mut ask) {
                Poll::Ready(done) => waiters.finish(done, &mut work),
                Poll::Pending => work.push(ask),
            }
            asks += 1;
            if asks % ASKS_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
        let wake_at = waiters.wake_at();
        let sleep = async {
            match wake_at {
                Some(at) => waiters.runtime.sleep(at.since(waiters.clock.now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The rare one first; each of the others leads to a look at all waiters.
            biased;
            () = stop.cancelled() => return,
            () = waiters.limits_changed.notified() => waiters.lock().admission.released_all(),
            Some(done) = work.next() => waiters.finish(done, &mut work),
            () = waiters.changed.notified() => {}
            () = sleep => {}
        }
    }
}

impl<B: TurnBackend> Waiters<B> {
    /// The next thing to ask the backend: for a waiter that has left, whose time is over or whose turn has come, or whether the limits
    /// that hold waiters up have room.
    fn next_ask(self: &Arc<Self>) -> Option<BoxFuture<'static, Done<B>>> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(leaving) = state.leaving.first_entry()
            && leaving.key().0 <= now
        {
            return Some(self.end(leaving.remove()));
        }
        while let Some((deadline, id, number)) = state.deadlines.first().copied()
            && deadline <= now
        {
            state.deadlines.pop_first();
            // One that asks ends with its answer.
            if !state.admission.is_asking(id)
                && let Some(ended) = self.end_caller(state, id, number)
            {
                return Some(ended);
            }
        }
        if let Some(id) = state.admission.next(now) {
            let waiter = state.admission.get(id).expect("it asks");
            return Some(self.ask(id, Arc::clone(&waiter.work.request), waiter.attempts));
        }
        self.look(state, now)
    }

    /// `WAIT-06`: a look at all limits that hold waiters up, if one is due.
    fn look(&self, state: &mut State<B>, now: Timestamp) -> Option<BoxFuture<'static, Done<B>>> {
        let every = self.backend.looks_every()?;
        if state.is_looking || state.look_at > now || !state.admission.has_scarce() {
            return None;
        }
        state.is_looking = true;
        state.look_at = now.after(every);
        let (backend, scarce) = (Arc::clone(&self.backend), state.admission.scarce());
        Some(Box::pin(async move { Done::Looked(caught(backend.limits_with_room(&scarce)).await) }))
    }

    /// When to look again if nothing happens before.
    fn wake_at(&self) -> Option<Timestamp> {
        let state = self.lock();
        let due = state.admission.wake_at();
        let deadline = state.deadlines.first().map(|(deadline, ..)| *deadline);
        let looks = self.backend.looks_every().is_some() && !state.is_looking;
        let look = (looks && state.admission.has_scarce()).then_some(state.look_at);
        let leaving = state.leaving.first_key_value().map(|((at, _), _)| *at);
        due.into_iter().chain(deadline).chain(look).chain(leaving).min()
    }

    /// The time of a caller is over. With the last one the waiter leaves.
    fn end_caller(
        self: &Arc<Self>,
        state: &mut State<B>,
        id: WaiterId,
        number: u64,
    ) -> Option<BoxFuture<'static, Done<B>>> {
        let waiter = state.waiter(id);
        let at = waiter.callers.iter().position(|caller| caller.number == number)?;
        if waiter.callers.len() > 1 {
            let caller = waiter.callers.swap_remove(at);
            caller.answer(&state.denied_waiter(id));
            return None;
        }
        let Removed::Waiting(waiter) = state.admission.remove(id) else { return None };
        let waiter = self.leave_unanswered(state, waiter.work);
        Some(self.end(Leaving { waiter, give_ups: 0 }))
    }

    fn ask(
        self: &Arc<Self>,
        id: WaiterId,
        request: Arc<ReserveRequest>,
        attempt: u32,
    ) -> BoxFuture<'static, Done<B>> {
        let backend = Arc::clone(&self.backend);
        Box::pin(async move {
            let turn = Turn { behind: None, attempt: Some(attempt), may_return: true };
            Done::Asked(id, caught(backend.reserve_in_turn(&request, turn)).await)
        })
    }

    /// The ordinary answer for a waiter that has left.
    fn end(self: &Arc<Self>, leaving: Leaving<B>) -> BoxFuture<'static, Done<B>> {
        let waiters = Arc::clone(self);
        Box::pin(async move {
            let waiter = &leaving.waiter;
            let answer = match waiters.backend.is_shared() {
                true => caught(waiters.backend.give_up(&waiter.request, waiter.denial())).await,
                false => caught(waiters.reserve_at_once(&waiter.request, true)).await,
            };
            Done::Ended(Box::new(leaving), answer)
        })
    }

    fn finish(self: &Arc<Self>, done: Done<B>, work: &mut Work<B>) {
        match done {
            Done::Asked(
                id,
                Ok(TurnAnswer {
                    decision: Decision::Denied(denial),
                    ask_again_after: Some(after),
                    ..
                }),
            ) => work.extend(self.denied(id, denial, after)),
            // An attempt may still be admitted, once: the next one, or giving up, finds out.
            Done::Asked(id, Err(ReserveError::Unanswered(unanswered)))
                if self.backend.is_shared() =>
            {
                work.extend(self.unanswered(id, unanswered));
            }
            Done::Looked(looked) => {
                let mut state = self.lock();
                state.is_looking = false;
                match looked {
                    Ok(with_room) => {
                        state.look_unanswered = None;
                        state.admission.released(&with_room);
                    }
                    Err(_) if state.by_lease.is_empty() => {}
                    // The next look may have an answer.
                    Err(unanswered) => state.look_unanswered = Some(unanswered),
                }
            }
            Done::Asked(id, answer) => {
                let (waiter, allow) = self.leave(id, &answer);
                waiter.answer(&answer.map(|answer| answer.decision), allow.as_ref());
            }
            Done::Ended(leaving, answer) => self.ended(*leaving, answer),
        }
    }

    /// The backend has answered for a waiter that has left, or not. If an attempt may still be admitted then, the server tries again.
    fn ended(self: &Arc<Self>, leaving: Leaving<B>, answer: Result<TurnAnswer, ReserveError>) {
        let Leaving { mut waiter, mut give_ups } = leaving;
        let lease = waiter.request.lease;
        let mut state = self.lock();
        if let Err(ReserveError::Unanswered(unanswered)) = &answer
            && waiter.has_unanswered
            && self.backend.may_be_admitted(lease)
            && give_ups < TRIES_MAX
        {
            let told = Err(unanswered.clone().into());
            std::mem::take(&mut waiter.callers).into_iter().for_each(|caller| caller.answer(&told));
            give_ups += 1;
            let pause = no_answer_pause(give_ups, unanswered.retry_after, 0.0);
            let at = self.clock.now().after(pause);
            self.give_up_at(&mut state, at, Leaving { waiter, give_ups });
            return;
        }
        let allow = self.unread_allow(&mut state, &waiter, &answer);
        if allow.is_none() {
            self.read(&mut state, lease);
        }
        drop(state);
        waiter.answer(&answer.map(|answer| answer.decision), allow.as_ref());
    }

    /// A waiter was denied again. It goes on waiting if the time of a caller is not over.
    fn denied(
        self: &Arc<Self>,
        id: WaiterId,
        denial: Denial,
        ask_again_after: Duration,
    ) -> Option<BoxFuture<'static, Done<B>>> {
        let mut guard = self.lock();
        let (now, state) = (self.clock.now(), &mut *guard);
        state.look_unanswered = None;
        let keys = denial.keys().to_vec();
        state.waiter(id).last = Ok(denial);
        if let Some(waiter) = self.end_callers(state, id, now) {
            let is_ended = self.backend.is_shared() || !waiter.callers.is_empty();
            return is_ended.then(|| self.end(Leaving { waiter, give_ups: 0 }));
        }
        state.admission.denied(now, id, &keys, ask_again_after);
        None
    }

    /// An attempt had no answer. The waiter goes on waiting if the time of a caller is not over.
    fn unanswered(
        self: &Arc<Self>,
        id: WaiterId,
        unanswered: Unanswered,
    ) -> Option<BoxFuture<'static, Done<B>>> {
        let mut guard = self.lock();
        let (now, state) = (self.clock.now(), &mut *guard);
        let (waiter, retry_after) = (state.waiter(id), unanswered.retry_after);
        (waiter.last, waiter.has_unanswered) = (Err(unanswered), true);
        let lease = waiter.request.lease;
        if let Some(waiter) = self.end_callers(state, id, now) {
            return Some(self.end(Leaving { waiter, give_ups: 0 }));
        }
        state.admission.unanswered(now, id, lease, retry_after, 0.0);
        None
    }

    /// Answers the callers of a waiter that asked whose time is over. If it was that of all, the waiter leaves, and they are answered
    /// when the server has given up; at once, if the backend does not answer.
    fn end_callers(&self, state: &mut State<B>, id: WaiterId, now: Timestamp) -> Option<Waiter<B>> {
        let is_shut_down = state.is_shut_down;
        let waiter = state.waiter(id);
        let over = |caller: &mut super::Caller<B>| is_shut_down || caller.deadline <= now;
        let ended: Vec<_> = waiter.callers.extract_if(.., over).collect();
        for caller in &ended {
            state.deadlines.remove(&(caller.deadline, id, caller.number));
        }
        let waiter = state.waiter(id);
        if waiter.callers.is_empty() {
            waiter.callers = ended;
            let waiter = state.admission.give_up(id);
            return Some(self.leave_unanswered(state, waiter.work));
        }
        let denied = state.denied_waiter(id);
        ended.into_iter().for_each(|caller| caller.answer(&denied));
        None
    }

    /// A waiter leaves with its answer.
    fn leave(
        self: &Arc<Self>,
        id: WaiterId,
        answer: &Result<TurnAnswer, ReserveError>,
    ) -> (Waiter<B>, Option<Arc<UnreadAllow<B>>>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let waiter = if answer.as_ref().is_ok_and(|answer| answer.decision.is_allowed()) {
            let waiter = state.admission.allowed(id);
            state.admission.ended();
            waiter
        } else {
            state.admission.refused(id)
        };
        let allow = self.unread_allow(state, &waiter.work, answer);
        self.forget(state, &waiter.work);
        (waiter.work, allow)
    }

    fn unread_allow(
        self: &Arc<Self>,
        state: &mut State<B>,
        waiter: &Waiter<B>,
        answer: &Result<TurnAnswer, ReserveError>,
    ) -> Option<Arc<UnreadAllow<B>>> {
        let is_new = answer.as_ref().is_ok_and(|answer| answer.is_new);
        is_new.then(|| UnreadAllow::new(self, state, Arc::clone(&waiter.request)))
    }
}
