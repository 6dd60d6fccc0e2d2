//! `OPS-01`, `OPS-02`: leases and debts of several servers.

use futures::future::join_all;
use ratelimiter::{
    Backend, JobId, LeaseId, LeasePage, LeasesError, Limiter, ReleaseError, ReserveRequest,
};
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::context::{TestContext, restore_all};

async fn listed(at: &impl Backend, after: Option<LeaseId>) -> Vec<LeaseId> {
    let page = LeasePage { after, ..LeasePage::default() };
    at.leases(&page).await.unwrap().iter().map(|open| open.lease).collect()
}

/// The job ID of the only lease.
async fn job_at(at: &impl Backend) -> Option<JobId> {
    let mut leases = at.leases(&LeasePage::default()).await.unwrap();
    assert_eq!(leases.len(), 1);
    leases.pop().unwrap().job
}

/// OPS-01, TB-04, TB-16: a server releases what another one allowed, and once.
pub async fn ops_01_another_limiter_releases_what_the_first_one_allowed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (first, second) = (on.limiter(), on.limiter());
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.concurrency("slots", 60, 2)).await.unwrap();
    restore_all(&second, &first).await;
    for needs in [&[("tokens", 30), ("slots", 1)][..], &[("tokens", 10)]] {
        let lease = on.lease();
        assert!(first.reserve(&on.to_reserve(lease, needs)).await.unwrap().is_allowed());
        assert_eq!(listed(&second, None).await, [], "it knows only its own");
        second.release(lease).await.unwrap();
        assert_eq!(on.used(&first, "slots").await, 0);
        // The first one learns of it when it asks the ledger.
        assert_eq!(listed(&first, None).await, [lease]);
        let unknown = Err(ReleaseError::UnknownLease { lease });
        assert_eq!(first.release(lease).await, unknown);
        assert_eq!(listed(&first, None).await, []);
        on.complete(&first, lease, [("tokens", 1)]).await.unwrap();
        assert_eq!(second.release(lease).await, unknown);
    }
    assert_eq!(on.used(&first, "tokens").await, 40, "the releases were final");
}

/// OPS-01, TB-04: the ledger knows where a lease was, whoever allowed and ended it.
pub async fn ops_01_a_list_goes_on_after_a_lease_that_ended_anywhere<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (first, second) = (on.limiter(), on.limiter());
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    restore_all(&second, &first).await;
    let leases = [(); 3].map(|()| on.lease());
    for (limiter, lease) in [&first, &second, &first].into_iter().zip(leases) {
        assert!(on.reserve(limiter, lease, [("tokens", 1)]).await.unwrap().is_allowed());
        on.pass(std::time::Duration::from_millis(5)).await;
    }
    let [oldest, of_second, newest] = leases;
    assert_eq!(listed(&first, None).await, [oldest, newest]);
    assert_eq!(listed(&first, Some(of_second)).await, [newest]);
    for lease in [oldest, of_second] {
        second.release(lease).await.unwrap();
        assert_eq!(listed(&first, Some(lease)).await, [newest]);
    }
    let never = on.lease();
    let page = LeasePage { after: Some(never), ..LeasePage::default() };
    let answer = first.leases(&page).await;
    assert_eq!(answer, Err(LeasesError::UnknownLease { lease: never }));
}

/// OPS-01: the job ID is not in the ledger, so only the server that allowed the lease has it.
pub async fn ops_01_a_job_is_known_where_its_lease_was_allowed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (first, second) = (on.limiter(), on.limiter());
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    restore_all(&second, &first).await;
    let job = Some(JobId::new("nightly").unwrap());
    let plain = on.to_reserve(on.lease(), &[("tokens", 1)]);
    let named = ReserveRequest { job: job.clone(), ..plain.clone() };
    for answer in first.reserve_batch(std::slice::from_ref(&named)).await {
        assert!(answer.unwrap().is_allowed());
    }
    assert_eq!(job_at(&first).await, job);
    // Repeated there without it, it is a lease that the ledger knows.
    assert!(second.reserve(&plain).await.unwrap().is_allowed());
    assert_eq!(job_at(&second).await, None);
    assert!(second.reserve(&named).await.unwrap().is_allowed());
    assert_eq!(job_at(&second).await, job);
}

/// OPS-01, TB-07: holds return on a closed account too.
pub async fn ops_01_a_lease_is_released_while_its_limit_decreases<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
    limiter.define(on.rolling("tokens", 60, 10)).await.unwrap();
    let leases = [on.lease(), on.lease()];
    for lease in leases {
        let needs = [("slots", 4), ("tokens", 4)];
        assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
    }
    limiter.define(on.concurrency("slots", 60, 5)).await.unwrap();
    limiter.define(on.rolling("tokens", 60, 5)).await.unwrap();
    limiter.release(leases[0]).await.unwrap();
    on.pass(std::time::Duration::from_millis(1_700)).await;
    let (slots, tokens) = (on.state(&limiter, "slots").await, on.state(&limiter, "tokens").await);
    assert_eq!((slots.usage.used, slots.limit.capacity.get()), (4, 5));
    assert_eq!((tokens.usage.used, tokens.limit.capacity.get()), (8, 10));
}

/// TB-22, OPS-02: one transfer takes whatever the debt is when it arrives.
pub async fn tb_22_of_several_servers_each_unit_is_forgiven_by_one<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (first, second) = (on.limiter(), on.uncached_limiter());
    first.define(on.rolling("tokens", 60, 10)).await.unwrap();
    restore_all(&second, &first).await;
    let key = on.key("tokens");
    let (mut owed, mut forgiven) = (0, 0);
    for actual in [13, 1_000, 1] {
        let leases = [on.lease(), on.lease()];
        for lease in leases {
            assert!(on.reserve(&first, lease, [("tokens", 1)]).await.unwrap().is_allowed());
        }
        // Both the debts and their ends arrive at once, in some order.
        let completes = leases.map(|lease| on.complete(&second, lease, [("tokens", actual)]));
        let forgives = [&first, &second, &first, &second].map(|limiter| limiter.forgive(&key));
        let (completed, answers) =
            futures::future::join(join_all(completes), join_all(forgives)).await;
        completed.into_iter().for_each(|answer| answer.unwrap());
        owed += if actual > 10 { 2 * (actual - 1) } else { 0 };
        forgiven += answers.into_iter().map(|answer| answer.unwrap()).sum::<u128>();
        let left = on.state(&first, "tokens").await.usage.debt;
        assert_eq!(on.state(&second, "tokens").await.usage.debt, left);
        assert_eq!(forgiven + left, u128::from(owed));
    }
    forgiven += second.forgive(&key).await.unwrap();
    assert_eq!(forgiven, u128::from(owed));
    assert_eq!(on.state(&first, "tokens").await.usage.debt, 0);
    assert_eq!(first.forgive(&key).await, Ok(0));
}
