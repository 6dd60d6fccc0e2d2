//! The driver: asks the backend for waiters whose turn has come, and ends those whose time is over.

use std::sync::Arc;
use std::task::Poll;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{StreamExt, poll};
use ratelimiter::admission::{Removed, Turn, WaiterId};
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actual, Actuals, CompleteRequest, Decision, Denial, Requirement, ReserveRequest,
};
use tokio_util::sync::CancellationToken;

use super::{Answer, State, Waiter, Waiters, may_wait};
use crate::hosted::HostedBackend;

type Work = FuturesUnordered<BoxFuture<'static, Done>>;

/// What the driver has done for a waiter.
enum Done {
    /// It asked the backend.
    Asked(WaiterId, Answer),
    /// It got the ordinary answer for one that has left.
    Ended(Box<Waiter>, Answer),
    Undone,
}

pub(super) async fn drive<B: HostedBackend>(waiters: Arc<Waiters<B>>, stop: CancellationToken) {
    let mut work = Work::new();
    loop {
        while let Some(mut ask) = waiters.next_ask() {
            // Most answers are there at once. Each counts before the next waiter asks.
            match poll!(&mut ask) {
                Poll::Ready(done) => waiters.finish(done, &mut work),
                Poll::Pending => work.push(ask),
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
            biased;
            () = stop.cancelled() => return,
            Some(done) = work.next() => waiters.finish(done, &mut work),
            () = waiters.limits_changed.notified() => waiters.lock().admission.released_all(),
            () = waiters.changed.notified() => {}
            () = sleep => {}
        }
    }
}

impl<B: HostedBackend> Waiters<B> {
    /// The next thing to ask the backend, for a waiter whose time is over or whose turn has come.
    fn next_ask(self: &Arc<Self>) -> Option<BoxFuture<'static, Done>> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
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
        let id = state.admission.next(now)?;
        let waiter = state.admission.get(id).expect("it asks");
        Some(self.ask(id, Arc::clone(&waiter.work.request), waiter.attempts))
    }

    /// When to look again if nothing happens before.
    fn wake_at(&self) -> Option<Timestamp> {
        let state = self.lock();
        let due = state.admission.wake_at();
        let deadline = state.deadlines.first().map(|(deadline, ..)| *deadline);
        due.into_iter().chain(deadline).min()
    }

    /// The time of a caller is over. With the last one the waiter leaves.
    fn end_caller(
        self: &Arc<Self>,
        state: &mut State,
        id: WaiterId,
        number: u64,
    ) -> Option<BoxFuture<'static, Done>> {
        let waiter = state.waiter(id);
        if waiter.callers.len() > 1 {
            let at = waiter.callers.iter().position(|caller| caller.number == number)?;
            waiter.callers.swap_remove(at).deny(&waiter.denial);
            return None;
        }
        let Removed::Waiting(waiter) = state.admission.remove(id) else { return None };
        self.forget(state, &waiter.work);
        Some(self.end(waiter.work))
    }

    fn ask(
        self: &Arc<Self>,
        id: WaiterId,
        request: Arc<ReserveRequest>,
        attempt: u32,
    ) -> BoxFuture<'static, Done> {
        let backend = Arc::clone(&self.backend);
        Box::pin(async move {
            let turn = Turn { behind: None, attempt: Some(attempt) };
            Done::Asked(id, backend.reserve_in_turn(&request, turn).await)
        })
    }

    /// The ordinary answer for a waiter that has left.
    fn end(self: &Arc<Self>, waiter: Waiter) -> BoxFuture<'static, Done> {
        let waiters = Arc::clone(self);
        Box::pin(async move {
            let answer = waiters.reserve_at_once(&waiter.request).await;
            Done::Ended(Box::new(waiter), answer)
        })
    }

    fn finish(self: &Arc<Self>, done: Done, work: &mut Work) {
        let (waiter, answer) = match done {
            Done::Asked(id, Ok(Decision::Denied(denial))) if may_wait(&denial) => {
                work.extend(self.denied(id, denial));
                return;
            }
            Done::Asked(id, answer) => (self.leave(id, &answer), answer),
            Done::Ended(waiter, answer) => (*waiter, answer),
            Done::Undone => return,
        };
        let request = Arc::clone(&waiter.request);
        if !waiter.answer(&answer) && matches!(answer, Ok(Decision::Allowed { .. })) {
            let undo = Arc::clone(self).undo(request);
            work.push(Box::pin(async move {
                undo.await;
                Done::Undone
            }));
        }
    }

    /// A waiter was denied again. It goes on waiting if the time of a caller is not over.
    fn denied(self: &Arc<Self>, id: WaiterId, denial: Denial) -> Option<BoxFuture<'static, Done>> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let is_shut_down = state.is_shut_down;
        let waiter = state.waiter(id);
        let over = |caller: &mut super::Caller| is_shut_down || caller.deadline <= now;
        let ended: Vec<_> = waiter.callers.extract_if(.., over).collect();
        if waiter.callers.is_empty() {
            waiter.callers = ended;
            let waiter = state.admission.give_up(id);
            self.forget(state, &waiter.work);
            return (!waiter.work.callers.is_empty()).then(|| self.end(waiter.work));
        }
        for caller in ended {
            caller.deny(&denial);
        }
        state.admission.denied(now, id, denial.keys(), denial.retry_after);
        state.waiter(id).denial = denial;
        None
    }

    /// A waiter leaves with its answer.
    fn leave(&self, id: WaiterId, answer: &Answer) -> Waiter {
        let mut guard = self.lock();
        let state = &mut *guard;
        let waiter = if matches!(answer, Ok(Decision::Allowed { .. })) {
            let waiter = state.admission.allowed(id);
            state.admission.ended();
            waiter
        } else {
            state.admission.refused(id)
        };
        self.forget(state, &waiter.work);
        waiter.work
    }

    /// Nobody waits for a lease that was allowed: it returns all that it has.
    pub(super) async fn undo(self: Arc<Self>, request: Arc<ReserveRequest>) {
        let mut unused = Vec::new();
        for Requirement { key, .. } in request.requirements.iter() {
            if let Ok(Some(state)) = self.backend.state(key).await
                && !state.limit.kind.is_concurrency()
            {
                unused.push(Actual { key: key.clone(), amount: 0 });
            }
        }
        let actuals = Actuals::new(unused).expect("as many as the requirements, with their keys");
        let complete = CompleteRequest::new(request.lease, actuals);
        match self.backend.complete_freeing(&complete).await {
            Ok(freed) => self.released(&freed),
            Err(error) => {
                tracing::warn!(lease = %request.lease, %error, "cannot return what nobody waits for");
            }
        }
    }
}
