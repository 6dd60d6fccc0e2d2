//! Batched reserves, sent in few work items.
//!
//! Each work item is queued, waited for and answered separately, so few are cheaper.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use ratelimiter::admission::Turn;
use ratelimiter::{Decision, ReserveError, ReserveRequest};

use super::super::TigerBeetleLimiter;
use super::super::table::ResolvedRequirement;
use super::super::unanswered::unanswered;
use super::{ChainReply, NeededInstances, ReservePlan, chain, transfers_of};
use crate::ledger::{ItemTooLarge, Ledger, LedgerError, WorkItem};

/// Small enough that several parts fit into a request, and that several sessions share a large
/// batch.
const PART_EVENTS_MAX: usize = 1_024;

/// The most events in one work item.
#[derive(Debug)]
pub(in super::super) struct PartSize(AtomicUsize);

impl Default for PartSize {
    fn default() -> Self {
        Self(AtomicUsize::new(PART_EVENTS_MAX))
    }
}

impl PartSize {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// The ledger has refused an item without saying what would fit, so try half of it.
    fn learn(&self, ItemTooLarge { refused_events, .. }: ItemTooLarge) {
        self.0.fetch_min(refused_events / 2, Ordering::Relaxed);
    }
}

/// How one request of a part is answered.
enum BatchItem {
    /// Its chain is at this range of the item.
    InItem(Vec<ResolvedRequirement>, Range<usize>),
    /// By its own request to the ledger.
    Alone,
    Answered(Result<Decision, ReserveError>),
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// Answers several reserves, independent of each other.
    pub(in super::super) async fn reserve_many(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        let parts = parts(requests, self.part_size.get());
        let send = async |part| (part, self.reserve_part(part).await);
        let mut answers = Vec::with_capacity(requests.len());
        for (part, answered) in join_all(parts.map(send)).await {
            match answered {
                Ok(answered) => answers.extend(answered),
                // Nothing of it was sent. Sequentially, so that earlier requests are admitted
                // first.
                Err(too_large) => {
                    self.part_size.learn(too_large);
                    answers.extend(Box::pin(self.reserve_many(part)).await);
                }
            }
        }
        answers
    }

    /// Makes the instances that these requests need, all together, and plans them again.
    async fn make_instances_of(
        &self,
        requests: &[ReserveRequest],
        plans: &mut [Result<ReservePlan, ReserveError>],
    ) {
        let need = async |(request, plan): (&ReserveRequest, &mut Result<_, _>)| {
            let Ok(ReservePlan::MakeInstances(requirements)) = plan else {
                return None;
            };
            let requirements = std::mem::take(requirements);
            match self.needed_instances(request, requirements, Turn::default()).await {
                Ok(NeededInstances::Check(claim)) => return Some(claim),
                Ok(NeededInstances::None(other)) => *plan = Ok(other),
                Err(error) => *plan = Err(error),
            }
            None
        };
        let needed = join_all(requests.iter().zip(plans.iter_mut()).map(need)).await;
        let keys = needed.iter().flatten().flat_map(|claim| &claim.keys);
        let failed = self.check_instances(&keys.cloned().collect::<Vec<_>>()).await;
        for ((request, plan), needed) in requests.iter().zip(plans).zip(needed) {
            let Some(claim) = needed else { continue };
            *plan = match claim.keys.iter().find_map(|key| failed.get(key)) {
                None => self.plan_reserve(request),
                Some(unanswered) => Err(unanswered.clone().into()),
            };
        }
    }

    /// Plans these requests, after the instances that they need were made and the periods have begun,
    /// all together.
    async fn plan_part(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<ReservePlan, ReserveError>> {
        let plan = |request| self.plan_reserve(request);
        let mut plans: Vec<_> = requests.iter().map(plan).collect();
        self.make_instances_of(requests, &mut plans).await;
        let mut ended = Vec::new();
        for plan in plans.iter().flatten() {
            if let ReservePlan::BeginPeriods(keys) = plan {
                ended.extend_from_slice(keys);
            }
        }
        // If that fails, each request tries on its own.
        if !ended.is_empty() && self.begin_periods(ended).await.is_ok() {
            for (request, plan) in requests.iter().zip(&mut plans) {
                if matches!(plan, Ok(ReservePlan::BeginPeriods(_))) {
                    *plan = self.plan_reserve(request);
                }
            }
        }
        plans
    }

    /// Sends the chains of these requests as one item.
    ///
    /// # Errors
    /// The item is too large, and could be split.
    async fn reserve_part(
        &self,
        requests: &[ReserveRequest],
    ) -> Result<Vec<Result<Decision, ReserveError>>, ItemTooLarge> {
        let plans = self.plan_part(requests).await;
        let mut item = WorkItem::new();
        let mut plan_item = |(request, plan): (&ReserveRequest, _)| match plan {
            Ok(ReservePlan::SendChain(requirements)) => {
                let start = item.len();
                chain::push(&mut item, request.lease, &requirements);
                BatchItem::InItem(requirements, start..item.len())
            }
            Ok(
                ReservePlan::Replay(_)
                | ReservePlan::BeginPeriods(_)
                | ReservePlan::MakeInstances(_)
                | ReservePlan::DeniedByDefinition { .. },
            ) => BatchItem::Alone,
            Ok(ReservePlan::Answered(answer)) => {
                BatchItem::Answered(answer.map(|answer| answer.decision))
            }
            Err(error) => BatchItem::Answered(Err(error)),
        };
        let planned: Vec<_> = requests.iter().zip(plans).map(&mut plan_item).collect();
        let transfers: Vec<_> = transfers_of(&item).collect();
        let results = self.ledger.create_transfers(item).await;
        if let Err(LedgerError::ItemTooLarge(too_large)) = &results
            && requests.len() > 1
        {
            return Err(*too_large);
        }
        let chains = planned.iter().map(|planned| match (planned, &results) {
            (BatchItem::InItem(requirements, at), Ok(results)) => {
                (&requirements[..], &results[at.clone()])
            }
            (BatchItem::InItem(..), Err(_)) | (BatchItem::Alone | BatchItem::Answered(_), _) => {
                (&[][..], &[][..])
            }
        });
        let shadow_denied = self.shadow_denied(&chains.collect::<Vec<_>>()).await;
        let answer =
            async |request: &ReserveRequest, planned, shadow_denied| match (planned, &results) {
                (BatchItem::Answered(answer), _) => answer,
                (BatchItem::InItem(requirements, at), Ok(results)) => {
                    let (transfers, results) = (&transfers[at.clone()], &results[at]);
                    let reply = ChainReply { transfers, results, shadow_denied };
                    let answer = self.interpret_reply(request, &requirements, reply).await;
                    answer.map(|answer| answer.decision)
                }
                (BatchItem::InItem(..), Err(error)) => Err(unanswered(error.clone()).into()),
                (BatchItem::Alone, _) => self.reserve_one(request).await,
            };
        // Concurrently, so that a repeated batch, whose leases are all read from the ledger, takes
        // as long as one lease.
        let items = requests.iter().zip(planned).zip(shadow_denied);
        let answers = items.map(|((request, planned), denied)| answer(request, planned, denied));
        Ok(join_all(answers).await)
    }
}

/// Splits requests into parts of at most `events_max` requirements, or of a single request.
fn parts(
    mut requests: &[ReserveRequest],
    events_max: usize,
) -> impl Iterator<Item = &[ReserveRequest]> {
    std::iter::from_fn(move || {
        let mut events = 0;
        let fits = |request: &&ReserveRequest| {
            events += request.requirements.len();
            events <= events_max
        };
        let count = requests.iter().take_while(fits).count().max(1);
        let (part, others) = requests.split_at_checked(count)?;
        requests = others;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use ratelimiter::{LeaseId, LimitKey, Requirements};

    use super::*;

    fn request(requirements: u64) -> ReserveRequest {
        let pairs = (0..requirements).map(|n| (LimitKey::new(format!("k{n}")).unwrap(), 1));
        ReserveRequest::new(LeaseId::from_u128(1), Requirements::of(pairs).unwrap())
    }

    fn check(requirements: &[u64], events_max: usize, expected: &[usize]) {
        let requests: Vec<_> = requirements.iter().copied().map(request).collect();
        let lens: Vec<_> = parts(&requests, events_max).map(<[_]>::len).collect();
        assert_eq!(lens, expected);
    }

    #[test]
    fn a_part_has_as_many_requests_as_fit_and_at_least_one() {
        check(&[], 8, &[]);
        check(&[4, 4, 4], 8, &[2, 1]);
        check(&[4, 4], 8, &[2]);
        check(&[1, 9, 9, 1, 1], 8, &[1, 1, 1, 2]);
        check(&[2, 2], 0, &[1, 1]);
    }
}
