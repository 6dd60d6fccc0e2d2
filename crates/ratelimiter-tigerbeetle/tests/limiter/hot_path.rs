//! `TB-01` to `TB-04`: what a reserve and a complete ask of the ledger, and what they do not.

use ratelimiter::Backend;
use ratelimiter_tigerbeetle::ids::{self, TransferRole};
use ratelimiter_tigerbeetle::ledger::{Action, Event, WorkItem};

use crate::on_model::on_watched_model;
use crate::scene::run;
use crate::watched_ledger::Call;

/// The one item that was asked for.
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
        let on = on_watched_model();
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
        assert_eq!(item.len(), 1 + 2 + 3, "a void, a pair, and an excess with its debt");
    });
}

/// TB-02
#[test]
fn tb_02_the_order_of_the_requirements_does_not_matter() {
    run(async {
        let on = on_watched_model();
        let limiter = on.forgetful_limiter();
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

/// RES-06: an unknown key is refused without the cluster; what the definitions refuse asks it whether the lease is known,
/// and leaves nothing behind.
#[test]
fn res_06_what_the_definitions_refuse_changes_nothing_in_the_cluster() {
    run(async {
        let on = on_watched_model();
        let limiter = on.limiter();
        limiter.define(on.rolling("small", 60, 1)).await.unwrap();
        on.ledger.take_calls();
        let lease = on.lease();
        assert!(on.reserve(&limiter, lease, [("unknown", 2)]).await.is_err());
        assert!(on.ledger.take_calls().is_empty());
        for _ in 0..2 {
            assert!(on.reserve(&limiter, lease, [("small", 2)]).await.is_err());
        }
        let from_an_account_to_itself = |event: &Event| match event.transfer.action {
            Action::Posted(movement) => movement.debit == movement.credit,
            _ => false,
        };
        for call in on.ledger.take_calls() {
            match call {
                Call::CreateTransfers(item) => {
                    assert!(item.events().iter().all(from_an_account_to_itself), "{item:?}");
                }
                Call::Query => {}
                other => panic!("{other:?}"),
            }
        }
        limiter.define(on.rolling("small", 60, 2)).await.unwrap();
        assert!(on.reserve(&limiter, lease, [("small", 2)]).await.unwrap().is_allowed());
    });
}

/// TB-06: holds are released each on its own, so that one that has expired harms no other.
#[test]
fn tb_06_voids_of_holds_are_independent() {
    run(async {
        let on = on_watched_model();
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
        let is_lone_void = |event: &Event| {
            matches!(event.transfer.action, Action::VoidPending { .. }) && !event.linked
        };
        assert_eq!(item.len(), 3);
        assert!(item.events().iter().all(is_lone_void), "{item:?}");
    });
}
