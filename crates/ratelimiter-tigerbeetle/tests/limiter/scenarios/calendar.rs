//! `TB-19`: calendar limits at two limiters, within a period. The reset is at least 20 minutes away,
//! so that it is not reached in real time.

use std::time::Duration;

use futures::future::join;
use ratelimiter::{
    Backend, Capacity, DefineError, HeldAmount, LeasePage, LimitKind, LimitState, LimitStatus,
    Limiter, ResetSchedule, TimeZone,
};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::context::{TestContext, restore_all};

/// TB-19: two servers define a limit at once, with different schedules.
pub async fn tb_19_servers_agree_on_the_first_period_whatever_their_schedules<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (one, two) = (on.limiter(), on.limiter());
    let (early, late) = (on.hourly("budget", 20, 10), on.hourly("budget", 40, 10));
    let (first, second) = join(one.define(early), two.define(late)).await;
    assert_eq!((first, second), (Ok(LimitStatus::Active), Ok(LimitStatus::Active)));
    let resets_at = on.state(&*one, "budget").await.resets_at;
    assert!(resets_at.is_some());
    assert_eq!(on.state(&*two, "budget").await.resets_at, resets_at);
    assert!(on.reserve(&*one, on.lease(), [("budget", 6)]).await.unwrap().is_allowed());
    assert!(!on.reserve(&*two, on.lease(), [("budget", 5)]).await.unwrap().is_allowed());
    assert!(on.reserve(&*two, on.lease(), [("budget", 4)]).await.unwrap().is_allowed());
    let ends = ids::period_end_account(&on.key("budget"));
    let row = on.ledger.lookup_accounts(vec![ends]).await.unwrap()[0];
    let expected = u128::from(resets_at.unwrap().unix_ms());
    assert_eq!(row.balances.credits_posted, expected, "the ledger has the end");
}

/// TB-19, CAL-01: the period in course outlives a change, a deletion and a restart.
pub async fn tb_19_a_period_goes_on_whatever_becomes_of_its_definition<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.hourly("budget", 20, 10)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&*limiter, lease, [("budget", 6)]).await.unwrap().is_allowed());
    let resets_at = on.state(&*limiter, "budget").await.resets_at;
    let mut daily = on.hourly("budget", 20, 10);
    let at = "00:00".parse().unwrap();
    let resets = ResetSchedule::Daily { at, zone: TimeZone::utc() };
    daily.kind = LimitKind::Calendar { resets };
    let check = async |at: &_, what: &str| {
        let LimitState { resets_at: seen, usage, .. } = on.state(at, "budget").await;
        assert_eq!((seen, usage.used, usage.available), (resets_at, 6, 4), "{what}");
    };
    limiter.define(daily.clone()).await.unwrap();
    check(&*limiter, "changed").await;
    limiter.delete(&on.key("budget")).await.unwrap();
    limiter.define(daily).await.unwrap();
    check(&*limiter, "deleted and defined again").await;
    let successor = on.successor(&limiter).await;
    check(&*successor, "restarted").await;
    let answer = on.reserve(&*successor, lease, [("budget", 6)]).await;
    assert!(answer.unwrap().is_allowed(), "it is known");
    on.complete(&*successor, lease, [("budget", 1)]).await.unwrap();
    assert_eq!(on.used(&*limiter, "budget").await, 1);
}

/// TB-19, COM-02, COM-03, COM-07: at another server, while the limit decreases too.
pub async fn tb_19_a_period_is_reconciled_at_another_limiter<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (one, two) = (on.limiter(), on.uncached_limiter());
    one.define(on.hourly("budget", 20, 20)).await.unwrap();
    restore_all(&two, &one).await;
    let [a, b, c] = [on.lease(), on.lease(), on.lease()];
    for (lease, amount) in [(a, 8), (b, 5), (c, 5)] {
        assert!(on.reserve(&*one, lease, [("budget", amount)]).await.unwrap().is_allowed());
    }
    on.complete(&*two, b, [("budget", 7)]).await.unwrap();
    assert_eq!(on.used(&*one, "budget").await, 20, "the excess had room");
    let to = Capacity::new(10).unwrap();
    let decreasing = Ok(LimitStatus::Decreasing { to });
    assert_eq!(one.define(on.hourly("budget", 20, 10)).await, decreasing);
    on.complete(&*two, c, [("budget", 9)]).await.unwrap();
    let usage = on.state(&*one, "budget").await.usage;
    assert_eq!((usage.used, usage.debt), (20, 4), "none has room while it decreases");
    on.complete(&*two, a, [("budget", 1)]).await.unwrap();
    assert_eq!(on.used(&*one, "budget").await, 13, "it shrinks on a closed account");
    assert_eq!(on.state(&*one, "budget").await.status, LimitStatus::Decreasing { to });
    assert_eq!(two.forgive(&on.key("budget")).await, Ok(4));
    assert_eq!(one.define(on.hourly("budget", 20, 13)).await, Ok(LimitStatus::Active));
    on.pass(Duration::from_secs(1)).await;
    assert!(!on.reserve(&*two, on.lease(), [("budget", 1)]).await.unwrap().is_allowed());
}

/// TB-19, OPS-01: a lease has its units until the reset; its release keeps them.
pub async fn tb_19_a_lease_of_a_period_is_listed_and_released<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (one, two) = (on.limiter(), on.limiter());
    one.define(on.hourly("budget", 20, 20)).await.unwrap();
    one.define(on.concurrency("slots", 60, 3)).await.unwrap();
    restore_all(&two, &one).await;
    let requests: Vec<_> = [1, 2, 30]
        .map(|amount| on.to_reserve(on.lease(), &[("slots", 1), ("budget", amount)]))
        .to_vec();
    let answers = one.reserve_batch(&requests).await;
    assert!(answers[0].as_ref().unwrap().is_allowed() && answers[1].as_ref().unwrap().is_allowed());
    assert!(answers[2].is_err(), "more than the capacity");
    let page = LeasePage { key: Some(on.key("budget")), ..LeasePage::default() };
    let listed = one.leases(&page).await.unwrap();
    assert_eq!(listed.len(), 2);
    let lapses_at = on.state(&*two, "budget").await.resets_at.unwrap();
    let first = listed.iter().find(|open| open.lease == requests[0].lease).unwrap();
    let held = HeldAmount { key: on.key("budget"), amount: 1, lapses_at };
    assert_eq!(first.amounts[0], held);
    two.release(requests[0].lease).await.unwrap();
    let used = [on.used(&*one, "budget").await, on.used(&*one, "slots").await];
    assert_eq!(used, [3, 1]);
}

/// TB-19, DEF-04, DEF-09: a key of another kind has another account, and its leases complete.
pub async fn tb_19_a_key_can_be_defined_again_with_another_kind<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.uncached_limiter();
    limiter.define(on.rolling("budget", 60, 10)).await.unwrap();
    let rolling = on.lease();
    assert!(on.reserve(&*limiter, rolling, [("budget", 8)]).await.unwrap().is_allowed());
    let conflict = limiter.define(on.hourly("budget", 20, 10)).await;
    assert!(matches!(conflict, Err(DefineError::KindConflict { .. })), "{conflict:?}");
    limiter.delete(&on.key("budget")).await.unwrap();
    limiter.define(on.hourly("budget", 20, 10)).await.unwrap();
    let calendar = on.lease();
    assert!(on.reserve(&*limiter, calendar, [("budget", 9)]).await.unwrap().is_allowed());
    on.complete(&*limiter, rolling, [("budget", 2)]).await.unwrap();
    assert_eq!(on.used(&*limiter, "budget").await, 9);
    limiter.delete(&on.key("budget")).await.unwrap();
    limiter.define(on.rolling("budget", 60, 10)).await.unwrap();
    assert_eq!(on.used(&*limiter, "budget").await, 2, "what the first lease has kept");
    on.complete(&*limiter, calendar, [("budget", 4)]).await.unwrap();
    assert_eq!(on.used(&*limiter, "budget").await, 2);
    limiter.delete(&on.key("budget")).await.unwrap();
    limiter.define(on.hourly("budget", 20, 10)).await.unwrap();
    assert_eq!(on.used(&*limiter, "budget").await, 4, "the same period");
}
