//! `DEF-01` to `DEF-05`, `DEF-09`, `DEF-10`: definitions and redefinitions.

use ratelimiter::{
    CAPACITY_MAX, DefineError, DeleteError, KEY_BYTES_MAX, Limit, LimitStatus, NOTE_BYTES_MAX,
    Note, Overage, TIMEOUT_SECONDS_MAX, WINDOW_SECONDS_MAX,
};

use crate::context::TestContext;

/// DEF-01
pub(crate) async fn def_01_any_valid_key_names_a_limit(on: &TestContext) {
    let longest = "k".repeat(KEY_BYTES_MAX - on.prefix().len());
    let model = "global:llm:openrouter:meta/llama-3.1@fp8:free:rpm";
    let odd = r#"%2F?a=1&b=#"\'+~"#;
    for name in [model, "..", "größe:鍵", odd, &longest] {
        on.rolling(name, 60, 1).await;
        on.reserve(name, [(name, 1)]).await.is_allowed();
        let another = format!("another {name}");
        on.reserve(&another, [(name, 1)]).await.is_denied_for([name]);
        assert_eq!(on.state(name).await.limit.key, on.key(name));
        on.complete(name, [(name, 0)]).await.is_ok();
        assert_eq!(on.used(name).await, 0, "{name}");
        assert_eq!(on.delete(name).await, Ok(()), "{name}");
    }
}

/// DEF-01
pub(crate) async fn def_01_keys_that_differ_in_a_byte_are_two_limits(on: &TestContext) {
    let long = "k".repeat(KEY_BYTES_MAX - on.prefix().len() - 1);
    let (long_a, long_b) = (format!("{long}a"), format!("{long}b"));
    for [one, other] in [["k", "K"], ["a:b", "a:b:"], [&long_a, &long_b]] {
        on.rolling(one, 60, 1).await;
        on.rolling(other, 60, 1).await;
        on.reserve(one, [(one, 1)]).await.is_allowed();
        assert_eq!(on.used(other).await, 0, "{other}");
        on.reserve(other, [(other, 1)]).await.is_allowed();
    }
}

/// DEF-02
pub(crate) async fn def_02_the_shortest_and_the_longest_durations_are_kept(on: &TestContext) {
    for (name, limit) in [
        ("a", on.rolling_limit("a", 1, 1)),
        ("b", on.rolling_limit("b", WINDOW_SECONDS_MAX.into(), 1)),
        ("c", on.concurrency_limit("c", 1, 1)),
        ("d", on.concurrency_limit("d", TIMEOUT_SECONDS_MAX.into(), 1)),
    ] {
        assert_eq!(on.define(limit.clone()).await, Ok(LimitStatus::Active));
        assert_eq!(on.state(name).await.limit, limit);
        on.reserve(name, [(name, 1)]).await.is_allowed();
    }
}

/// DEF-03
pub(crate) async fn def_03_all_of_a_definition_is_kept(on: &TestContext) {
    let text = |length: usize| Note::new("é".repeat(length / 2)).expect("at the bound");
    let limit = Limit {
        overage: Overage::Deny,
        unit: text(NOTE_BYTES_MAX),
        description: text(NOTE_BYTES_MAX),
        ..on.rolling_limit("full", 60, CAPACITY_MAX)
    };
    assert_eq!(on.define(limit.clone()).await, Ok(LimitStatus::Active));
    let state = on.state("full").await;
    assert_eq!(state.limit, limit);
    assert_eq!(state.status, LimitStatus::Active);
    assert_eq!(state.usage.used, 0);
    assert_eq!(state.usage.available, CAPACITY_MAX);
    assert_eq!(state.usage.debt, 0);
}

/// DEF-04
pub(crate) async fn def_04_the_kind_of_a_limit_cannot_change(on: &TestContext) {
    on.rolling("rate", 60, 5).await;
    on.concurrency("slots", 60, 5).await;
    let conflict = |name, is| {
        let key = on.key(name);
        Err(DefineError::KindConflict { key, is })
    };
    let rate = on.concurrency_limit("rate", 60, 9);
    assert_eq!(on.define(rate).await, conflict("rate", "rolling"));
    let slots = on.rolling_limit("slots", 60, 9);
    assert_eq!(on.define(slots).await, conflict("slots", "concurrency"));
    let kept = on.state("rate").await.limit;
    assert_eq!(kept, on.rolling_limit("rate", 60, 5));
    let kept = on.state("slots").await.limit;
    assert_eq!(kept, on.concurrency_limit("slots", 60, 5));
}

/// DEF-05
pub(crate) async fn def_05_an_equal_definition_changes_nothing(on: &TestContext) {
    on.rolling("rate", 60, 5).await;
    on.reserve("A", [("rate", 4)]).await.is_allowed();
    on.complete("A", [("rate", 9)]).await.is_ok();
    on.reserve("B", [("rate", 1)]).await.is_allowed();
    let before = on.state("rate").await;
    for _ in 0..3 {
        on.rolling("rate", 60, 5).await;
        assert_eq!(on.state("rate").await, before);
    }
    on.reserve("C", [("rate", 1)]).await.is_denied_for(["rate"]);
}

/// DEF-05
pub(crate) async fn def_05_an_equal_decrease_answers_like_the_first(on: &TestContext) {
    on.concurrency("slots", 60, 5).await;
    on.reserve("A", [("slots", 4)]).await.is_allowed();
    for _ in 0..3 {
        on.decrease(on.concurrency_limit("slots", 60, 3)).await;
        assert_eq!(on.capacity("slots").await, 5);
        assert_eq!(on.used("slots").await, 4);
    }
}

/// DEF-09
pub(crate) async fn def_09_a_deleted_limit_is_unknown(on: &TestContext) {
    on.rolling("gone", 60, 5).await;
    on.rolling("stays", 60, 5).await;
    assert_eq!(on.delete("gone").await, Ok(()));
    assert_eq!(on.state_if_defined("gone").await, None);
    let answer = on.reserve("A", [("stays", 1), ("gone", 1)]).await;
    answer.is_refused_for_unknown("gone");
    assert_eq!(on.used("stays").await, 0);
    let key = on.key("gone");
    assert_eq!(on.delete("gone").await, Err(DeleteError::UnknownKey { key }));
    let key = on.key("never");
    assert_eq!(on.delete("never").await, Err(DeleteError::UnknownKey { key }));
}

/// DEF-09
pub(crate) async fn def_09_leases_of_a_deleted_limit_complete(on: &TestContext) {
    on.rolling("gone", 60, 5).await;
    on.rolling("stays", 60, 5).await;
    on.concurrency("slots", 60, 5).await;
    let needs = [("gone", 5), ("stays", 5), ("slots", 5)];
    on.reserve("A", needs).await.is_allowed();
    assert_eq!(on.delete("gone").await, Ok(()));
    on.complete("A", [("gone", 9), ("stays", 2)]).await.is_ok();
    assert_eq!(on.used("stays").await, 2);
    assert_eq!(on.used("slots").await, 0);
    assert_eq!(on.state_if_defined("gone").await, None);
}

/// DEF-10
pub(crate) async fn def_10_a_shorter_window_is_for_new_reservations(on: &TestContext) {
    on.rolling("rate", 3, 10).await;
    let long = on.lifetime_of_seconds(3);
    on.reserve("long", [("rate", 1)]).await.is_allowed();
    on.rolling("rate", 1, 10).await;
    let short = on.lifetime_of_seconds(1);
    on.reserve("short", [("rate", 2)]).await.is_allowed();
    let used = on.used("rate").await;
    if on.is_within(short) && on.is_within(long) {
        assert_eq!(used, 3);
    }
    on.outlast_seconds(1).await;
    let used = on.used("rate").await;
    if on.is_within(long) {
        assert_eq!(used, 1, "the older reservation outlives");
    }
    on.outlast_seconds(2).await;
    assert_eq!(on.used("rate").await, 0);
}

/// DEF-10
pub(crate) async fn def_10_a_longer_window_is_for_new_reservations(on: &TestContext) {
    on.rolling("rate", 1, 10).await;
    on.reserve("short", [("rate", 1)]).await.is_allowed();
    on.rolling("rate", 3, 10).await;
    let long = on.lifetime_of_seconds(3);
    on.reserve("long", [("rate", 2)]).await.is_allowed();
    on.outlast_seconds(1).await;
    let used = on.used("rate").await;
    if on.is_within(long) {
        assert_eq!(used, 2, "the older reservation is gone");
    }
    on.outlast_seconds(2).await;
    assert_eq!(on.used("rate").await, 0);
}

/// DEF-10
pub(crate) async fn def_10_a_timeout_is_for_new_holds(on: &TestContext) {
    on.concurrency("slots", 3, 10).await;
    let long = on.lifetime_of_seconds(3);
    on.reserve("long", [("slots", 1)]).await.is_allowed();
    on.concurrency("slots", 1, 10).await;
    on.reserve("short", [("slots", 2)]).await.is_allowed();
    on.outlast_seconds(1).await;
    let used = on.used("slots").await;
    if on.is_within(long) {
        assert_eq!(used, 1, "the older hold outlives");
    }
    on.concurrency("slots", 60, 10).await;
    on.outlast_seconds(2).await;
    assert_eq!(on.used("slots").await, 0);
}
