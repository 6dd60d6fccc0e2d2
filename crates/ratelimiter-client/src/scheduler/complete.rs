//! What a complete means to the scheduler: the gates of the limits that got room back open.

use ratelimiter::{Actuals, CompleteRequest, LeaseId, Limiter};

use super::context::SchedulerContext;
use super::queued::JobFacts;
use crate::completing::{Completing, Ended};

impl<L: Limiter + 'static> SchedulerContext<L> {
    /// Completes a lease, and repeats that while there is no answer and time is left. `after_first` runs when it has been
    /// tried once, so that nobody waits for a limiter that is away.
    pub(super) async fn complete_in_time(
        &self,
        facts: &JobFacts,
        lease: LeaseId,
        actuals: Actuals,
        after_first: impl FnOnce(),
    ) {
        let Self { limiter, stop, complete_for, .. } = self;
        let completing = Completing { limiter, stop, complete_for: *complete_for };
        let request = CompleteRequest { lease, job: facts.id.clone(), actuals };
        match completing.complete(request, after_first).await {
            Ended::With(actuals) => {
                let freed = facts.needs.freed_by(&actuals);
                self.lock().admission.released(&freed);
                self.changed.notify_one();
            }
            Ended::GivenUp => self.lock().counters.completes_given_up += 1,
        }
    }
}
