//! The driver: asks the backend for waiters whose turn has come, and ends those whose time is over.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use ratelimiter::admission::{Removed, WaiterId};
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actual, Actuals, CompleteRequest, Decision, LeaseId, Requirement, ReserveError, ReserveRequest,
};
use tokio_util::sync::CancellationToken;

use super::{Answer, Shared, Waiter};
use crate::hosted::HostedBackend;

type Work = FuturesUnordered<BoxFuture<'static, Done>>;

/// What the driver has done for one waiter.
enum Done {
    /// The backend's answer to an attempt.
    Asked(WaiterId, Answer),
    /// The ordinary answer to one that has left.
    Ended(Box<Waiter>, Answer),
    Undone,
}

pub(super) async fn drive<B: HostedBackend>(shared: Arc<Shared<B>>, stop: CancellationToken) {
    let mut work = Work::new();
    loop {
        let wake_at = shared.begin(&mut work);
        let sleep = async {
            match wake_at {
                Some(at) => shared.runtime.sleep(at.since(shared.clock.now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(done) = work.next() => shared.finish(done, &mut work),
            () = shared.changed.notified() => {}
            () = sleep => {}
        }
    }
}

impl<B: HostedBackend> Shared<B> {
    /// Begins what is due; returns when to look again if nothing happens before.
    fn begin(self: &Arc<Self>, work: &mut Work) -> Option<Timestamp> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        while let Some((deadline, id)) = state.deadlines.first().copied()
            && deadline <= now
        {
            state.deadlines.pop_first();
            // One that asks ends with its answer.
            if let Removed::Waiting(waiter) = state.admission.remove(id) {
                self.forget(state, &waiter.work);
                work.push(self.last_attempt(waiter.work));
            }
        }
        while let Some(id) = state.admission.next(now) {
            let waiter = state.admission.get(id).expect("it asks");
            work.push(self.attempt(id, Arc::clone(&waiter.work.request), waiter.attempts));
        }
        let due = state.admission.wake_at();
        let deadline = state.deadlines.first().map(|(deadline, _)| *deadline);
        due.into_iter().chain(deadline).min()
    }

    fn attempt(
        self: &Arc<Self>,
        id: WaiterId,
        request: Arc<ReserveRequest>,
        number: u32,
    ) -> BoxFuture<'static, Done> {
        let backend = Arc::clone(&self.backend);
        Box::pin(async move { Done::Asked(id, backend.attempt(&request, number).await) })
    }

    /// Its time is over: it gets the ordinary answer.
    fn last_attempt(self: &Arc<Self>, waiter: Waiter) -> BoxFuture<'static, Done> {
        let backend = Arc::clone(&self.backend);
        Box::pin(async move {
            let answer = backend.reserve(&waiter.request).await;
            Done::Ended(Box::new(waiter), answer)
        })
    }

    fn finish(self: &Arc<Self>, done: Done, work: &mut Work) {
        let (waiter, answer) = match done {
            Done::Asked(id, answer) => match self.answered(id, answer, work) {
                Some(left) => left,
                None => return,
            },
            Done::Ended(waiter, answer) => (*waiter, answer),
            Done::Undone => return,
        };
        let request = Arc::clone(&waiter.request);
        if !waiter.answer(&answer) && matches!(answer, Ok(Decision::Allowed { .. })) {
            work.push(self.undo(request));
        }
    }

    /// Reports an answer to the admission. Returns the waiter if it leaves with it.
    fn answered(
        self: &Arc<Self>,
        id: WaiterId,
        answer: Answer,
        work: &mut Work,
    ) -> Option<(Waiter, Answer)> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let waiter = match &answer {
            Ok(Decision::Allowed { .. }) => {
                let waiter = state.admission.allowed(id);
                state.admission.ended();
                waiter
            }
            Ok(Decision::Denied(denial)) => {
                let waiter = state.admission.get_mut(id).expect("it asks");
                let is_over = waiter.work.deadline <= now || state.is_shut_down;
                if !is_over && !waiter.work.callers.is_empty() {
                    waiter.work.denial = denial.clone();
                    state.admission.denied(now, id, denial.keys(), denial.retry_after);
                    return None;
                }
                let waiter = state.admission.give_up(id);
                self.forget(state, &waiter.work);
                if !waiter.work.callers.is_empty() {
                    work.push(self.last_attempt(waiter.work));
                }
                return None;
            }
            Err(_) => state.admission.refused(id),
        };
        self.forget(state, &waiter.work);
        Some((waiter.work, answer))
    }

    /// Nobody waits for a lease that was allowed: it returns all that it has.
    fn undo(self: &Arc<Self>, request: Arc<ReserveRequest>) -> BoxFuture<'static, Done> {
        let shared = Arc::clone(self);
        Box::pin(async move {
            let mut unused = Vec::new();
            for Requirement { key, .. } in request.requirements.iter() {
                let state = shared.backend.state(key).await;
                if let Ok(Some(state)) = state
                    && !state.limit.kind.is_concurrency()
                {
                    unused.push(Actual { key: key.clone(), amount: 0 });
                }
            }
            let actuals =
                Actuals::new(unused).expect("as many as the requirements, with their keys");
            let complete = CompleteRequest::new(request.lease, actuals);
            if let Ok(freed) = shared.backend.complete_freeing(&complete).await {
                shared.lock().admission.released(&freed);
            }
            Done::Undone
        })
    }
}
