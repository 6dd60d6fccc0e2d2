//! `RES-04`, `RES-05` and `RES-09`: repeated lease IDs.

use crate::context::TestContext;

scripts! {
    /// RES-04
    fn res_04_a_repeated_reserve_counts_once: "
        limit rate rolling 60s 10; limit slots concurrency 60s 10
        reserve A rate=3 slots=2; pass 1s
        reserve A rate=3 slots=2 -> allowed as before
        used rate=3 slots=2
        reserve A slots=2 rate=3 -> allowed as before
        used rate=3 slots=2
        reserve B rate=7 slots=8; complete A; complete B
        used slots=0
    ";

    /// RES-04
    fn res_04_a_repeated_reserve_does_not_last_longer: "
        limit rate rolling 2s 1
        lifetime A 2s; reserve A rate=1; pass 1s
        within A: reserve A rate=1
        outlast 1s; reserve B rate=1
    ";

    /// RES-04
    fn res_04_a_lease_cannot_come_back_with_other_requirements: "
        limit a rolling 60s 10; limit b rolling 60s 10; limit c rolling 60s 10
        reserve A a=2 b=2
        reserve A a=2 b=3 -> conflict
        reserve A a=1 b=2 -> conflict
        reserve A a=2 -> conflict
        reserve A b=2 -> conflict
        reserve A a=2 c=2 -> conflict
        reserve A a=2 b=2 c=2 -> conflict
        used a=2 b=2 c=0
        reserve A a=2 b=2
    ";

    /// RES-04
    fn res_04_a_lease_cannot_come_back_with_other_keys_altogether: "
        limit one rolling 60s 10; limit other rolling 60s 10
        reserve A one=1
        reserve A other=1 -> conflict
        used other=0
    ";

    /// RES-04, RES-06
    fn res_04_a_repeated_reserve_is_allowed_after_its_limit_changed: "
        limit rate rolling 60s 10; limit slots concurrency 60s 10
        reserve A rate=6 slots=10; reserve B rate=4; reserve A rate=6 slots=10
        limit rate rolling 60s 5 -> decreasing to 5
        reserve A rate=6 slots=10
        reserve A rate=11 slots=10 -> conflict
    ";

    /// RES-06
    fn res_06_an_unknown_key_comes_before_a_known_lease: "
        limit gone rolling 60s 10; limit stays rolling 60s 10
        reserve A gone=1 stays=1; delete gone
        reserve A gone=1 stays=1 -> unknown gone
        used stays=1
    ";

    /// RES-05
    fn res_05_a_denied_lease_stays_denied: "
        limit free rolling 60s 10; limit slots concurrency 60s 1
        reserve A slots=1
        reserve B free=1 slots=1 -> denied slots
        complete A
        reserve B free=1 slots=1 -> denied
        pass 1s
        reserve B slots=1 free=1 -> denied
        used free=0 slots=0
        reserve C free=1 slots=1
    ";

    /// RES-05
    fn res_05_a_denied_lease_stays_denied_whatever_it_asks_for: "
        limit free rolling 60s 10; limit full rolling 60s 1
        reserve A full=1
        reserve B full=1 -> denied full
        reserve B free=1 -> denied
        reserve B free=11 -> denied
        used free=0
    ";

    /// RES-05
    fn res_05_completing_a_denied_lease_changes_nothing: "
        limit rate rolling 60s 1
        reserve A rate=1
        reserve B rate=1 -> denied rate
        complete B
        used rate=1; debt rate=0
        complete A rate=0; reserve C rate=1
    ";

    /// RES-09
    fn res_09_a_completed_lease_is_never_allowed_again: "
        limit rate rolling 60s 10; limit slots concurrency 60s 10
        reserve A rate=2 slots=1; complete A rate=1
        reserve A rate=2 slots=1 -> ended
        pass 1s
        reserve A rate=2 slots=1 -> ended
        used rate=1 slots=0
    ";

    /// RES-09
    fn res_09_an_expired_lease_is_never_allowed_again: "
        limit rate rolling 1s 10; limit slots concurrency 1s 10
        reserve A rate=1; reserve B slots=1; outlast 1s
        reserve A rate=1 -> ended
        reserve B slots=1 -> ended
        used rate=0 slots=0
    ";

    /// RES-09
    fn res_09_one_expired_reservation_ends_the_lease: "
        limit short rolling 1s 10; limit long rolling 60s 10
        reserve A short=1 long=4; outlast 1s
        reserve A short=1 long=4 -> ended
        used short=0 long=4
    ";

    /// RES-09
    fn res_09_complete_reconciles_what_is_live_of_an_ended_lease: "
        limit short rolling 1s 10; limit long rolling 60s 10; limit slots concurrency 60s 10
        reserve A short=5 long=5 slots=5; outlast 1s
        reserve A short=5 long=5 slots=5 -> ended
        complete A short=2 long=2
        used short=0 long=2 slots=0
    ";

    /// RES-09
    fn res_09_an_ended_lease_stays_ended_whatever_it_asks_for: "
        limit one rolling 60s 10; limit other rolling 60s 10
        reserve A one=1; complete A one=0
        reserve A other=1 -> ended
        reserve A other=11 -> ended
        used other=0
    ";
}

/// RES-09
pub(crate) async fn res_09_a_forgotten_lease_is_new_and_counts_in_full(on: &mut TestContext) {
    let forgets_after = on.capabilities.forgets_after.expect("the fact needs it");
    on.run(
        "limit slots concurrency 1s 1
         reserve completed slots=1
         reserve denied slots=1 -> denied
         complete completed
         reserve expired slots=1
         outlast 1s
         reserve completed slots=1 -> ended
         reserve expired slots=1 -> ended
         reserve denied slots=1 -> denied",
    )
    .await;
    on.pass(forgets_after).await;
    on.run("outlast 1s").await;
    for lease in ["completed", "expired", "denied"] {
        on.run(&format!("reserve {lease} slots=1\nused slots=1\ncomplete {lease}")).await;
    }
}

/// RES-09
pub(crate) async fn res_09_the_oldest_ended_leases_are_forgotten_first(on: &mut TestContext) {
    let remembered_max = on.capabilities.remembers_at_most.expect("the fact needs it");
    on.run("limit slots concurrency 60s 1").await;
    for n in 0..=remembered_max {
        on.run(&format!("reserve {n} slots=1\ncomplete {n}")).await;
    }
    // A limiter may forget several of the oldest at a time, so long as the newer half stays.
    for n in remembered_max / 2..=remembered_max {
        on.run(&format!("reserve {n} slots=1 -> ended")).await;
    }
    on.run("reserve 0 slots=1\nused slots=1").await;
}
