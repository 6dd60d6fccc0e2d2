//! Lost answers: requests count at most once, interrupted changes recover.

use ratelimiter::{Backend, Limit, LimitStatus, RegisteredLimit, ReleaseError, ReserveError};

use crate::context::run;
use crate::on_model::on_recording_model;
use crate::recording_ledger::Fault;

/// More calls than any operation here makes.
const CALLS_MAX: usize = 12;

fn every_fault() -> impl Iterator<Item = (usize, Fault)> {
    let faults = [Fault::AnswerLost, Fault::RequestLost];
    (0..CALLS_MAX).flat_map(move |number| faults.map(|fault| (number, fault)))
}

/// RES-04, TB-05
#[test]
fn res_04_a_reserve_without_an_answer_is_repeated_and_counts_once() {
    run(async {
        for fault in [Fault::AnswerLost, Fault::RequestLost] {
            let on = on_recording_model();
            let limiter = on.limiter();
            limiter.define(on.rolling("tokens", 60, 100)).await.unwrap();
            on.ledger.fail_from(0, fault);
            let lease = on.lease();
            let answer = on.reserve(&limiter, lease, [("tokens", 60)]).await;
            assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{answer:?}");
            on.ledger.heal();
            assert!(on.reserve(&limiter, lease, [("tokens", 60)]).await.unwrap().is_allowed());
            assert_eq!(on.used(&limiter, "tokens").await, 60);
        }
    });
}

/// REN-03, TB-18: interrupted at any call, and repeated at another server.
#[test]
fn ren_03_a_renew_without_an_answer_is_repeated_and_counts_once() {
    run(async {
        for (number, fault) in every_fault() {
            for (amounts, after) in [
                ([("tokens", 20), ("slots", 2)], (20, 2)),
                ([("tokens", 70), ("slots", 1)], (70, 1)),
                ([("tokens", 101), ("slots", 1)], (60, 1)),
            ] {
                let on = on_recording_model();
                let limiter = on.limiter();
                limiter.define(on.rolling("tokens", 60, 200)).await.unwrap();
                limiter.define(on.concurrency("slots", 60, 5)).await.unwrap();
                let lease = on.lease();
                let needs = [("tokens", 60), ("slots", 1)];
                assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
                let other = [("tokens", 100)];
                assert!(on.reserve(&limiter, on.lease(), other).await.unwrap().is_allowed());
                on.ledger.fail_from(number, fault);
                let first = on.renew(&limiter, lease, 1, amounts).await;
                on.ledger.heal();
                let another = on.successor(&limiter).await;
                let again = on.renew(&another, lease, 1, amounts).await.unwrap();
                let cut = format!("{number} {fault:?} {amounts:?}");
                if let Ok(first) = first {
                    assert_eq!(again.is_renewed(), first.is_renewed(), "{cut}");
                }
                assert_eq!(on.used(&another, "tokens").await, 100 + after.0, "{cut}");
                assert_eq!(on.used(&another, "slots").await, after.1, "{cut}");
                on.complete(&limiter, lease, [("tokens", 50)]).await.unwrap();
                assert_eq!(on.used(&another, "tokens").await, 150, "{cut}");
                assert_eq!(on.used(&another, "slots").await, 0, "{cut}");
            }
        }
    });
}

/// COM-05, TB-06: interrupted at any call, and repeated at another server.
#[test]
fn com_05_a_complete_without_an_answer_is_repeated_and_counts_once() {
    run(async {
        for (number, fault) in every_fault() {
            let on = on_recording_model();
            let limiter = on.limiter();
            limiter.define(on.rolling("less", 60, 100)).await.unwrap();
            limiter.define(on.rolling("more", 60, 50)).await.unwrap();
            limiter.define(on.concurrency("slots", 60, 5)).await.unwrap();
            let lease = on.lease();
            let needs = [("less", 50), ("more", 50), ("slots", 1)];
            assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
            on.ledger.fail_from(number, fault);
            let actuals = [("less", 20), ("more", 57)];
            drop(on.complete(&limiter, lease, actuals).await);
            on.ledger.heal();
            let another = on.successor(&limiter).await;
            on.complete(&another, lease, actuals).await.unwrap();
            assert_eq!(on.used(&another, "less").await, 20, "{number} {fault:?}");
            assert_eq!(on.used(&another, "slots").await, 0, "{number} {fault:?}");
            let more = on.state(&another, "more").await.usage;
            assert_eq!((more.used, more.debt), (50, 7), "{number} {fault:?}");
        }
    });
}

/// OPS-01, TB-16: interrupted at any call, a release has happened or not, and can be repeated.
#[test]
fn ops_01_a_release_without_an_answer_is_repeated() {
    run(async {
        for (number, fault) in every_fault() {
            let on = on_recording_model();
            let limiter = on.limiter();
            limiter.define(on.concurrency("slots", 60, 5)).await.unwrap();
            let lease = on.lease();
            assert!(on.reserve(&limiter, lease, [("slots", 1)]).await.unwrap().is_allowed());
            on.ledger.fail_from(number, fault);
            let first = limiter.release(lease).await;
            on.ledger.heal();
            let is_done = on.used(&limiter, "slots").await == 0;
            assert!(is_done || first.is_err(), "{number} {fault:?}");
            let unknown = Err(ReleaseError::UnknownLease { lease });
            let expected = if is_done { unknown } else { Ok(()) };
            assert_eq!(limiter.release(lease).await, expected, "{number} {fault:?}");
            assert_eq!(on.used(&limiter, "slots").await, 0);
        }
    });
}

/// OPS-02, TB-22: interrupted at any call, a debt is forgiven or not, as a whole.
#[test]
fn tb_22_a_debt_is_forgiven_as_a_whole_or_not_at_all() {
    run(async {
        let mut left = std::collections::BTreeSet::new();
        for (number, fault) in every_fault() {
            let on = on_recording_model();
            let limiter = on.limiter();
            limiter.define(on.rolling("tokens", 60, 10)).await.unwrap();
            let lease = on.lease();
            assert!(on.reserve(&limiter, lease, [("tokens", 10)]).await.unwrap().is_allowed());
            on.complete(&limiter, lease, [("tokens", 17)]).await.unwrap();
            on.ledger.fail_from(number, fault);
            let first = limiter.forgive(&on.key("tokens")).await;
            on.ledger.heal();
            let debt = on.state(&limiter, "tokens").await.usage.debt;
            assert!(first.is_err() || (first == Ok(7) && debt == 0), "{number} {fault:?}");
            assert_eq!(limiter.forgive(&on.key("tokens")).await, Ok(debt), "{number} {fault:?}");
            left.insert((first.is_ok(), debt));
        }
        assert_eq!(Vec::from_iter(left), [(false, 0), (false, 7), (true, 0)]);
    });
}

/// COM-05, TB-16: interrupted at any call, while an account is closed and another has no room, and
/// then completed at another server with other actuals: one of the two takes effect, for all keys.
#[test]
fn com_05_a_complete_that_was_cut_short_is_all_or_nothing() {
    run(async {
        let mut outcomes = std::collections::BTreeSet::new();
        for (number, fault) in every_fault() {
            let on = on_recording_model();
            let limiter = on.limiter();
            for name in ["closed", "full"] {
                limiter.define(on.rolling(name, 60, 50)).await.unwrap();
            }
            limiter.define(on.concurrency("slots", 60, 5)).await.unwrap();
            let lease = on.lease();
            let needs = [("closed", 50), ("full", 50), ("slots", 1)];
            assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
            limiter.define(on.rolling("closed", 60, 10)).await.unwrap();
            on.ledger.fail_from(number, fault);
            let actuals = [("closed", 20), ("full", 57)];
            let answer = on.complete(&limiter, lease, actuals).await;
            on.ledger.heal();
            let another = on.successor(&limiter).await;
            on.complete(&another, lease, [("closed", 30), ("full", 40)]).await.unwrap();
            let full = on.state(&another, "full").await.usage;
            let outcome = (on.used(&another, "closed").await, full.used, full.debt);
            let expected =
                if answer.is_ok() { &[(20, 50, 7)][..] } else { &[(20, 50, 7), (30, 40, 0)] };
            assert!(expected.contains(&outcome), "{number} {fault:?}: {outcome:?}");
            assert_eq!(on.used(&another, "slots").await, 0, "{number} {fault:?}");
            outcomes.insert((answer.is_ok(), outcome));
        }
        assert_eq!(outcomes.len(), 3, "answered; not, and done; not, and not done: {outcomes:?}");
    });
}

/// COM-03, TB-16: an excess that was refused when the complete was interrupted is reserved if there
/// is room when it is repeated.
#[test]
fn com_03_an_excess_is_held_if_there_is_room_when_the_complete_takes_effect() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.rolling("tokens", 60, 50)).await.unwrap();
        let lease = on.lease();
        assert!(on.reserve(&limiter, lease, [("tokens", 50)]).await.unwrap().is_allowed());
        on.ledger.fail_from(1, Fault::RequestLost);
        assert!(
            on.complete(&limiter, lease, [("tokens", 57)]).await.is_err(),
            "refused, then lost"
        );
        on.ledger.heal();
        limiter.define(on.rolling("tokens", 60, 60)).await.unwrap();
        on.complete(&limiter, lease, [("tokens", 57)]).await.unwrap();
        let tokens = on.state(&limiter, "tokens").await.usage;
        assert_eq!((tokens.used, tokens.debt, tokens.uncovered), (57, 0, 0));
    });
}

/// TB-07, TB-08: the process ends at any call of a change, with the old file or the new one.
#[test]
fn tb_08_a_change_that_was_cut_short_anywhere_heals_at_the_start() {
    run(async {
        for ((number, fault), is_new_file) in every_fault().flat_map(|f| [(f, false), (f, true)]) {
            for (from, to) in [(10, 20), (10, 9), (10, 5), (10, 10)] {
                let on = on_recording_model();
                let before = on.limiter();
                let old = on.concurrency("slots", 60, from);
                before.define(old.clone()).await.unwrap();
                let lease = on.lease();
                assert!(on.reserve(&before, lease, [("slots", 8)]).await.unwrap().is_allowed());
                let new = on.concurrency("slots", 60, to);
                on.ledger.fail_from(number, fault);
                drop(before.define(new.clone()).await);
                drop(before);
                on.ledger.heal();

                let limiter = on.limiter();
                let planned = RegisteredLimit::in_force(old.clone()).redefined(new).unwrap();
                let file =
                    if is_new_file { planned } else { RegisteredLimit::in_force(old.clone()) };
                let target = file.target();
                let status = limiter.restore(file).await.unwrap();
                let cut =
                    format!("{from} to {to}, call {number} {fault:?}, new file {is_new_file}");
                let waits = LimitStatus::Decreasing { to: target };
                let expected = if target.get() < 8 { waits } else { LimitStatus::Active };
                assert_eq!(status, expected, "{cut}");
                on.complete(&limiter, lease, []).await.unwrap();
                on.pass(std::time::Duration::from_secs(1)).await;
                let state = on.state(&limiter, "slots").await;
                assert_eq!(state.status, LimitStatus::Active, "{cut}");
                assert_eq!(state.usage.available, target.get(), "{cut}");
            }
        }
    });
}

/// TB-07: without a restart, the account returns to the definition that is still in force.
#[test]
fn tb_07_a_change_without_an_answer_is_taken_back_by_the_next_tick() {
    run(async {
        for (number, fault) in every_fault() {
            for capacity in [20, 9, 5] {
                let on = on_recording_model();
                let limiter = on.limiter();
                limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
                assert!(
                    on.reserve(&limiter, on.lease(), [("slots", 8)]).await.unwrap().is_allowed()
                );
                on.ledger.fail_from(number, fault);
                let changed = limiter.define(on.concurrency("slots", 60, capacity)).await;
                on.ledger.heal();
                let Limit { capacity: before, .. } = on.state(&limiter, "slots").await.limit;
                limiter.tick().await;
                let state = on.state(&limiter, "slots").await;
                if changed.is_err() {
                    assert_eq!(state.limit.capacity, before);
                    assert_eq!(state.limit.capacity.get(), 10);
                    assert_eq!(state.usage.available, 2, "{number} {fault:?} {capacity}");
                    assert_eq!(state.status, LimitStatus::Active);
                }
            }
        }
    });
}
