//! Renew: `REN-01` to `REN-03`.

use expect_test::expect;

use crate::check;

/// REN-01
#[test]
fn ren_01_shrinking_gives_back_what_would_lapse_first() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=40
             30s renew A 1 tpm=70
             40s renew A 2 tpm=50
             40s state tpm
             59s state tpm
             60s state tpm
             90s state tpm",
        expect![[r#"
            0s reserve A tpm=40 -> allowed
            30s renew A 1 tpm=70 -> renewed until 90s
            40s renew A 2 tpm=50 -> renewed until 90s
            40s state tpm -> active, used 50 of 100
            59s state tpm -> active, used 50 of 100
            60s state tpm -> active, used 30 of 100
            90s state tpm -> active, used 0 of 100
        "#]],
    );
}

/// REN-01
#[test]
fn ren_01_growing_counts_for_a_full_window_from_now_and_needs_room() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=40
             10s reserve B tpm=30
             30s renew A 1 tpm=70
             30s renew B 1 tpm=31
             30s state tpm
             60s renew B 2 tpm=31
             60s state tpm",
        expect![[r#"
            0s reserve A tpm=40 -> allowed
            10s reserve B tpm=30 -> allowed
            30s renew A 1 tpm=70 -> renewed until 90s
            30s renew B 1 tpm=31 -> denied tpm, retry after 5s
            30s state tpm -> active, used 100 of 100
            60s renew B 2 tpm=31 -> renewed until 120s
            60s state tpm -> active, used 61 of 100
        "#]],
    );
}

/// REN-01
#[test]
fn ren_01_all_amounts_change_or_none() {
    check(
        "limit tpm rolling 60s 100
             limit slots concurrency 60s 2
             0s reserve A tpm=40 slots=1
             0s reserve B slots=1
             1s renew A 1 tpm=10 slots=2
             1s state tpm
             60s renew A 2",
        expect![[r#"
            0s reserve A tpm=40 slots=1 -> allowed
            0s reserve B slots=1 -> allowed
            1s renew A 1 tpm=10 slots=2 -> denied slots, retry after 50ms
            1s state tpm -> active, used 40 of 100
            60s renew A 2 -> lease ended
        "#]],
    );
}

/// REN-01: what was given back can be taken again while the lease is open.
#[test]
fn ren_01_an_amount_of_0_gives_all_back() {
    check(
        "limit tpm rolling 60s 100
             limit slots concurrency 60s 2
             0s reserve A tpm=40 slots=1
             10s renew A 1 tpm=0 slots=0
             10s state tpm
             10s state slots
             20s renew A 2 tpm=100 slots=2
             20s state tpm
             79s state tpm
             80s state tpm",
        expect![[r#"
            0s reserve A tpm=40 slots=1 -> allowed
            10s renew A 1 tpm=0 slots=0 -> renewed until 70s
            10s state tpm -> active, used 0 of 100
            10s state slots -> active, used 0 of 2
            20s renew A 2 tpm=100 slots=2 -> renewed until 80s
            20s state tpm -> active, used 100 of 100
            79s state tpm -> active, used 100 of 100
            80s state tpm -> active, used 0 of 100
        "#]],
    );
}

/// REN-01
#[test]
fn ren_01_a_key_that_the_lease_does_not_hold_is_refused() {
    check(
        "limit rpm rolling 60s 100
             limit tpm rolling 60s 100
             0s reserve A tpm=40
             0s reserve B rpm=1
             1s renew A 1 tpm=10 rpm=1
             1s renew A 1 unknown=0
             1s renew A 1 tpm=20",
        expect![[r#"
            0s reserve A tpm=40 -> allowed
            0s reserve B rpm=1 -> allowed
            1s renew A 1 tpm=10 rpm=1 -> invalid amount of rpm
            1s renew A 1 unknown=0 -> invalid amount of unknown
            1s renew A 1 tpm=20 -> renewed until 60s
        "#]],
    );
}

/// REN-01, RES-07
#[test]
fn ren_01_more_than_the_capacity_is_refused_without_a_hint() {
    check(
        "limit tpm rolling 60s 100
             limit most rolling 60s 2^63-1
             limit shadow rolling 60s 100 shadow
             0s reserve A tpm=40 most=1 shadow=1
             1s renew A 1 tpm=101
             1s renew A 1 tpm=2^64-1
             1s renew A 1 most=2^63
             1s renew A 1 shadow=2^63
             1s renew A 1 most=2^63-1
             1s state most",
        expect![[r#"
            0s reserve A tpm=40 most=1 shadow=1 -> allowed
            1s renew A 1 tpm=101 -> exceeds capacity of tpm
            1s renew A 1 tpm=2^64-1 -> exceeds capacity of tpm
            1s renew A 1 most=2^63 -> exceeds capacity of most
            1s renew A 1 shadow=2^63 -> exceeds capacity of shadow
            1s renew A 1 most=2^63-1 -> renewed until 61s
            1s state most -> active, used 9223372036854775807 of 9223372036854775807
        "#]],
    );
}

/// REN-01, PAUSE-01, DEF-07
#[test]
fn ren_01_a_paused_or_decreasing_limit_denies_growing_only() {
    check(
        "limit tpm rolling 60s 100
             limit slots concurrency 60s 9
             0s reserve A tpm=40 slots=6
             1s define tpm rolling 60s 0
             1s define slots concurrency 60s 5
             1s renew A 1 tpm=41
             1s renew A 2 slots=7
             1s renew A 3 tpm=41 slots=7
             50s renew A 4 tpm=30
             50s state slots
             51s renew A 5 slots=5
             51s state slots",
        expect![[r#"
            0s reserve A tpm=40 slots=6 -> allowed
            1s define tpm rolling 60s 0 -> paused
            1s define slots concurrency 60s 5 -> decreasing to 5
            1s renew A 1 tpm=41 -> tpm is paused, retry after 10s
            1s renew A 2 slots=7 -> slots is decreasing, retry after 10s
            1s renew A 3 tpm=41 slots=7 -> tpm is paused, retry after 10s
            50s renew A 4 tpm=30 -> renewed until 110s
            50s state slots -> decreasing to 5, used 6 of 9
            51s renew A 5 slots=5 -> renewed until 111s
            51s state slots -> active, used 5 of 5
        "#]],
    );
}

/// REN-01, SHD-01
#[test]
fn ren_01_a_limit_in_shadow_mode_never_denies() {
    check(
        "limit tpm rolling 60s 100 shadow
             0s reserve A tpm=40
             1s renew A 1 tpm=100
             1s renew A 2 tpm=101
             1s renew A 2 tpm=101
             1s state tpm",
        expect![[r#"
            0s reserve A tpm=40 -> allowed
            1s renew A 1 tpm=100 -> renewed until 61s
            1s renew A 2 tpm=101 -> renewed until 61s, shadow denied tpm
            1s renew A 2 tpm=101 -> renewed until 61s
            1s state tpm -> active, used 101 of 100
        "#]],
    );
}

/// REN-01: a limit that was deleted holds nobody up, and nobody gets more of it.
#[test]
fn ren_01_a_lease_of_a_deleted_limit_shrinks_and_does_not_grow() {
    check(
        "limit tpm rolling 60s 100
             limit slots concurrency 60s 2
             0s reserve A tpm=40 slots=1
             1s delete tpm
             2s renew A 1 tpm=30
             2s renew A 2 tpm=41
             3s define tpm rolling 60s 100
             3s renew A 2 tpm=41
             3s state tpm
             4s complete A tpm=5
             4s state tpm",
        expect![[r#"
            0s reserve A tpm=40 slots=1 -> allowed
            1s delete tpm -> ok
            2s renew A 1 tpm=30 -> renewed until 62s
            2s renew A 2 tpm=41 -> unknown tpm
            3s define tpm rolling 60s 100 -> active
            3s renew A 2 tpm=41 -> renewed until 63s
            3s state tpm -> active, used 41 of 100
            4s complete A tpm=5 -> ok
            4s state tpm -> active, used 5 of 100
        "#]],
    );
}

/// REN-02
#[test]
fn ren_02_every_renew_begins_the_timeouts_of_holds_again() {
    check(
        "limit slots concurrency 60s 1
             limit others concurrency 10s 1
             limit tpm rolling 60s 100
             0s reserve A slots=1 tpm=10 others=1
             5s renew A 1
             14s renew A 2 tpm=5
             24s state others
             70s renew A 3
             129s state slots
             130s state slots
             130s renew A 4",
        expect![[r#"
            0s reserve A slots=1 tpm=10 others=1 -> allowed
            5s renew A 1 -> renewed until 65s
            14s renew A 2 tpm=5 -> renewed until 74s
            24s state others -> active, used 0 of 1
            70s renew A 3 -> renewed until 130s
            129s state slots -> active, used 1 of 1
            130s state slots -> active, used 0 of 1
            130s renew A 4 -> lease ended
        "#]],
    );
}

/// REN-02: a lease with holds lapses with them, whatever else it has.
#[test]
fn ren_02_a_lease_is_open_until_its_last_hold_has_lapsed() {
    check(
        "limit slots concurrency 10s 1
             limit day rolling 86400s 100
             0s reserve A slots=1 day=10
             10s renew A 1 day=5
             10s complete A day=4
             10s state day
             10s reserve B day=10
             86409s renew B 1 day=20
             172808s renew B 2
             172809s renew B 3",
        expect![[r#"
            0s reserve A slots=1 day=10 -> allowed
            10s renew A 1 day=5 -> lease ended
            10s complete A day=4 -> ok
            10s state day -> active, used 4 of 100
            10s reserve B day=10 -> allowed
            86409s renew B 1 day=20 -> renewed until 172809s
            172808s renew B 2 -> renewed until 172809s
            172809s renew B 3 -> lease ended
        "#]],
    );
}

/// REN-02: a part that has lapsed counts 0.
#[test]
fn ren_02_what_has_lapsed_is_reserved_anew() {
    check(
        "limit slots concurrency 300s 1
             limit tpm rolling 60s 100
             0s reserve A slots=1 tpm=100
             59s renew A 1 tpm=100
             60s state tpm
             60s reserve B tpm=80
             60s renew A 2 tpm=21
             60s renew A 3 tpm=20
             60s state tpm
             60s reserve A slots=1 tpm=100",
        expect![[r#"
            0s reserve A slots=1 tpm=100 -> allowed
            59s renew A 1 tpm=100 -> renewed until 359s
            60s state tpm -> active, used 0 of 100
            60s reserve B tpm=80 -> allowed
            60s renew A 2 tpm=21 -> denied tpm, retry after 5s
            60s renew A 3 tpm=20 -> renewed until 360s
            60s state tpm -> active, used 100 of 100
            60s reserve A slots=1 tpm=100 -> lease ended
        "#]],
    );
}

/// REN-02, CAL-01
#[test]
fn ren_02_a_calendar_reservation_ends_with_the_period() {
    check(
        "limit budget calendar hour@00:34 100 deny
             limit slots concurrency 300s 1
             0s reserve A budget=40 slots=1
             10s renew A 1 budget=60
             39s state budget
             40s state budget
             40s renew A 2
             41s complete A budget=65
             41s state budget",
        expect![[r#"
            0s reserve A budget=40 slots=1 -> allowed
            10s renew A 1 budget=60 -> renewed until 310s
            39s state budget -> active, used 60 of 100
            40s state budget -> active, used 0 of 100
            40s renew A 2 -> renewed until 340s
            41s complete A budget=65 -> ok
            41s state budget -> active, used 0 of 100, debt 0, uncovered 5
        "#]],
    );
}

/// REN-03
#[test]
fn ren_03_a_repeated_number_answers_as_before_and_a_lower_one_is_superseded() {
    check(
        "limit slots concurrency 60s 10
             0s reserve A slots=1
             1s renew A 1 slots=3
             2s renew A 1 slots=9
             2s state slots
             3s renew A 7 slots=4
             4s renew A 6 slots=4
             4s renew A 7 slots=1
             4s state slots
             62s state slots
             63s state slots",
        expect![[r#"
            0s reserve A slots=1 -> allowed
            1s renew A 1 slots=3 -> renewed until 61s
            2s renew A 1 slots=9 -> renewed at 1s until 61s
            2s state slots -> active, used 3 of 10
            3s renew A 7 slots=4 -> renewed until 63s
            4s renew A 6 slots=4 -> superseded
            4s renew A 7 slots=1 -> renewed at 3s until 63s
            4s state slots -> active, used 4 of 10
            62s state slots -> active, used 4 of 10
            63s state slots -> active, used 0 of 10
        "#]],
    );
}

/// REN-03
#[test]
fn ren_03_a_denied_number_stays_denied() {
    check(
        "limit slots concurrency 60s 3
             0s reserve A slots=1
             0s reserve B slots=1
             1s renew A 1 slots=3
             2s complete B
             2s renew A 1 slots=3
             2s renew A 2 slots=3
             2s state slots
             60s state slots",
        expect![[r#"
            0s reserve A slots=1 -> allowed
            0s reserve B slots=1 -> allowed
            1s renew A 1 slots=3 -> denied slots, retry after 50ms
            2s complete B -> ok
            2s renew A 1 slots=3 -> denied slots, retry after 50ms
            2s renew A 2 slots=3 -> renewed until 62s
            2s state slots -> active, used 3 of 3
            60s state slots -> active, used 3 of 3
        "#]],
    );
}

/// REN-03
#[test]
fn ren_03_a_lease_that_is_not_open_cannot_be_renewed() {
    check(
        "limit slots concurrency 60s 1
             0s reserve A slots=1
             0s reserve B slots=1
             1s renew B 1
             1s renew C 1
             1s renew A 1
             2s complete A
             2s renew A 1
             2s renew A 2",
        expect![[r#"
            0s reserve A slots=1 -> allowed
            0s reserve B slots=1 -> denied slots, retry after 50ms
            1s renew B 1 -> lease ended
            1s renew C 1 -> lease ended
            1s renew A 1 -> renewed until 61s
            2s complete A -> ok
            2s renew A 1 -> lease ended
            2s renew A 2 -> lease ended
        "#]],
    );
}

/// REN-03, RES-04
#[test]
fn ren_03_a_repeated_reserve_is_compared_with_the_first_requirements() {
    check(
        "limit slots concurrency 60s 9
             limit tpm rolling 60s 100
             0s reserve A slots=1 tpm=10
             1s renew A 1 slots=5 tpm=0
             2s reserve A slots=1 tpm=10
             2s reserve A slots=5 tpm=10
             2s renew A 2 tpm=50
             3s reserve A tpm=10 slots=1
             62s reserve A tpm=10 slots=1",
        expect![[r#"
            0s reserve A slots=1 tpm=10 -> allowed
            1s renew A 1 slots=5 tpm=0 -> renewed until 61s
            2s reserve A slots=1 tpm=10 -> allowed since 0ns
            2s reserve A slots=5 tpm=10 -> lease conflict
            2s renew A 2 tpm=50 -> renewed until 62s
            3s reserve A tpm=10 slots=1 -> allowed since 0ns
            62s reserve A tpm=10 slots=1 -> lease ended
        "#]],
    );
}

/// REN-01, COM-02, COM-03: a complete is compared with what is held now.
#[test]
fn ren_01_a_complete_reconciles_what_is_held_now() {
    check(
        "limit tpm rolling 60s 100
             0s reserve A tpm=40
             0s reserve B tpm=20
             30s renew A 1 tpm=70
             31s complete A tpm=50
             31s state tpm
             40s renew B 1 tpm=30
             41s complete B tpm=35
             59s state tpm
             60s state tpm
             89s state tpm
             90s state tpm
             100s state tpm",
        expect![[r#"
            0s reserve A tpm=40 -> allowed
            0s reserve B tpm=20 -> allowed
            30s renew A 1 tpm=70 -> renewed until 90s
            31s complete A tpm=50 -> ok
            31s state tpm -> active, used 70 of 100
            40s renew B 1 tpm=30 -> renewed until 100s
            41s complete B tpm=35 -> ok
            59s state tpm -> active, used 85 of 100
            60s state tpm -> active, used 45 of 100
            89s state tpm -> active, used 45 of 100
            90s state tpm -> active, used 15 of 100
            100s state tpm -> active, used 0 of 100
        "#]],
    );
}

/// REN-01: what has lapsed covers the first units of the use, so that it counts once; with all that was reserved, use is compared.
#[test]
fn ren_01_a_complete_counts_use_once() {
    check(
        "limit tpm rolling 60s 100
             limit slots concurrency 300s 4
             0s reserve A tpm=40 slots=1
             0s reserve B tpm=20 slots=1
             0s reserve C tpm=10 slots=1
             30s renew A 1 tpm=70
             61s state tpm
             61s complete A tpm=50
             61s state tpm
             70s renew B 1 tpm=30
             71s renew B 2 tpm=25
             72s complete B tpm=55
             72s state tpm
             73s renew C 1
             131s state tpm
             131s complete C tpm=15
             131s state tpm",
        expect![[r#"
            0s reserve A tpm=40 slots=1 -> allowed
            0s reserve B tpm=20 slots=1 -> allowed
            0s reserve C tpm=10 slots=1 -> allowed
            30s renew A 1 tpm=70 -> renewed until 330s
            61s state tpm -> active, used 30 of 100
            61s complete A tpm=50 -> ok
            61s state tpm -> active, used 10 of 100
            70s renew B 1 tpm=30 -> renewed until 370s
            71s renew B 2 tpm=25 -> renewed until 371s
            72s complete B tpm=55 -> ok
            72s state tpm -> active, used 45 of 100
            73s renew C 1 -> renewed until 373s
            131s state tpm -> active, used 0 of 100
            131s complete C tpm=15 -> ok
            131s state tpm -> active, used 0 of 100, debt 5, uncovered 5
        "#]],
    );
}

/// REN-01: an amount above 2^32 is known after it has lapsed.
#[test]
fn ren_01_a_large_amount_that_has_lapsed_covers_use() {
    check(
        "limit tpm rolling 60s 10000000000
             limit slots concurrency 300s 4
             0s reserve A tpm=5000000000 slots=1
             60s renew A 1 tpm=4294967295
             61s complete A tpm=5000000007
             61s state tpm",
        expect![[r#"
            0s reserve A tpm=5000000000 slots=1 -> allowed
            60s renew A 1 tpm=4294967295 -> renewed until 360s
            61s complete A tpm=5000000007 -> ok
            61s state tpm -> active, used 7 of 10000000000
        "#]],
    );
}

/// REN-01: a lease has at most eight parts of a limit, which are joined at the latest expiry.
#[test]
fn ren_01_many_parts_are_joined_at_the_latest_expiry() {
    check(
        "limit tpm rolling 60s 100
             limit slots concurrency 300s 1
             0s reserve A tpm=1 slots=1
             1s renew A 1 tpm=2
             2s renew A 2 tpm=3
             3s renew A 3 tpm=4
             4s renew A 4 tpm=5
             5s renew A 5 tpm=6
             6s renew A 6 tpm=7
             7s renew A 7 tpm=8
             60s state tpm
             60s renew A 8 tpm=8
             61s renew A 9 tpm=8
             61s state tpm
             61s renew A 10 tpm=9
             62s state tpm
             62s renew A 11 tpm=10
             62s renew A 12 tpm=11
             62s renew A 13 tpm=12
             62s renew A 14 tpm=13
             62s renew A 15 tpm=14
             121s state tpm
             122s state tpm",
        expect![[r#"
            0s reserve A tpm=1 slots=1 -> allowed
            1s renew A 1 tpm=2 -> renewed until 301s
            2s renew A 2 tpm=3 -> renewed until 302s
            3s renew A 3 tpm=4 -> renewed until 303s
            4s renew A 4 tpm=5 -> renewed until 304s
            5s renew A 5 tpm=6 -> renewed until 305s
            6s renew A 6 tpm=7 -> renewed until 306s
            7s renew A 7 tpm=8 -> renewed until 307s
            60s state tpm -> active, used 7 of 100
            60s renew A 8 tpm=8 -> renewed until 360s
            61s renew A 9 tpm=8 -> renewed until 361s
            61s state tpm -> active, used 8 of 100
            61s renew A 10 tpm=9 -> renewed until 361s
            62s state tpm -> active, used 9 of 100
            62s renew A 11 tpm=10 -> renewed until 362s
            62s renew A 12 tpm=11 -> renewed until 362s
            62s renew A 13 tpm=12 -> renewed until 362s
            62s renew A 14 tpm=13 -> renewed until 362s
            62s renew A 15 tpm=14 -> renewed until 362s
            121s state tpm -> active, used 5 of 100
            122s state tpm -> active, used 0 of 100
        "#]],
    );
}
