//! `COM-03`: usage above the reservation.

use crate::context::TestContext;

scripts! {
    /// COM-03
    fn com_03_an_excess_is_reserved_where_there_is_room: "
        limit tokens rolling 60s 100
        reserve A tokens=40; complete A tokens=70
        used tokens=70; debt tokens=0
        reserve B tokens=31 -> denied tokens
        reserve C tokens=30
    ";

    /// COM-03
    fn com_03_an_excess_may_fill_the_limit: "
        limit tokens rolling 60s 100
        reserve A tokens=40; complete A tokens=100
        used tokens=100; debt tokens=0
    ";

    /// COM-03
    fn com_03_a_reserved_excess_returns_with_its_reservation: "
        limit tokens rolling 3s 100
        lifetime A 3s; reserve A tokens=40; pass 1s; complete A tokens=70; pass 1s
        within A: used tokens=70
        outlast reconciled 1s
        used tokens=0
    ";

    /// COM-03: 10 units would fit, but it is all or nothing.
    fn com_03_an_excess_without_room_is_debt_as_a_whole: "
        limit tokens rolling 60s 100
        reserve A tokens=90; complete A tokens=101
        debt tokens=11; used tokens=90
        reserve B tokens=10
    ";

    /// COM-03
    fn com_03_with_deny_an_excess_without_room_is_no_debt: "
        limit tokens rolling 60s 100 deny
        reserve A tokens=90; complete A tokens=101
        debt tokens=0; used tokens=90
    ";

    /// COM-03
    fn com_03_with_deny_an_excess_is_reserved_where_there_is_room: "
        limit tokens rolling 60s 100 deny
        reserve A tokens=40; complete A tokens=70
        used tokens=70; debt tokens=0
    ";

    /// COM-03
    fn com_03_uncovered_use_is_counted_whatever_the_policy: "
        limit indebted rolling 60s 10; limit denied rolling 60s 10 deny
        reserve A indebted=10 denied=10; complete A indebted=13 denied=14
        debt indebted=3 denied=0; uncovered indebted=3 denied=4
    ";

    /// COM-03
    fn com_03_a_decreasing_limit_has_no_room_for_an_excess: "
        limit tokens rolling 60s 100
        reserve A tokens=30; reserve B tokens=30
        limit tokens rolling 60s 50 -> decreasing to 50
        complete A tokens=31
        used tokens=60; debt tokens=1
        complete B tokens=20; wait tokens
        status tokens -> active; used tokens=50
    ";

    /// COM-03
    fn com_03_each_key_is_reconciled_on_its_own: "
        limit less rolling 60s 10; limit equal rolling 60s 10; limit more rolling 60s 10
        limit beyond rolling 60s 10
        reserve A more=5 less=5 beyond=5 equal=5; complete A beyond=11 equal=5 less=4 more=6
        used less=4 equal=5 more=6 beyond=5; debt less=0 equal=0 more=0 beyond=6
    ";
}

/// COM-03
pub(crate) async fn com_03_debt_adds_up_and_takes_no_capacity(on: &mut TestContext) {
    on.run("limit tokens rolling 2s 10").await;
    let mut debt = 0;
    for (lease, actual) in [("A", 25), ("B", 12)] {
        on.run(&format!(
            "lifetime {lease} 2s
             reserve {lease} tokens=10
             complete {lease} tokens={actual}"
        ))
        .await;
        let before = debt;
        debt = on.state("tokens").await.usage.debt;
        if on.is_within(lease) {
            assert_eq!(debt - before, actual - 10);
        }
        // Debt does not expire.
        on.run(&format!("outlast reconciled 2s\ndebt tokens={debt}\navailable tokens=10")).await;
    }
}

/// RES-07, COM-03
pub(crate) async fn res_07_debt_of_the_largest_actuals_adds_up(on: &mut TestContext) {
    on.run("limit tokens rolling 60s MOST\nlimit small rolling 60s 10").await;
    let mut debt = 0;
    for lease in ["A", "B", "C"] {
        debt += u128::from(u64::MAX) - 1;
        on.run(&format!(
            "reserve {lease} tokens=1 small=1
             complete {lease} tokens={max} small={max}
             debt tokens={debt} small={debt}",
            max = u64::MAX
        ))
        .await;
    }
    on.run("used tokens=3 small=3").await;
}
