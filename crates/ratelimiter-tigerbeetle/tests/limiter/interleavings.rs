//! Random interleavings of competing limiters.
//!
//! Two or three limiters change one capacity while others reserve and complete (`TB-07`), or
//! complete one lease (`COM-05`), or renew and complete one (`TB-18`); a seed decides the order of all calls to the ledger.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{Backend, RenewError, Renewal};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{AccountRow, Ledger};
use testkit::RunSeed;

use crate::context::TestContext;
use crate::on_model::on_recording_model;

const SEEDS: std::ops::Range<u64> = 0..400;
const CAPACITY: u64 = 10;

async fn account<L: Ledger + Clone>(on: &TestContext<L>) -> AccountRow {
    let id = ids::limit_account(&on.key("tokens"));
    on.ledger.lookup_accounts(vec![id]).await.unwrap()[0]
}

/// Runs every seed on one thread, so that the seed alone decides the order.
pub fn play<F: Future<Output = ()>>(race: impl Fn(u64) -> F) {
    let own =
        RunSeed::for_command("cargo test -p ratelimiter-tigerbeetle --test limiter interleavings");
    for seed in SEEDS.chain(own.seeds(100)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(race(seed));
    }
}

/// TB-07
#[test]
fn tb_07_racing_changes_end_at_a_target_whatever_the_interleaving() {
    play(race);
}

/// COM-05, TB-16
#[test]
fn com_05_one_of_racing_completes_counts_for_all_keys_whatever_the_interleaving() {
    play(race_completes);
}

/// TB-18, REN-03
#[test]
fn tb_18_racing_renews_and_a_complete_count_once_whatever_the_interleaving() {
    play(race_renews);
}

/// TB-18, REN-03, COM-05
#[test]
fn tb_18_a_lease_completed_during_a_denied_renew_has_ended_whatever_the_interleaving() {
    play(race_denial);
}

async fn race(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let on = Arc::new(on_recording_model());
    let limiters: Vec<_> = (0..3).map(|_| on.limiter()).collect();
    for limiter in &limiters {
        limiter.define(on.rolling("tokens", 60, CAPACITY)).await.unwrap();
    }
    let leases: Vec<_> = (0..3).map(|_| on.lease()).collect();
    for lease in &leases {
        assert!(on.reserve(&limiters[0], *lease, [("tokens", 3)]).await.unwrap().is_allowed());
    }
    on.ledger.shuffle(seed);
    let targets: Vec<u64> = limiters.iter().map(|_| random.u64(..15)).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (limiter, target) in limiters.iter().zip(&targets) {
        let (on, limiter) = (Arc::clone(&on), Arc::clone(limiter));
        let limit = on.rolling("tokens", 60, *target);
        tasks.spawn(async move {
            limiter.define(limit).await.unwrap();
            limiter.tick().await;
        });
    }
    for lease in leases.clone() {
        let (on, limiter) = (Arc::clone(&on), Arc::clone(random.choice(&limiters).unwrap()));
        let actual = random.u64(..5);
        tasks.spawn(async move {
            on.complete(&limiter, lease, [("tokens", actual)]).await.unwrap();
            drop(on.reserve(&limiter, on.lease(), [("tokens", 1)]).await);
            on.complete(&limiter, lease, [("tokens", actual)]).await.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let row = account(&on).await;
    let capacity = row.balances.credits_posted - row.balances.debits_posted;
    let known = targets.iter().copied().chain([CAPACITY]).map(u128::from);
    assert!(known.into_iter().any(|target| target == capacity), "seed {seed}: {row:?}");
    assert!(row.balances.debits_pending <= capacity, "seed {seed}: {row:?}");

    // A change without competition succeeds once there is room.
    let last = on.rolling("tokens", 60, targets[0]);
    limiters[0].define(last.clone()).await.unwrap();
    drop(limiters);
    let survivor = on.limiter();
    survivor.define(last).await.unwrap();
    // A reconciled reservation may last up to a second longer than its window.
    on.pass(Duration::from_secs(62)).await;
    let state = on.state(&survivor, "tokens").await;
    assert!(!state.waits(), "seed {seed}: {state:?}");
    assert_eq!(state.usage.used, 0, "seed {seed}: nothing stays held");
}

/// Three limiters complete one lease, each with other actuals, while a decrease closes an account.
async fn race_completes(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let on = Arc::new(on_recording_model());
    let limiters: Vec<_> = (0..3).map(|_| on.limiter()).collect();
    for limiter in &limiters {
        limiter.define(on.rolling("closing", 60, CAPACITY)).await.unwrap();
        limiter.define(on.rolling("full", 60, CAPACITY)).await.unwrap();
        limiter.define(on.rolling("roomy", 60, 100 * CAPACITY)).await.unwrap();
        limiter.define(on.concurrency("slots", 60, CAPACITY)).await.unwrap();
    }
    let (lease, needs) = (on.lease(), ["closing", "full", "roomy"].map(|key| (key, CAPACITY)));
    let allowed = match random.bool() {
        true => on.reserve(&limiters[0], lease, needs).await,
        false => {
            on.reserve(&limiters[0], lease, [needs[0], needs[1], needs[2], ("slots", 1)]).await
        }
    };
    assert!(allowed.unwrap().is_allowed());
    on.ledger.shuffle(seed);
    let mut tasks = tokio::task::JoinSet::new();
    let (at, lower) = (Arc::clone(&limiters[0]), on.rolling("closing", 60, 1));
    tasks.spawn(async move { assert!(at.define(lower).await.is_ok()) });
    let mut outcomes = Vec::new();
    for limiter in &limiters {
        // A closed account has no room for an excess, and before it is closed there is none either.
        let actuals = needs.map(|(key, _)| (key, random.u64(..2 * CAPACITY)));
        let [closing, full, (_, roomy)] = actuals;
        let tight = [closing, full].map(|(_, n)| (n.min(CAPACITY), n.saturating_sub(CAPACITY)));
        outcomes.push([tight[0], tight[1], (roomy, 0)].map(|(used, debt)| (used, debt.into())));
        let (on, limiter) = (Arc::clone(&on), Arc::clone(limiter));
        tasks.spawn(async move { on.complete(&limiter, lease, actuals).await.unwrap() });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let mut outcome = [(0, 0); 3];
    for (at, (key, _)) in needs.iter().enumerate() {
        let usage = on.state(&limiters[0], key).await.usage;
        outcome[at] = (usage.used, usage.debt);
    }
    assert!(outcomes.contains(&outcome), "seed {seed}: {outcome:?} is none of {outcomes:?}");
    assert_eq!(on.used(&limiters[0], "slots").await, 0, "seed {seed}");
}

/// Limiters renew one lease, each with other amounts and some with the same number, while another one
/// completes it and a decrease closes an account.
async fn race_renews(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let on = Arc::new(on_recording_model());
    let limiters: Vec<_> = (0..3).map(|_| on.limiter()).collect();
    for limiter in &limiters {
        limiter.define(on.rolling("closing", 60, CAPACITY)).await.unwrap();
        limiter.define(on.rolling("roomy", 60, 100 * CAPACITY)).await.unwrap();
        limiter.define(on.concurrency("slots", 60, CAPACITY)).await.unwrap();
    }
    let (lease, needs) = (on.lease(), [("closing", CAPACITY), ("roomy", 20), ("slots", 1)]);
    let allowed = match random.bool() {
        true => on.reserve(&limiters[0], lease, needs).await,
        false => on.reserve(&limiters[0], lease, [needs[0], needs[1]]).await,
    };
    assert!(allowed.unwrap().is_allowed());
    let completes = random.bool();
    on.ledger.shuffle(seed);
    let mut tasks = tokio::task::JoinSet::new();
    let (at, lower) = (Arc::clone(&limiters[0]), on.rolling("closing", 60, 1));
    tasks.spawn(async move {
        assert!(at.define(lower).await.is_ok());
        None
    });
    for limiter in &limiters {
        let (on, limiter) = (Arc::clone(&on), Arc::clone(limiter));
        let number = random.u64(1..=3);
        let amounts = [("closing", random.u64(5..CAPACITY)), ("roomy", random.u64(..40))];
        tasks.spawn(async move {
            let renewal = on.renew(&limiter, lease, number, amounts).await;
            Some((number, amounts, renewal))
        });
    }
    if completes {
        let (on, limiter) = (Arc::clone(&on), Arc::clone(&limiters[2]));
        tasks.spawn(async move {
            on.complete(&limiter, lease, [("closing", 4), ("roomy", 25)]).await.unwrap();
            None
        });
    }
    let mut renewals = Vec::new();
    while let Some(done) = tasks.join_next().await {
        renewals.extend(done.unwrap());
    }
    let used = [on.used(&limiters[0], "closing").await, on.used(&limiters[0], "roomy").await];
    if completes {
        assert_eq!(used, [4, 25], "seed {seed}: {renewals:?}");
        assert_eq!(on.used(&limiters[0], "slots").await, 0, "seed {seed}");
        return;
    }
    // The greatest number stands, with the amounts of one of those who asked with it, or was denied.
    let last = renewals.iter().map(|(number, ..)| *number).max().unwrap();
    let again = on.renew(&limiters[1], lease, last, []).await;
    for (number, _, renewal) in &renewals {
        let is_superseded = *renewal == Err(RenewError::Superseded) && *number < last;
        let is_denied = renewal.as_ref().is_ok_and(|renewal| !renewal.is_renewed());
        let is_last = *number == last && *renewal == again;
        let is_before = *number < last && renewal.as_ref().is_ok_and(Renewal::is_renewed);
        let is_known = is_superseded || is_denied || is_last || is_before;
        assert!(is_known, "seed {seed}: {renewals:?}, and again {again:?}");
    }
    if again.is_ok_and(|again| again.is_renewed()) {
        let asked = renewals.iter().filter(|(number, ..)| *number == last);
        let mut asked = asked.map(|(_, [(_, closing), (_, roomy)], _)| [*closing, *roomy]);
        assert!(asked.any(|asked| asked == used), "seed {seed}: {used:?} of {renewals:?}");
    }
    on.complete(&limiters[0], lease, [("closing", 3), ("roomy", 50)]).await.unwrap();
    let used = [on.used(&limiters[0], "closing").await, on.used(&limiters[0], "roomy").await];
    assert_eq!(used, [3, 50], "seed {seed}: {renewals:?}");
    assert_eq!(on.used(&limiters[0], "slots").await, 0, "seed {seed}");
}

/// A limiter denies a renew of a lease while another one completes it.
async fn race_denial(seed: u64) {
    let on = on_recording_model();
    let [first, second] = [on.limiter(), on.limiter()];
    for limiter in [&first, &second] {
        limiter.define(on.rolling("full", 60, 2)).await.unwrap();
        limiter.define(on.concurrency("slots", 60, CAPACITY)).await.unwrap();
    }
    let lease = on.lease();
    for (lease, needs) in
        [(on.lease(), [("full", 1), ("slots", 1)]), (lease, [("full", 1), ("slots", 1)])]
    {
        assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());
    }
    on.ledger.shuffle(seed);
    let renew = on.renew(&first, lease, 1, [("full", 2)]);
    let (renewal, completed) = futures::future::join(renew, on.complete(&second, lease, [])).await;
    assert!(!renewal.is_ok_and(|renewal| renewal.is_renewed()), "seed {seed}");
    completed.unwrap();
    for limiter in [&first, &second] {
        let late = on.renew(limiter, lease, 2, []).await;
        assert_eq!(late, Err(RenewError::LeaseEnded), "seed {seed}");
        on.complete(limiter, lease, []).await.unwrap();
        assert_eq!(on.used(limiter, "slots").await, 1, "seed {seed}");
    }
}
