//! Stopping with jobs in every state.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::Limiter;
use ratelimiter::admission::Waiter;
use tokio::time::timeout;

use super::shared::{Phase, Shared};
use super::unrun::UnrunJob;

pub(super) async fn shut_down<L: Limiter + 'static>(
    shared: &Arc<Shared<L>>,
    deadline: Duration,
) -> Vec<UnrunJob> {
    shared.room.close();
    let spent = {
        let mut state = shared.lock();
        state.phase = Phase::ShutDown;
        let mut spent = Vec::new();
        for Waiter { work, attempts, unanswered_lease, .. } in state.admission.remove_all() {
            spent.extend(unanswered_lease.map(|lease| (work.facts.clone(), lease)));
            state.counters.handed_back += 1;
            state.unrun.push(UnrunJob::new(work, attempts));
        }
        spent
    };
    for (facts, lease) in spent {
        // It may have been allowed all the same.
        shared.complete_unused(facts, lease);
    }
    shared.loose_ends.close();
    shared.changed.notify_one();
    if timeout(deadline, all_workers_are_free(shared)).await.is_err() {
        shared.stop.cancel();
        all_workers_are_free(shared).await;
    }
    std::mem::take(&mut shared.lock().unrun)
}

async fn all_workers_are_free<L>(shared: &Shared<L>) {
    let mut busy = shared.busy.subscribe();
    loop {
        if shared.lock().admission.busy() == 0 {
            break;
        }
        // The sender lives in `shared`.
        busy.changed().await.expect("the sender is there");
    }
    shared.loose_ends.wait().await;
}
