//! Definitions that change: `DEF-03` to `DEF-07`, `DEF-09`, `DEF-10`.

use expect_test::expect;

use crate::check;

/// PAUSE-01
#[test]
fn pause_01_a_capacity_of_zero_is_a_pause() {
    check(
        "limit rpm rolling 60s 0
             0s reserve A rpm=1
             1s define rpm rolling 60s 1
             1s reserve B rpm=1
             2s define rpm rolling 60s 0
             2s reserve C rpm=1
             60s state rpm
             61s state rpm
             61s reserve D rpm=1",
        expect![[r#"
            0s reserve A rpm=1 -> rpm is paused, retry after 10s
            1s define rpm rolling 60s 1 -> active
            1s reserve B rpm=1 -> allowed
            2s define rpm rolling 60s 0 -> paused
            2s reserve C rpm=1 -> rpm is paused, retry after 10s
            60s state rpm -> paused, used 1 of 1
            61s state rpm -> paused, used 0 of 0
            61s reserve D rpm=1 -> rpm is paused, retry after 10s
        "#]],
    );
}

/// DEF-04
#[test]
fn def_04_the_kind_of_a_limit_cannot_change() {
    check(
        "limit rpm rolling 60s 5
             limit slots concurrency 60s 5
             0s define rpm concurrency 60s 5
             0s define slots rolling 60s 5
             0s delete rpm
             0s define rpm concurrency 60s 5",
        expect![[r#"
            0s define rpm concurrency 60s 5 -> rpm is rolling
            0s define slots rolling 60s 5 -> slots is concurrency
            0s delete rpm -> ok
            0s define rpm concurrency 60s 5 -> active
        "#]],
    );
}

/// DEF-05
#[test]
fn def_05_an_equal_definition_changes_nothing() {
    check(
        "limit rpm rolling 60s 5
             0s reserve A rpm=4
             1s define rpm rolling 60s 5
             1s state rpm
             1s define rpm rolling 60s 3
             2s define rpm rolling 60s 3
             2s state rpm",
        expect![[r#"
            0s reserve A rpm=4 -> allowed
            1s define rpm rolling 60s 5 -> active
            1s state rpm -> active, used 4 of 5
            1s define rpm rolling 60s 3 -> decreasing to 3
            2s define rpm rolling 60s 3 -> decreasing to 3
            2s state rpm -> decreasing to 3, used 4 of 5
        "#]],
    );
}

/// DEF-06
#[test]
fn def_06_ten_five_ten_five_while_in_use() {
    check(
        "limit slots concurrency 60s 10
             0s reserve A slots=7
             0s define slots concurrency 60s 5
             1s define slots concurrency 60s 10
             1s reserve B slots=3
             2s define slots concurrency 60s 5
             2s complete A
             2s state slots
             3s reserve C slots=2
             3s define slots concurrency 60s 10
             3s define slots concurrency 60s 5
             3s reserve D slots=1",
        expect![[r#"
            0s reserve A slots=7 -> allowed
            0s define slots concurrency 60s 5 -> decreasing to 5
            1s define slots concurrency 60s 10 -> active
            1s reserve B slots=3 -> allowed
            2s define slots concurrency 60s 5 -> decreasing to 5
            2s complete A -> ok
            2s state slots -> active, used 3 of 5
            3s reserve C slots=2 -> allowed
            3s define slots concurrency 60s 10 -> active
            3s define slots concurrency 60s 5 -> active
            3s reserve D slots=1 -> denied slots, retry after 50ms
        "#]],
    );
}

/// DEF-06
#[test]
fn def_06_an_increase_beyond_the_old_capacity_cancels_a_decrease() {
    check(
        "limit slots concurrency 60s 10
             0s reserve A slots=10
             0s define slots concurrency 60s 5
             0s define slots concurrency 60s 12
             0s reserve B slots=2
             0s reserve C slots=1
             1s complete A
             1s state slots",
        expect![[r#"
            0s reserve A slots=10 -> allowed
            0s define slots concurrency 60s 5 -> decreasing to 5
            0s define slots concurrency 60s 12 -> active
            0s reserve B slots=2 -> allowed
            0s reserve C slots=1 -> denied slots, retry after 50ms
            1s complete A -> ok
            1s state slots -> active, used 2 of 12
        "#]],
    );
}

/// DEF-07
#[test]
fn def_07_a_decrease_is_pending_until_enough_has_expired() {
    check(
        "limit rpm rolling 60s 10
             0s reserve A rpm=4
             20s reserve B rpm=3
             30s define rpm rolling 60s 3
             30s state rpm
             30s reserve C rpm=1
             59s state rpm
             60s state rpm
             60s reserve D rpm=1
             80s reserve E rpm=3",
        expect![[r#"
            0s reserve A rpm=4 -> allowed
            20s reserve B rpm=3 -> allowed
            30s define rpm rolling 60s 3 -> decreasing to 3
            30s state rpm -> decreasing to 3, used 7 of 10
            30s reserve C rpm=1 -> rpm is decreasing, retry after 10s
            59s state rpm -> decreasing to 3, used 7 of 10
            60s state rpm -> active, used 3 of 3
            60s reserve D rpm=1 -> denied rpm, retry after 5s
            80s reserve E rpm=3 -> allowed
        "#]],
    );
}

/// DEF-07
#[test]
fn def_07_a_lower_target_replaces_the_first_and_a_higher_one_may_fit() {
    check(
        "limit slots concurrency 60s 10
             0s reserve A slots=6
             0s define slots concurrency 60s 5
             0s define slots concurrency 60s 2
             0s state slots
             0s define slots concurrency 60s 8
             0s state slots
             0s reserve B slots=2
             0s reserve C slots=1",
        expect![[r#"
            0s reserve A slots=6 -> allowed
            0s define slots concurrency 60s 5 -> decreasing to 5
            0s define slots concurrency 60s 2 -> decreasing to 2
            0s state slots -> decreasing to 2, used 6 of 10
            0s define slots concurrency 60s 8 -> active
            0s state slots -> active, used 6 of 8
            0s reserve B slots=2 -> allowed
            0s reserve C slots=1 -> denied slots, retry after 50ms
        "#]],
    );
}

/// DEF-07
#[test]
fn def_07_a_complete_that_shrinks_too_little_leaves_the_decrease_pending() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=80
             1s define tpm rolling 60s 50
             2s complete A tpm=51
             2s state tpm
             60s state tpm",
        expect![[r#"
            0s reserve A tpm=80 -> allowed
            1s define tpm rolling 60s 50 -> decreasing to 50
            2s complete A tpm=51 -> ok
            2s state tpm -> decreasing to 50, used 51 of 100
            60s state tpm -> active, used 0 of 50
        "#]],
    );
}

/// DEF-07, COM-02
#[test]
fn def_07_a_complete_that_shrinks_enough_ends_the_decrease() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=80
             1s define tpm rolling 60s 50
             2s complete A tpm=50
             2s state tpm
             2s reserve B tpm=1",
        expect![[r#"
            0s reserve A tpm=80 -> allowed
            1s define tpm rolling 60s 50 -> decreasing to 50
            2s complete A tpm=50 -> ok
            2s state tpm -> active, used 50 of 50
            2s reserve B tpm=1 -> denied tpm, retry after 58s
        "#]],
    );
}

/// DEF-07, RES-05
#[test]
fn def_07_a_lease_denied_by_a_decrease_may_be_reserved_again() {
    check(
        "limit slots concurrency 60s 10
             0s reserve A slots=6
             0s define slots concurrency 60s 5
             0s reserve B slots=1
             0s complete A
             0s reserve B slots=1",
        expect![[r#"
            0s reserve A slots=6 -> allowed
            0s define slots concurrency 60s 5 -> decreasing to 5
            0s reserve B slots=1 -> slots is decreasing, retry after 10s
            0s complete A -> ok
            0s reserve B slots=1 -> allowed
        "#]],
    );
}

/// DEF-09
#[test]
fn def_09_a_deleted_limit_is_unknown_and_its_leases_complete() {
    check(
        "limit rpm rolling 60s 5
             limit slots concurrency 60s 5
             0s reserve A rpm=5 slots=5
             1s delete rpm
             1s delete rpm
             1s reserve A rpm=5 slots=5
             1s reserve B rpm=1
             1s complete A rpm=9
             1s state slots
             1s state rpm",
        expect![[r#"
            0s reserve A rpm=5 slots=5 -> allowed
            1s delete rpm -> ok
            1s delete rpm -> no limit is defined for rpm
            1s reserve A rpm=5 slots=5 -> unknown rpm
            1s reserve B rpm=1 -> unknown rpm
            1s complete A rpm=9 -> ok
            1s state slots -> active, used 0 of 5
            1s state rpm -> not defined
        "#]],
    );
}

/// DEF-09
#[test]
fn def_09_a_limit_that_is_defined_again_begins_with_nothing() {
    check(
        "limit rpm rolling 60s 5
             0s reserve A rpm=5
             0s delete rpm
             1s define rpm rolling 60s 5
             1s state rpm
             1s reserve B rpm=5
             2s complete A rpm=0
             2s state rpm",
        expect![[r#"
            0s reserve A rpm=5 -> allowed
            0s delete rpm -> ok
            1s define rpm rolling 60s 5 -> active
            1s state rpm -> active, used 0 of 5
            1s reserve B rpm=5 -> allowed
            2s complete A rpm=0 -> ok
            2s state rpm -> active, used 5 of 5
        "#]],
    );
}

/// DEF-10
#[test]
fn def_10_reservations_keep_the_window_they_were_made_with() {
    check(
        "limit rpm rolling 60s 3
             0s reserve A rpm=1
             0s complete A
             10s define rpm rolling 5s 3
             10s reserve B rpm=1
             10s complete B
             10s define rpm rolling 100s 3
             10s reserve C rpm=1
             10s complete C
             10s reserve D rpm=1
             10s reserve E rpm=2
             10s reserve F rpm=3
             15s state rpm
             60s state rpm
             109s state rpm
             110s state rpm",
        expect![[r#"
            0s reserve A rpm=1 -> allowed
            0s complete A -> ok
            10s define rpm rolling 5s 3 -> active
            10s reserve B rpm=1 -> allowed
            10s complete B -> ok
            10s define rpm rolling 100s 3 -> active
            10s reserve C rpm=1 -> allowed
            10s complete C -> ok
            10s reserve D rpm=1 -> denied rpm, retry after 5s
            10s reserve E rpm=2 -> denied rpm, retry after 50s
            10s reserve F rpm=3 -> denied rpm, retry after 100s
            15s state rpm -> active, used 2 of 3
            60s state rpm -> active, used 1 of 3
            109s state rpm -> active, used 1 of 3
            110s state rpm -> active, used 0 of 3
        "#]],
    );
}

/// DEF-10
#[test]
fn def_10_holds_keep_the_timeout_they_were_made_with() {
    check(
        "limit slots concurrency 30s 3
             0s reserve A slots=1
             0s define slots concurrency 5s 3
             0s reserve B slots=2
             5s state slots
             5s reserve B slots=2
             29s reserve A slots=1
             30s state slots
             30s reserve A slots=1",
        expect![[r#"
            0s reserve A slots=1 -> allowed
            0s define slots concurrency 5s 3 -> active
            0s reserve B slots=2 -> allowed
            5s state slots -> active, used 1 of 3
            5s reserve B slots=2 -> lease ended
            29s reserve A slots=1 -> allowed since 0ns
            30s state slots -> active, used 0 of 3
            30s reserve A slots=1 -> lease ended
        "#]],
    );
}
