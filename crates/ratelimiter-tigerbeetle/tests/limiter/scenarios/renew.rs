//! `TB-18`: a lease is renewed at any server.

use std::time::Duration;

use ratelimiter::{
    Backend, DenialReason, LeaseId, LeasePage, Limit, LimitStatus, Limiter, ReleaseError,
    RenewError, Renewal, ReserveError,
};
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::context::TestContext;

/// Long enough that nothing expires during a scenario on a slow machine.
const DAY: u64 = 86_400;

async fn define(on: &TestContext<impl Ledger + Clone>, at: &impl Backend) {
    at.define(on.rolling("tokens", DAY, 1_000)).await.unwrap();
    at.define(on.concurrency("slots", DAY, 10)).await.unwrap();
}

async fn reserve<const N: usize>(
    on: &TestContext<impl Ledger + Clone>,
    at: &impl Limiter,
    needs: [(&str, u64); N],
) -> LeaseId {
    let lease = on.lease();
    assert!(on.reserve(at, lease, needs).await.unwrap().is_allowed());
    lease
}

/// TB-18: the first server has the lease in its cache as it was; the second one renews it.
pub async fn tb_18_a_server_completes_what_another_has_renewed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    define(&on, &first).await;
    let second = on.successor(&first).await;
    for has_hold in [true, false] {
        for (amount, actual) in [(60, 45), (60, 70), (10, 7), (10, 12), (0, 5), (40, 40)] {
            let before = on.used(&first, "tokens").await;
            let lease = match has_hold {
                true => reserve(&on, &first, [("tokens", 40), ("slots", 1)]).await,
                false => reserve(&on, &first, [("tokens", 40)]).await,
            };
            let renewed = on.renew(&second, lease, 1, [("tokens", amount)]).await;
            assert!(renewed.unwrap().is_renewed());
            assert_eq!(on.used(&first, "tokens").await, before + amount);
            on.complete(&first, lease, [("tokens", actual)]).await.unwrap();
            assert_eq!(on.used(&first, "tokens").await, before + actual, "{has_hold} {amount}");
            assert_eq!(on.used(&first, "slots").await, 0);
            for at in [&first, &second] {
                on.complete(at, lease, [("tokens", 99)]).await.unwrap();
                let again = on.renew(at, lease, 2, [("tokens", 1)]).await;
                assert_eq!(again, Err(RenewError::LeaseEnded));
                let reserved = on.reserve(at, lease, [("tokens", 40)]).await;
                assert_eq!(reserved, Err(ReserveError::LeaseEnded));
            }
            let state = on.state(&second, "tokens").await;
            assert_eq!((state.usage.used, state.usage.debt), (before + actual, 0));
        }
    }
}

/// TB-18: a denied renew leaves a record, which changes nothing for a complete.
pub async fn tb_18_a_server_completes_after_another_has_denied_a_renew<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    define(&on, &first).await;
    let second = on.successor(&first).await;
    for has_hold in [true, false] {
        for (at, other) in [(&first, &second), (&second, &first)] {
            let before = on.used(&first, "tokens").await;
            let lease = match has_hold {
                true => reserve(&on, &first, [("tokens", 40), ("slots", 1)]).await,
                false => reserve(&on, &first, [("tokens", 40)]).await,
            };
            let full = reserve(&on, &first, [("tokens", 960 - before)]).await;
            let denied = on.renew(&second, lease, 1, [("tokens", 41)]).await.unwrap();
            assert!(!denied.is_renewed());
            on.complete(&first, full, [("tokens", 0)]).await.unwrap();
            on.complete(at, lease, [("tokens", 30)]).await.unwrap();
            on.complete(other, lease, [("tokens", 9)]).await.unwrap();
            assert_eq!(on.used(&first, "tokens").await, before + 30);
            assert_eq!(on.used(&first, "slots").await, 0);
            for at in [&first, &second] {
                let again = on.renew(at, lease, 2, [("tokens", 1)]).await;
                assert_eq!(again, Err(RenewError::LeaseEnded));
            }
        }
    }
}

/// COM-05, OPS-01: a server that has not heard of a denied renew ends the lease by the void of its hold. Another
/// one that ends it later meets that void, though the hold would have lapsed.
pub async fn com_05_a_complete_after_a_denied_renew_counts_once_when_the_holds_have_lapsed<
    L: Ledger + Clone,
>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", DAY, 1_000)).await.unwrap();
    first.define(on.concurrency("slots", 4, 10)).await.unwrap();
    let second = on.successor(&first).await;
    for (round, actual) in [Some(9), Some(5_000), None].into_iter().enumerate() {
        let before = on.used(&first, "tokens").await;
        let lease = reserve(&on, &first, [("slots", 1), ("tokens", 40)]).await;
        let full = reserve(&on, &first, [("tokens", 960 - before)]).await;
        assert!(!on.renew(&second, lease, 1, [("tokens", 41)]).await.unwrap().is_renewed());
        match round {
            0 => on.complete(&first, lease, []).await.unwrap(),
            _ => first.release(lease).await.unwrap(),
        }
        on.complete(&first, full, [("tokens", 0)]).await.unwrap();
        on.pass(Duration::from_secs(5)).await;
        match actual {
            Some(actual) => on.complete(&second, lease, [("tokens", actual)]).await.unwrap(),
            None => assert_eq!(
                second.release(lease).await,
                Err(ReleaseError::UnknownLease { lease }),
                "OPS-01"
            ),
        }
        let state = on.state(&second, "tokens").await;
        assert_eq!((state.usage.used, state.usage.debt), (before + 40, 0), "{actual:?}");
    }
}

/// TB-18, REN-03: the record of a renew is in the ledger.
pub async fn tb_18_numbers_are_the_same_at_every_server<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    define(&on, &first).await;
    let second = on.successor(&first).await;
    let third = on.uncached_limiter();
    define(&on, &third).await;
    let lease = reserve(&on, &first, [("tokens", 40), ("slots", 1)]).await;
    let renewed = on.renew(&second, lease, 3, [("tokens", 50)]).await.unwrap();
    assert!(renewed.is_renewed());
    for at in [&first, &second, &third] {
        assert_eq!(on.renew(at, lease, 3, [("tokens", 7)]).await, Ok(renewed.clone()));
        let lower = on.renew(at, lease, 2, [("tokens", 7)]).await;
        assert_eq!(lower, Err(RenewError::Superseded));
    }
    assert_eq!(on.used(&first, "tokens").await, 50);
    // The first server's cache is outdated, and it renews.
    assert!(on.renew(&first, lease, 4, [("tokens", 20), ("slots", 2)]).await.unwrap().is_renewed());
    assert!(on.renew(&second, lease, 5, [("tokens", 30)]).await.unwrap().is_renewed());
    assert_eq!((on.used(&first, "tokens").await, on.used(&first, "slots").await), (30, 2));

    let other = reserve(&on, &second, [("tokens", 970)]).await;
    let denied = on.renew(&third, lease, 6, [("tokens", 31)]).await.unwrap();
    let no_room = DenialReason::NoRoom { keys: vec![on.key("tokens")] };
    assert_eq!(denied.denial().unwrap().reason, no_room);
    on.complete(&second, other, [("tokens", 0)]).await.unwrap();
    for at in [&first, &second, &third] {
        for amounts in [[("tokens", 31)], [("tokens", 1)]] {
            let again = on.renew(at, lease, 6, amounts).await.unwrap();
            assert_eq!(again.denial().unwrap().reason, no_room, "REN-03: it stays denied");
        }
        let lower = on.renew(at, lease, 5, [("tokens", 30)]).await;
        assert_eq!(lower, Err(RenewError::Superseded));
    }
    assert!(on.renew(&first, lease, 7, [("tokens", 31)]).await.unwrap().is_renewed());
    on.complete(&second, lease, [("tokens", 25)]).await.unwrap();
    assert_eq!((on.used(&first, "tokens").await, on.used(&first, "slots").await), (25, 0));
}

/// TB-18, REN-02: as far as the first server knows, the lease has lapsed.
pub async fn tb_18_a_lease_lives_while_another_server_renews_it<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 6, 10)).await.unwrap();
    first.define(on.rolling("tokens", 6, 100)).await.unwrap();
    let second = on.successor(&first).await;
    let lease = reserve(&on, &first, [("slots", 2), ("tokens", 40)]).await;
    on.pass(Duration::from_secs(3)).await;
    assert!(on.renew(&second, lease, 1, [("tokens", 50)]).await.unwrap().is_renewed());
    on.pass(Duration::from_millis(3_500)).await;
    assert_eq!(on.used(&first, "slots").await, 2);
    assert_eq!(on.used(&first, "tokens").await, 10, "the first 40 have lapsed");
    assert!(on.renew(&second, lease, 2, []).await.unwrap().is_renewed());
    on.pass(Duration::from_secs(3)).await;
    on.complete(&first, lease, [("tokens", 57)]).await.unwrap();
    let state = on.state(&first, "tokens").await;
    assert_eq!((state.usage.used, state.usage.debt), (0, 7), "50 were reserved and have counted");
    assert_eq!(on.used(&first, "slots").await, 0);
}

/// TB-18: a replacement lasts whole seconds, from its exact expiry.
pub async fn tb_18_the_seconds_of_replacements_do_not_add_up<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let (first, lease) = (on.limiter(), on.lease());
    first.define(on.rolling("tokens", 4, 100)).await.unwrap();
    first.define(on.concurrency("slots", 60, 10)).await.unwrap();
    let needs = [("tokens", 40), ("slots", 1)];
    assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());
    let second = on.successor(&first).await;
    for (number, at) in (1..=6).zip([&first, &second].into_iter().cycle()) {
        on.pass(Duration::from_millis(300)).await;
        let amounts = [("tokens", 40 - number)];
        assert!(on.renew(at, lease, number, amounts).await.unwrap().is_renewed());
    }
    on.pass(Duration::from_millis(3_400)).await;
    assert_eq!(on.used(&first, "tokens").await, 0, "4 s, and at most one more");
    assert_eq!(on.used(&first, "slots").await, 1);
    on.complete(&second, lease, [("tokens", 34)]).await.unwrap();
    assert_eq!(on.state(&first, "tokens").await.usage.debt, 0);
}

/// TB-18: with a ninth part, all are joined; any server completes them.
pub async fn tb_18_parts_are_joined_and_completed_anywhere<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    define(&on, &first).await;
    let second = on.successor(&first).await;
    for (renews, actual) in [(3, 5), (7, 7), (8, 6), (12, 9), (12, 40)] {
        let before = on.used(&first, "tokens").await;
        let lease = reserve(&on, &first, [("tokens", 10), ("slots", 1)]).await;
        for (number, at) in (1..=renews).zip([&first, &second].into_iter().cycle()) {
            let amounts = [("tokens", 10 + number)];
            assert!(on.renew(at, lease, number, amounts).await.unwrap().is_renewed());
            assert_eq!(on.used(&first, "tokens").await, before + 10 + number);
        }
        on.complete(&second, lease, [("tokens", actual)]).await.unwrap();
        assert_eq!(on.used(&first, "tokens").await, before + actual, "after {renews}");
    }
}

/// TB-18: one chain opens the account, replaces, and closes it again; growing there is denied.
pub async fn tb_18_a_lease_is_renewed_while_its_limits_decrease<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    define(&on, &first).await;
    let second = on.successor(&first).await;
    let lease = reserve(&on, &first, [("tokens", 60), ("slots", 6)]).await;
    let other = reserve(&on, &first, [("slots", 2)]).await;
    for (limit, to) in [(on.rolling("tokens", DAY, 20), 20), (on.concurrency("slots", DAY, 3), 3)] {
        let status = first.define(limit).await.unwrap();
        assert!(matches!(status, LimitStatus::Decreasing { to: target } if target.get() == to));
    }
    // The second server has not heard of it.
    let mut number = 0;
    for at in [&second, &first] {
        for needs in [[("tokens", 61)], [("slots", 7)]] {
            number += 1;
            let denied = on.renew(at, lease, number, needs).await.unwrap();
            let reason = &denied.denial().unwrap().reason;
            assert!(matches!(reason, DenialReason::Decreasing { .. }), "{reason:?}");
        }
        number += 1;
        assert!(on.renew(at, lease, number, []).await.unwrap().is_renewed());
        number += 1;
        let less = [("tokens", 60 - number), ("slots", 5)];
        assert!(on.renew(at, lease, number, less).await.unwrap().is_renewed());
        assert_eq!(on.used(&first, "tokens").await, 60 - number);
        assert_eq!(on.used(&first, "slots").await, 7);
        let denied = on.reserve(at, on.lease(), [("slots", 1)]).await.unwrap();
        assert!(!denied.is_allowed(), "it is closed again");
    }
    on.complete(&second, other, []).await.unwrap();
    let least = [("tokens", 20), ("slots", 3)];
    assert!(on.renew(&second, lease, number + 1, least).await.unwrap().is_renewed());
    on.pass(Duration::from_secs(1)).await;
    for (name, capacity) in [("tokens", 20), ("slots", 3)] {
        let state = on.state(&first, name).await;
        assert_eq!((state.status, state.usage.used), (LimitStatus::Active, capacity));
    }
    on.complete(&first, lease, [("tokens", 3)]).await.unwrap();
    assert_eq!((on.used(&first, "tokens").await, on.used(&first, "slots").await), (3, 0));
}

/// TB-18, TB-04: a lease that was renewed often has more transfers than one page.
pub async fn tb_18_a_lease_that_was_renewed_often_is_read_in_pages<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    define(&on, &first).await;
    let lease = reserve(&on, &first, [("tokens", 40), ("slots", 1)]).await;
    let mut last = None;
    for number in 1..=100 {
        last = Some(on.renew(&first, lease, number, [("tokens", 40 - number % 3)]).await.unwrap());
    }
    let second = on.successor(&first).await;
    assert_eq!(on.renew(&second, lease, 100, []).await.ok(), last);
    let leases = first.leases(&LeasePage::default()).await.unwrap();
    let listed = leases.iter().find(|open| open.lease == lease).unwrap();
    assert_eq!(listed.amounts.iter().map(|held| held.amount).collect::<Vec<_>>(), [1, 39]);
    on.complete(&second, lease, [("tokens", 12)]).await.unwrap();
    assert_eq!((on.used(&first, "tokens").await, on.used(&first, "slots").await), (12, 0));
    assert!(first.release(lease).await.is_err(), "OPS-01");
}

/// TB-18, OPS-01: a renewed lease is released anywhere.
pub async fn tb_18_a_renewed_lease_is_released_anywhere<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    define(&on, &first).await;
    let second = on.successor(&first).await;
    for number in [1, 2] {
        let lease = reserve(&on, &first, [("tokens", 20), ("slots", 1)]).await;
        for number in 1..=number {
            let renewed = on.renew(&second, lease, number, [("tokens", 21)]).await.unwrap();
            assert!(matches!(renewed, Renewal::Renewed { .. }));
        }
        first.release(lease).await.unwrap();
        assert_eq!(on.used(&first, "slots").await, 0);
        assert_eq!(on.used(&first, "tokens").await, 21 * number, "it stays until it lapses");
        assert_eq!(on.renew(&second, lease, 9, []).await, Err(RenewError::LeaseEnded));
    }
}

/// REN-02, TB-18: a deleted limit leaves its account closed, and nobody knows its key.
pub async fn ren_02_a_hold_of_a_deleted_limit_that_was_decreasing_is_renewed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 6, 10)).await.unwrap();
    first.define(on.concurrency("mine", 6, 1)).await.unwrap();
    let lease = reserve(&on, &first, [("slots", 3), ("mine", 1)]).await;
    assert_eq!(first.define(on.concurrency("slots", 6, 0)).await, Ok(LimitStatus::Paused));
    first.delete(&on.key("slots")).await.unwrap();
    let second = on.successor(&first).await;
    for (number, at) in [(1, &first), (2, &second), (3, &second)] {
        on.pass(Duration::from_millis(3_500)).await;
        assert!(on.renew(at, lease, number, []).await.unwrap().is_renewed(), "{number}");
        assert_eq!(on.used(&first, "mine").await, 1, "the call runs, and has its slot");
    }
    let status = first.define(on.concurrency("slots", 6, 10)).await.unwrap();
    assert_eq!((status, on.used(&first, "slots").await), (LimitStatus::Active, 3));
    on.complete(&second, lease, []).await.unwrap();
    assert_eq!((on.used(&first, "slots").await, on.used(&first, "mine").await), (0, 0));
    reserve(&on, &first, [("slots", 10)]).await;
}

/// REN-03, OPS-01: a lease that ended by the void of its hold has ended, whatever else is wrong with the renew.
pub async fn ren_03_a_lease_that_another_server_completed_is_not_denied_but_ended<
    L: Ledger + Clone,
>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    for name in ["a", "gone", "paused"] {
        first.define(on.rolling(name, DAY, 100)).await.unwrap();
    }
    first.define(on.concurrency("slots", DAY, 10)).await.unwrap();
    let second = on.successor(&first).await;
    let ended = async |name: &str, amount, changed: Option<Limit>| {
        let lease = reserve(&on, &first, [("slots", 1), (name, 10)]).await;
        on.complete(&second, lease, []).await.unwrap();
        match changed {
            Some(limit) => drop(first.define(limit).await.unwrap()),
            None if name == "gone" => first.delete(&on.key(name)).await.unwrap(),
            None => {}
        }
        let renewed = on.renew(&first, lease, 1, [(name, amount)]).await;
        assert_eq!(renewed, Err(RenewError::LeaseEnded), "{name} {amount}");
        let leases = first.leases(&LeasePage::default()).await.unwrap();
        assert!(leases.iter().all(|open| open.lease != lease), "OPS-01: {name} {amount}");
        let released = first.release(lease).await;
        assert_eq!(released, Err(ReleaseError::UnknownLease { lease }));
    };
    ended("a", 101, None).await;
    reserve(&on, &first, [("a", 80)]).await;
    ended("a", 30, None).await;
    ended("paused", 50, Some(on.rolling("paused", DAY, 0))).await;
    ended("gone", 50, None).await;
    let lease = reserve(&on, &first, [("slots", 1)]).await;
    on.complete(&second, lease, []).await.unwrap();
    assert_eq!(on.renew(&first, lease, 1, [("a", 1)]).await, Err(RenewError::LeaseEnded));
    assert_eq!(on.used(&second, "slots").await, 0);
}

/// TB-18: an ID that is used for two leases without a common key is that of one with the limits of both.
pub async fn tb_18_two_leases_with_one_id_and_many_limits_are_renewed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.uncached_limiter();
    let names: Vec<_> = (0..60).map(|number| format!("{number:02}")).collect();
    for name in &names {
        limiter.define(on.concurrency(name, 600, 2)).await.unwrap();
    }
    let lease = on.lease();
    for names in names.chunks(30) {
        let needs: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let reserved = limiter.reserve(&on.to_reserve(lease, &needs)).await.unwrap();
        assert!(reserved.is_allowed());
    }
    assert!(on.renew(&*limiter, lease, 1, [("00", 2)]).await.unwrap().is_renewed());
    assert_eq!((on.used(&*limiter, "00").await, on.used(&*limiter, "59").await), (2, 1));
}
