//! Batches: independent items that follow the same rules, in order.

use crate::context::TestContext;

/// RES-01
pub(crate) async fn res_01_the_requests_of_a_batch_are_independent(on: &TestContext) {
    on.rolling("rate", 60, 2).await;
    on.rolling("free", 60, 10).await;
    on.concurrency("slots", 60, 1).await;
    on.reserve("full", [("slots", 1)]).await.is_allowed();
    let answers = on
        .reserve_batch(&[
            on.to_reserve("A", [("free", 1), ("rate", 1)]),
            on.to_reserve("B", [("free", 1), ("slots", 1)]),
            on.to_reserve("C", [("free", 1), ("unknown", 1)]),
            on.to_reserve("D", [("free", 1), ("rate", 3)]),
            on.to_reserve("full", [("slots", 1)]),
            on.to_reserve("A", [("free", 2), ("rate", 1)]),
            on.to_reserve("E", [("free", 1), ("rate", 1)]),
        ])
        .await;
    answers[0].is_allowed();
    answers[1].is_denied_for(["slots"]);
    answers[2].is_refused_for_unknown("unknown");
    answers[3].is_refused_for_more_than_capacity_of("rate");
    answers[4].is_allowed();
    answers[5].is_a_conflict();
    answers[6].is_allowed();
    assert_eq!(on.used("free").await, 2);
    assert_eq!(on.used("rate").await, 2);
    assert_eq!(on.used("slots").await, 1);
}

/// RES-02
pub(crate) async fn res_02_a_batch_shares_the_room_in_order(on: &TestContext) {
    on.rolling("rate", 60, 5).await;
    let leases = ["0", "1", "2", "3", "4", "5", "6", "7"];
    let requests = leases.map(|lease| on.to_reserve(lease, [("rate", 1)]));
    let answers = on.reserve_batch(&requests).await;
    for answer in &answers[..5] {
        answer.is_allowed();
    }
    for answer in &answers[5..] {
        answer.is_denied_for(["rate"]);
    }
    assert_eq!(on.used("rate").await, 5);
}

/// RES-02
pub(crate) async fn res_02_a_batch_of_256_is_answered_in_order(on: &TestContext) {
    for name in ["a", "b", "c"] {
        on.rolling(name, 3_600, 1_000).await;
    }
    on.rolling("rate", 3_600, 200).await;
    let request =
        |n: usize| on.to_reserve(&n.to_string(), [("a", 1), ("b", 1), ("c", 1), ("rate", 1)]);
    let requests: Vec<_> = (0..256).map(request).collect();
    let answers = on.reserve_batch(&requests).await;
    for answer in &answers[..200] {
        answer.is_allowed();
    }
    for answer in &answers[200..] {
        answer.is_denied_for(["rate"]);
    }
    assert_eq!((on.used("a").await, on.used("rate").await), (200, 200));
}

/// RES-04
pub(crate) async fn res_04_a_lease_twice_in_a_batch_counts_once(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    let request = on.to_reserve("A", [("rate", 3)]);
    let answers = on.reserve_batch(&[request.clone(), request]).await;
    assert_eq!(answers[0].is_allowed(), answers[1].is_allowed());
    assert_eq!(on.used("rate").await, 3);
}

/// RES-05
pub(crate) async fn res_05_a_lease_denied_in_a_batch_stays_denied(on: &TestContext) {
    on.concurrency("slots", 60, 1).await;
    on.reserve("A", [("slots", 1)]).await.is_allowed();
    let request = on.to_reserve("B", [("slots", 1)]);
    let answers = on.reserve_batch(&[request.clone(), request]).await;
    answers[0].is_denied_for(["slots"]);
    answers[1].is_denied();
    on.complete("A", []).await.is_ok();
    on.reserve("B", [("slots", 1)]).await.is_denied();
}

/// COM-01, COM-02
pub(crate) async fn com_01_a_batch_completes_each_lease(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.concurrency("slots", 60, 5).await;
    for lease in ["A", "B", "C"] {
        on.reserve(lease, [("tokens", 30), ("slots", 1)]).await.is_allowed();
    }
    let answers = on
        .complete_batch(&[
            on.to_complete("A", [("tokens", 10)]),
            on.to_complete("unknown", []),
            on.to_complete("B", []),
        ])
        .await;
    for answer in &answers {
        answer.is_ok();
    }
    assert_eq!(on.used("tokens").await, 70);
    assert_eq!(on.used("slots").await, 1);
}

/// COM-05
pub(crate) async fn com_05_a_lease_twice_in_a_batch_completes_once(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.reserve("A", [("tokens", 100)]).await.is_allowed();
    let answers = on
        .complete_batch(&[
            on.to_complete("A", [("tokens", 110)]),
            on.to_complete("A", [("tokens", 110)]),
        ])
        .await;
    for answer in &answers {
        answer.is_ok();
    }
    assert_eq!(on.used("tokens").await, 100);
    assert_eq!(on.debt("tokens").await, 10);
}

/// COM-06
pub(crate) async fn com_06_a_refused_complete_leaves_its_neighbours_alone(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.concurrency("slots", 60, 5).await;
    for lease in ["A", "B", "C"] {
        on.reserve(lease, [("tokens", 30), ("slots", 1)]).await.is_allowed();
    }
    let answers = on
        .complete_batch(&[
            on.to_complete("A", [("tokens", 0)]),
            on.to_complete("B", [("tokens", 0), ("slots", 1)]),
            on.to_complete("C", [("tokens", 0)]),
        ])
        .await;
    answers[0].is_ok();
    answers[1].is_refused_for_the_actual_of("slots");
    answers[2].is_ok();
    assert_eq!(on.used("tokens").await, 30);
    assert_eq!(on.used("slots").await, 1);
}
