//! Shutdown of a scheduler.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::Limiter;
use tokio::time::timeout;

use super::context::{Phase, SchedulerContext};
use super::unrun::UnrunJob;

pub(super) async fn shut_down<L: Limiter + 'static>(
    context: &Arc<SchedulerContext<L>>,
    deadline: Duration,
) -> Vec<UnrunJob> {
    context.queue_slots.close();
    let unanswered = {
        let mut state = context.lock();
        state.phase = Phase::ShutDown;
        let mut unanswered = Vec::new();
        for (id, waiter) in state.admission.remove_all() {
            unanswered
                .extend(waiter.unanswered_lease.map(|lease| (waiter.work.facts.clone(), lease)));
            state.hand_back(id, waiter.work, waiter.attempts);
        }
        unanswered
    };
    context.closing.cancel();
    for (facts, lease) in unanswered {
        // It may have been allowed.
        context.complete_unused(facts, lease);
    }
    context.background_completes.close();
    context.changed.notify_one();
    if timeout(deadline, all_workers_idle(context)).await.is_err() {
        context.stop.cancel();
        all_workers_idle(context).await;
    }
    std::mem::take(&mut context.lock().unrun).into_values().collect()
}

async fn all_workers_idle<L>(context: &SchedulerContext<L>) {
    let mut busy = context.busy.subscribe();
    loop {
        if context.lock().admission.busy() == 0 {
            break;
        }
        // The sender lives in `context`.
        busy.changed().await.expect("the sender exists");
    }
    context.background_completes.wait().await;
}
