//! Complete: `COM-01` to `COM-06`.

use expect_test::expect;

use crate::check;

/// COM-01
#[test]
fn com_01_holds_are_released_at_once() {
    check(
        "limit slots concurrency 60s 2
             limit other concurrency 60s 2
             limit rpm rolling 60s 2
             0s reserve A slots=2 other=1 rpm=1
             0s complete A
             0s state slots
             0s state other
             0s state rpm",
        expect![[r#"
            0s reserve A slots=2 other=1 rpm=1 -> allowed
            0s complete A -> ok
            0s state slots -> active, used 0 of 2
            0s state other -> active, used 0 of 2
            0s state rpm -> active, used 1 of 2
        "#]],
    );
}

/// COM-02
#[test]
fn com_02_a_reservation_shrinks_and_keeps_its_expiry() {
    check(
        "limit tpm rolling 60s 1000
             0s reserve A tpm=900
             10s complete A tpm=340
             10s state tpm
             10s reserve B tpm=660
             10s complete B tpm=0
             59s state tpm
             60s state tpm",
        expect![[r#"
            0s reserve A tpm=900 -> allowed
            10s complete A tpm=340 -> ok
            10s state tpm -> active, used 340 of 1000
            10s reserve B tpm=660 -> allowed
            10s complete B tpm=0 -> ok
            59s state tpm -> active, used 340 of 1000
            60s state tpm -> active, used 0 of 1000
        "#]],
    );
}

/// COM-03
#[test]
fn com_03_an_excess_is_reserved_until_the_window_ends() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=40
             10s complete A tpm=70
             10s state tpm
             59s state tpm
             60s state tpm",
        expect![[r#"
            0s reserve A tpm=40 -> allowed
            10s complete A tpm=70 -> ok
            10s state tpm -> active, used 70 of 100
            59s state tpm -> active, used 70 of 100
            60s state tpm -> active, used 0 of 100
        "#]],
    );
}

/// COM-03
#[test]
fn com_03_an_excess_without_room_is_debt_as_a_whole() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=50
             0s reserve B tpm=45
             0s complete A tpm=56
             0s state tpm
             0s complete B tpm=50
             0s state tpm
             60s state tpm
             60s reserve C tpm=100",
        expect![[r#"
            0s reserve A tpm=50 -> allowed
            0s reserve B tpm=45 -> allowed
            0s complete A tpm=56 -> ok
            0s state tpm -> active, used 95 of 100, debt 6, uncovered 6
            0s complete B tpm=50 -> ok
            0s state tpm -> active, used 100 of 100, debt 6, uncovered 6
            60s state tpm -> active, used 0 of 100, debt 6, uncovered 6
            60s reserve C tpm=100 -> allowed
        "#]],
    );
}

/// COM-03
#[test]
fn com_03_with_deny_an_excess_is_only_counted() {
    check(
        "limit tpm rolling 60s 100 deny
             0s reserve A tpm=90
             0s complete A tpm=101
             0s state tpm",
        expect![[r#"
            0s reserve A tpm=90 -> allowed
            0s complete A tpm=101 -> ok
            0s state tpm -> active, used 90 of 100, debt 0, uncovered 11
        "#]],
    );
}

/// COM-03, DEF-07
#[test]
fn com_03_a_decreasing_limit_has_no_room_for_an_excess() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=60
             0s define tpm rolling 60s 50
             0s complete A tpm=61
             0s state tpm",
        expect![[r#"
            0s reserve A tpm=60 -> allowed
            0s define tpm rolling 60s 50 -> decreasing to 50
            0s complete A tpm=61 -> ok
            0s state tpm -> decreasing to 50, used 60 of 100, debt 1, uncovered 1
        "#]],
    );
}

/// COM-04
#[test]
fn com_04_without_an_actual_the_reservation_stays() {
    check(
        "limit tpm rolling 60s 100
             limit rpm rolling 60s 100
             0s reserve A tpm=90 rpm=1
             5s complete A rpm=1
             59s state tpm
             60s state tpm",
        expect![[r#"
            0s reserve A tpm=90 rpm=1 -> allowed
            5s complete A rpm=1 -> ok
            59s state tpm -> active, used 90 of 100
            60s state tpm -> active, used 0 of 100
        "#]],
    );
}

/// COM-05
#[test]
fn com_05_only_the_first_complete_of_a_known_lease_counts() {
    check(
        "limit tpm rolling 60s 100
             0s complete A tpm=50
             0s reserve A tpm=50
             0s complete A tpm=20
             0s complete A tpm=50
             0s complete A other=1
             0s state tpm
             0s reserve B tpm=50
             60s complete B tpm=99
             60s state tpm",
        expect![[r#"
            0s complete A tpm=50 -> ok
            0s reserve A tpm=50 -> allowed
            0s complete A tpm=20 -> ok
            0s complete A tpm=50 -> ok
            0s complete A other=1 -> ok
            0s state tpm -> active, used 20 of 100
            0s reserve B tpm=50 -> allowed
            60s complete B tpm=99 -> ok
            60s state tpm -> active, used 0 of 100
        "#]],
    );
}

/// COM-06
#[test]
fn com_06_a_wrong_actual_applies_nothing() {
    check(
        "limit tpm rolling 60s 100
             limit rpm rolling 60s 100
             limit slots concurrency 60s 1
             0s reserve A tpm=50 slots=1
             0s complete A tpm=10 rpm=1
             0s complete A tpm=10 slots=1
             0s complete A nowhere=1 tpm=10
             0s state tpm
             0s state slots
             0s complete A tpm=10
             0s state tpm
             0s state slots",
        expect![[r#"
            0s reserve A tpm=50 slots=1 -> allowed
            0s complete A tpm=10 rpm=1 -> invalid actual of rpm
            0s complete A tpm=10 slots=1 -> invalid actual of slots
            0s complete A nowhere=1 tpm=10 -> invalid actual of nowhere
            0s state tpm -> active, used 50 of 100
            0s state slots -> active, used 1 of 1
            0s complete A tpm=10 -> ok
            0s state tpm -> active, used 10 of 100
            0s state slots -> active, used 0 of 1
        "#]],
    );
}
