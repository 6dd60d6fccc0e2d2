//! Retry hints: `HINT-01` to `HINT-04`, to the millisecond.

use expect_test::expect;

use crate::check;

/// HINT-01
#[test]
fn hint_01_the_longest_hint_of_the_keys_without_room() {
    check(
        "limit minute rolling 60s 1
             limit hour rolling 3600s 1
             limit free rolling 86400s 9
             0s reserve A minute=1 hour=1 free=1
             0s complete A
             10s reserve B minute=1 hour=1 free=1
             10s reserve C minute=1 free=1
             60s reserve D minute=1 hour=1",
        expect![[r#"
            0s reserve A minute=1 hour=1 free=1 -> allowed
            0s complete A -> ok
            10s reserve B minute=1 hour=1 free=1 -> denied minute hour, retry after 3590s
            10s reserve C minute=1 free=1 -> denied minute, retry after 50s
            60s reserve D minute=1 hour=1 -> denied hour, retry after 3540s
        "#]],
    );
}

/// HINT-02
#[test]
fn hint_02_the_exact_time_when_every_lease_has_ended() {
    check(
        "limit rpm rolling 60s 3
             0s reserve A rpm=1
             10s reserve B rpm=1
             20s reserve C rpm=1
             20s complete A
             20s complete B
             20s complete C
             21s reserve D rpm=1
             21s reserve E rpm=2
             21s reserve F rpm=3
             59999999999ns reserve G rpm=1
             60s reserve H rpm=1",
        expect![[r#"
            0s reserve A rpm=1 -> allowed
            10s reserve B rpm=1 -> allowed
            20s reserve C rpm=1 -> allowed
            20s complete A -> ok
            20s complete B -> ok
            20s complete C -> ok
            21s reserve D rpm=1 -> denied rpm, retry after 39s
            21s reserve E rpm=2 -> denied rpm, retry after 49s
            21s reserve F rpm=3 -> denied rpm, retry after 59s
            59999999999ns reserve G rpm=1 -> denied rpm, retry after 1ns
            60s reserve H rpm=1 -> allowed
        "#]],
    );
}

/// HINT-02
#[test]
fn hint_02_a_shrunk_reservation_frees_less_later() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=60
             5s reserve B tpm=40
             5s complete A tpm=10
             5s complete B tpm=90
             6s reserve C tpm=10
             6s reserve D tpm=11",
        expect![[r#"
            0s reserve A tpm=60 -> allowed
            5s reserve B tpm=40 -> allowed
            5s complete A tpm=10 -> ok
            5s complete B tpm=90 -> ok
            6s reserve C tpm=10 -> denied tpm, retry after 54s
            6s reserve D tpm=11 -> denied tpm, retry after 59s
        "#]],
    );
}

/// HINT-02
#[test]
fn hint_02_an_open_lease_may_end_sooner() {
    check(
        "limit rpm rolling 60s 2
             0s reserve A rpm=1
             0s complete A
             1s reserve B rpm=1
             2s reserve C rpm=1
             58s reserve D rpm=1
             58s complete B
             58s reserve E rpm=1
             58s reserve F rpm=2",
        expect![[r#"
            0s reserve A rpm=1 -> allowed
            0s complete A -> ok
            1s reserve B rpm=1 -> allowed
            2s reserve C rpm=1 -> denied rpm, retry after 5s
            58s reserve D rpm=1 -> denied rpm, retry after 2s
            58s complete B -> ok
            58s reserve E rpm=1 -> denied rpm, retry after 2s
            58s reserve F rpm=2 -> denied rpm, retry after 3s
        "#]],
    );
}

/// HINT-02
#[test]
fn hint_02_an_expired_lease_is_not_open() {
    check(
        "limit rpm rolling 60s 2
             0s reserve A rpm=1
             30s reserve B rpm=1
             30s complete B
             59s reserve C rpm=2
             60s reserve D rpm=2",
        expect![[r#"
            0s reserve A rpm=1 -> allowed
            30s reserve B rpm=1 -> allowed
            30s complete B -> ok
            59s reserve C rpm=2 -> denied rpm, retry after 5s
            60s reserve D rpm=2 -> denied rpm, retry after 30s
        "#]],
    );
}

/// HINT-03
#[test]
fn hint_03_concurrency_doubles_from_50_ms_to_2_s() {
    check(
        "limit slots concurrency 300s 1
             0s reserve A slots=1
             0s reserve B slots=1
             0s reserve C slots=1
             0s reserve D slots=1
             0s reserve E slots=1
             0s reserve F slots=1
             0s reserve G slots=1
             0s reserve H slots=1
             0s complete A
             0s reserve I slots=1
             0s reserve J slots=1",
        expect![[r#"
            0s reserve A slots=1 -> allowed
            0s reserve B slots=1 -> denied slots, retry after 50ms
            0s reserve C slots=1 -> denied slots, retry after 100ms
            0s reserve D slots=1 -> denied slots, retry after 200ms
            0s reserve E slots=1 -> denied slots, retry after 400ms
            0s reserve F slots=1 -> denied slots, retry after 800ms
            0s reserve G slots=1 -> denied slots, retry after 1.6s
            0s reserve H slots=1 -> denied slots, retry after 2s
            0s complete A -> ok
            0s reserve I slots=1 -> allowed
            0s reserve J slots=1 -> denied slots, retry after 50ms
        "#]],
    );
}

/// HINT-03
#[test]
fn hint_03_concurrency_never_waits_beyond_the_timeout() {
    check(
        "limit slots concurrency 1s 1
             0s reserve A slots=1
             0s reserve B slots=1
             0s reserve C slots=1
             0s reserve D slots=1
             0s reserve E slots=1
             0s reserve F slots=1
             0s reserve G slots=1",
        expect![[r#"
            0s reserve A slots=1 -> allowed
            0s reserve B slots=1 -> denied slots, retry after 50ms
            0s reserve C slots=1 -> denied slots, retry after 100ms
            0s reserve D slots=1 -> denied slots, retry after 200ms
            0s reserve E slots=1 -> denied slots, retry after 400ms
            0s reserve F slots=1 -> denied slots, retry after 800ms
            0s reserve G slots=1 -> denied slots, retry after 1s
        "#]],
    );
}

/// HINT-03
#[test]
fn hint_03_rolling_grows_by_half_from_a_tenth_of_the_window_to_5_s() {
    check(
        "limit short rolling 1s 1
             limit long rolling 20s 1
             0s reserve A short=1 long=1
             0s reserve B short=1
             0s reserve C short=1
             0s reserve D short=1
             0s reserve E long=1
             0s reserve F long=1
             0s reserve G long=1
             0s reserve H long=1",
        expect![[r#"
            0s reserve A short=1 long=1 -> allowed
            0s reserve B short=1 -> denied short, retry after 100ms
            0s reserve C short=1 -> denied short, retry after 150ms
            0s reserve D short=1 -> denied short, retry after 225ms
            0s reserve E long=1 -> denied long, retry after 2s
            0s reserve F long=1 -> denied long, retry after 3s
            0s reserve G long=1 -> denied long, retry after 4.5s
            0s reserve H long=1 -> denied long, retry after 5s
        "#]],
    );
}

/// HINT-03
#[test]
fn hint_03_a_replay_and_a_refusal_do_not_lengthen_the_hint() {
    check(
        "limit slots concurrency 60s 1
             0s reserve A slots=1
             0s reserve B slots=1
             0s reserve B slots=1
             0s reserve C slots=2
             0s reserve A slots=1
             0s reserve D slots=1",
        expect![[r#"
            0s reserve A slots=1 -> allowed
            0s reserve B slots=1 -> denied slots, retry after 50ms
            0s reserve B slots=1 -> denied slots, retry after 50ms
            0s reserve C slots=2 -> exceeds capacity of slots
            0s reserve A slots=1 -> allowed
            0s reserve D slots=1 -> denied slots, retry after 100ms
        "#]],
    );
}

/// HINT-04
#[test]
fn hint_04_a_decrease_hints_at_ten_seconds_each_time() {
    check(
        "limit slots concurrency 60s 2
             0s reserve A slots=2
             0s define slots concurrency 60s 1
             0s reserve B slots=1
             0s reserve C slots=1
             9s reserve D slots=1",
        expect![[r#"
            0s reserve A slots=2 -> allowed
            0s define slots concurrency 60s 1 -> decreasing to 1
            0s reserve B slots=1 -> slots is decreasing, retry after 10s
            0s reserve C slots=1 -> slots is decreasing, retry after 10s
            9s reserve D slots=1 -> slots is decreasing, retry after 10s
        "#]],
    );
}
