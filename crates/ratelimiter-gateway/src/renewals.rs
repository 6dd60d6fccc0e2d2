//! Keeps the holds of open calls (`GW-16`): one task renews the leases of all of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use ratelimiter::{LeaseId, NewAmounts, RenewError, RenewNumber, RenewRequest};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limiter::GatewayLimiter;

/// The most renews at a time.
const RENEWS_AT_A_TIME: usize = 256;
/// A hold is renewed every third of its timeout, so that one renew may fail.
const RENEWS_PER_TIMEOUT: u32 = 3;

/// Leases with holds, by when they are renewed next.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    due: BTreeSet<(Instant, LeaseId)>,
    leases: HashMap<LeaseId, Renewal>,
}

#[derive(Debug, Clone, Copy)]
struct Renewal {
    due: Instant,
    every: Duration,
    number: RenewNumber,
}

impl Renewals {
    /// From now on the lease is renewed.
    pub(crate) fn add(&self, lease: LeaseId, hold_timeout: Duration) {
        let every = hold_timeout / RENEWS_PER_TIMEOUT;
        let due = Instant::now() + every;
        let mut state = self.lock();
        state.leases.insert(lease, Renewal { due, every, number: RenewNumber::FIRST });
        state.due.insert((due, lease));
        if state.due.first().is_some_and(|(first, _)| *first == due) {
            self.changed.notify_one();
        }
    }

    /// The lease ends.
    pub(crate) fn remove(&self, lease: LeaseId) {
        let mut state = self.lock();
        if let Some(Renewal { due, .. }) = state.leases.remove(&lease) {
            state.due.remove(&(due, lease));
        }
    }

    /// Renews leases when they are due, for ever.
    pub(crate) async fn run(&self, limiter: &impl GatewayLimiter) {
        loop {
            let first = self.lock().due.first().map(|(due, _)| *due);
            match first {
                None => self.changed.notified().await,
                Some(due) => {
                    // Either it is due, or an earlier one was added.
                    drop(tokio::time::timeout_at(due, self.changed.notified()).await);
                }
            }
            let due = self.lock().due_at(Instant::now());
            join_all(due.iter().map(|(lease, number)| self.renew(limiter, *lease, *number))).await;
        }
    }

    async fn renew(&self, limiter: &impl GatewayLimiter, lease: LeaseId, number: RenewNumber) {
        let request = RenewRequest::new(lease, number, NewAmounts::none());
        match limiter.renew(&request).await {
            Ok(_) => self.lock().renewed(lease),
            // The same number is tried again at the next third.
            Err(RenewError::Unanswered(error)) => {
                tracing::warn!(%lease, %error, "renew of an open call failed; tried again");
            }
            Err(error) => {
                tracing::warn!(%lease, %error, "an open call no longer has its holds");
                self.remove(lease);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Some of the leases that are due; each is due again a third of its timeout later.
    fn due_at(&mut self, now: Instant) -> Vec<(LeaseId, RenewNumber)> {
        let due = self.due.iter().take_while(|(due, _)| *due <= now);
        let due: Vec<_> = due.take(RENEWS_AT_A_TIME).copied().collect();
        let mut leases = Vec::with_capacity(due.len());
        for (at, lease) in due {
            self.due.remove(&(at, lease));
            let renewal = self.leases.get_mut(&lease).expect("what is due is renewed");
            renewal.due = now + renewal.every;
            leases.push((lease, renewal.number));
            self.due.insert((renewal.due, lease));
        }
        leases
    }

    fn renewed(&mut self, lease: LeaseId) {
        // The call may have ended meanwhile.
        if let Some(renewal) = self.leases.get_mut(&lease) {
            renewal.number = renewal.number.next();
        }
    }
}
