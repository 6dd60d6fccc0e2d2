//! Reserve: `RES-01` to `RES-09`.

use expect_test::expect;

use crate::check;

/// RES-01
#[test]
fn res_01_a_denied_call_holds_nothing() {
    check(
        "limit rpm rolling 60s 1
             limit tpm rolling 60s 100
             limit slots concurrency 60s 2
             0s reserve A rpm=1 tpm=10 slots=1
             1s reserve B slots=1 tpm=10 rpm=1
             1s state slots
             1s state tpm
             1s reserve C slots=1 tpm=90",
        expect![[r#"
            0s reserve A rpm=1 tpm=10 slots=1 -> allowed
            1s reserve B slots=1 tpm=10 rpm=1 -> denied rpm, retry after 5s
            1s state slots -> active, used 1 of 2
            1s state tpm -> active, used 10 of 100
            1s reserve C slots=1 tpm=90 -> allowed
        "#]],
    );
}

/// RES-02
#[test]
fn res_02_a_rolling_reservation_outlives_its_call() {
    check(
        "limit rpm rolling 60s 1
             0s reserve A rpm=1
             1s complete A
             1s reserve B rpm=1
             60s reserve C rpm=1",
        expect![[r#"
            0s reserve A rpm=1 -> allowed
            1s complete A -> ok
            1s reserve B rpm=1 -> denied rpm, retry after 59s
            60s reserve C rpm=1 -> allowed
        "#]],
    );
}

/// RES-02
#[test]
fn res_02_the_window_ends_at_its_last_nanosecond() {
    check(
        "limit rpm rolling 1s 1
             0s reserve A rpm=1
             0s complete A
             999999999ns reserve B rpm=1
             1s reserve C rpm=1",
        expect![[r#"
            0s reserve A rpm=1 -> allowed
            0s complete A -> ok
            999999999ns reserve B rpm=1 -> denied rpm, retry after 1ns
            1s reserve C rpm=1 -> allowed
        "#]],
    );
}

/// RES-02
#[test]
fn res_02_the_window_rolls() {
    check(
        "limit rpm rolling 10s 3
             0s reserve A rpm=1
             4s reserve B rpm=1
             8s reserve C rpm=1
             9s reserve D rpm=1
             10s reserve E rpm=1
             10s reserve F rpm=1
             14s reserve G rpm=1
             18s reserve H rpm=1
             28s state rpm",
        expect![[r#"
            0s reserve A rpm=1 -> allowed
            4s reserve B rpm=1 -> allowed
            8s reserve C rpm=1 -> allowed
            9s reserve D rpm=1 -> denied rpm, retry after 1s
            10s reserve E rpm=1 -> allowed
            10s reserve F rpm=1 -> denied rpm, retry after 1s
            14s reserve G rpm=1 -> allowed
            18s reserve H rpm=1 -> allowed
            28s state rpm -> active, used 0 of 3
        "#]],
    );
}

/// RES-03
#[test]
fn res_03_a_hold_lasts_until_complete_or_timeout() {
    check(
        "limit slots concurrency 30s 4
             0s reserve A slots=3
             0s reserve B slots=2
             10s reserve C slots=1
             10s complete A
             10s reserve D slots=3
             39s state slots
             40s state slots",
        expect![[r#"
            0s reserve A slots=3 -> allowed
            0s reserve B slots=2 -> denied slots, retry after 50ms
            10s reserve C slots=1 -> allowed
            10s complete A -> ok
            10s reserve D slots=3 -> allowed
            39s state slots -> active, used 4 of 4
            40s state slots -> active, used 0 of 4
        "#]],
    );
}

/// RES-04
#[test]
fn res_04_the_same_lease_again_counts_once() {
    check(
        "limit rpm rolling 60s 10
             limit slots concurrency 60s 10
             0s reserve A rpm=2 slots=1
             5s reserve A rpm=2 slots=1
             6s reserve A slots=1 rpm=2
             6s state rpm
             7s reserve A rpm=3 slots=1
             7s reserve A rpm=2
             7s reserve A slots=1
             7s state slots",
        expect![[r#"
            0s reserve A rpm=2 slots=1 -> allowed
            5s reserve A rpm=2 slots=1 -> allowed since 0ns
            6s reserve A slots=1 rpm=2 -> allowed since 0ns
            6s state rpm -> active, used 2 of 10
            7s reserve A rpm=3 slots=1 -> lease conflict
            7s reserve A rpm=2 -> lease conflict
            7s reserve A slots=1 -> lease conflict
            7s state slots -> active, used 1 of 10
        "#]],
    );
}

/// RES-05
#[test]
fn res_05_a_denied_lease_stays_denied() {
    check(
        "limit slots concurrency 60s 1
             limit rpm rolling 60s 5
             0s reserve A slots=1
             0s reserve B rpm=1 slots=1
             0s complete A
             0s reserve B rpm=1 slots=1
             0s reserve B rpm=1
             1s reserve B rpm=9
             599s reserve B rpm=1 slots=1
             600s reserve B rpm=1 slots=1",
        expect![[r#"
            0s reserve A slots=1 -> allowed
            0s reserve B rpm=1 slots=1 -> denied slots, retry after 50ms
            0s complete A -> ok
            0s reserve B rpm=1 slots=1 -> denied slots, retry after 1ms
            0s reserve B rpm=1 -> denied rpm, retry after 1ms
            1s reserve B rpm=9 -> denied rpm, retry after 5s
            599s reserve B rpm=1 slots=1 -> denied slots, retry after 1ms
            600s reserve B rpm=1 slots=1 -> allowed
        "#]],
    );
}

/// RES-06
#[test]
fn res_06_the_first_stage_that_fails_answers() {
    check(
        "limit small rolling 60s 2
             limit lowered rolling 60s 10
             limit full rolling 60s 1
             limit brim rolling 60s 1
             0s reserve A lowered=8 full=1 brim=1
             0s define lowered rolling 60s 5
             0s reserve B small=3 lowered=1 full=1 unknown=1 other=1
             0s reserve C full=1 lowered=1 small=3 brim=2
             0s reserve D full=1 lowered=1 small=1
             0s reserve E brim=1 small=1 full=1",
        expect![[r#"
            0s reserve A lowered=8 full=1 brim=1 -> allowed
            0s define lowered rolling 60s 5 -> decreasing to 5
            0s reserve B small=3 lowered=1 full=1 unknown=1 other=1 -> unknown unknown
            0s reserve C full=1 lowered=1 small=3 brim=2 -> exceeds capacity of small
            0s reserve D full=1 lowered=1 small=1 -> lowered is decreasing, retry after 10s
            0s reserve E brim=1 small=1 full=1 -> denied brim full, retry after 5s
        "#]],
    );
}

/// RES-06
#[test]
fn res_06_a_known_lease_comes_before_capacity() {
    check(
        "limit rpm rolling 60s 10
             0s reserve A rpm=8
             0s define rpm rolling 60s 5
             0s reserve A rpm=8
             0s reserve A rpm=11
             0s reserve A nothing=1",
        expect![[r#"
            0s reserve A rpm=8 -> allowed
            0s define rpm rolling 60s 5 -> decreasing to 5
            0s reserve A rpm=8 -> allowed
            0s reserve A rpm=11 -> lease conflict
            0s reserve A nothing=1 -> unknown nothing
        "#]],
    );
}

/// RES-07
#[test]
fn res_07_the_largest_numbers_neither_wrap_nor_panic() {
    check(
        "limit tpm rolling 60s 2^63-1
             limit one rolling 60s 1
             0s reserve A tpm=2^63-1 one=1
             0s reserve B tpm=2^63-1
             0s reserve C tpm=2^63
             0s reserve D tpm=2^64-1
             0s reserve E one=2^64-1
             0s complete A tpm=2^64-1 one=2^64-1
             0s state tpm
             0s state one
             0s reserve F tpm=1
             60s reserve G tpm=2^63-1 one=1
             60s complete G tpm=2^64-1 one=2^64-1
             60s state tpm
             60s state one",
        expect![[r#"
            0s reserve A tpm=2^63-1 one=1 -> allowed
            0s reserve B tpm=2^63-1 -> denied tpm, retry after 5s
            0s reserve C tpm=2^63 -> exceeds capacity of tpm
            0s reserve D tpm=2^64-1 -> exceeds capacity of tpm
            0s reserve E one=2^64-1 -> exceeds capacity of one
            0s complete A tpm=2^64-1 one=2^64-1 -> ok
            0s state tpm -> active, used 9223372036854775807 of 9223372036854775807, debt 9223372036854775808, uncovered 9223372036854775808
            0s state one -> active, used 1 of 1, debt 18446744073709551614, uncovered 18446744073709551614
            0s reserve F tpm=1 -> denied tpm, retry after 60s
            60s reserve G tpm=2^63-1 one=1 -> allowed
            60s complete G tpm=2^64-1 one=2^64-1 -> ok
            60s state tpm -> active, used 9223372036854775807 of 9223372036854775807, debt 18446744073709551616, uncovered 18446744073709551616
            60s state one -> active, used 1 of 1, debt 36893488147419103228, uncovered 36893488147419103228
        "#]],
    );
}

/// RES-08
#[test]
fn res_08_a_denial_names_every_key_without_room_in_the_order_of_the_request() {
    check(
        "limit a rolling 60s 1
             limit b rolling 60s 9
             limit c concurrency 60s 1
             0s reserve A a=1 c=1
             0s reserve B c=1 b=1 a=1
             0s reserve C a=1 b=1 c=1",
        expect![[r#"
            0s reserve A a=1 c=1 -> allowed
            0s reserve B c=1 b=1 a=1 -> denied c a, retry after 5s
            0s reserve C a=1 b=1 c=1 -> denied a c, retry after 5s
        "#]],
    );
}

/// RES-09
#[test]
fn res_09_an_ended_lease_is_not_allowed_again() {
    check(
        "limit rpm rolling 60s 10
             limit slots concurrency 10s 10
             0s reserve A rpm=1
             0s complete A
             0s reserve A rpm=1
             0s reserve A slots=1
             0s reserve B rpm=1 slots=1
             9s reserve B rpm=1 slots=1
             10s reserve B rpm=1 slots=1
             10s state rpm
             11s complete B rpm=0
             11s state rpm
             11s reserve B rpm=1 slots=1",
        expect![[r#"
            0s reserve A rpm=1 -> allowed
            0s complete A -> ok
            0s reserve A rpm=1 -> lease ended
            0s reserve A slots=1 -> lease ended
            0s reserve B rpm=1 slots=1 -> allowed
            9s reserve B rpm=1 slots=1 -> allowed since 0ns
            10s reserve B rpm=1 slots=1 -> lease ended
            10s state rpm -> active, used 2 of 10
            11s complete B rpm=0 -> ok
            11s state rpm -> active, used 1 of 10
            11s reserve B rpm=1 slots=1 -> lease ended
        "#]],
    );
}

/// RES-09
#[test]
fn res_09_a_forgotten_lease_is_new_and_counts_in_full() {
    check(
        "limit rpm rolling 60s 10
             0s reserve A rpm=3
             1s complete A
             600s reserve A rpm=3
             601s reserve A rpm=3
             601s state rpm",
        expect![[r#"
            0s reserve A rpm=3 -> allowed
            1s complete A -> ok
            600s reserve A rpm=3 -> lease ended
            601s reserve A rpm=3 -> allowed
            601s state rpm -> active, used 3 of 10
        "#]],
    );
}

/// RES-09, MEM-04
#[test]
fn res_09_a_swept_lease_is_remembered_from_the_sweep_on() {
    check(
        "limit rpm rolling 60s 10
             0s reserve A rpm=3
             59s sweep
             60s sweep
             60s reserve A rpm=3
             659s reserve A rpm=3
             660s sweep
             660s reserve A rpm=3",
        expect![[r#"
            0s reserve A rpm=3 -> allowed
            59s sweep -> 1 open, 0 past
            60s sweep -> 0 open, 1 past
            60s reserve A rpm=3 -> lease ended
            659s reserve A rpm=3 -> lease ended
            660s sweep -> 0 open, 0 past
            660s reserve A rpm=3 -> allowed
        "#]],
    );
}
