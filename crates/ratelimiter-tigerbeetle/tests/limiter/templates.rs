//! `TB-21`: requests and faults of limits that are made from templates, on the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use ratelimiter::{
    Backend, Decision, DefineError, DenialReason, LimitStatus, Limiter, RegisteredLimit,
    ReserveError,
};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{AccountRow, Ledger, WorkItem};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::RunSeed;
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, run};
use crate::on_model::on_recording_model;
use crate::recording_ledger::{Call, CallCounts, Fault, RecordingLedger};

/// Many more than one request to the ledger has.
const INSTANCES: usize = 2_000;

type OnModel = TestContext<RecordingLedger<Arc<ModelLedger>>>;

async fn account(on: &OnModel, name: &str) -> Option<AccountRow> {
    let id = ids::limit_account(&on.key(name));
    on.ledger.lookup_accounts(vec![id]).await.unwrap().first().copied()
}

async fn capacity(on: &OnModel, name: &str) -> u128 {
    let balances = account(on, name).await.unwrap().balances;
    balances.credits_posted - balances.debits_posted
}

/// TB-21, TPL-05: the first reserve of an instance takes at most three round trips more, every later
/// one is one write.
#[test]
fn tb_21_the_first_reserve_of_an_instance_takes_three_round_trips_more() {
    run(async {
        let on = on_recording_model();
        let (limiter, other) = (on.limiter(), on.limiter());
        for at in [&limiter, &other] {
            at.define(on.rolling("t:*", 60, 10)).await.unwrap();
            at.define(on.rolling("all", 60, 1_000)).await.unwrap();
        }
        let alone = [("t:a", 1)];
        let together = [("all", 1), ("t:b", 1)];
        let rounds = async |at: &TigerBeetleLimiter<_>, needs: &[(&str, u64)]| {
            let request = on.to_reserve(on.lease(), needs);
            let (decision, rounds) = on.ledger.count_rounds(at.reserve(&request)).await;
            assert!(decision.unwrap().is_allowed());
            rounds
        };
        assert_eq!(rounds(&*limiter, &alone).await, 1 + 2, "created and funded");
        assert_eq!(rounds(&*limiter, &together).await, 1 + 3, "if another limit has room");
        assert_eq!(rounds(&*other, &alone).await, 1 + 1, "it exists and is as it should be");
        assert_eq!(rounds(&*other, &together).await, 1 + 2);
        on.ledger.take_calls();
        for at in [&limiter, &other] {
            for needs in [&alone[..], &together[..]] {
                assert_eq!(rounds(&**at, needs).await, 1, "it is known");
                let calls = on.ledger.take_calls();
                assert!(matches!(calls[..], [Call::CreateTransfers(_)]), "{calls:?}");
            }
        }
        // A template that has changed meanwhile costs one round trip more.
        let (third, changed) = (on.limiter(), on.rolling("t:*", 60, 20));
        third.define(changed).await.unwrap();
        third.define(on.rolling("all", 60, 1_000)).await.unwrap();
        assert_eq!(rounds(&*third, &together).await, 1 + 3);
        assert_eq!(capacity(&on, "t:b").await, 20);
    });
}

/// TB-21, TPL-02: a reserve that is denied anyhow creates no account.
#[test]
fn tb_21_a_reserve_that_is_denied_anyhow_creates_no_account() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.rolling("t:*", 60, 10)).await.unwrap();
        limiter.define(on.rolling("full", 60, 1)).await.unwrap();
        limiter.define(on.rolling("off", 60, 0)).await.unwrap();
        assert!(on.reserve(&limiter, on.lease(), [("full", 1)]).await.unwrap().is_allowed());
        for (needs, is_error) in [
            ([("full", 1), ("t:a", 1)], false),
            ([("off", 1), ("t:a", 1)], false),
            ([("full", 1), ("t:a", 11)], true),
            ([("none", 1), ("t:a", 1)], true),
        ] {
            let lease = on.lease();
            let answer = on.reserve(&limiter, lease, needs).await;
            assert_eq!(answer.is_err(), is_error, "{answer:?}");
            assert!(!answer.is_ok_and(|decision| decision.is_allowed()));
            assert_eq!(account(&on, "t:a").await, None, "{needs:?}");
        }
        // What was denied stays denied (RES-05), and another lease gets its instance.
        let denied = on.lease();
        let needs = [("full", 1), ("t:a", 1)];
        assert!(!on.reserve(&limiter, denied, needs).await.unwrap().is_allowed());
        limiter.define(on.rolling("full", 60, 9)).await.unwrap();
        assert!(!on.reserve(&limiter, denied, needs).await.unwrap().is_allowed());
        assert!(on.reserve(&limiter, on.lease(), needs).await.unwrap().is_allowed());
    });
}

async fn make_instances(on: &OnModel, limiter: &impl Limiter, amount: u64) {
    let request = |n| on.to_reserve(on.lease(), &[(&*format!("t:{n:04}"), amount)]);
    let requests: Vec<_> = (0..INSTANCES).map(request).collect();
    let answers = limiter.reserve_batch(&requests).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().is_allowed()));
}

/// TB-21: a change of a template is applied to many instances at a time, never one by one, and new
/// instances are made together.
#[test]
fn tb_21_a_change_of_a_template_is_batched() {
    run(async {
        let on = on_recording_model();
        let unbounded = |options: &mut LimiterOptions| {
            options.new_instances_per_second_max = usize::MAX;
        };
        let (limiter, other) = (on.limiter_with(unbounded), on.limiter_with(unbounded));
        for at in [&limiter, &other] {
            at.define(on.concurrency("t:*", 60, 10)).await.unwrap();
            on.ledger.take_counts();
            make_instances(&on, &**at, 3).await;
            let CallCounts { calls, .. } = on.ledger.take_counts();
            assert!(calls <= INSTANCES / 25, "{calls} calls to make them");
            at.tick().await;
        }
        on.ledger.take_counts();
        let per_call = INSTANCES / 200;
        for (capacity, writes) in [(20, 2), (8, 2), (5, 2)] {
            limiter.define(on.concurrency("t:*", 60, capacity)).await.unwrap();
            limiter.tick().await;
            let CallCounts { calls, transfers } = on.ledger.take_counts();
            assert_eq!(transfers, writes * INSTANCES, "to {capacity}");
            assert!(calls <= per_call + writes * per_call + 2, "{calls} calls to {capacity}");
            // The other server only reads what the first one has written.
            other.define(on.concurrency("t:*", 60, capacity)).await.unwrap();
            other.tick().await;
            let read = CallCounts { calls: per_call, transfers: 0 };
            assert_eq!(on.ledger.take_counts(), read, "to {capacity}");
        }
        // At most so many round trips, one after the other.
        let changed = limiter.define(on.concurrency("t:*", 60, 30)).await;
        assert_eq!(changed, Ok(LimitStatus::Active));
        let ((), rounds) = on.ledger.count_rounds(limiter.tick()).await;
        assert!((1..=6).contains(&rounds), "{rounds} rounds");
        on.ledger.take_counts();
        let equal = limiter.define(on.concurrency("t:*", 60, 30)).await;
        assert_eq!(equal, Ok(LimitStatus::Active));
        limiter.tick().await;
        assert_eq!(on.ledger.take_counts(), CallCounts { calls: 0, transfers: 0 }, "DEF-05");
    });
}

/// TB-21: whichever call of a change gets no answer, every instance follows before its next reserve,
/// and what arrives late changes nothing.
#[test]
fn tb_21_an_instance_follows_a_change_whose_calls_were_not_answered() {
    let late = |calls: Vec<Call>| {
        let item = |call| match call {
            Call::CreateTransfers(item) => Some(item),
            Call::CreateAccounts | Call::Lookup | Call::Query => None,
        };
        calls.into_iter().filter_map(item).collect::<Vec<WorkItem>>()
    };
    run(async {
        for (to, used) in [(20, 3), (5, 3), (2, 3)] {
            for fault in [Fault::AnswerLost, Fault::RequestLost] {
                for number in 0..3 {
                    let cut = format!("10 to {to} with {used} used, call {number}, {fault:?}");
                    let on = on_recording_model();
                    let limiter = on.limiter();
                    limiter.define(on.concurrency("t:*", 60, 10)).await.unwrap();
                    let lease = on.lease();
                    let needs = [("t:a", used), ("t:b", used)];
                    assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
                    limiter.tick().await;
                    on.ledger.fail_from(number, fault);
                    limiter.define(on.concurrency("t:*", 60, to)).await.unwrap();
                    limiter.tick().await;
                    let late_requests = late(on.ledger.take_calls());
                    on.ledger.heal();
                    let admitted = to.saturating_sub(used);
                    let more = on.reserve(&limiter, on.lease(), [("t:a", admitted + 1)]).await;
                    assert!(!more.is_ok_and(|decision| decision.is_allowed()), "{cut}");
                    for item in late_requests {
                        on.ledger.create_transfers(item).await.unwrap();
                    }
                    if admitted > 0 {
                        let rest = on.reserve(&limiter, on.lease(), [("t:a", admitted)]).await;
                        assert!(rest.unwrap().is_allowed(), "{cut}");
                        assert_eq!(capacity(&on, "t:a").await, u128::from(to), "{cut}");
                    } else {
                        on.complete(&limiter, lease, []).await.unwrap();
                        limiter.tick().await;
                        assert_eq!(capacity(&on, "t:a").await, u128::from(to), "{cut}");
                        let all = on.reserve(&limiter, on.lease(), [("t:b", to)]).await;
                        assert!(all.unwrap().is_allowed(), "{cut}");
                    }
                }
            }
        }
    });
}

/// TB-21: a change that arrives when the template was changed back has no effect.
#[test]
fn tb_21_a_late_change_of_an_instance_changes_nothing() {
    run(async {
        for to in [20, 5, 2] {
            for is_back_unanswered in [false, true] {
                let on = on_recording_model();
                let limiter = on.limiter();
                limiter.define(on.concurrency("t:*", 60, 10)).await.unwrap();
                assert!(on.reserve(&limiter, on.lease(), [("t:a", 3)]).await.unwrap().is_allowed());
                limiter.tick().await;
                on.ledger.fail_from(1, Fault::RequestLost);
                limiter.define(on.concurrency("t:*", 60, to)).await.unwrap();
                limiter.tick().await;
                let late_requests = on.ledger.take_calls();
                on.ledger.fail_from(0, Fault::RequestLost);
                if !is_back_unanswered {
                    on.ledger.heal();
                }
                limiter.define(on.concurrency("t:*", 60, 10)).await.unwrap();
                limiter.tick().await;
                on.ledger.heal();
                assert!(on.reserve(&limiter, on.lease(), [("t:a", 3)]).await.unwrap().is_allowed());
                for call in late_requests {
                    if let Call::CreateTransfers(item) = call {
                        on.ledger.create_transfers(item).await.unwrap();
                    }
                }
                assert_eq!(capacity(&on, "t:a").await, 10, "{to}, {is_back_unanswered}");
                assert!(on.reserve(&limiter, on.lease(), [("t:a", 4)]).await.unwrap().is_allowed());
            }
        }
    });
}

/// TB-21, TPL-07: concurrent first reserves of one instance count it once, and those of others are
/// counted exactly.
#[test]
fn tb_21_the_bound_on_instances_is_exact() {
    const INSTANCES_MAX: usize = 5;
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter_with(|options| options.instances_max = INSTANCES_MAX);
        limiter.define(on.concurrency("t:*", 60, 100)).await.unwrap();
        on.ledger.shuffle(3);
        let names: Vec<_> = (0..3 * INSTANCES_MAX).map(|n| format!("t:{}", n / 3)).collect();
        let reserve = |name| on.reserve(&limiter, on.lease(), [(name, 1)]);
        let answers = join_all(names.iter().map(|name| reserve(name))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().is_allowed()));
        let answer = reserve("t:more").await.unwrap();
        let Decision::Denied(denial) = answer else { panic!("{answer:?}") };
        let template = on.key("t:*");
        assert_eq!(denial.reason, DenialReason::TooManyInstances { template: template.clone() });
        assert_eq!(account(&on, "t:more").await, None);
        assert_eq!(limiter.instances_by_template(), [(template, INSTANCES_MAX)]);
        assert!(reserve("t:0").await.unwrap().is_allowed(), "nothing else suffers");
    });
}

/// TB-21: a first reserve that gets no answer is repeated, and the instance is funded once.
#[test]
fn tb_21_an_instance_whose_making_was_interrupted_is_funded_once() {
    run(async {
        for calendar in [false, true] {
            for fault in [Fault::AnswerLost, Fault::RequestLost] {
                for number in 0..10 {
                    let on = on_recording_model();
                    let (limiter, other) = (on.limiter(), on.limiter());
                    let template = match calendar {
                        true => on.hourly("t:*", 20, 10),
                        false => on.rolling("t:*", 60, 10),
                    };
                    for at in [&limiter, &other] {
                        at.define(template.clone()).await.unwrap();
                    }
                    on.ledger.fail_from(number, fault);
                    let lease = on.lease();
                    let answer = on.reserve(&limiter, lease, [("t:a", 6)]).await;
                    let calls = on.ledger.take_calls().len();
                    on.ledger.heal();
                    if calls <= number {
                        assert!(answer.unwrap().is_allowed(), "nothing was interrupted");
                        assert!(number > 2, "{number}");
                        continue;
                    }
                    assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{answer:?}");
                    let again = on.reserve(&other, lease, [("t:a", 6)]).await.unwrap();
                    assert!(again.is_allowed(), "{again:?}");
                    let again = on.reserve(&limiter, lease, [("t:a", 6)]).await.unwrap();
                    assert!(again.is_allowed(), "{again:?}");
                    for at in [&limiter, &other] {
                        let usage = on.state(at, "t:a").await.usage;
                        assert_eq!((usage.used, usage.available), (6, 4), "call {number}");
                    }
                }
            }
        }
    });
}

/// TB-21: a tick that is interrupted leaves no instance behind.
#[test]
fn tb_21_an_instance_follows_a_change_that_was_interrupted() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.concurrency("t:*", 60, 10)).await.unwrap();
        for name in ["t:a", "t:b"] {
            assert!(on.reserve(&limiter, on.lease(), [(name, 3)]).await.unwrap().is_allowed());
        }
        limiter.tick().await;
        limiter.define(on.concurrency("t:*", 60, 4)).await.unwrap();
        {
            on.ledger.delay(5);
            let mut change = std::pin::pin!(limiter.tick());
            assert!(futures::poll!(change.as_mut()).is_pending(), "it waits for the ledger");
        }
        on.ledger.delay(0);
        for name in ["t:a", "t:b"] {
            assert!(!on.reserve(&limiter, on.lease(), [(name, 2)]).await.unwrap().is_allowed());
            assert!(on.reserve(&limiter, on.lease(), [(name, 1)]).await.unwrap().is_allowed());
            assert_eq!(capacity(&on, name).await, 4);
        }
    });
}

/// TB-21, TB-08: a change of a template that a server began and did not confirm is taken back from the
/// instances that others know, also if it arrives late.
#[test]
fn tb_21_an_unconfirmed_change_of_a_template_is_taken_back() {
    run(async {
        for to in [20, 5] {
            let on = on_recording_model();
            let (dies, lives) = (on.limiter(), on.limiter());
            let template = on.concurrency("t:*", 60, 10);
            for at in [&dies, &lives] {
                at.define(template.clone()).await.unwrap();
                assert!(on.reserve(at, on.lease(), [("t:a", 1)]).await.unwrap().is_allowed());
                at.tick().await;
            }
            on.ledger.fail_from(1, Fault::RequestLost);
            dies.define(on.concurrency("t:*", 60, to)).await.unwrap();
            dies.tick().await;
            let calls = on.ledger.take_calls();
            on.ledger.heal();
            drop(dies);
            let unconfirmed = BTreeSet::from([template.key.clone()]);
            let registered = vec![RegisteredLimit::in_force(template)];
            let statuses = lives.restore_all(registered, &unconfirmed).await;
            assert_eq!(statuses, Ok(vec![LimitStatus::Active]));
            lives.tick().await;
            for call in calls {
                if let Call::CreateTransfers(item) = call {
                    on.ledger.create_transfers(item).await.unwrap();
                }
            }
            assert_eq!(capacity(&on, "t:a").await, 10);
        }
    });
}

/// TB-21, OPS-03: a list has limits and templates, and all of them are defined or none.
#[test]
fn tb_21_a_list_with_templates_is_defined_or_not() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        let list = vec![
            on.rolling("t:*", 60, 0),
            on.rolling("a", 60, 3),
            on.rolling("u:*", 60, 2),
            on.rolling("b", 60, 0),
        ];
        let (active, paused) = (LimitStatus::Active, LimitStatus::Paused);
        let statuses = limiter.define_all(list).await;
        assert_eq!(statuses, Ok(vec![paused, active, active, paused]));
        let conflict = limiter.define_all(vec![
            on.rolling("a", 60, 9),
            on.rolling("v:*", 60, 2),
            on.concurrency("u:*", 60, 2),
        ]);
        assert!(matches!(conflict.await, Err(DefineError::KindConflict { .. })));
        assert_eq!(limiter.state(&on.key("v:*")).await, Ok(None));
        assert_eq!(on.state(&limiter, "a").await.limit.capacity.get(), 3);
        on.ledger.fail_from(0, Fault::RequestLost);
        let unanswered = vec![on.rolling("v:*", 60, 2), on.rolling("a", 60, 9)];
        let answer = limiter.define_all(unanswered).await;
        assert!(matches!(answer, Err(DefineError::Unanswered(_))), "{answer:?}");
        on.ledger.heal();
        assert_eq!(limiter.state(&on.key("v:*")).await, Ok(None));
    });
}

/// TB-21: limiters with old and new templates make, use and adjust an instance at once, in any order
/// of their calls. When all have the last template, the account has its capacity.
#[test]
fn tb_21_racing_servers_end_at_the_template_whatever_the_interleaving() {
    let own = RunSeed::for_command("cargo test -p ratelimiter-tigerbeetle --test limiter tb_21");
    for seed in (0..300).chain(own.seeds(60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(race(seed));
    }
}

async fn race(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let on = Arc::new(on_recording_model());
    let limiters: Vec<_> = (0..3).map(|_| on.limiter()).collect();
    for limiter in &limiters {
        limiter.define(on.concurrency("t:*", 60, 6)).await.unwrap();
    }
    on.ledger.shuffle(seed);
    let target = random.u64(1..12);
    let mut tasks = tokio::task::JoinSet::new();
    for limiter in &limiters {
        let (on, limiter) = (Arc::clone(&on), Arc::clone(limiter));
        let template = RegisteredLimit::in_force(on.concurrency("t:*", 60, target));
        tasks.spawn(async move {
            limiter.restore(template).await.unwrap();
            limiter.tick().await;
        });
    }
    for limiter in &limiters {
        for _ in 0..random.usize(1..4) {
            let (on, limiter) = (Arc::clone(&on), Arc::clone(limiter));
            let (amount, completes) = (random.u64(1..4), random.bool());
            tasks.spawn(async move {
                let lease = on.lease();
                let answer = on.reserve(&limiter, lease, [("t:a", amount)]).await;
                if completes && answer.is_ok_and(|decision| decision.is_allowed()) {
                    on.complete(&limiter, lease, []).await.unwrap();
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let Some(row) = account(&on, "t:a").await else { return };
    assert!(row.balances.debits_pending <= 6.max(target.into()), "seed {seed}: {row:?}");
    // A server that made it with the old template has learned of the new one since.
    on.pass(std::time::Duration::from_secs(61)).await;
    let decision = on.reserve(&limiters[0], on.lease(), [("t:a", target)]).await.unwrap();
    assert!(matches!(decision, Decision::Allowed { .. }), "seed {seed}: {decision:?}");
    assert_eq!(capacity(&on, "t:a").await, u128::from(target), "seed {seed}");
}
