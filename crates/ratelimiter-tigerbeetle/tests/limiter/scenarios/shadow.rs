//! `TB-20`: limits in shadow mode, at one limiter or at several.

use std::time::Duration;

use ratelimiter::{
    Backend, Capacity, Decision, DenialReason, Limit, LimitKey, LimitMode, LimitState, LimitStatus,
    ReserveError,
};
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::context::{TestContext, restore_all};

fn shadow(limit: Limit) -> Limit {
    Limit { mode: LimitMode::Shadow, ..limit }
}

fn shadow_denied(answer: Result<Decision, ReserveError>) -> Vec<LimitKey> {
    match answer {
        Ok(Decision::Allowed { shadow_denied, .. }) => shadow_denied,
        other => panic!("a limit in shadow mode denies nothing: {other:?}"),
    }
}

/// TB-20, SHD-01: what another server admitted counts, and is named there too.
pub async fn tb_20_servers_count_together_in_shadow_mode<L: Ledger + Clone>(on: TestContext<L>) {
    let (one, two) = (on.limiter(), on.limiter());
    one.define(shadow(on.rolling("try", 60, 3))).await.unwrap();
    restore_all(&two, &one).await;
    let reserve =
        async |at: &_, amount| shadow_denied(on.reserve(at, on.lease(), [("try", amount)]).await);
    assert!(reserve(&*one, 3).await.is_empty());
    assert_eq!(reserve(&*two, 1).await, [on.key("try")]);
    assert_eq!(reserve(&*one, 1).await, [on.key("try")]);
    let LimitState { limit, usage, .. } = on.state(&*two, "try").await;
    assert_eq!((limit.capacity.get(), usage.used, usage.available), (3, 5, 0));
}

/// TB-20, SHD-02: a decrease from whatever was counted, at every server.
pub async fn tb_20_enforcing_closes_the_account_until_it_fits<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (one, two) = (on.limiter(), on.limiter());
    one.define(shadow(on.concurrency("try", 60, 3))).await.unwrap();
    restore_all(&two, &one).await;
    let lease = on.lease();
    assert_eq!(shadow_denied(on.reserve(&*one, lease, [("try", 5)]).await), [on.key("try")]);
    let to = Capacity::new(3).unwrap();
    let decreasing = LimitStatus::Decreasing { to };
    assert_eq!(one.define(on.concurrency("try", 60, 3)).await, Ok(decreasing));
    // The other server does not know of the change yet.
    for limiter in [&one, &two] {
        let answer = on.reserve(&**limiter, on.lease(), [("try", 1)]).await.unwrap();
        let key = on.key("try");
        let denial = answer.denial().expect("nothing is admitted while it decreases");
        assert_eq!(denial.reason, DenialReason::Decreasing { key });
    }
    on.complete(&*two, lease, []).await.unwrap();
    on.pass(Duration::from_secs(1)).await;
    assert_eq!(on.state(&*one, "try").await.status, LimitStatus::Active);
    assert!(on.reserve(&*two, on.lease(), [("try", 3)]).await.unwrap().is_allowed());
    assert!(!on.reserve(&*one, on.lease(), [("try", 1)]).await.unwrap().is_allowed());
}

/// TB-20, SHD-01: in the order of the request, and each lease of a batch for itself.
pub async fn tb_20_a_batch_names_the_limits_of_each_request<L: Ledger + Clone>(on: TestContext<L>) {
    use ratelimiter::Limiter;

    let limiter = on.limiter();
    limiter.define(shadow(on.rolling("a", 60, 2))).await.unwrap();
    limiter.define(shadow(on.rolling("z", 60, 1))).await.unwrap();
    limiter.define(on.rolling("real", 60, 3)).await.unwrap();
    let requests: Vec<_> = [
        &[("z", 1), ("a", 1)][..],
        &[("z", 1), ("real", 2), ("a", 1)],
        &[("real", 2), ("z", 1), ("a", 1)],
        &[("z", 1), ("a", 1), ("real", 1)],
    ]
    .into_iter()
    .map(|needs| on.to_reserve(on.lease(), needs))
    .collect();
    let mut answers = limiter.reserve_batch(&requests).await.into_iter();
    let (z, a) = (on.key("z"), on.key("a"));
    assert!(shadow_denied(answers.next().unwrap()).is_empty());
    assert_eq!(shadow_denied(answers.next().unwrap()), std::slice::from_ref(&z));
    assert!(!answers.next().unwrap().unwrap().is_allowed(), "the enforced limit is full");
    assert_eq!(shadow_denied(answers.next().unwrap()), [z, a]);
}
