//! `TB-21`: instances between callers that give up, servers that know other templates, and ticks.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use futures::poll;
use ratelimiter::{
    Backend, Decision, LeaseId, Limiter, RegisteredLimit, ReserveError, TEMPLATES_MAX,
};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{Ledger, Movement, Transfer, TransferId, WorkItem};
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, run};
use crate::on_model::on_recording_model;
use crate::recording_ledger::{Call, CallCounts, Fault, RecordingLedger};

type OnModel = TestContext<RecordingLedger<Arc<ModelLedger>>>;
type OnModelLimiter = TigerBeetleLimiter<RecordingLedger<Arc<ModelLedger>>>;

/// More than one tick looks at.
const INSTANCES: usize = 5_000;

async fn capacity(on: &OnModel, name: &str) -> u128 {
    let id = ids::limit_account(&on.key(name));
    let balances = on.ledger.lookup_accounts(vec![id]).await.unwrap()[0].balances;
    balances.credits_posted - balances.debits_posted
}

async fn is_allowed(on: &OnModel, at: &OnModelLimiter, name: &str, amount: u64) -> bool {
    on.reserve(at, on.lease(), [(name, amount)]).await.unwrap().is_allowed()
}

fn name(n: usize) -> String {
    format!("t:{n:04}")
}

/// Makes many instances, each with 3 units in use.
async fn make_instances(on: &OnModel, limiter: &OnModelLimiter) -> Vec<LeaseId> {
    let request = |n| on.to_reserve(on.lease(), &[(&*name(n), 3)]);
    let requests: Vec<_> = (0..INSTANCES).map(request).collect();
    let answers = limiter.reserve_batch(&requests).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().is_allowed()));
    requests.iter().map(|request| request.lease).collect()
}

/// The number of these instances whose accounts have this capacity.
async fn count_with(on: &OnModel, capacity: u128) -> usize {
    let ids = (0..INSTANCES).map(|n| ids::limit_account(&on.key(&name(n)))).collect();
    let rows = on.ledger.lookup_accounts(ids).await.unwrap();
    let balances = rows.iter().map(|row| row.balances);
    balances.filter(|has| has.credits_posted - has.debits_posted == capacity).count()
}

/// Defines `t:a` with 20 units while answers are lost, from each call on until the change has reached the
/// account. `check` runs after each.
async fn define_without_answers(on: &OnModel, limiter: &OnModelLimiter, check: impl AsyncFn(&str)) {
    for number in 0..4 {
        on.ledger.fail_from(number, Fault::AnswerLost);
        drop(limiter.define(on.concurrency("t:a", 60, 20)).await.unwrap_err());
        on.ledger.heal();
        let is_changed = capacity(on, "t:a").await == 20;
        check(&format!("call {number}")).await;
        if is_changed {
            return;
        }
    }
    panic!("no definition has reached the account");
}

/// TB-21, TPL-07: a caller that goes away while its instance is made leaves nothing that counts.
#[test]
fn tb_21_a_caller_that_gives_up_leaves_no_instance() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter_with(|options| options.instances_max = 1);
        limiter.define(on.rolling("t:*", 60, 10)).await.unwrap();
        on.ledger.delay(5);
        let needs = [("t:a", 1)];
        {
            let mut first = std::pin::pin!(on.reserve(&limiter, on.lease(), needs));
            let mut second = std::pin::pin!(on.reserve(&limiter, on.lease(), needs));
            assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
            let other = on.reserve(&limiter, on.lease(), [("t:b", 1)]).await.unwrap();
            assert!(!other.is_allowed(), "it counts while somebody waits");
        }
        on.ledger.delay(0);
        assert_eq!(limiter.instances_by_template(), [(on.key("t:*"), 0)]);
        assert!(is_allowed(&on, &limiter, "t:b", 1).await);
    });
}

/// TB-21: callers that all give up before their instances are made do not keep them from being made.
#[test]
fn tb_21_instances_are_made_though_no_caller_stays_for_it() {
    /// More than a reserve takes, and less than it takes to make an instance.
    const PATIENCE: usize = 15;
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.rolling("t:*", 60, 1_000)).await.unwrap();
        on.ledger.delay(10);
        let names: Vec<_> = (0..5).map(|n| format!("t:{n}")).collect();
        let (mut callers, mut allowed) = (Vec::new(), BTreeSet::new());
        let mut tick = Box::pin(limiter.tick());
        for step in 0..1_000 {
            let name = &names[step % names.len()];
            callers.push((step, name, Box::pin(on.reserve(&limiter, on.lease(), [(name, 1)]))));
            let mut waiting = Vec::new();
            for (since, name, mut caller) in callers {
                match poll!(caller.as_mut()) {
                    std::task::Poll::Ready(answer) => {
                        assert!(answer.unwrap().is_allowed());
                        allowed.insert(name);
                    }
                    std::task::Poll::Pending if step - since < PATIENCE => {
                        waiting.push((since, name, caller));
                    }
                    std::task::Poll::Pending => {}
                }
            }
            callers = waiting;
            if poll!(tick.as_mut()).is_ready() {
                tick = Box::pin(limiter.tick());
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(allowed.len(), names.len());
    });
}

/// TB-21, TPL-04: whatever is lost of a change of a template, this server does not bring an instance
/// back to the capacity that it had, which another server has left behind.
#[test]
fn tb_21_an_uncertain_instance_goes_to_its_template() {
    run(async {
        for fault in [Fault::AnswerLost, Fault::RequestLost] {
            for number in 0..8 {
                let on = on_recording_model();
                let limiters = [on.limiter(), on.limiter()];
                for limiter in &limiters {
                    limiter.define(on.concurrency("t:*", 60, 10)).await.unwrap();
                    assert!(is_allowed(&on, limiter, "t:a", 1).await);
                    limiter.tick().await;
                }
                on.ledger.fail_from(number, fault);
                limiters[0].define(on.concurrency("t:*", 60, 5)).await.unwrap();
                limiters[0].tick().await;
                on.ledger.heal();
                limiters[1].define(on.concurrency("t:*", 60, 5)).await.unwrap();
                limiters[1].tick().await;
                for _ in 0..3 {
                    assert_eq!(capacity(&on, "t:a").await, 5, "call {number}, {fault:?}");
                    limiters[0].tick().await;
                }
                assert!(!is_allowed(&on, &limiters[1], "t:a", 4).await, "call {number}, {fault:?}");
            }
        }
    });
}

/// TB-21, TPL-03: a definition that got no answer leaves the key to its template, also at servers
/// that know its instance.
#[test]
fn tb_21_an_unanswered_definition_leaves_its_key_to_the_template() {
    run(async {
        let on = on_recording_model();
        let (limiter, other) = (on.limiter(), on.limiter());
        for at in [&limiter, &other] {
            at.define(on.concurrency("t:*", 60, 5)).await.unwrap();
        }
        assert!(is_allowed(&on, &other, "t:a", 1).await);
        define_without_answers(&on, &limiter, async |case| {
            limiter.tick().await;
            assert_eq!(capacity(&on, "t:a").await, 5, "{case}");
        })
        .await;
    });
}

/// TB-21, TPL-03: after a definition that got no answer, its server admits no more than the template.
#[test]
fn tb_21_an_unanswered_definition_admits_nothing_more() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.concurrency("t:*", 60, 5)).await.unwrap();
        assert!(is_allowed(&on, &limiter, "t:a", 1).await);
        define_without_answers(&on, &limiter, async |case| {
            assert!(!is_allowed(&on, &limiter, "t:a", 5).await, "{case}");
        })
        .await;
    });
}

/// TB-21, TB-19: a period that begins while the template changes has the capacity of the new one.
#[test]
fn tb_21_a_period_of_an_instance_begins_with_its_template() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.hourly("t:*", 20, 10)).await.unwrap();
        assert!(is_allowed(&on, &limiter, "t:a", 1).await);
        let lower = on.hourly("t:*", 20, 5);
        on.fake_clock.as_ref().unwrap().advance(Duration::from_secs(21 * 60));
        on.ledger.delay(5);
        // The reserve is planned before the change, and waits behind it.
        let (defined, changed, answer) = futures::join!(
            limiter.define(on.rolling("other", 60, 1)),
            limiter.restore(RegisteredLimit::in_force(lower)),
            on.reserve(&limiter, on.lease(), [("t:a", 6)]),
        );
        assert!(defined.is_ok() && changed.is_ok());
        let key = on.key("t:a");
        assert_eq!(answer, Err(ReserveError::AmountExceedsCapacity { key }));
        assert!(is_allowed(&on, &limiter, "t:a", 5).await);
        assert!(!is_allowed(&on, &limiter, "t:a", 1).await);
    });
}

/// TB-21: an instance in steady use is verified, so that what a server with an old template has
/// changed does not last.
#[test]
fn tb_21_an_instance_in_steady_use_is_verified() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.concurrency("t:*", 60, 5)).await.unwrap();
        let use_for = async |seconds| {
            for _ in 0..seconds {
                let lease = on.lease();
                assert!(on.reserve(&limiter, lease, [("t:a", 1)]).await.unwrap().is_allowed());
                on.complete(&limiter, lease, []).await.unwrap();
                on.pass(Duration::from_secs(1)).await;
            }
        };
        use_for(10).await;
        let stale = on.limiter();
        stale.define(on.concurrency("t:*", 60, 20)).await.unwrap();
        assert!(is_allowed(&on, &stale, "t:a", 1).await);
        assert_eq!(capacity(&on, "t:a").await, 20);
        drop(stale);
        use_for(62).await;
        assert_eq!(capacity(&on, "t:a").await, 5);
    });
}

/// TB-21, TPL-04: a change of a template is answered before its instances are in line. The ticks bring
/// them there with other work in between, and one that is used first follows at once.
#[test]
fn tb_21_a_change_of_a_template_goes_on_with_the_ticks() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter_with(|options| options.new_instances_per_second_max = usize::MAX);
        limiter.define(on.concurrency("t:*", 600, 10)).await.unwrap();
        limiter.define(on.concurrency("slots", 600, 10)).await.unwrap();
        make_instances(&on, &limiter).await;
        let lease = on.lease();
        assert!(on.reserve(&limiter, lease, [("slots", 5)]).await.unwrap().is_allowed());
        limiter.define(on.concurrency("slots", 600, 2)).await.unwrap();
        on.ledger.take_counts();
        limiter.define(on.concurrency("t:*", 600, 5)).await.unwrap();
        assert_eq!(on.ledger.take_counts(), CallCounts { calls: 0, transfers: 0 });
        let last = name(INSTANCES - 1);
        assert!(!is_allowed(&on, &limiter, &last, 3).await, "it is checked first");
        assert_eq!(capacity(&on, &last).await, 5);
        limiter.tick().await;
        assert!((4_000..INSTANCES).contains(&count_with(&on, 5).await));
        on.complete(&limiter, lease, []).await.unwrap();
        limiter.tick().await;
        assert_eq!(count_with(&on, 5).await, INSTANCES);
        assert_eq!(capacity(&on, "slots").await, 2, "other work goes on");
    });
}

/// TB-21, TB-07: however many instances decrease at once, a tick tries some of them, and the next one
/// goes on.
#[test]
fn tb_21_decreases_of_many_instances_are_applied_some_at_a_time() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter_with(|options| options.new_instances_per_second_max = usize::MAX);
        limiter.define(on.concurrency("t:*", 600, 10)).await.unwrap();
        let leases = make_instances(&on, &limiter).await;
        limiter.define(on.concurrency("t:*", 600, 2)).await.unwrap();
        for _ in 0..2 {
            limiter.tick().await;
        }
        assert_eq!(limiter.observations().limits_decreasing, INSTANCES as u64);
        let requests: Vec<_> = leases.iter().map(|lease| on.to_complete(*lease, &[])).collect();
        assert!(limiter.complete_batch(&requests).await.iter().all(Result::is_ok));
        limiter.tick().await;
        let applied = count_with(&on, 2).await;
        assert!((1..=4_000).contains(&applied), "{applied}");
        limiter.tick().await;
        assert_eq!(count_with(&on, 2).await, INSTANCES);
        assert_eq!(limiter.observations().limits_decreasing, 0);
    });
}

/// TB-21, DEF-07: the decrease of a defined limit does not wait behind those of instances.
#[test]
fn tb_21_a_defined_limit_decreases_at_the_next_tick() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter_with(|options| options.new_instances_per_second_max = usize::MAX);
        limiter.define(on.concurrency("t:*", 600, 10)).await.unwrap();
        make_instances(&on, &limiter).await;
        limiter.define(on.concurrency("t:*", 600, 2)).await.unwrap();
        for _ in 0..2 {
            limiter.tick().await;
        }
        assert_eq!(limiter.observations().limits_decreasing, INSTANCES as u64);
        // The ticks cycle through the instances, so each of these is at another place of the cycle.
        for slots in ["first-slots", "slots", "u-slots"] {
            limiter.define(on.concurrency(slots, 600, 10)).await.unwrap();
            let lease = on.lease();
            assert!(on.reserve(&limiter, lease, [(slots, 5)]).await.unwrap().is_allowed());
            limiter.define(on.concurrency(slots, 600, 2)).await.unwrap();
            on.complete(&limiter, lease, []).await.unwrap();
            limiter.tick().await;
            assert_eq!(capacity(&on, slots).await, 2, "{slots}");
        }
    });
}

/// TB-21, TPL-07: a server may learn of a new template before it learns that another one is deleted.
#[test]
fn tb_21_a_full_registry_may_change() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        let template = |n| RegisteredLimit::in_force(on.rolling(&format!("t{n}:*"), 60, 10));
        let templates = (0..TEMPLATES_MAX).map(template).collect();
        limiter.restore_all(templates, &BTreeSet::new()).await.unwrap();
        limiter.restore(template(TEMPLATES_MAX)).await.unwrap();
        limiter.delete(&on.key("t0:*")).await.unwrap();
        assert!(is_allowed(&on, &limiter, &format!("t{TEMPLATES_MAX}:a"), 1).await);
        assert!(limiter.define(on.rolling("more:*", 60, 10)).await.is_err());
    });
}

/// TB-21, TB-08: a change of a template that a dead server began reaches no instance that was not
/// known when its successor learned of it.
#[test]
fn tb_21_a_late_change_does_not_reach_an_instance_that_was_unknown() {
    run(async {
        for to in [20, 5] {
            let on = on_recording_model();
            let (dies, lives) = (on.limiter(), on.limiter());
            let template = on.concurrency("t:*", 60, 10);
            dies.define(template.clone()).await.unwrap();
            assert!(is_allowed(&on, &dies, "t:a", 1).await);
            dies.tick().await;
            on.ledger.fail_from(1, Fault::RequestLost);
            dies.define(on.concurrency("t:*", 60, to)).await.unwrap();
            dies.tick().await;
            let late = on.ledger.take_calls();
            on.ledger.heal();
            drop(dies);
            let unconfirmed = BTreeSet::from([template.key.clone()]);
            lives
                .restore_all(vec![RegisteredLimit::in_force(template)], &unconfirmed)
                .await
                .unwrap();
            assert!(is_allowed(&on, &lives, "t:a", 1).await);
            let mut late_changes = 0;
            for call in late {
                if let Call::CreateTransfers(item) = call {
                    on.ledger.create_transfers(item).await.unwrap();
                    late_changes += 1;
                }
            }
            assert!(late_changes > 0);
            assert_eq!(capacity(&on, "t:a").await, 10, "{to}");
            on.ledger.take_counts();
            assert!(is_allowed(&on, &lives, "t:a", 1).await);
            assert_eq!(on.ledger.take_counts().calls, 1, "once is enough");
        }
    });
}

/// TB-21, TB-08: a definition of an instance's key that a dead server began is taken back to the
/// template, also if it arrives late.
#[test]
fn tb_21_an_unconfirmed_definition_of_an_instance_is_taken_back() {
    run(async {
        for is_known in [false, true] {
            let on = on_recording_model();
            let (dies, lives) = (on.limiter(), on.limiter());
            let template = on.concurrency("t:*", 60, 10);
            for at in [&dies, &lives] {
                at.define(template.clone()).await.unwrap();
            }
            let user = if is_known { &lives } else { &dies };
            assert!(is_allowed(&on, user, "t:a", 1).await);
            on.ledger.fail_from(1, Fault::AnswerLost);
            drop(dies.define(on.concurrency("t:a", 60, 20)).await.unwrap_err());
            on.ledger.heal();
            let unconfirmed = BTreeSet::from([on.key("t:a")]);
            lives.restore_all(Vec::new(), &unconfirmed).await.unwrap();
            assert_eq!(capacity(&on, "t:a").await, 10);
            assert!(!is_allowed(&on, &lives, "t:a", 10).await);
            assert!(is_allowed(&on, &lives, "t:a", 9).await);
        }
    });
}

/// TB-21: an instance that cannot be made fails the reserves that need it, and no others.
#[test]
fn tb_21_a_bad_instance_fails_only_those_who_need_it() {
    run(async {
        let on = on_recording_model();
        let (before, limiter) = (on.limiter(), on.limiter());
        before.define(on.concurrency("t:*", 60, 10)).await.unwrap();
        assert!(is_allowed(&on, &before, "t:bad", 8).await);
        // Another program gives the account more than any limit has, and the template less.
        let movement = Movement {
            debit: ids::operator_account(),
            credit: ids::limit_account(&on.key("t:bad")),
            amount: 1 << 70,
            code: NonZeroU16::MAX,
        };
        let transfer = Transfer::posted(TransferId::nearest(7), movement);
        on.ledger.create_transfers(WorkItem::new().with(transfer)).await.unwrap();
        limiter.define(on.concurrency("t:*", 60, 5)).await.unwrap();
        let requests = ["t:bad", "t:good"].map(|name| on.to_reserve(on.lease(), &[(name, 1)]));
        let answers = limiter.reserve_batch(&requests).await;
        assert!(matches!(answers[0], Err(ReserveError::Unanswered(_))), "{answers:?}");
        assert!(answers[1].as_ref().is_ok_and(Decision::is_allowed), "{answers:?}");
    });
}
