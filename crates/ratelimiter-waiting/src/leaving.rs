//! Waiters that leave without having been admitted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratelimiter::LeaseId;
use ratelimiter::admission::{Admission, Removed, STARVING_AFTER, TurnBackend};
use ratelimiter::clock::Timestamp;
use tokio::sync::oneshot;

use super::unread::{Delivery, Unread};
use super::{Caller, State, WAITS, Waiter, Waiters, interrupted};

/// A waiter that has left without an answer.
#[derive(Debug)]
pub(super) struct Leaving<B: TurnBackend> {
    pub(super) waiter: Waiter<B>,
    /// How often the server gave up for it without an answer.
    pub(super) give_ups: u32,
}

impl<B: TurnBackend> Waiters<B> {
    /// A lease is completed: if it waits, its callers are denied, and nothing is admitted for them any more. If it asks for them, they get the
    /// answer, and this returns after it, so that the complete finds what was admitted.
    pub(super) async fn withdraw(&self, lease: LeaseId) {
        let asked = self.deny_or_hurry(lease);
        if let Some(asked) = asked {
            // The callers read the answer. Without them, what was admitted is returned.
            drop(asked.await);
        }
    }

    /// Returns what receives the answer of a waiter that asks.
    fn deny_or_hurry(&self, lease: LeaseId) -> Option<oneshot::Receiver<Delivery<B>>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let id = state.by_lease.get(&lease).copied()?;
        if let Removed::Waiting(mut waiter) = state.admission.remove(id) {
            let denied = state.denied(&waiter.work);
            for caller in std::mem::take(&mut waiter.work.callers) {
                state.deadlines.remove(&(caller.deadline, id, caller.number));
                caller.answer(&denied);
            }
            self.leave_later(state, waiter.work);
            return None;
        }
        let (now, waiter) = (self.clock.now(), &mut state.admission.get_mut(id).expect(WAITS).work);
        if waiter.callers.is_empty() {
            return None;
        }
        for caller in &mut waiter.callers {
            state.deadlines.remove(&(caller.deadline, id, caller.number));
            caller.deadline = now;
        }
        state.callers += 1;
        let (sender, asked) = oneshot::channel();
        waiter.callers.push(Caller { number: state.callers, deadline: now, sender });
        Some(asked)
    }

    /// The driver ends a waiter that has left the admission: a shared backend must not admit it any more.
    pub(super) fn leave_later(&self, state: &mut State<B>, waiter: Waiter<B>) {
        if self.backend.is_shared() {
            let waiter = self.leave_unanswered(state, waiter);
            self.give_up_at(state, self.clock.now(), Leaving { waiter, give_ups: 0 });
        } else {
            self.forget(state, &waiter);
        }
        self.changed.notify_one();
    }

    /// A waiter has left the admission without an answer. Until the backend has said what became of it, no repeat is answered.
    pub(super) fn leave_unanswered(
        &self,
        state: &mut State<B>,
        mut waiter: Waiter<B>,
    ) -> Waiter<B> {
        if self.backend.is_shared() {
            let leaving = Unread::Leaving(Arc::clone(&waiter.request));
            self.set_unread(state, waiter.request.lease, leaving);
        }
        let denied = state.denied(&waiter);
        self.forget(state, &waiter);
        if denied.is_err() {
            // The backend may take as long again.
            std::mem::take(&mut waiter.callers)
                .into_iter()
                .for_each(|caller| caller.answer(&denied));
        }
        waiter
    }

    pub(super) fn give_up_at(&self, state: &mut State<B>, at: Timestamp, leaving: Leaving<B>) {
        let before = state.leaving.insert((at, leaving.waiter.request.lease), leaving);
        assert!(before.is_none(), "a lease that is given up does not wait");
    }

    /// The waiter has left the admission.
    pub(super) fn forget(&self, state: &mut State<B>, waiter: &Waiter<B>) {
        let id = state.by_lease.remove(&waiter.request.lease).expect(WAITS);
        for caller in &waiter.callers {
            state.deadlines.remove(&(caller.deadline, id, caller.number));
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
        if state.by_lease.is_empty() {
            // Who comes later was not there.
            state.look_unanswered = None;
        }
    }

    /// Forgets all waiters, whose callers get no answer. The server gives up for them.
    pub(super) fn abandon_all(&self) {
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
        state.look_unanswered = None;
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
