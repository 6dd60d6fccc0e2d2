//! The driver: starts attempts on their turn. One timer and no polling, so a scheduler whose jobs all wait uses no CPU.

use std::sync::Arc;

use ratelimiter::admission::Waiter;
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{LeaseId, Limiter};
use tokio::time::{Instant, sleep_until};

use super::attempt::{self, PendingAttempt};
use super::context::{Phase, SchedulerContext};

/// The attempts to start now, and when to check again if nothing happens.
struct DriverStep {
    attempts: Vec<PendingAttempt>,
    wake_at: Option<Timestamp>,
    /// No job is left, and none can be submitted.
    is_last: bool,
}

pub(super) async fn drive<L: Limiter + 'static>(context: Arc<SchedulerContext<L>>) {
    loop {
        let DriverStep { attempts, wake_at, is_last } = step(&context);
        for attempt in attempts {
            context.runtime.spawn(attempt::run(context.clone(), attempt));
        }
        if is_last {
            return;
        }
        let Some(wake_at) = wake_at else {
            context.changed.notified().await;
            continue;
        };
        let wait = wake_at.since(context.clock.now());
        tokio::select! {
            () = context.changed.notified() => {}
            () = sleep_until(Instant::now() + wait) => {}
        }
    }
}

fn step<L>(context: &SchedulerContext<L>) -> DriverStep {
    let now = context.clock.now();
    let mut state = context.lock();
    let mut attempts = Vec::new();
    while state.phase != Phase::ShutDown
        && let Some(id) = state.admission.next(now)
    {
        let waiter = state.admission.get(id).expect("a waiter that asks exists");
        let Waiter { work: queued, attempts: count, unanswered_lease, .. } = waiter;
        attempts.push(PendingAttempt {
            waiter: id,
            facts: queued.facts.clone(),
            control: queued.control.clone(),
            lease: unanswered_lease.unwrap_or_else(|| LeaseId::generate(now)),
            is_repeated: unanswered_lease.is_some(),
            attempts: count + queued.earlier_attempts,
            may_wait: true,
        });
        state.counters.attempts += 1;
    }
    let idle = state.admission.waiting() == 0 && state.admission.busy() == 0;
    context.busy.send_replace(state.admission.busy());
    DriverStep { attempts, wake_at: state.admission.wake_at(), is_last: idle && !state.is_open() }
}
