//! `TB-01` to `TB-04`: ledger requests of a reserve and a complete.

use std::time::Duration;

use futures::future::join_all;
use ratelimiter::{
    Backend, Decision, Limit, LimitMode, Limiter, NewAmounts, REQUIREMENTS_MAX, RenewError,
    RenewNumber, RenewRequest,
};
use ratelimiter_tigerbeetle::ids::{self, TransferRole};
use ratelimiter_tigerbeetle::ledger::{Action, Event, WorkItem};

use crate::context::{restore_all, run};
use crate::on_model::on_recording_model;
use crate::recording_ledger::{Call, Fault};

/// The item of the only call.
fn only_item(calls: &[Call]) -> WorkItem {
    let [Call::CreateTransfers(item)] = calls else {
        panic!("one write and nothing else: {calls:?}");
    };
    item.clone()
}

/// TB-01, TB-03
#[test]
fn tb_03_a_reserve_and_a_complete_are_one_write_each() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        for name in ["c", "a", "b"] {
            limiter.define(on.rolling(name, 60, 100)).await.unwrap();
        }
        limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
        on.ledger.take_calls();
        let lease = on.lease();
        let needs = [("c", 3), ("slots", 1), ("a", 1), ("b", 2)];
        assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
        let chain = only_item(&on.ledger.take_calls());
        let linked: Vec<bool> = chain.events().iter().map(|event| event.linked).collect();
        assert_eq!(linked, [true, true, true, false], "one chain");
        for (event, name) in chain.events().iter().zip(["a", "b", "c", "slots"]) {
            let id = ids::transfer(TransferRole::Reserve, lease, &on.key(name));
            assert_eq!(event.transfer.id, id, "TB-01, and TB-02: sorted by key");
            assert_eq!(event.transfer.user_data.data_128, lease.as_u128(), "TB-04");
        }
        on.complete(&limiter, lease, [("a", 1), ("b", 1), ("c", 9)]).await.unwrap();
        let item = only_item(&on.ledger.take_calls());
        assert_eq!(item.len(), 1 + 2 + 1, "the marker, a pair, and an excess");
    });
}

/// TB-20: the use of limits in shadow mode is read once for a request or a batch, and of no other.
#[test]
fn tb_20_only_a_reserve_with_a_limit_in_shadow_mode_reads_its_use() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.rolling("real", 60, 100)).await.unwrap();
        let shadow = Limit { mode: LimitMode::Shadow, ..on.rolling("try", 60, 1) };
        limiter.define(shadow).await.unwrap();
        on.ledger.take_calls();
        assert!(on.reserve(&limiter, on.lease(), [("real", 1)]).await.unwrap().is_allowed());
        only_item(&on.ledger.take_calls());
        let write_and_read =
            |calls: &[Call]| matches!(calls, [Call::CreateTransfers(_), Call::Lookup]);
        assert!(on.reserve(&limiter, on.lease(), [("try", 2)]).await.unwrap().is_allowed());
        let calls = on.ledger.take_calls();
        assert!(write_and_read(&calls), "{calls:?}");
        let request = |name| on.to_reserve(on.lease(), &[(name, 1)]);
        let requests: Vec<_> = ["try", "real"].into_iter().cycle().take(64).map(request).collect();
        let answers = limiter.reserve_batch(&requests).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().is_allowed()));
        let calls = on.ledger.take_calls();
        assert!(write_and_read(&calls), "{calls:?}");
    });
}

/// TB-20: what was reserved stands, whether its use can be read or not.
#[test]
fn tb_20_a_reserve_is_allowed_even_if_the_use_cannot_be_read() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        let shadow = Limit { mode: LimitMode::Shadow, ..on.rolling("try", 60, 1) };
        limiter.define(shadow).await.unwrap();
        on.ledger.fail_from(1, Fault::RequestLost);
        let lease = on.lease();
        let answer = on.reserve(&limiter, lease, [("try", 2)]).await.unwrap();
        on.ledger.heal();
        assert!(
            matches!(&answer, Decision::Allowed { shadow_denied, .. } if shadow_denied.is_empty())
        );
        assert_eq!(on.reserve(&limiter, lease, [("try", 2)]).await.unwrap(), answer);
        assert_eq!(on.used(&limiter, "try").await, 2);
    });
}

/// TB-02
#[test]
fn tb_02_the_order_of_the_requirements_does_not_matter() {
    run(async {
        let on = on_recording_model();
        let limiter = on.uncached_limiter();
        for name in ["a", "b", "c"] {
            limiter.define(on.rolling(name, 60, 100)).await.unwrap();
        }
        let lease = on.lease();
        let mut chains = Vec::new();
        for needs in [[("a", 1), ("b", 2), ("c", 3)], [("c", 3), ("a", 1), ("b", 2)]] {
            on.ledger.take_calls();
            assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
            let Some(Call::CreateTransfers(chain)) = on.ledger.take_calls().into_iter().next()
            else {
                panic!("the chain is sent first");
            };
            chains.push(chain);
        }
        assert_eq!(chains[0], chains[1]);
    });
}

/// RES-06: an unknown key is refused without a request; a refusal by the definitions checks whether
/// the lease is known, and changes nothing.
#[test]
fn res_06_what_the_definitions_refuse_changes_nothing_in_the_cluster() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.rolling("small", 60, 1)).await.unwrap();
        on.ledger.take_calls();
        let lease = on.lease();
        assert!(on.reserve(&limiter, lease, [("unknown", 2)]).await.is_err());
        assert!(on.ledger.take_calls().is_empty());
        for _ in 0..2 {
            assert!(on.reserve(&limiter, lease, [("small", 2)]).await.is_err());
        }
        let from_an_account_to_itself = |event: &Event| matches!(event.transfer.action, Action::Posted(moved) if moved.debit == moved.credit);
        for call in on.ledger.take_calls() {
            if let Call::CreateTransfers(item) = call {
                assert!(item.events().iter().all(from_an_account_to_itself), "{item:?}");
            } else {
                assert!(matches!(call, Call::Query), "{call:?}");
            }
        }
        limiter.define(on.rolling("small", 60, 2)).await.unwrap();
        assert!(on.reserve(&limiter, lease, [("small", 2)]).await.unwrap().is_allowed());
    });
}

/// TB-05: repeating a batch whose answer was lost takes as many round trips as one lease, whatever
/// its size.
#[test]
fn tb_05_a_repeated_batch_is_read_back_at_once() {
    run(async {
        let on = on_recording_model();
        let first = on.limiter();
        first.define(on.rolling("tokens", 60, 1_000)).await.unwrap();
        first.define(on.rolling("full", 60, 1)).await.unwrap();
        let request = |(lease, name)| on.to_reserve(lease, &[(name, 1)]);
        let leases: Vec<_> = (0..256).map(|_| on.lease()).collect();
        let names = std::iter::repeat(["tokens", "full"]).flatten();
        let requests: Vec<_> = leases.iter().copied().zip(names).map(request).collect();
        let answers = first.reserve_batch(&requests).await;
        assert_eq!(answers.iter().flatten().filter(|answer| answer.is_allowed()).count(), 129);

        // The first has the leases in its cache, the second does not.
        let second = on.uncached_limiter();
        restore_all(&second, &first).await;
        for limiter in [&first, &second] {
            let (one, rounds_of_one) =
                on.ledger.count_rounds(limiter.reserve_batch(&requests[..1])).await;
            assert_eq!(one, answers[..1]);
            let (again, rounds) = on.ledger.count_rounds(limiter.reserve_batch(&requests)).await;
            assert!(rounds <= rounds_of_one.max(2), "{rounds} round trips, one after another");
            for (again, answer) in again.iter().zip(&answers) {
                if answer.as_ref().is_ok_and(Decision::is_allowed) {
                    assert_eq!(again, answer);
                } else {
                    assert!(again.as_ref().unwrap().denial().is_some(), "{again:?}");
                }
            }
        }
    });
}

/// TB-16: so that it is applied once and as a whole, or not at all.
#[test]
fn tb_16_a_complete_is_one_chain() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        for name in ["a", "b", "c"] {
            limiter.define(on.concurrency(name, 60, 100)).await.unwrap();
        }
        let lease = on.lease();
        let needs = [("a", 1), ("b", 1), ("c", 1)];
        assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
        on.ledger.take_calls();
        on.complete(&limiter, lease, []).await.unwrap();
        let item = only_item(&on.ledger.take_calls());
        let linked: Vec<bool> = item.events().iter().map(|event| event.linked).collect();
        assert_eq!(linked, [true, true, false]);
        let is_void = |event: &Event| matches!(event.transfer.action, Action::VoidPending { .. });
        assert!(item.events().iter().all(is_void), "the marker is the first void: {item:?}");
    });
}

/// TB-13: a batch that is too large for this server is split, and earlier requests are admitted
/// first.
#[test]
fn tb_13_a_batch_that_must_be_split_keeps_its_order() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        for (name, capacity) in [("a", 1_000), ("b", 1_000), ("c", 1_000), ("rate", 200)] {
            limiter.define(on.rolling(name, 60, capacity)).await.unwrap();
        }
        let needs = [("a", 1), ("b", 1), ("c", 1), ("rate", 1)];
        let requests: Vec<_> = (0..256).map(|_| on.to_reserve(on.lease(), &needs)).collect();
        on.ledger.refuse_items_over(253);
        let answers = limiter.reserve_batch(&requests).await;
        let allowed = answers.iter().map(|answer| answer.as_ref().unwrap().is_allowed());
        let expected = (0..256).map(|number| number < 200);
        assert!(allowed.eq(expected), "{answers:?}");
    });
}

/// COM-01, DEF-07: each complete reopens a closed account for itself. They take turns, so that none
/// retries needlessly.
#[test]
fn com_01_completes_on_a_decreasing_limit_take_turns() {
    const LEASES: usize = 200;
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        for name in ["day", "tokens"] {
            limiter.define(on.rolling(name, 60, 2_000)).await.unwrap();
        }
        limiter.define(on.concurrency("slots", 60, 200)).await.unwrap();
        let mut completes = Vec::new();
        for number in 0..LEASES {
            let lease = on.lease();
            let needs = [("day", 10), ("tokens", 10), ("slots", 1)];
            assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
            let actuals = [[("tokens", 4), ("day", 10)], [("tokens", 4), ("day", 4)]];
            completes.push(on.to_complete(lease, &actuals[number % 2]));
        }
        for name in ["day", "tokens"] {
            limiter.define(on.rolling(name, 60, 10)).await.unwrap();
        }
        on.ledger.take_counts();
        on.ledger.shuffle(1);
        let answers = limiter.complete_batch(&completes).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        // The first attempt, and a read and another attempt for each closed account.
        let asked = on.ledger.take_counts();
        assert!(asked.calls <= 7 * LEASES, "{asked:?}");
        assert_eq!(on.used(&limiter, "tokens").await, 800);
        assert_eq!(on.used(&limiter, "day").await, 1_400);
        assert_eq!(on.used(&limiter, "slots").await, 0);
    });
}

/// TB-18: at the server that knows the lease, a renew is one write, whose record comes first.
#[test]
fn tb_18_a_renew_is_one_write_where_its_lease_is_known() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.rolling("tokens", 60, 100)).await.unwrap();
        limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
        let lease = on.lease();
        assert!(
            on.reserve(&limiter, lease, [("tokens", 9), ("slots", 1)]).await.unwrap().is_allowed()
        );
        for (number, amounts, transfers) in [
            (1, vec![], 3),
            (2, vec![("tokens", 5)], 3 + 2),
            (3, vec![("tokens", 8)], 3 + 1),
            (4, vec![("tokens", 2), ("slots", 3)], 3 + 1 + 2),
        ] {
            on.ledger.take_calls();
            let amounts = amounts.into_iter().map(|(name, amount)| (on.key(name), amount));
            let amounts = NewAmounts::of(amounts).unwrap();
            let request = RenewRequest::new(lease, RenewNumber::new(number).unwrap(), amounts);
            assert!(limiter.renew(&request).await.unwrap().is_renewed());
            let item = only_item(&on.ledger.take_calls());
            assert_eq!(item.len(), transfers, "renew {number}");
            let record = item.events()[0].transfer;
            assert_eq!(record.user_data.data_128, lease.as_u128(), "TB-04");
            assert_eq!(record.user_data.data_64, number);
        }
        on.complete(&limiter, lease, [("tokens", 2)]).await.unwrap();
        assert_eq!(only_item(&on.ledger.take_calls()).len(), 2, "the marker, and the hold");
    });
}

/// TB-18, TB-04: a lease that was renewed often is read in few requests, and once.
#[test]
fn tb_18_a_lease_renewed_often_is_read_in_few_requests() {
    const RENEWS: u64 = 10_000;
    run(async {
        let on = on_recording_model();
        let first = on.limiter();
        first.define(on.concurrency("slots", 60, 10)).await.unwrap();
        let lease = on.lease();
        assert!(on.reserve(&first, lease, [("slots", 1)]).await.unwrap().is_allowed());
        for number in 1..=RENEWS {
            assert!(on.renew(&first, lease, number, []).await.unwrap().is_renewed());
            on.ledger.take_calls();
        }
        let second = on.successor(&first).await;
        // The second server asks for the cluster's time, too.
        for (at, calls_max) in [(&first, 1), (&second, 6 + 1), (&second, 1)] {
            on.ledger.take_calls();
            assert_eq!(on.renew(at, lease, 1, []).await, Err(RenewError::Superseded));
            let calls = on.ledger.take_calls();
            assert!(calls.len() <= calls_max, "{calls:?}");
            assert!(on.renew(at, lease, RENEWS, []).await.unwrap().is_renewed());
            assert_eq!(on.ledger.take_calls().len(), 1, "whether another server has renewed it");
        }
        let third = on.successor(&first).await;
        on.ledger.take_calls();
        on.complete(&third, lease, []).await.unwrap();
        assert!(on.ledger.take_calls().len() <= 6 + 2, "and it writes");
        for at in [&first, &second] {
            assert_eq!(on.renew(at, lease, RENEWS, []).await, Err(RenewError::LeaseEnded));
        }
    });
}

/// TB-18, TB-04: a server that knows a lease reads what others have done since, and not all of it.
#[test]
fn tb_18_renews_at_two_servers_in_turn_read_what_is_new() {
    run(async {
        let on = on_recording_model();
        let first = on.limiter();
        first.define(on.concurrency("slots", 60, 10)).await.unwrap();
        let second = on.successor(&first).await;
        let (renewed, denied) = (on.lease(), on.lease());
        for lease in [renewed, denied] {
            assert!(on.reserve(&first, lease, [("slots", 1)]).await.unwrap().is_allowed());
        }
        for number in 1..=200 {
            for (at, number) in [(&first, 2 * number - 1), (&second, 2 * number)] {
                on.ledger.take_calls();
                assert!(on.renew(at, renewed, number, []).await.unwrap().is_renewed());
                let calls = on.ledger.take_calls();
                assert!(calls.len() <= 3 || number == 2, "refused, read, renewed: {calls:?}");
                assert!(!on.renew(at, denied, number, [("slots", 10)]).await.unwrap().is_renewed());
                let calls = on.ledger.take_calls();
                assert!(calls.len() <= 4 || number == 2, "refused, read, recorded: {calls:?}");
            }
        }
        on.complete(&first, renewed, []).await.unwrap();
        assert_eq!(on.renew(&second, renewed, 401, []).await, Err(RenewError::LeaseEnded));
        assert_eq!(on.used(&*second, "slots").await, 1);
    });
}

/// TB-18, TB-21: renews on a closed account whose key is not known take turns as completes do.
#[test]
fn tb_18_renews_on_a_decreasing_limit_that_is_not_known_take_turns() {
    const LEASES: usize = 150;
    run(async {
        let on = on_recording_model();
        let (first, second) = (on.limiter(), on.limiter());
        for at in [&first, &second] {
            at.define(on.concurrency("t:*", 60, 1_000)).await.unwrap();
        }
        let mut renews = Vec::new();
        for _ in 0..LEASES {
            let lease = on.lease();
            assert!(on.reserve(&first, lease, [("t:a", 1)]).await.unwrap().is_allowed());
            renews.push(on.to_renew(lease, 1, &[]));
        }
        first.define(on.concurrency("t:*", 60, 10)).await.unwrap();
        on.pass(Duration::from_secs(1)).await;
        on.ledger.take_counts();
        on.ledger.shuffle(1);
        let answers = join_all(renews.iter().map(|request| second.renew(request))).await;
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_renewed()));
        // The lease, an attempt, the account, its closing transfer, and another attempt.
        let asked = on.ledger.take_counts();
        assert!(asked.calls <= 6 * LEASES, "{asked:?}");
        assert_eq!(on.used(&first, "t:a").await, LEASES as u64);
    });
}

/// TB-18: a renew reads all closed accounts of its lease at once, before its first attempt if the limits are known
/// to decrease, and again all at once if another server was faster.
#[test]
fn tb_18_renews_on_several_decreasing_limits_take_few_calls() {
    let names = ["global", "model", "tenant"];
    // Two calls at a server that knows of the decreases, and two more at one that does not. Beyond that, an attempt
    // fails if another server has reopened the accounts since they were read.
    for (servers, leases, calls_max) in [(1, 40, 2), (2, 40, 4), (8, 80, 9), (16, 160, 12)] {
        run(async {
            let on = on_recording_model();
            let at: Vec<_> = (0..servers).map(|_| on.limiter()).collect();
            for (limiter, name) in at.iter().flat_map(|limiter| names.map(|name| (limiter, name))) {
                limiter.define(on.concurrency(name, 600, 1_000)).await.unwrap();
            }
            let mut renews = Vec::new();
            for limiter in at.iter().cycle().take(leases) {
                let lease = on.lease();
                let needs = names.map(|name| (name, 1));
                assert!(on.reserve(limiter, lease, needs).await.unwrap().is_allowed());
                renews.push((limiter, on.to_renew(lease, 1, &[])));
            }
            let know = at.iter().step_by(2);
            for (limiter, name) in know.flat_map(|limiter| names.map(|name| (limiter, name))) {
                let capacity = if name == "tenant" { 10 } else { 0 };
                limiter.define(on.concurrency(name, 600, capacity)).await.unwrap();
            }
            on.ledger.take_counts();
            on.ledger.shuffle(1);
            let renews = renews.iter().map(|(limiter, request)| limiter.renew(request));
            let answers = join_all(renews).await;
            assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_renewed()));
            let asked = on.ledger.take_counts();
            assert!(asked.calls <= calls_max * leases, "{servers} servers: {asked:?}");
            for name in names {
                assert_eq!(on.used(&at[0], name).await, leases as u64);
            }
        });
    }
}

/// TB-18: renews take turns on closed accounts only.
#[test]
fn tb_18_renews_that_share_an_open_limit_do_not_take_turns() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        let tenants: Vec<_> = (0..20).map(|n| format!("tenant:{n:02}")).collect();
        limiter.define(on.concurrency("global", 60, 1_000)).await.unwrap();
        let mut renews = Vec::new();
        for tenant in &tenants {
            limiter.define(on.concurrency(tenant, 60, 10)).await.unwrap();
            let lease = on.lease();
            let needs = [("global", 1), (tenant.as_str(), 1)];
            assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
            renews.push(on.to_renew(lease, 1, &[]));
            limiter.define(on.concurrency(tenant, 60, 0)).await.unwrap();
        }
        let renews = join_all(renews.iter().map(|request| limiter.renew(request)));
        let (answers, rounds) = on.ledger.count_rounds(renews).await;
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_renewed()));
        assert_eq!(rounds, 2);
    });
}

/// TB-18: the closing transfers of limits that are not known are found at once.
#[test]
fn tb_18_a_renew_on_several_decreasing_limits_that_are_not_known_takes_few_rounds() {
    run(async {
        let on = on_recording_model();
        let (first, second) = (on.limiter(), on.limiter());
        for at in [&first, &second] {
            at.define(on.concurrency("t:*", 60, 10)).await.unwrap();
        }
        let lease = on.lease();
        let needs = [("t:a", 1), ("t:b", 1), ("t:c", 1), ("t:d", 1)];
        assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());
        first.define(on.concurrency("t:*", 60, 0)).await.unwrap();
        on.pass(Duration::from_secs(1)).await;
        let request = on.to_renew(lease, 1, &[]);
        let (answer, rounds) = on.ledger.count_rounds(second.renew(&request)).await;
        assert!(answer.unwrap().is_renewed());
        // The cluster's time, the lease, an attempt, the accounts before and after they are locked, their closing
        // transfers, and another attempt.
        assert_eq!(rounds, 7);
    });
}

/// TB-13, TB-18: whatever a lease has of 32 limits, it is renewed and ended by chains that every cluster takes.
#[test]
fn tb_13_a_lease_of_many_parts_fits_into_the_smallest_request() {
    run(async {
        let on = on_recording_model();
        on.ledger.refuse_items_over(253);
        let limiter = on.limiter();
        let names: Vec<_> = (0..REQUIREMENTS_MAX).map(|n| format!("limit:{n:02}")).collect();
        let all = |amount| names.iter().map(|name| (name.as_str(), amount)).collect::<Vec<_>>();
        for (renews, is_closed) in [(7, false), (8, false), (20, false), (7, true), (20, true)] {
            for name in &names {
                limiter.define(on.rolling(name, 600, 1_000)).await.unwrap();
            }
            for is_completed in [true, false] {
                let lease = on.lease();
                let request = on.to_reserve(lease, &all(10));
                assert!(limiter.reserve(&request).await.unwrap().is_allowed());
                for number in 1..=renews {
                    let request = on.to_renew(lease, number, &all(10 + number));
                    assert!(limiter.renew(&request).await.unwrap().is_renewed());
                }
                if is_closed {
                    for name in &names {
                        limiter.define(on.rolling(name, 600, 0)).await.unwrap();
                    }
                }
                let number = renews + 1;
                if is_completed {
                    limiter.complete(&on.to_complete(lease, &all(1))).await.unwrap();
                } else {
                    let request = on.to_renew(lease, number, &all(1));
                    assert!(limiter.renew(&request).await.unwrap().is_renewed());
                }
                for name in &names {
                    assert_eq!(on.used(&limiter, name).await, 1, "{renews} {is_closed}");
                    limiter.define(on.rolling(name, 600, 1_000)).await.unwrap();
                }
                limiter.complete(&on.to_complete(lease, &all(0))).await.unwrap();
                on.pass(Duration::from_secs(601)).await;
            }
        }
    });
}
