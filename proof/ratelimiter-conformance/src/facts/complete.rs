//! `COM-01`, `COM-02`, `COM-04` to `COM-06`: the end of a call.

use crate::context::TestContext;

scripts! {
    /// COM-01
    fn com_01_complete_releases_every_hold_at_once: "
        limit model concurrency 60s 2; limit tenant concurrency 60s 3; limit rate rolling 60s 10
        reserve A model=2 rate=1 tenant=3; complete A
        used model=0 tenant=0 rate=1
        reserve B model=2 rate=1 tenant=3
    ";

    /// COM-01
    fn com_01_complete_releases_only_the_lease_that_it_names: "
        limit slots concurrency 60s 5
        reserve A slots=2; reserve B slots=3; complete A
        used slots=3
    ";

    /// COM-02
    fn com_02_a_reservation_shrinks_to_the_actual: "
        limit tokens rolling 60s 1000; limit requests rolling 60s 10
        reserve A tokens=900 requests=1
        reserve B tokens=101 -> denied tokens
        complete A tokens=340
        used tokens=340 requests=1; available tokens=660
        reserve C tokens=661 -> denied tokens
        reserve D tokens=660
    ";

    /// COM-02
    fn com_02_a_shrunk_reservation_keeps_its_expiry: "
        limit tokens rolling 3s 100
        lifetime A 3s; reserve A tokens=100; pass 1s; complete A tokens=60; pass 1s
        within A: used tokens=60
        outlast reconciled 1s
        used tokens=0
    ";

    /// COM-02
    fn com_02_an_actual_of_zero_frees_it_all: "
        limit tokens rolling 60s 100
        reserve A tokens=100; complete A tokens=0
        used tokens=0
        reserve B tokens=100
    ";

    /// COM-02
    fn com_02_an_actual_equal_to_the_reservation_changes_nothing: "
        limit tokens rolling 2s 100
        lifetime A 2s; reserve A tokens=70; complete A tokens=70
        within A: used tokens=70
        debt tokens=0
        outlast reconciled 2s
        used tokens=0
    ";

    /// COM-04
    fn com_04_a_rolling_key_without_an_actual_keeps_its_reservation: "
        limit tokens rolling 2s 100; limit requests rolling 2s 10
        lifetime A 2s; reserve A tokens=80 requests=1; complete A requests=1; pass 1s
        within A: used tokens=80
        outlast 1s
        used tokens=0
    ";

    /// COM-05
    fn com_05_completing_an_unknown_lease_is_ok: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 1
        reserve A tokens=50 slots=1; complete unknown; complete another tokens=70
        used tokens=50 slots=1; debt tokens=0
    ";

    /// COM-05
    fn com_05_completing_twice_is_completing_once: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 2
        reserve A tokens=50 slots=1; reserve B slots=1; complete A tokens=30
        complete A tokens=30
        used tokens=30
        complete A tokens=0
        used tokens=30
        complete A tokens=50
        used tokens=30
        complete A tokens=500
        used tokens=30
        complete A
        used tokens=30 slots=1; debt tokens=0
    ";

    /// COM-05
    fn com_05_overage_counts_once: "
        limit tokens rolling 60s 50
        reserve A tokens=50; complete A tokens=70
        debt tokens=20; used tokens=50
        complete A tokens=70
        debt tokens=20; used tokens=50
        complete A tokens=70
        debt tokens=20; used tokens=50
    ";

    /// COM-05: the hold of another lease stays.
    fn com_05_completing_an_expired_lease_changes_nothing: "
        limit tokens rolling 1s 100; limit slots concurrency 1s 1
        reserve A tokens=50 slots=1; outlast 1s
        limit slots concurrency 60s 1
        reserve B slots=1; complete A tokens=90
        used tokens=0 slots=1; debt tokens=0
    ";

    /// COM-06
    fn com_06_an_actual_for_a_key_that_the_lease_does_not_hold: "
        limit tokens rolling 60s 100; limit other rolling 60s 100; limit slots concurrency 60s 1
        reserve A tokens=50 slots=1
        complete A tokens=10 other=1 -> invalid other
        used tokens=50 slots=1 other=0
        complete A tokens=10 undefined=1 -> invalid undefined
        used tokens=50 slots=1 other=0
        complete A tokens=10
        used tokens=10 slots=0
    ";

    /// COM-06
    fn com_06_an_actual_for_a_concurrency_key: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 1
        reserve A tokens=50 slots=1
        complete A tokens=10 slots=0 -> invalid slots
        used tokens=50 slots=1
        complete A tokens=10 slots=1 -> invalid slots
        used tokens=50 slots=1
        complete A tokens=10 slots=2 -> invalid slots
        used tokens=50 slots=1
        complete A tokens=10
        used slots=0
    ";
}

/// Actuals of 10 reserved units of 20: none given, all, some, zero, more with room, more without.
const ACTUALS: [&str; 6] = ["", "=10", "=4", "=0", "=12", "=30"];

/// COM-05: also if the first complete changed nothing.
pub(crate) async fn com_05_the_first_complete_stands_whatever_later_ones_say(on: &mut TestContext) {
    on.run("limit slots concurrency 60s 100").await;
    for (number, first) in ACTUALS.into_iter().enumerate() {
        for hold in [" slots=1", ""] {
            let name = format!("tokens:{number}:{}", hold.len());
            let complete = |actual: &str| match actual {
                "" => format!("complete {name}"),
                actual => format!("complete {name} {name}{actual}"),
            };
            on.run(&format!("limit {name} rolling 60s 20\nreserve {name} {name}=10{hold}")).await;
            on.run(&complete(first)).await;
            let completed = on.state(&name).await.usage;
            for later in ACTUALS {
                on.run(&complete(later)).await;
                let after = on.state(&name).await.usage;
                let both = |usage: ratelimiter::Usage| (usage.used, usage.debt);
                assert_eq!(both(after), both(completed), "{first:?}, then {later:?},{hold}");
            }
        }
    }
    on.run("used slots=0").await;
}
