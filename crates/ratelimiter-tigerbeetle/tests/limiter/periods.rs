//! `TB-19`: periods of calendar limits across resets, servers, lost requests and late ones.
//!
//! The virtual clock begins at 05:33:20 UTC: the reset of `hourly(…, 1, …)` is 40 seconds later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use ratelimiter::clock::{Clock, FakeClock, Timestamp};
use ratelimiter::{
    Backend, Decision, LeasePage, Limit, LimitState, LimitStatus, Limiter, Overage, Page,
    RegisteredLimit, ReserveError,
};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::Ledger;
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;
use testkit::RunSeed;
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, restore_all, run};
use crate::on_model::{on_model, on_recording_model};
use crate::recording_ledger::{Call, CallCounts, Fault, RecordingLedger};

const TO_RESET: Duration = Duration::from_secs(40);
/// More calls than a reserve makes at a reset.
const CALLS_MAX: usize = 12;

type OnModel = TestContext<RecordingLedger<Arc<ModelLedger>>>;

/// Moves the clock, without ticks.
fn advance<L: Ledger>(on: &TestContext<L>, by: Duration) {
    on.fake_clock.as_ref().unwrap().advance(by);
}

/// Whether one unit of the budget is admitted.
async fn admits(on: &OnModel, at: &impl Limiter) -> Result<bool, ReserveError> {
    let answer = on.reserve(at, on.lease(), [("budget", 1)]).await;
    answer.map(|decision| decision.is_allowed())
}

async fn resets_at<L: Ledger + Clone>(on: &TestContext<L>, at: &impl Backend) -> Timestamp {
    on.state(at, "budget").await.resets_at.unwrap()
}

/// TB-19, TB-03: a period costs requests when it begins, and none afterwards.
#[test]
fn tb_19_a_reserve_in_a_known_period_is_one_write() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.hourly("budget", 1, 10)).await.unwrap();
        limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
        for _ in 0..2 {
            on.ledger.take_calls();
            let needs = [("budget", 1), ("slots", 1)];
            assert!(on.reserve(&limiter, on.lease(), needs).await.unwrap().is_allowed());
            let calls = on.ledger.take_calls();
            assert!(matches!(&calls[..], [Call::CreateTransfers(_)]), "{calls:?}");
            advance(&on, TO_RESET);
            let (first, rounds) = on.ledger.count_rounds(admits(&on, &*limiter)).await;
            assert_eq!(first, Ok(true));
            assert!(rounds <= 7, "{rounds} round trips");
            advance(&on, Duration::from_secs(3_600) - TO_RESET);
            assert_eq!(admits(&on, &*limiter).await, Ok(true), "the next test is in the period");
        }
    });
}

/// TB-19: servers with different schedules and capacities need the next period at once. One
/// announcement counts, and one account is funded, once.
#[test]
fn tb_19_servers_that_begin_a_period_at_once_agree_whatever_the_interleaving() {
    let own = RunSeed::for_command("cargo test -p ratelimiter-tigerbeetle --test limiter tb_19");
    for seed in (0..200).chain(own.seeds(50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(race(seed));
    }
}

async fn race(seed: u64) {
    let on = on_recording_model();
    let limiters: Vec<_> = (0..3).map(|_| on.limiter()).collect();
    // All but the first learn of other definitions without a change of the ledger's period.
    for (limiter, (in_minutes, capacity)) in limiters.iter().zip([(1, 5), (11, 6), (21, 7)]) {
        limiter.define(on.hourly("budget", in_minutes, capacity)).await.unwrap();
        assert_eq!(resets_at(&on, &**limiter).await, on.clock.now().after(TO_RESET));
    }
    advance(&on, TO_RESET);
    on.ledger.shuffle(seed);
    let reserves = limiters.iter().flat_map(|limiter| (0..4).map(move |_| limiter));
    let admitted = join_all(reserves.map(|limiter| admits(&on, &**limiter))).await;
    let admitted = admitted.into_iter().filter(|admitted| *admitted == Ok(true)).count() as u64;
    assert!((5..=7).contains(&admitted), "seed {seed}: {admitted} admitted");
    let now = on.clock.now();
    let ends = [10, 20, 60].map(|minutes| now.after(Duration::from_secs(minutes * 60)));
    let accounts = ends.map(|ends_at| ids::period_account(&on.key("budget"), ends_at));
    let rows = on.ledger.lookup_accounts(accounts.to_vec()).await.unwrap();
    assert_eq!(rows.len(), 1, "seed {seed}: one account for one moment");
    assert_eq!(rows[0].balances.credits_posted, u128::from(admitted), "seed {seed}: and full");
    let end = resets_at(&on, &*limiters[0]).await;
    assert!(ends.contains(&end), "seed {seed}");
    for limiter in &limiters {
        assert_eq!(resets_at(&on, &**limiter).await, end, "seed {seed}");
        assert_eq!(on.used(&**limiter, "budget").await, admitted, "seed {seed}");
    }
}

/// TB-19: a server stops between the announcement, the account and its funding. Any other goes on,
/// and so does the first when the cluster answers again.
#[test]
fn tb_19_a_period_whose_beginning_was_interrupted_is_begun_by_the_next_server() {
    run(async {
        let faults = [Fault::AnswerLost, Fault::RequestLost];
        for (number, fault) in (0..CALLS_MAX).flat_map(|n| faults.map(|fault| (n, fault))) {
            let cut = format!("call {number}, {fault:?}");
            let on = on_recording_model();
            let (first, second) = (on.limiter(), on.limiter());
            first.define(on.hourly("budget", 1, 3)).await.unwrap();
            // It would announce another end, if it were the first.
            second.define(on.hourly("budget", 5, 3)).await.unwrap();
            assert_eq!(admits(&on, &*first).await, Ok(true), "{cut}");
            advance(&on, TO_RESET);
            on.ledger.fail_from(number, fault);
            let lease = on.lease();
            drop(on.reserve(&*first, lease, [("budget", 1)]).await);
            on.ledger.heal();
            let again = on.reserve(&*second, lease, [("budget", 1)]).await.unwrap();
            assert!(again.is_allowed(), "{cut}");
            assert_eq!(on.used(&*second, "budget").await, 1, "{cut}");
            assert_eq!(resets_at(&on, &*first).await, resets_at(&on, &*second).await, "{cut}");
            let mut admitted = Vec::new();
            for limiter in [&first, &second, &first] {
                admitted.push(admits(&on, &**limiter).await.unwrap());
            }
            assert_eq!(admitted, [true, true, false], "{cut}");
            on.pass(Duration::from_secs(10)).await;
            assert_eq!(first.observations().limits_disagreeing, 0, "{cut}");
            assert_eq!(on.used(&*first, "budget").await, 3, "{cut}");
        }
    });
}

/// TB-19, DEF-08: a server that starts, or defines the limit for the first time, takes the period
/// from the ledger; what is interrupted then is completed at the next attempt.
#[test]
fn tb_19_a_first_definition_that_was_interrupted_can_be_repeated() {
    run(async {
        for fault in [Fault::AnswerLost, Fault::RequestLost] {
            for number in 0..CALLS_MAX {
                let on = on_recording_model();
                let (first, second) = (on.limiter(), on.limiter());
                on.ledger.fail_from(number, fault);
                drop(first.define(on.hourly("budget", 1, 3)).await);
                on.ledger.heal();
                second.define(on.hourly("budget", 5, 2)).await.unwrap();
                first.tick().await;
                assert_eq!(second.define(on.hourly("budget", 5, 2)).await, Ok(LimitStatus::Active));
                let end = resets_at(&on, &*second).await;
                first.define(on.hourly("budget", 1, 2)).await.unwrap();
                assert_eq!(resets_at(&on, &*first).await, end, "call {number}, {fault:?}");
                assert_eq!(on.state(&*first, "budget").await.usage.available, 2);
            }
        }
    });
}

/// TB-19: the cluster executes a reserve after the end of the period that it was sent to.
#[test]
fn tb_19_a_reserve_that_is_executed_after_the_reset_counts_for_the_period_before() {
    run(async {
        let on = on_recording_model();
        let (limiter, other) = (on.limiter(), on.uncached_limiter());
        limiter.define(on.hourly("budget", 1, 1)).await.unwrap();
        limiter.define(on.rolling("tokens", 600, 10)).await.unwrap();
        restore_all(&other, &limiter).await;
        let end = resets_at(&on, &*limiter).await;
        let lease = on.lease();
        let needs = [("budget", 1), ("tokens", 5)];
        let late = on.reserve(&*limiter, lease, needs);
        let while_it_is_sent = async { advance(&on, TO_RESET + Duration::from_secs(1)) };
        let ((answer, ()), _) = on.ledger.count_rounds(join(late, while_it_is_sent)).await;
        let last_moment = Timestamp::from_unix_ms(end.unix_ms() - 1);
        assert_eq!(answer, Ok(Decision::allowed_at(last_moment)));
        for limiter in [&limiter, &other] {
            let again = on.reserve(&**limiter, lease, needs).await;
            assert_eq!(again, Err(ReserveError::LeaseEnded), "its period is over");
            assert_eq!(on.used(&**limiter, "budget").await, 0);
            assert_eq!(on.used(&**limiter, "tokens").await, 5);
        }
        let listed = limiter.leases(&LeasePage::default()).await.unwrap();
        assert_eq!(listed[0].reserved_at, last_moment);
        assert_eq!(listed[0].amounts.len(), 1, "the rest of it");
        // The other server finds the position of the lease by its transfers: none sorts after it.
        let after = LeasePage { after: Some(lease), ..LeasePage::default() };
        assert_eq!(limiter.leases(&after).await, Ok(vec![]));
        assert_eq!(other.leases(&after).await, Ok(vec![]));
        assert_eq!(admits(&on, &*limiter).await, Ok(true), "the new period is empty");
        assert_eq!(admits(&on, &*other).await, Ok(false));
    });
}

/// TB-19, TB-10: the request was not answered and arrives long after the period.
#[test]
fn tb_19_a_reserve_that_arrives_in_a_later_period_takes_nothing_of_it() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.hourly("budget", 1, 1)).await.unwrap();
        on.ledger.fail_from(0, Fault::RequestLost);
        let lease = on.lease();
        assert!(on.reserve(&*limiter, lease, [("budget", 1)]).await.is_err());
        let late_requests = on.ledger.take_calls();
        on.ledger.heal();
        on.pass(TO_RESET).await;
        for call in late_requests {
            let Call::CreateTransfers(item) = call else { panic!("{call:?}") };
            on.ledger.create_transfers(item).await.unwrap();
        }
        let again = on.reserve(&*limiter, lease, [("budget", 1)]).await;
        assert_eq!(again, Err(ReserveError::LeaseEnded));
        assert_eq!(admits(&on, &*limiter).await, Ok(true));
    });
}

/// TB-19, DEF-07: another server, which does not know of the decrease, begins the period.
#[test]
fn tb_19_a_decrease_that_waits_applies_to_the_next_period() {
    run(async {
        for (admitted, applies) in [(0, true), (5, true), (8, false)] {
            let on = on_recording_model();
            let (first, second) = (on.limiter(), on.limiter());
            first.define(on.hourly("budget", 1, 10)).await.unwrap();
            restore_all(&second, &first).await;
            assert!(on.reserve(&*first, on.lease(), [("budget", 8)]).await.unwrap().is_allowed());
            let lower = on.hourly("budget", 1, 5);
            let to = lower.capacity;
            let decreasing = Ok(LimitStatus::Decreasing { to });
            assert_eq!(first.define(lower).await, decreasing);
            advance(&on, TO_RESET);
            let lease = on.lease();
            if admitted > 0 {
                let answer = on.reserve(&*second, lease, [("budget", admitted)]).await;
                assert!(answer.unwrap().is_allowed(), "the other server knows 10");
            }
            on.pass(Duration::from_secs(1)).await;
            let LimitState { status, usage, .. } = on.state(&*first, "budget").await;
            assert_eq!(usage.used, admitted);
            if !applies {
                assert_eq!(Ok(status), decreasing, "{admitted} admitted");
                on.complete(&*second, lease, [("budget", 1)]).await.unwrap();
                on.pass(Duration::from_secs(1)).await;
            }
            let LimitState { status, limit, .. } = on.state(&*first, "budget").await;
            assert_eq!((status, limit.capacity), (LimitStatus::Active, to), "{admitted} admitted");
            let more = on.reserve(&*second, on.lease(), [("budget", 6)]).await.unwrap();
            assert!(!more.is_allowed(), "{admitted} admitted");
        }
    });
}

/// TB-19: a server that has not learned of a new capacity begins the period with the old one, and
/// brings it to the new one when it learns.
#[test]
fn tb_19_a_change_reaches_the_period_that_a_stale_server_has_begun() {
    run(async {
        let on = on_recording_model();
        let (first, second) = (on.limiter(), on.limiter());
        first.define(on.hourly("budget", 1, 10)).await.unwrap();
        restore_all(&second, &first).await;
        first.define(on.hourly("budget", 1, 20)).await.unwrap();
        advance(&on, TO_RESET);
        assert_eq!(admits(&on, &*second).await, Ok(true));
        assert_eq!(admits(&on, &*first).await, Ok(true));
        assert_eq!(on.state(&*first, "budget").await.usage.available, 8);
        restore_all(&second, &first).await;
        assert_eq!(on.state(&*first, "budget").await.usage.available, 18);
        // The other way round, a stale server leaves the period as it is.
        on.pass(Duration::from_secs(3_600)).await;
        first.define(on.hourly("budget", 1, 30)).await.unwrap();
        assert_eq!(admits(&on, &*first).await, Ok(true));
        assert_eq!(admits(&on, &*second).await, Ok(true));
        assert_eq!(on.state(&*second, "budget").await.usage.available, 28);
    });
}

/// TB-19, TB-07: the funding of a new account, or a change in the period before, arrives late.
#[test]
fn tb_19_a_late_change_does_not_reach_a_later_capacity() {
    run(async {
        for number in 0..CALLS_MAX {
            for is_change in [false, true] {
                let on = on_recording_model();
                let limiter = on.limiter();
                limiter.define(on.hourly("budget", 1, 10)).await.unwrap();
                if !is_change {
                    advance(&on, TO_RESET);
                }
                on.ledger.fail_from(number, Fault::RequestLost);
                let failed = match is_change {
                    true => limiter.define(on.hourly("budget", 1, 20)).await.is_err(),
                    false => admits(&on, &*limiter).await.is_err(),
                };
                let late_requests = on.ledger.take_calls();
                on.ledger.heal();
                if is_change {
                    advance(&on, TO_RESET);
                }
                if !failed {
                    continue;
                }
                limiter.define(on.hourly("budget", 1, 7)).await.unwrap();
                for call in late_requests {
                    if let Call::CreateTransfers(item) = call {
                        on.ledger.create_transfers(item).await.unwrap();
                    }
                }
                limiter.tick().await;
                let usage = on.state(&*limiter, "budget").await.usage;
                assert_eq!(usage.used + usage.available, 7, "call {number}, change {is_change}");
            }
        }
    });
}

/// TB-19, CAL-04, COM-07: at a server that did not allow the lease.
#[test]
fn tb_19_a_complete_after_the_period_changes_nothing_at_another_server() {
    run(async {
        for (overage, debt) in [(Overage::Debt, 3), (Overage::Deny, 0)] {
            let on = on_recording_model();
            let (first, second) = (on.limiter(), on.limiter());
            first.define(Limit { overage, ..on.hourly("budget", 1, 10) }).await.unwrap();
            first.define(on.concurrency("slots", 300, 5)).await.unwrap();
            let leases = [on.lease(), on.lease(), on.lease()];
            for lease in leases {
                let needs = [("budget", 3), ("slots", 1)];
                assert!(on.reserve(&*first, lease, needs).await.unwrap().is_allowed());
            }
            restore_all(&second, &first).await;
            on.pass(TO_RESET).await;
            assert!(on.reserve(&*second, on.lease(), [("budget", 9)]).await.unwrap().is_allowed());
            for (lease, actual) in leases.into_iter().zip([1, 6, 3]) {
                on.complete(&*second, lease, [("budget", actual)]).await.unwrap();
                on.complete(&*first, lease, [("budget", 100)]).await.unwrap();
            }
            let usage = on.state(&*second, "budget").await.usage;
            assert_eq!((usage.used, usage.debt, usage.uncovered), (9, debt, 3));
            assert_eq!(on.used(&*first, "slots").await, 0);
        }
    });
}

/// TB-19: a clock that is wrong neither ends a period early nor keeps it.
#[test]
fn tb_19_a_server_whose_clock_is_wrong_follows_the_periods_of_the_cluster() {
    run(async {
        for (ahead, behind) in [(7_200, 0), (0, 7_200)] {
            let on = on_model();
            let first = on.limiter();
            let now = on.clock.now().unix_nanos() / 1_000_000_000;
            let wrong = Timestamp::from_unix_ms((now + ahead - behind) * 1_000);
            let wrong = Arc::new(FakeClock::at(wrong));
            let clock: Arc<dyn Clock> = Arc::clone(&wrong) as Arc<dyn Clock>;
            let second = on.limiter_with(|options| options.clock = clock);
            second.define(on.hourly("budget", 1, 10)).await.unwrap();
            assert_eq!(resets_at(&on, &*second).await, on.clock.now().after(TO_RESET));
            first.define(on.hourly("budget", 1, 10)).await.unwrap();
            // It runs fast, and takes the period for over.
            wrong.advance(TO_RESET);
            advance(&on, Duration::from_secs(20));
            assert!(on.reserve(&*second, on.lease(), [("budget", 6)]).await.unwrap().is_allowed());
            assert!(!on.reserve(&*first, on.lease(), [("budget", 6)]).await.unwrap().is_allowed());
            advance(&on, Duration::from_secs(20));
            wrong.advance(Duration::from_secs(20));
            for limiter in [&first, &second] {
                let answer = on.reserve(&**limiter, on.lease(), [("budget", 5)]).await;
                assert!(answer.unwrap().is_allowed());
            }
            assert_eq!(on.used(&*first, "budget").await, 10);
        }
    });
}

/// TB-19, TB-08: thousands of calendar limits start, and begin a period, in few requests.
#[test]
fn tb_19_many_periods_begin_in_few_requests() {
    const LIMITS: usize = 10_000;
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        let name = |number| format!("{number:05}");
        let limits: Vec<Limit> = (0..LIMITS).map(|n| on.hourly(&name(n), 1, 10)).collect();
        limiter.define_all(limits).await.unwrap();
        let first = on.ledger.take_counts();
        assert_eq!(first.transfers, 3 * LIMITS + 1, "announced and funded, and the time");
        assert!(first.calls <= LIMITS / 15, "{first:?}");

        let again = on.limiter();
        restore_all_at_once(&again, &limiter).await;
        on.ledger.take_counts();
        restore_all_at_once(&again, &again).await;
        let CallCounts { transfers, .. } = on.ledger.take_counts();
        assert_eq!(transfers, 0, "all is known");

        advance(&on, TO_RESET);
        let request = |n| on.to_reserve(on.lease(), &[(&name(n), 1)]);
        let requests: Vec<_> = (0..LIMITS).map(request).collect();
        let answers = limiter.reserve_batch(&requests).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().is_allowed()));
        let batch = on.ledger.take_counts();
        assert!(batch.calls <= LIMITS / 15, "{batch:?}");

        // Alone, and all at once: those that come while the first begins its period join.
        let reserves = (0..1_000).map(|n| on.to_reserve(on.lease(), &[(&name(n), 1)]));
        let reserves: Vec<_> = reserves.collect();
        on.ledger.shuffle(1);
        let answers = join_all(reserves.iter().map(|request| again.reserve(request))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().is_allowed()));
        let alone = on.ledger.take_counts();
        assert!(alone.calls <= 1_000 + 100, "one write each, and few to begin: {alone:?}");
    });
}

async fn restore_all_at_once<L: Ledger>(at: &TigerBeetleLimiter<L>, of: &TigerBeetleLimiter<L>) {
    let states = of.states(&Page::default()).await.unwrap();
    let registered =
        |LimitState { limit, status, .. }: LimitState| RegisteredLimit { limit, status };
    let limits = states.into_iter().map(registered).collect();
    at.restore_all(limits, &BTreeSet::new()).await.unwrap();
}
