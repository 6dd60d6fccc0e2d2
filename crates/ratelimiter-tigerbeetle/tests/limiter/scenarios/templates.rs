//! `TB-21`: limits made from templates, at several limiters.

use std::time::Duration;

use futures::future::join_all;
use ratelimiter::{
    Backend, Decision, DefineError, LeaseId, Limit, LimitKey, LimitMode, LimitStatus, Limiter,
    Page, RegisteredLimit, Renewal, ReserveError,
};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{AccountRow, Balances, Ledger};
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;

use crate::context::{TestContext, restore_all};

/// Longer than it takes until an idle instance is forgotten.
const IDLE: Duration = Duration::from_secs(12);

async fn account<L: Ledger + Clone>(on: &TestContext<L>, name: &str) -> AccountRow {
    let id = ids::limit_account(&on.key(name));
    on.ledger.lookup_accounts(vec![id]).await.unwrap()[0]
}

fn capacity(row: AccountRow) -> u128 {
    row.balances.credits_posted - row.balances.debits_posted
}

fn known<L: Ledger>(limiter: &TigerBeetleLimiter<L>) -> usize {
    limiter.instances_by_template().iter().map(|(_, count)| count).sum()
}

/// The instances of a template that a limiter lists.
async fn listed(limiter: &impl Backend, template: &LimitKey) -> Vec<LimitKey> {
    let page = Page { template: Some(template.as_str().parse().unwrap()), ..Page::default() };
    let states = limiter.states(&page).await.unwrap();
    states.into_iter().map(|state| state.limit.key).collect()
}

/// TB-21: several servers make the same instances at once, and fund each once.
pub async fn tb_21_servers_that_make_an_instance_at_once_fund_it_once<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    const KEYS: usize = 20;
    let limiters = [on.limiter(), on.limiter(), on.limiter()];
    for limiter in &limiters {
        limiter.define(on.rolling("t:*", 600, 10)).await.unwrap();
    }
    let names: Vec<_> = (0..KEYS).map(|n| format!("t:{n}")).collect();
    let reserves = names.iter().flat_map(|name| limiters.iter().map(move |at| (at, name)));
    let reserves = reserves.map(|(at, name)| on.reserve(&**at, on.lease(), [(name, 3)]));
    for decision in join_all(reserves).await {
        assert!(decision.unwrap().is_allowed());
    }
    for name in &names {
        let AccountRow { balances, .. } = account(&on, name).await;
        let expected = Balances { credits_posted: 10, debits_pending: 9, ..Balances::default() };
        assert_eq!(balances, expected, "{name}");
        assert!(!on.reserve(&*limiters[0], on.lease(), [(name, 2)]).await.unwrap().is_allowed());
    }
    assert_eq!(limiters.map(|limiter| known(&limiter)), [KEYS; 3]);
}

/// TB-21, TPL-04: a server that has forgotten an instance, or never knew it, checks it first.
pub async fn tb_21_a_forgotten_instance_follows_its_template_before_its_next_reserve<
    L: Ledger + Clone,
>(
    on: TestContext<L>,
) {
    let (limiter, other) = (on.limiter(), on.limiter());
    for at in [&limiter, &other] {
        at.define(on.concurrency("t:*", 600, 10)).await.unwrap();
    }
    for name in ["t:a", "t:b"] {
        let lease = on.lease();
        assert!(on.reserve(&*limiter, lease, [(name, 5)]).await.unwrap().is_allowed());
        on.complete(&*limiter, lease, []).await.unwrap();
    }
    assert_eq!((known(&limiter), known(&other)), (2, 0));
    on.pass(IDLE).await;
    assert_eq!(known(&limiter), 0, "idle ones are forgotten");
    for at in [&limiter, &other] {
        at.define(on.concurrency("t:*", 600, 3)).await.unwrap();
    }
    assert_eq!(capacity(account(&on, "t:a").await), 10, "nobody knows it");
    let state = on.state(&*limiter, "t:a").await;
    assert_eq!((state.limit.capacity.get(), state.usage.available), (3, 3));
    for (at, name) in [(&limiter, "t:a"), (&other, "t:b")] {
        let answer = on.reserve(&**at, on.lease(), [(name, 4)]).await;
        assert_eq!(answer, Err(ReserveError::AmountExceedsCapacity { key: on.key(name) }));
        assert!(on.reserve(&**at, on.lease(), [(name, 2)]).await.unwrap().is_allowed());
        assert!(!on.reserve(&**at, on.lease(), [(name, 2)]).await.unwrap().is_allowed());
        assert_eq!(capacity(account(&on, name).await), 3);
    }
}

/// TB-21: an instance in use is not forgotten, whichever server uses it, nor one that owes a debt.
pub async fn tb_21_an_instance_in_use_is_not_forgotten<L: Ledger + Clone>(on: TestContext<L>) {
    let (limiter, other) = (on.limiter(), on.limiter());
    for at in [&limiter, &other] {
        at.define(on.concurrency("t:*:slots", 600, 10)).await.unwrap();
        at.define(on.rolling("t:*:tokens", 2, 10)).await.unwrap();
    }
    let (held, owed) = (on.lease(), on.lease());
    assert!(on.reserve(&*limiter, held, [("t:a:slots", 5)]).await.unwrap().is_allowed());
    assert!(on.reserve(&*limiter, owed, [("t:a:tokens", 10)]).await.unwrap().is_allowed());
    on.complete(&*other, owed, [("t:a:tokens", 14)]).await.unwrap();
    assert_eq!(known(&other), 1, "a complete that adds to a debt makes the instance known");
    on.pass(IDLE).await;
    let (slots, tokens) = (on.key("t:*:slots"), on.key("t:*:tokens"));
    assert_eq!(listed(&*limiter, &slots).await, [on.key("t:a:slots")]);
    for at in [&limiter, &other] {
        assert_eq!(listed(&**at, &tokens).await, [on.key("t:a:tokens")]);
    }
    assert_eq!(other.forgive(&on.key("t:a:tokens")).await, Ok(4));
    on.complete(&*other, held, []).await.unwrap();
    assert!(listed(&*limiter, &slots).await.is_empty());
    on.pass(2 * IDLE).await;
    assert_eq!((known(&limiter), known(&other)), (0, 0));
}

/// TB-21, TPL-04: each server adjusts the instances that it knows, and no account is adjusted twice.
pub async fn tb_21_servers_that_learn_a_template_adjust_an_instance_once<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiters = [on.limiter(), on.limiter(), on.limiter()];
    for limiter in &limiters {
        limiter.define(on.concurrency("t:*", 600, 10)).await.unwrap();
        assert!(on.reserve(&**limiter, on.lease(), [("t:a", 1)]).await.unwrap().is_allowed());
    }
    let change = async |capacity: u64| {
        let template = RegisteredLimit::in_force(on.concurrency("t:*", 600, capacity));
        let restored = limiters.iter().map(|limiter| limiter.restore(template.clone()));
        for status in join_all(restored).await {
            assert_eq!(status, Ok(LimitStatus::Active));
        }
        on.pass(Duration::from_secs(1)).await;
    };
    let posted = |credits_posted, debits_posted| Balances {
        credits_posted,
        debits_posted,
        debits_pending: 3,
        ..Balances::default()
    };
    change(25).await;
    assert_eq!(account(&on, "t:a").await.balances, posted(25, 0));
    change(5).await;
    assert_eq!(account(&on, "t:a").await.balances, posted(25, 20));
    for limiter in &limiters {
        let state = on.state(&**limiter, "t:a").await;
        assert_eq!((state.limit.capacity.get(), state.usage.available), (5, 2));
    }
    // Too much is in use: the account is closed, so every server denies, and one of them applies it.
    change(2).await;
    assert!(account(&on, "t:a").await.closed);
    for limiter in &limiters {
        let to = on.concurrency("", 1, 2).capacity;
        let state = on.state(&**limiter, "t:a").await;
        assert_eq!(state.status, LimitStatus::Decreasing { to });
        let answer = on.reserve(&**limiter, on.lease(), [("t:a", 1)]).await.unwrap();
        assert!(matches!(answer, Decision::Denied(_)), "{answer:?}");
    }
}

/// TB-21, TPL-04: a decrease of an instance applies when enough has returned.
pub async fn tb_21_a_decrease_of_an_instance_is_applied_by_the_tick<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.concurrency("t:*", 600, 10)).await.unwrap();
    let (first, second) = (on.lease(), on.lease());
    assert!(on.reserve(&*limiter, first, [("t:a", 3)]).await.unwrap().is_allowed());
    assert!(on.reserve(&*limiter, second, [("t:a", 3)]).await.unwrap().is_allowed());
    limiter.define(on.concurrency("t:*", 600, 4)).await.unwrap();
    assert!(on.state(&*limiter, "t:a").await.waits());
    // A successor resumes it with its first reserve.
    let successor = on.successor(&limiter).await;
    let answer = on.reserve(&*successor, on.lease(), [("t:a", 1)]).await.unwrap();
    assert!(!answer.is_allowed());
    on.complete(&*successor, first, []).await.unwrap();
    on.pass(Duration::from_secs(1)).await;
    let row = account(&on, "t:a").await;
    assert_eq!((capacity(row), row.closed), (4, false));
    assert!(on.reserve(&*successor, on.lease(), [("t:a", 1)]).await.unwrap().is_allowed());
}

/// TB-21, TB-18, REN-02: a renew begins the timeouts of all holds again, also where their keys are not known.
pub async fn tb_21_a_server_that_does_not_know_an_instance_renews_it_while_it_decreases<
    L: Ledger + Clone,
>(
    on: TestContext<L>,
) {
    let (limiter, other) = (on.limiter(), on.limiter());
    for at in [&limiter, &other] {
        at.define(on.concurrency("t:*", 600, 5)).await.unwrap();
    }
    let lease = on.lease();
    assert!(on.reserve(&*limiter, lease, [("t:a", 5)]).await.unwrap().is_allowed());
    for at in [&limiter, &other] {
        at.define(on.concurrency("t:*", 600, 2)).await.unwrap();
    }
    on.pass(Duration::from_secs(1)).await;
    // Each server meets what the other has left.
    let turns = [&other, &other, &limiter, &limiter, &other, &limiter];
    for (number, at) in (1..).zip(turns) {
        assert!(account(&on, "t:a").await.closed, "before {number}");
        assert_eq!(known(&other), 0);
        assert!(on.renew(&**at, lease, number, []).await.unwrap().is_renewed(), "{number}");
        assert_eq!(account(&on, "t:a").await.balances.debits_pending, 5);
        on.pass(Duration::from_secs(1)).await;
    }
    assert!(on.renew(&*other, lease, 7, []).await.unwrap().is_renewed());
    assert!(on.renew(&*limiter, lease, 8, [("t:a", 2)]).await.unwrap().is_renewed());
    on.pass(Duration::from_secs(1)).await;
    let row = account(&on, "t:a").await;
    assert_eq!((capacity(row), row.closed, row.balances.debits_pending), (2, false, 2));
    on.complete(&*other, lease, []).await.unwrap();
    assert!(on.reserve(&*limiter, on.lease(), [("t:a", 2)]).await.unwrap().is_allowed());
}

/// REN-02, TB-21: a server that does not know an instance finds its timeout by the key.
pub async fn ren_02_a_renew_that_names_a_hold_has_the_timeout_of_its_template<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (limiter, other) = (on.limiter(), on.limiter());
    limiter.define(on.concurrency("t:*", 600, 5)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&*limiter, lease, [("t:a", 1)]).await.unwrap().is_allowed());
    for at in [&limiter, &other] {
        at.define(on.concurrency("t:*", 6_000, 5)).await.unwrap();
    }
    // A server that knows the instance, one that does not, and one that does not and is told the key.
    let renews = [(&limiter, 0, 6_000), (&other, 0, 600), (&other, 1, 6_000)];
    for (number, (at, named, seconds)) in (1..).zip(renews) {
        let amounts = &[("t:a", 1)][..named];
        let renewal = at.renew(&on.to_renew(lease, number, amounts)).await.unwrap();
        let Renewal::Renewed { renewed_at, lapses_at, .. } = renewal else {
            panic!("{renewal:?}");
        };
        assert_eq!(lapses_at.since(renewed_at).as_secs(), seconds, "renew {number}");
    }
}

/// TB-18: a lease whose ID is the user data of the closing transfer does not hide that.
pub async fn tb_18_a_closing_transfer_is_told_from_a_lease_with_its_user_data<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (limiter, other) = (on.limiter(), on.limiter());
    for at in [&limiter, &other] {
        at.define(on.concurrency("t:*", 600, 6)).await.unwrap();
    }
    let id = ids::limit_account(&on.key("t:a")).get();
    let closing = ids::transfer_at(0, &format!("xfer:period-close:6:0:{id:032x}"));
    let leases = [(LeaseId::from_u128(closing.get()), 1), (on.lease(), 5)];
    for (lease, units) in leases {
        assert!(on.reserve(&*limiter, lease, [("t:a", units)]).await.unwrap().is_allowed());
    }
    limiter.define(on.concurrency("t:*", 600, 2)).await.unwrap();
    on.pass(Duration::from_secs(1)).await;
    assert!(account(&on, "t:a").await.closed);
    let [_, (lease, _)] = leases;
    assert!(on.renew(&*other, lease, 1, []).await.unwrap().is_renewed());
    assert_eq!(account(&on, "t:a").await.balances.debits_pending, 6);
}

/// TB-21, COM-07: after a restart an instance has what was reserved, and its leases complete.
pub async fn tb_21_a_restarted_server_counts_what_is_reserved<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.rolling("t:*:tokens", 600, 10)).await.unwrap();
    limiter.define(on.concurrency("t:*:slots", 600, 1)).await.unwrap();
    let (lease, needs) = (on.lease(), [("t:a:tokens", 7), ("t:a:slots", 1)]);
    assert!(on.reserve(&*limiter, lease, needs).await.unwrap().is_allowed());
    let successor = on.successor(&limiter).await;
    drop(limiter);
    assert_eq!(known(&successor), 0);
    assert_eq!(on.used(&*successor, "t:a:tokens").await, 7);
    let again = on.reserve(&*successor, lease, needs).await.unwrap();
    assert!(again.is_allowed(), "{again:?}");
    assert!(!on.reserve(&*successor, on.lease(), [("t:a:tokens", 4)]).await.unwrap().is_allowed());
    on.complete(&*successor, lease, [("t:a:tokens", 2)]).await.unwrap();
    let needs = [("t:a:tokens", 8), ("t:a:slots", 1)];
    assert!(on.reserve(&*successor, on.lease(), needs).await.unwrap().is_allowed());
    assert_eq!(on.used(&*successor, "t:a:tokens").await, 10);
}

/// TB-21, TPL-03: a definition takes over the account of an instance, whichever server made it.
pub async fn tb_21_a_definition_takes_over_an_instance_of_another_server<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (limiter, other) = (on.limiter(), on.limiter());
    for at in [&limiter, &other] {
        at.define(on.concurrency("t:*", 600, 4)).await.unwrap();
    }
    let lease = on.lease();
    assert!(on.reserve(&*limiter, lease, [("t:a", 3)]).await.unwrap().is_allowed());
    let conflict = DefineError::KindConflict { key: on.key("t:a"), is: "concurrency" };
    assert_eq!(other.define(on.rolling("t:a", 60, 9)).await, Err(conflict.clone()));
    assert_eq!(other.define(on.hourly("t:a", 20, 9)).await, Err(conflict));
    other.define(on.concurrency("t:a", 600, 9)).await.unwrap();
    let state = on.state(&*other, "t:a").await;
    assert_eq!((state.usage.used, state.usage.available), (3, 6));
    restore_all(&limiter, &other).await;
    assert_eq!(known(&limiter), 0, "it is not an instance any more");
    assert!(on.reserve(&*limiter, on.lease(), [("t:a", 6)]).await.unwrap().is_allowed());
    limiter.define(on.concurrency("t:*", 600, 1)).await.unwrap();
    assert_eq!(capacity(account(&on, "t:a").await), 9);
}

/// TB-21, TPL-03: when nothing is in use, a definition may have another kind.
pub async fn tb_21_a_definition_of_another_kind_replaces_an_idle_instance<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.hourly("t:*", 20, 4)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&*limiter, lease, [("t:a", 3)]).await.unwrap().is_allowed());
    let conflict = DefineError::KindConflict { key: on.key("t:a"), is: "calendar" };
    assert_eq!(limiter.define(on.rolling("t:a", 60, 9)).await, Err(conflict));
    on.complete(&*limiter, lease, [("t:a", 0)]).await.unwrap();
    limiter.define(on.rolling("t:a", 60, 9)).await.unwrap();
    assert!(on.reserve(&*limiter, on.lease(), [("t:a", 9)]).await.unwrap().is_allowed());
    assert_eq!(on.used(&*limiter, "t:a").await, 9);
}

/// TB-21, DEF-09: what a deleted limit holds counts for the instance of its key, until it returns.
pub async fn tb_21_what_a_deleted_limit_holds_counts_for_the_instance<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.concurrency("t:*", 600, 2)).await.unwrap();
    limiter.define(on.concurrency("t:a", 600, 9)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&*limiter, lease, [("t:a", 5)]).await.unwrap().is_allowed());
    limiter.delete(&on.key("t:a")).await.unwrap();
    let state = on.state(&*limiter, "t:a").await;
    let to = on.concurrency("", 1, 2).capacity;
    assert_eq!(state.status, LimitStatus::Decreasing { to });
    assert_eq!((state.usage.used, state.usage.available), (5, 4), "the account is not closed yet");
    assert!(!on.reserve(&*limiter, on.lease(), [("t:a", 1)]).await.unwrap().is_allowed());
    assert!(account(&on, "t:a").await.closed);
    on.complete(&*limiter, lease, []).await.unwrap();
    on.pass(Duration::from_secs(1)).await;
    let state = on.state(&*limiter, "t:a").await;
    assert_eq!((state.status, state.usage.available), (LimitStatus::Active, 2));
    assert!(on.reserve(&*limiter, on.lease(), [("t:a", 2)]).await.unwrap().is_allowed());
}

/// TB-21, TPL-04: a template of another kind leaves what is reserved on the account.
pub async fn tb_21_a_template_of_another_kind_counts_what_is_reserved<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.rolling("t:**", 600, 9)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&*limiter, lease, [("t:a:x", 4)]).await.unwrap().is_allowed());
    limiter.define(on.concurrency("t:*:x", 600, 6)).await.unwrap();
    let state = on.state(&*limiter, "t:a:x").await;
    assert_eq!((state.usage.used, state.usage.available), (4, 2));
    assert!(!on.reserve(&*limiter, on.lease(), [("t:a:x", 3)]).await.unwrap().is_allowed());
    assert!(on.reserve(&*limiter, on.lease(), [("t:a:x", 2)]).await.unwrap().is_allowed());
    on.complete(&*limiter, lease, [("t:a:x", 1)]).await.unwrap();
    assert_eq!(on.used(&*limiter, "t:a:x").await, 3);
}

/// TB-21, TB-19: servers agree on the period of a calendar instance.
pub async fn tb_21_servers_share_the_period_of_a_calendar_instance<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiters = [on.limiter(), on.limiter()];
    for (limiter, in_minutes) in limiters.iter().zip([20, 40]) {
        limiter.define(on.hourly("t:*", in_minutes, 10)).await.unwrap();
    }
    let reserve = |at| on.reserve(at, on.lease(), [("t:a", 5)]);
    let [one, two] = [&*limiters[0], &*limiters[1]];
    let (first, second) = futures::future::join(reserve(one), reserve(two)).await;
    assert!(first.unwrap().is_allowed() && second.unwrap().is_allowed());
    assert!(!reserve(one).await.unwrap().is_allowed());
    let [one, two] = [on.state(one, "t:a").await, on.state(two, "t:a").await];
    assert_eq!((one.usage, one.resets_at), (two.usage, two.resets_at));
    assert_eq!((one.usage.used, one.usage.available), (10, 0));
}

/// TB-21, TB-20: a template in shadow mode counts at all servers, and enforcing it is a decrease.
pub async fn tb_21_a_template_in_shadow_mode_is_enforced_by_a_decrease<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiters = [on.limiter(), on.limiter()];
    let shadow = Limit { mode: LimitMode::Shadow, ..on.concurrency("t:*", 600, 3) };
    for limiter in &limiters {
        limiter.define(shadow.clone()).await.unwrap();
        assert!(on.reserve(&**limiter, on.lease(), [("t:a", 2)]).await.unwrap().is_allowed());
    }
    let answer = on.reserve(&*limiters[0], on.lease(), [("t:a", 1)]).await.unwrap();
    let Decision::Allowed { shadow_denied, .. } = &answer else { panic!("{answer:?}") };
    assert_eq!(*shadow_denied, [on.key("t:a")]);
    limiters[0].define(on.concurrency("t:*", 600, 3)).await.unwrap();
    let to = on.concurrency("", 1, 3).capacity;
    let state = on.state(&*limiters[0], "t:a").await;
    assert_eq!((state.status, state.usage.used), (LimitStatus::Decreasing { to }, 5));
    on.pass(Duration::from_secs(1)).await;
    assert!(!on.reserve(&*limiters[1], on.lease(), [("t:a", 1)]).await.unwrap().is_allowed());
}
