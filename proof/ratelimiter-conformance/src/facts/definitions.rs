//! `DEF-01` to `DEF-05`, `DEF-09`, `DEF-10`, `OPS-03`: definitions and redefinitions.

use ratelimiter::{
    KEY_BYTES_MAX, Limit, LimitStatus, NOTE_BYTES_MAX, Note, TIMEOUT_SECONDS_MAX,
    WINDOW_SECONDS_MAX,
};

use crate::context::TestContext;

/// DEF-01
pub(crate) async fn def_01_any_valid_key_names_a_limit(on: &mut TestContext) {
    let longest = "k".repeat(KEY_BYTES_MAX - on.prefix.len());
    let model = "global:llm:openrouter:meta/llama-3.1@fp8:free:rpm";
    let odd = r#"%2F?a=1&b=#"\'+~"#;
    for name in [model, "..", "größe:鍵", odd, &longest] {
        on.run(&format!(
            "limit {name} rolling 60s 1
             reserve {name} {name}=1
             reserve another:{name} {name}=1 -> denied {name}
             defined {name} rolling 60s 1
             complete {name} {name}=0
             used {name}=0
             delete {name}"
        ))
        .await;
    }
}

/// DEF-01
pub(crate) async fn def_01_keys_that_differ_in_a_byte_are_two_limits(on: &mut TestContext) {
    let long = "k".repeat(KEY_BYTES_MAX - on.prefix.len() - 1);
    let (long_a, long_b) = (format!("{long}a"), format!("{long}b"));
    for [one, other] in [["k", "K"], ["a:b", "a:b:"], [&long_a, &long_b]] {
        on.run(&format!(
            "limit {one} rolling 60s 1
             limit {other} rolling 60s 1
             reserve {one} {one}=1
             used {other}=0
             reserve {other} {other}=1"
        ))
        .await;
    }
}

/// DEF-02
pub(crate) async fn def_02_the_shortest_and_the_longest_durations_are_kept(on: &mut TestContext) {
    for limit in [
        "name rolling 1s 1",
        &format!("name rolling {WINDOW_SECONDS_MAX}s 1"),
        "name concurrency 1s 1",
        &format!("name concurrency {TIMEOUT_SECONDS_MAX}s 1"),
    ] {
        let name = limit.replace(' ', ":");
        let limit = limit.replace("name", &name);
        on.run(&format!("limit {limit}\ndefined {limit}\nreserve {name} {name}=1")).await;
    }
}

/// DEF-03
pub(crate) async fn def_03_all_of_a_definition_is_kept(on: &mut TestContext) {
    let text = |length: usize| Note::new("é".repeat(length / 2)).expect("at the bound");
    let limit = Limit {
        unit: text(NOTE_BYTES_MAX),
        description: text(NOTE_BYTES_MAX),
        ..on.limit(&format!("full rolling 60s {} deny", on.capabilities.capacity_max))
    };
    assert_eq!(on.world.define(limit.clone()).await, Ok(LimitStatus::Active));
    assert_eq!(on.state("full").await.limit, limit);
    on.run("status full -> active\nused full=0\ndebt full=0").await;
    on.run("available full=MOST").await;
}

/// DEF-05
pub(crate) async fn def_05_an_equal_definition_changes_nothing(on: &mut TestContext) {
    on.run(
        "limit rate rolling 60s 5
         reserve A rate=4
         complete A rate=9
         reserve B rate=1",
    )
    .await;
    let before = on.state("rate").await;
    for _ in 0..3 {
        on.run("limit rate rolling 60s 5").await;
        assert_eq!(on.state("rate").await, before);
    }
    on.run("reserve C rate=1 -> denied rate").await;
}

/// OPS-03
pub(crate) async fn ops_03_a_list_of_limits_is_defined_like_each_of_them(on: &mut TestContext) {
    on.run("limit slots concurrency 60s 5; limit more rolling 60s 1; reserve A slots=4").await;
    let limits = ["slots concurrency 60s 3", "new rolling 60s 7", "off rolling 60s 0"];
    let mut limits: Vec<_> = limits.map(|limit| on.limit(limit)).into();
    limits.push(on.limit("more rolling 60s 9"));
    let to = limits[0].capacity;
    let (active, decreasing) = (LimitStatus::Active, LimitStatus::Decreasing { to });
    let statuses = vec![decreasing, active, LimitStatus::Paused, active];
    // An equal list answers like the first.
    for _ in 0..2 {
        assert_eq!(on.world.define_all(limits.clone()).await, Ok(statuses.clone()));
    }
    on.run(
        "defined new rolling 60s 7; defined more rolling 60s 9
         capacity slots=5; used slots=4
         reserve B new=7 more=9; used new=7 more=9",
    )
    .await;
}

scripts! {
    /// DEF-04
    fn def_04_the_kind_of_a_limit_cannot_change: "
        limit rate rolling 60s 5; limit slots concurrency 60s 5
        limit rate concurrency 60s 9 -> rate is rolling
        limit slots rolling 60s 9 -> slots is concurrency
        defined rate rolling 60s 5; defined slots concurrency 60s 5
    ";

    /// DEF-05
    fn def_05_an_equal_decrease_answers_like_the_first: "
        limit slots concurrency 60s 5
        reserve A slots=4
        limit slots concurrency 60s 3 -> decreasing to 3
        capacity slots=5; used slots=4
        limit slots concurrency 60s 3 -> decreasing to 3
        capacity slots=5; used slots=4
        limit slots concurrency 60s 3 -> decreasing to 3
        capacity slots=5; used slots=4
    ";

    /// DEF-09
    fn def_09_a_deleted_limit_is_unknown: "
        limit gone rolling 60s 5; limit stays rolling 60s 5
        delete gone
        undefined gone
        reserve A stays=1 gone=1 -> unknown gone
        used stays=0
        delete gone -> unknown gone
        delete never -> unknown never
    ";

    /// DEF-09
    fn def_09_leases_of_a_deleted_limit_complete: "
        limit gone rolling 60s 5; limit stays rolling 60s 5; limit slots concurrency 60s 5
        reserve A gone=5 stays=5 slots=5; delete gone; complete A gone=9 stays=2
        used stays=2 slots=0; undefined gone
    ";

    /// DEF-10
    fn def_10_a_shorter_window_is_for_new_reservations: "
        limit rate rolling 3s 10
        lifetime long 3s; reserve long rate=1
        limit rate rolling 1s 10
        lifetime short 1s; reserve short rate=2
        within short long: used rate=3
        outlast 1s
        within long: used rate=1
        outlast 2s
        used rate=0
    ";

    /// DEF-10
    fn def_10_a_longer_window_is_for_new_reservations: "
        limit rate rolling 1s 10
        reserve short rate=1
        limit rate rolling 3s 10
        lifetime long 3s; reserve long rate=2; outlast 1s
        within long: used rate=2
        outlast 2s
        used rate=0
    ";

    /// DEF-10
    fn def_10_a_timeout_is_for_new_holds: "
        limit slots concurrency 3s 10
        lifetime long 3s; reserve long slots=1
        limit slots concurrency 1s 10
        reserve short slots=2; outlast 1s
        within long: used slots=1
        limit slots concurrency 60s 10
        outlast 2s
        used slots=0
    ";
}
