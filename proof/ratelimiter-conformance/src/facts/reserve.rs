//! `RES-01` to `RES-03` and `RES-06` to `RES-08`: admission and its duration.

use std::time::Duration;

use futures::future::join_all;
use ratelimiter::CAPACITY_MAX;

use crate::context::TestContext;

const NANOSECOND: Duration = Duration::from_nanos(1);

/// RES-01
pub(crate) async fn res_01_an_allowed_call_holds_all_that_it_needs(on: &TestContext) {
    on.rolling("requests", 60, 10).await;
    on.rolling("tokens", 60, 1_000).await;
    on.concurrency("slots", 60, 10).await;
    let needs = [("requests", 1), ("tokens", 700), ("slots", 2)];
    on.reserve("A", needs).await.is_allowed();
    for (name, amount) in needs {
        assert_eq!(on.used(name).await, amount, "{name}");
    }
    assert_eq!(on.available("tokens").await, 300);
}

/// RES-01
pub(crate) async fn res_01_a_denied_call_holds_nothing(on: &TestContext) {
    on.rolling("free", 60, 10).await;
    on.concurrency("slots", 60, 10).await;
    for full in ["a:full", "full", "z:full"] {
        on.rolling(full, 60, 1).await;
        on.reserve(full, [(full, 1)]).await.is_allowed();
        for (lease, needs) in [
            ("last", [("free", 1), ("slots", 1), (full, 1)]),
            ("first", [(full, 1), ("slots", 1), ("free", 1)]),
        ] {
            let lease = format!("{full} {lease}");
            on.reserve(&lease, needs).await.is_denied_for([full]);
            assert_eq!(on.used("free").await, 0);
            assert_eq!(on.used("slots").await, 0);
            assert_eq!(on.used(full).await, 1);
        }
    }
    let all = [("free", 10), ("slots", 10)];
    on.reserve("A", all).await.is_allowed();
}

/// RES-01
pub(crate) async fn res_01_a_refused_call_holds_nothing(on: &TestContext) {
    on.rolling("free", 60, 10).await;
    on.rolling("small", 60, 2).await;
    let unknown = on.reserve("A", [("free", 1), ("unknown", 1)]).await;
    unknown.is_refused_for_unknown("unknown");
    let over = on.reserve("B", [("free", 1), ("small", 3)]).await;
    over.is_refused_for_more_than_capacity_of("small");
    assert_eq!(on.used("free").await, 0);
    assert_eq!(on.used("small").await, 0);
    on.reserve("C", [("free", 10), ("small", 2)]).await.is_allowed();
}

/// RES-02
pub(crate) async fn res_02_a_reservation_counts_for_its_window_and_returns(on: &TestContext) {
    on.rolling("rate", 2, 5).await;
    let window = on.lifetime_of_seconds(2);
    on.reserve("A", [("rate", 5)]).await.is_allowed();
    on.pass_seconds(1).await;
    let used = on.used("rate").await;
    let another = on.reserve("B", [("rate", 1)]).await;
    if on.is_within(window) {
        assert_eq!(used, 5);
        another.is_denied_for(["rate"]);
        on.outlast_seconds(1).await;
    } else {
        // The other one may have been allowed.
        on.outlast_seconds(2).await;
    }
    assert_eq!(on.used("rate").await, 0);
    on.reserve("C", [("rate", 5)]).await.is_allowed();
}

/// RES-02
pub(crate) async fn res_02_a_reservation_returns_at_the_end_of_its_window_exactly(
    on: &TestContext,
) {
    on.rolling("rate", 2, 1).await;
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    on.pass(Duration::from_secs(2) - NANOSECOND).await;
    on.reserve("B", [("rate", 1)]).await.is_denied_for(["rate"]);
    on.pass(NANOSECOND).await;
    on.reserve("C", [("rate", 1)]).await.is_allowed();
}

/// RES-02
pub(crate) async fn res_02_a_reservation_outlives_its_call(on: &TestContext) {
    on.rolling("rate", 2, 1).await;
    let window = on.lifetime_of_seconds(2);
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    on.complete("A", []).await.is_ok();
    let another = on.reserve("B", [("rate", 1)]).await;
    if on.is_within(window) {
        another.is_denied_for(["rate"]);
    }
    on.outlast_seconds(2).await;
    on.reserve("C", [("rate", 1)]).await.is_allowed();
}

/// RES-02
pub(crate) async fn res_02_each_reservation_returns_at_its_own_time(on: &TestContext) {
    on.rolling("rate", 3, 10).await;
    let first = on.lifetime_of_seconds(3);
    on.reserve("A", [("rate", 3)]).await.is_allowed();
    on.pass_seconds(2).await;
    let second = on.lifetime_of_seconds(3);
    on.reserve("B", [("rate", 4)]).await.is_allowed();
    let used = on.used("rate").await;
    if on.is_within(first) {
        assert_eq!(used, 7);
    }
    on.outlast_seconds(1).await;
    let used = on.used("rate").await;
    if on.is_within(second) {
        assert_eq!(used, 4);
    }
    on.outlast_seconds(2).await;
    assert_eq!(on.used("rate").await, 0);
}

/// RES-02
pub(crate) async fn res_02_a_full_limit_admits_no_more(on: &TestContext) {
    on.rolling("rate", 60, 5).await;
    for n in 0..5 {
        on.reserve(&format!("{n}"), [("rate", 1)]).await.is_allowed();
    }
    for n in 5..8 {
        let answer = on.reserve(&format!("{n}"), [("rate", 1)]).await;
        answer.is_denied_for(["rate"]);
    }
    assert_eq!(on.used("rate").await, 5);
    assert_eq!(on.available("rate").await, 0);
}

/// RES-02
pub(crate) async fn res_02_calls_at_the_same_time_share_the_room_exactly(on: &TestContext) {
    on.rolling("rate", 3_600, 20).await;
    on.concurrency("slots", 3_600, 30).await;
    let leases: Vec<String> = (0..40).map(|n| format!("{n}")).collect();
    let calls = leases.iter().map(|lease| on.reserve(lease, [("slots", 1), ("rate", 1)]));
    let answers = join_all(calls).await;
    let allowed = answers.iter().filter(|answer| answer.was_allowed()).count();
    assert_eq!(allowed, 20);
    assert_eq!(on.used("rate").await, 20);
    assert_eq!(on.used("slots").await, 20);
}

/// RES-03
pub(crate) async fn res_03_a_hold_is_kept_until_complete(on: &TestContext) {
    on.concurrency("slots", 60, 1).await;
    on.reserve("A", [("slots", 1)]).await.is_allowed();
    on.pass_seconds(1).await;
    on.reserve("B", [("slots", 1)]).await.is_denied_for(["slots"]);
    on.complete("A", []).await.is_ok();
    assert_eq!(on.used("slots").await, 0);
    on.reserve("C", [("slots", 1)]).await.is_allowed();
}

/// RES-03
pub(crate) async fn res_03_a_hold_takes_as_many_slots_as_its_amount(on: &TestContext) {
    on.concurrency("slots", 60, 5).await;
    on.reserve("A", [("slots", 3)]).await.is_allowed();
    on.reserve("B", [("slots", 3)]).await.is_denied_for(["slots"]);
    on.reserve("C", [("slots", 2)]).await.is_allowed();
    assert_eq!(on.used("slots").await, 5);
    on.complete("A", []).await.is_ok();
    assert_eq!(on.used("slots").await, 2);
}

/// RES-03
pub(crate) async fn res_03_a_hold_ends_after_its_timeout(on: &TestContext) {
    on.concurrency("slots", 2, 1).await;
    let timeout = on.lifetime_of_seconds(2);
    on.reserve("A", [("slots", 1)]).await.is_allowed();
    on.pass_seconds(1).await;
    let used = on.used("slots").await;
    if on.is_within(timeout) {
        assert_eq!(used, 1);
    }
    on.outlast_seconds(1).await;
    assert_eq!(on.used("slots").await, 0);
    on.reserve("B", [("slots", 1)]).await.is_allowed();
}

/// RES-06
pub(crate) async fn res_06_an_unknown_key_comes_before_an_amount_over_capacity(on: &TestContext) {
    on.rolling("small", 60, 1).await;
    for needs in [[("small", 2), ("unknown", 1)], [("unknown", 1), ("small", 2)]] {
        on.reserve("A", needs).await.is_refused_for_unknown("unknown");
    }
}

/// RES-06
pub(crate) async fn res_06_an_amount_over_capacity_comes_before_a_decrease(on: &TestContext) {
    on.rolling("lowered", 60, 10).await;
    on.rolling("small", 60, 1).await;
    on.reserve("A", [("lowered", 6)]).await.is_allowed();
    on.decrease(on.rolling_limit("lowered", 60, 5)).await;
    let answer = on.reserve("B", [("lowered", 1), ("small", 2)]).await;
    answer.is_refused_for_more_than_capacity_of("small");
    let answer = on.reserve("C", [("lowered", 11)]).await;
    answer.is_refused_for_more_than_capacity_of("lowered");
    let answer = on.reserve("D", [("lowered", 10)]).await;
    answer.is_denied_by_decrease_of("lowered");
}

/// RES-06
pub(crate) async fn res_06_a_decrease_comes_before_the_lack_of_room(on: &TestContext) {
    on.rolling("lowered", 60, 10).await;
    for full in ["a:full", "z:full"] {
        on.rolling(full, 60, 1).await;
        on.reserve(full, [(full, 1)]).await.is_allowed();
    }
    on.reserve("A", [("lowered", 6)]).await.is_allowed();
    on.decrease(on.rolling_limit("lowered", 60, 5)).await;
    let needs = [("a:full", 1), ("lowered", 1), ("z:full", 1)];
    let answer = on.reserve("B", needs).await;
    answer.is_denied_by_decrease_of("lowered");
}

/// RES-06
pub(crate) async fn res_06_every_requirement_is_looked_at(on: &TestContext) {
    for full in ["b", "d"] {
        on.rolling(full, 60, 1).await;
        on.reserve(full, [(full, 1)]).await.is_allowed();
    }
    for free in ["a", "c"] {
        on.rolling(free, 60, 1).await;
    }
    let answer = on.reserve("A", [("d", 1), ("c", 1), ("b", 1), ("a", 1)]).await;
    answer.is_denied_for(["d", "b"]);
}

/// RES-07
pub(crate) async fn res_07_the_largest_capacity_can_be_reserved_whole(on: &TestContext) {
    on.rolling("rate", 60, CAPACITY_MAX).await;
    on.reserve("A", [("rate", CAPACITY_MAX - 1)]).await.is_allowed();
    let answer = on.reserve("B", [("rate", CAPACITY_MAX)]).await;
    answer.is_denied_for(["rate"]);
    on.reserve("C", [("rate", 2)]).await.is_denied_for(["rate"]);
    on.reserve("D", [("rate", 1)]).await.is_allowed();
    on.reserve("E", [("rate", 1)]).await.is_denied_for(["rate"]);
    assert_eq!(on.used("rate").await, CAPACITY_MAX);
    assert_eq!(on.available("rate").await, 0);
}

/// RES-07
pub(crate) async fn res_07_an_amount_near_the_largest_number_is_refused(on: &TestContext) {
    on.rolling("large", 60, CAPACITY_MAX).await;
    on.concurrency("slots", 60, 1).await;
    on.reserve("A", [("large", 5), ("slots", 1)]).await.is_allowed();
    for amount in [CAPACITY_MAX + 1, u64::MAX - 5, u64::MAX] {
        for name in ["large", "slots"] {
            let answer = on.reserve(&format!("{amount}"), [(name, amount)]).await;
            answer.is_refused_for_more_than_capacity_of(name);
        }
    }
    assert_eq!(on.used("large").await, 5);
    assert_eq!(on.used("slots").await, 1);
}

/// RES-08
pub(crate) async fn res_08_a_denial_names_a_key_without_room_and_a_hint(on: &TestContext) {
    on.rolling("rate", 60, 5).await;
    on.rolling("free", 60, 5).await;
    on.concurrency("slots", 60, 5).await;
    on.reserve("A", [("rate", 3), ("slots", 3)]).await.is_allowed();
    let needs = [("free", 3), ("rate", 3), ("slots", 3)];
    on.reserve("B", needs).await.is_denied_for(["rate", "slots"]);
    let needs = [("slots", 2), ("rate", 3)];
    on.reserve("C", needs).await.is_denied_for(["rate"]);
}
