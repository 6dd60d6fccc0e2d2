//! `RES-01` to `RES-03` and `RES-06` to `RES-08`: admission and its duration.

use futures::future::join_all;
use ratelimiter::Decision;

use crate::context::TestContext;

scripts! {
    /// RES-01
    fn res_01_an_allowed_call_holds_all_that_it_needs: "
        limit requests rolling 60s 10; limit tokens rolling 60s 1000; limit slots concurrency 60s 10
        reserve A requests=1 tokens=700 slots=2
        used requests=1 tokens=700 slots=2; available tokens=300
    ";

    /// RES-01
    fn res_01_a_refused_call_holds_nothing: "
        limit free rolling 60s 10; limit small rolling 60s 2
        reserve A free=1 unknown=1 -> unknown unknown
        reserve B free=1 small=3 -> exceeds small
        used free=0 small=0
        reserve C free=10 small=2
    ";

    /// RES-02
    fn res_02_a_reservation_returns_at_the_end_of_its_window_exactly: "
        limit rate rolling 2s 1
        reserve A rate=1; pass 1999999999ns
        reserve B rate=1 -> denied rate
        pass 1ns; reserve C rate=1
    ";

    /// RES-02
    fn res_02_a_reservation_outlives_its_call: "
        limit rate rolling 2s 1
        lifetime A 2s; reserve A rate=1; complete A
        within A: reserve B rate=1 -> denied rate
        outlast 2s; reserve C rate=1
    ";

    /// RES-02
    fn res_02_each_reservation_returns_at_its_own_time: "
        limit rate rolling 3s 10
        lifetime A 3s; reserve A rate=3; pass 2s; lifetime B 3s; reserve B rate=4
        within A: used rate=7
        outlast 1s
        within B: used rate=4
        outlast 2s
        used rate=0
    ";

    /// RES-02
    fn res_02_a_full_limit_admits_no_more: "
        limit rate rolling 60s 5
        reserve A rate=1; reserve B rate=1; reserve C rate=1; reserve D rate=1; reserve E rate=1
        reserve F rate=1 -> denied rate
        reserve G rate=1 -> denied rate
        reserve H rate=1 -> denied rate
        used rate=5; available rate=0
    ";

    /// RES-03
    fn res_03_a_hold_is_kept_until_complete: "
        limit slots concurrency 60s 1
        reserve A slots=1; pass 1s
        reserve B slots=1 -> denied slots
        complete A
        used slots=0
        reserve C slots=1
    ";

    /// RES-03
    fn res_03_a_hold_takes_as_many_slots_as_its_amount: "
        limit slots concurrency 60s 5
        reserve A slots=3
        reserve B slots=3 -> denied slots
        reserve C slots=2
        used slots=5
        complete A
        used slots=2
    ";

    /// RES-03
    fn res_03_a_hold_ends_after_its_timeout: "
        limit slots concurrency 2s 1
        lifetime A 2s; reserve A slots=1; pass 1s
        within A: used slots=1
        outlast 1s
        used slots=0
        reserve B slots=1
    ";

    /// RES-06
    fn res_06_an_unknown_key_comes_before_an_amount_over_capacity: "
        limit small rolling 60s 1
        reserve A small=2 unknown=1 -> unknown unknown
        reserve A unknown=1 small=2 -> unknown unknown
    ";

    /// RES-06
    fn res_06_an_amount_over_capacity_comes_before_a_decrease: "
        limit lowered rolling 60s 10; limit small rolling 60s 1
        reserve A lowered=6
        limit lowered rolling 60s 5 -> decreasing to 5
        reserve B lowered=1 small=2 -> exceeds small
        reserve C lowered=11 -> exceeds lowered
        reserve D lowered=10 -> decreasing lowered
    ";

    /// RES-06
    fn res_06_a_decrease_comes_before_the_lack_of_room: "
        limit lowered rolling 60s 10; limit a:full rolling 60s 1; limit z:full rolling 60s 1
        reserve full a:full=1 z:full=1; reserve A lowered=6
        limit lowered rolling 60s 5 -> decreasing to 5
        reserve B a:full=1 lowered=1 z:full=1 -> decreasing lowered
    ";

    /// RES-06
    fn res_06_every_requirement_is_looked_at: "
        limit a rolling 60s 1; limit b rolling 60s 1; limit c rolling 60s 1; limit d rolling 60s 1
        reserve full b=1 d=1
        reserve A d=1 c=1 b=1 a=1 -> denied d b
    ";

    /// RES-08
    fn res_08_a_denial_names_a_key_without_room_and_a_hint: "
        limit rate rolling 60s 5; limit free rolling 60s 5; limit slots concurrency 60s 5
        reserve A rate=3 slots=3
        reserve B free=3 rate=3 slots=3 -> denied rate slots
        reserve C slots=2 rate=3 -> denied rate
    ";
}

/// RES-01
pub(crate) async fn res_01_a_denied_call_holds_nothing(on: &mut TestContext) {
    on.run("limit free rolling 60s 10\nlimit slots concurrency 60s 10").await;
    for full in ["a:full", "full", "z:full"] {
        on.run(&format!(
            "limit {full} rolling 60s 1
             reserve {full} {full}=1
             reserve {full}:last free=1 slots=1 {full}=1 -> denied {full}
             used free=0 slots=0 {full}=1
             reserve {full}:first {full}=1 slots=1 free=1 -> denied {full}
             used free=0 slots=0 {full}=1"
        ))
        .await;
    }
    on.run("reserve A free=10 slots=10").await;
}

/// RES-02
pub(crate) async fn res_02_a_reservation_counts_for_its_window_and_returns(on: &mut TestContext) {
    on.run(
        "limit rate rolling 2s 5
         lifetime A 2s
         reserve A rate=5
         pass 1s
         within A: used rate=5
         within A: reserve B rate=1 -> denied rate",
    )
    .await;
    // If the machine is late, B may have been allowed.
    let seconds = if on.is_within("A") { 1 } else { 2 };
    on.run(&format!("outlast {seconds}s\nused rate=0\nreserve C rate=5")).await;
}

/// RES-02
pub(crate) async fn res_02_calls_at_the_same_time_share_the_room_exactly(on: &mut TestContext) {
    on.run("limit rate rolling 3600s 20\nlimit slots concurrency 3600s 30").await;
    let (on_all, keys) = (&*on, [on.key("slots"), on.key("rate")]);
    let reserve = |n: usize| {
        let pairs = keys.iter().map(|key| (key.clone(), 1)).collect();
        async move { on_all.reserve(&n.to_string(), pairs).await }
    };
    let answers = join_all((0..40).map(reserve)).await;
    let is_allowed = |answer: &&Result<_, _>| answer.as_ref().is_ok_and(Decision::is_allowed);
    assert_eq!(answers.iter().filter(is_allowed).count(), 20);
    on.run("used rate=20 slots=20").await;
}

/// RES-07
pub(crate) async fn res_07_the_largest_capacity_can_be_reserved_whole(on: &mut TestContext) {
    let almost = on.capabilities.capacity_max - 1;
    on.run(&format!(
        "limit rate rolling 60s MOST
         reserve A rate={almost}
         reserve B rate=MOST -> denied rate
         reserve C rate=2 -> denied rate
         reserve D rate=1
         reserve E rate=1 -> denied rate
         used rate=MOST
         available rate=0"
    ))
    .await;
}

/// RES-07
pub(crate) async fn res_07_an_amount_near_the_largest_number_is_refused(on: &mut TestContext) {
    on.run("limit large rolling 60s MOST\nlimit slots concurrency 60s 1").await;
    on.run("reserve A large=5 slots=1").await;
    for amount in [on.capabilities.capacity_max + 1, u64::MAX - 5, u64::MAX] {
        for name in ["large", "slots"] {
            on.run(&format!("reserve {amount} {name}={amount} -> exceeds {name}")).await;
        }
    }
    on.run("used large=5 slots=1").await;
}
