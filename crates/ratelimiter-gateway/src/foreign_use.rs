//! What others use of the same key at a provider, by its figures: room of ours that the provider does not have is held back, with leases
//! on our own limits, until the provider's limit resets (`GW-07`).

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{
    Actual, Actuals, CompleteRequest, Decision, JobId, LeaseId, LimitKey, Requirements,
    ReserveError, ReserveRequest, Wait,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::attempt::{Attempt, complete};
use crate::held_back::HeldChange;
use crate::limiter::GatewayLimiter;
use crate::own_rates::{OwnRate, rate_keys};
use crate::rate_figures::{Counted, RateFigure};
use crate::shared::Shared;

/// Its turns among those that wait for room. No tenant has such a name.
const QUEUE: &str = "held back";
/// What operators see of its leases.
const JOB: &str = "held back: the provider has less";
/// As long as others may wait behind it. Then the figures are out of date, and the next comparison has newer ones.
const TURN_WAIT: Duration = Duration::from_millis(500);

/// Limits of ours when a call was sent, found while the provider answers.
pub(crate) type OwnRates = tokio::task::JoinHandle<Vec<OwnRate>>;

impl<L: GatewayLimiter> Shared<L> {
    /// What is known of our limits now, found beside the call.
    pub(crate) fn own_rates_now(self: &Arc<Self>, attempt: &Attempt<L>) -> OwnRates {
        let keys = rate_keys(attempt.reserved());
        let shared = Arc::clone(self);
        self.runtime.spawn(async move { shared.own_rates(&keys).await })
    }

    async fn own_rates(&self, keys: &[(LimitKey, Counted)]) -> Vec<OwnRate> {
        let mut rates = Vec::with_capacity(keys.len());
        for (key, counted) in keys {
            match self.limiter.state(key).await {
                Ok(Some(state)) => {
                    let held_back = self.held_back.amount(key);
                    rates.extend(OwnRate::new(key.clone(), *counted, &state, held_back));
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%key, %error, "no figures to compare"),
            }
        }
        rates
    }

    /// Compares what the provider says with our limits when the call was sent, or else now, and holds back what is less there: its figures
    /// are as of when it got the call. Where a limit has no reset, it is the time that a 429 has `named`.
    pub(crate) fn compare(
        self: &Arc<Self>,
        attempt: &Attempt<L>,
        figures: Vec<RateFigure>,
        when_sent: Option<OwnRates>,
        named: Option<Duration>,
    ) {
        if figures.is_empty() {
            return;
        }
        let keys = rate_keys(attempt.reserved());
        let account = Arc::clone(&attempt.context.account);
        let holding = self.providers[attempt.context.provider].holding();
        let shared = Arc::clone(self);
        let comparing = async move {
            let rates = match when_sent {
                Some(finding) => finding.await.unwrap_or_default(),
                None => shared.own_rates(&keys).await,
            };
            for figure in figures {
                let Some(own) = figure.own(&rates) else { continue };
                if let Some(limit) = figure.limit {
                    shared.observer.limit_compared(&own.key, own.capacity, limit);
                }
                let of_others = own.room.saturating_sub(figure.remaining);
                account.others_used(of_others, own, Instant::now());
                let reset = figure.resets_after.or(named).unwrap_or(own.window);
                let until = reset.min(own.window);
                shared.hold_back(own.clone(), of_others, until, holding.clone());
            }
        };
        self.tasks.spawn_on(comparing, &self.runtime);
    }

    /// Holds back what others have used of a limit, until it resets at the provider.
    fn hold_back(
        self: &Arc<Self>,
        own: OwnRate,
        of_others: u64,
        time: Duration,
        holding: CancellationToken,
    ) {
        if time.is_zero() {
            return;
        }
        let amount = self.held_back.begin(&own, of_others);
        if amount == 0 {
            return;
        }
        let shared = Arc::clone(self);
        let holding = async move {
            let (key, until) = (&own.key, Instant::now() + time);
            let note = |change| shared.held_back.change(key, amount, change, &*shared.observer);
            let reserving = shared.reserve_held_back(key, amount);
            let Some(lease) = holding.run_until_cancelled(reserving).await.flatten() else {
                return note(HeldChange::NotReserved);
            };
            note(HeldChange::Reserved);
            holding.run_until_cancelled(tokio::time::sleep_until(until)).await;
            let nothing = Actual { key: key.clone(), amount: 0 };
            let actuals = Actuals::new([nothing]).expect("one key");
            // First noted: in between, there is less to hold back rather than more.
            note(HeldChange::Returned);
            complete(&shared.limiter, &CompleteRequest::new(lease, actuals)).await;
        };
        self.tasks.spawn_on(holding, &self.runtime);
    }

    /// The lease of what is held back, if there is room. It waits for its turn, like a call.
    async fn reserve_held_back(&self, key: &LimitKey, amount: u64) -> Option<LeaseId> {
        let lease = LeaseId::generate(self.clock.now());
        let requirements = Requirements::of([(key.clone(), amount)]).expect("above 0");
        let wait = Wait::new(TURN_WAIT, QUEUE).expect("within the longest wait");
        let job = Some(JobId::new(JOB).expect("a short text"));
        let request =
            ReserveRequest { job, wait: Some(wait), ..ReserveRequest::new(lease, requirements) };
        match self.limiter.reserve(&request).await {
            // It may have been admitted.
            Ok(Decision::Allowed { .. }) | Err(ReserveError::Unanswered(_)) => Some(lease),
            Ok(Decision::Denied(_)) => None,
            Err(error) => {
                tracing::debug!(%key, %error, "nothing was held back");
                None
            }
        }
    }
}
