//! Lets jobs ask when their turn comes. One timer, and no polling: a scheduler whose jobs all wait uses no time.

use std::sync::Arc;

use ratelimiter::admission::Waiter;
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{LeaseId, Limiter};
use tokio::time::{Instant, sleep_until};

use super::attempt::{self, Asking};
use super::context::{Phase, SchedulerContext};

/// What there is to do, and when to look again if nothing happens.
struct Round {
    asking: Vec<Asking>,
    wake_at: Option<Timestamp>,
    /// No job is left, and none will come.
    is_last: bool,
}

pub(super) async fn drive<L: Limiter + 'static>(context: Arc<SchedulerContext<L>>) {
    loop {
        let Round { asking, wake_at, is_last } = round(&context);
        for asking in asking {
            context.runtime.spawn(attempt::run(context.clone(), asking));
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

fn round<L>(context: &SchedulerContext<L>) -> Round {
    let now = context.clock.now();
    let mut state = context.lock();
    let mut asking = Vec::new();
    while state.phase != Phase::ShutDown
        && let Some(id) = state.admission.next(now)
    {
        let waiter = state.admission.get(id).expect("the job that asks is there");
        let Waiter { work: queued, attempts, unanswered_lease, .. } = waiter;
        asking.push(Asking {
            waiter: id,
            facts: queued.facts.clone(),
            control: queued.control.clone(),
            lease: unanswered_lease.unwrap_or_else(|| LeaseId::generate(now)),
            is_repeated: unanswered_lease.is_some(),
            attempts: attempts + queued.earlier_attempts,
        });
        state.counters.attempts += 1;
    }
    let idle = state.admission.waiting() == 0 && state.admission.busy() == 0;
    context.busy.send_replace(state.admission.busy());
    Round { asking, wake_at: state.admission.wake_at(), is_last: idle && !state.is_open() }
}
