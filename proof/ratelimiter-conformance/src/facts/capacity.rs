//! `DEF-06` and `DEF-07`: increases and decreases.

use crate::context::TestContext;

scripts! {
    /// DEF-06
    fn def_06_an_increase_holds_at_once: "
        limit rate rolling 60s 1
        reserve A rate=1
        reserve B rate=1 -> denied rate
        limit rate rolling 60s 3
        available rate=2
        reserve C rate=2
        reserve D rate=1 -> denied rate
    ";

    /// DEF-06
    fn def_06_an_increase_cancels_a_decrease: "
        limit slots concurrency 60s 10
        reserve A slots=8
        limit slots concurrency 60s 5 -> decreasing to 5
        limit slots concurrency 60s 10
        status slots -> active; capacity slots=10
        limit slots concurrency 60s 5 -> decreasing to 5
        limit slots concurrency 60s 12
        status slots -> active; capacity slots=12
        reserve B slots=4
        reserve C slots=1 -> denied slots
    ";

    /// DEF-07
    fn def_07_a_decrease_into_free_room_holds_at_once: "
        limit rate rolling 60s 10
        reserve A rate=4
        limit rate rolling 60s 4
        status rate -> active; capacity rate=4; available rate=0
        reserve B rate=1 -> denied rate
        reserve C rate=5 -> exceeds rate
    ";

    /// DEF-07
    fn def_07_a_decreasing_limit_admits_nothing: "
        limit rate rolling 60s 10; limit other rolling 60s 10
        reserve A rate=6
        limit rate rolling 60s 5 -> decreasing to 5
        status rate -> decreasing to 5; capacity rate=10
        reserve B other=1 rate=1 -> decreasing rate
        used rate=6 other=0
        reserve C other=10
    ";

    /// DEF-07
    fn def_07_a_decrease_is_applied_when_enough_has_expired: "
        limit rate rolling 3s 10
        lifetime A 3s; reserve A rate=6; pass 1s; reserve B rate=2
        within A: limit rate rolling 60s 2 -> decreasing to 2
        pass 1s
        within A: status rate -> decreasing to 2
        outlast 1s; wait rate
        status rate -> active; capacity rate=2
        reserve C rate=2
        reserve D rate=1 -> denied rate
    ";

    /// DEF-07
    fn def_07_a_decrease_is_applied_when_enough_was_released: "
        limit slots concurrency 60s 10
        reserve A slots=3; reserve B slots=3
        limit slots concurrency 60s 3 -> decreasing to 3
        complete A; wait slots
        status slots -> active; capacity slots=3
        reserve C slots=1 -> denied slots
        complete B; reserve D slots=3
    ";

    /// DEF-07
    fn def_07_a_reconciled_reservation_lets_a_decrease_through: "
        limit rate rolling 60s 10
        reserve A rate=8
        limit rate rolling 60s 5 -> decreasing to 5
        complete A rate=3; wait rate
        status rate -> active; used rate=3
        reserve B rate=2
        reserve C rate=1 -> denied rate
    ";

    /// DEF-07
    fn def_07_another_lower_capacity_replaces_the_target: "
        limit slots concurrency 60s 10
        reserve A slots=6
        limit slots concurrency 60s 5 -> decreasing to 5
        status slots -> decreasing to 5
        limit slots concurrency 60s 2 -> decreasing to 2
        status slots -> decreasing to 2
        limit slots concurrency 60s 4 -> decreasing to 4
        status slots -> decreasing to 4
        complete A; wait slots
        capacity slots=4
    ";

    /// DEF-07
    fn def_07_a_target_that_fits_ends_the_decrease: "
        limit slots concurrency 60s 10
        reserve A slots=6
        limit slots concurrency 60s 5 -> decreasing to 5
        limit slots concurrency 60s 7
        capacity slots=7
        reserve B slots=1
        reserve C slots=1 -> denied slots
    ";

    /// DEF-07
    fn def_07_only_the_capacity_of_a_decrease_waits: "
        limit rate rolling 60s 10
        reserve A rate=6
        limit rate rolling 30s 5 deny -> decreasing to 5
        defined rate rolling 30s 10 deny
    ";
}

/// DEF-06
pub(crate) async fn def_06_a_capacity_goes_down_and_up_any_number_of_times(on: &mut TestContext) {
    on.run("limit slots concurrency 60s 10").await;
    for round in 0..5 {
        for capacity in [5, 10] {
            on.run(&format!(
                "limit slots concurrency 60s {capacity}
                 reserve {round}:{capacity} slots={capacity}
                 reserve {round}:{capacity}+ slots=1 -> denied slots
                 complete {round}:{capacity}"
            ))
            .await;
        }
    }
}

/// DEF-06
pub(crate) async fn def_06_a_decrease_in_use_can_be_repeated(on: &mut TestContext) {
    for lease in ["A", "B", "C"] {
        on.run(&format!(
            "limit slots concurrency 60s 10
             reserve {lease} slots=10
             limit slots concurrency 60s 5 -> decreasing to 5
             complete {lease}
             wait slots
             status slots -> active
             capacity slots=5"
        ))
        .await;
    }
    on.run("limit slots concurrency 60s 10").await;
}
