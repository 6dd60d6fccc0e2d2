//! A job that was denied too often goes first.

use expect_test::expect;

use super::super::PASSES_MAX;
use super::{Script, check};

/// SCH-05
///
/// From its third denial on no other passes it.
#[test]
fn sch_05_after_three_denials_a_large_job_goes_first() {
    check(
        1,
        "add large A t tpm=90
         add s1 A t tpm=10
         add s2 A u tpm=10
         next
         deny large tpm for 1
         next
         allow s1
         end s1 tpm
         next
         allow s2
         end s2 tpm
         next
         deny large tpm for 1
         add s3 A t tpm=10
         add s4 A u tpm=10
         next
         allow s3
         end s3 tpm
         next
         allow s4
         end s4 tpm
         next
         deny large tpm for 1
         add s5 A t tpm=10
         add s6 A u tpm=10
         next
         1s next
         allow large
         end large tpm
         next",
        expect![[r#"
            add large A t tpm=90
            add s1 A t tpm=10
            add s2 A u tpm=10
            next -> large#1; then on an event
            deny large tpm for 1
            next -> s1#1; then on an event
            allow s1
            end s1 tpm
            next -> s2#1; then on an event
            allow s2
            end s2 tpm
            next -> large#2; then on an event
            deny large tpm for 1
            add s3 A t tpm=10
            add s4 A u tpm=10
            next -> s3#1; then on an event
            allow s3
            end s3 tpm
            next -> s4#1; then on an event
            allow s4
            end s4 tpm
            next -> large#3; then on an event
            deny large tpm for 1
            add s5 A t tpm=10
            add s6 A u tpm=10
            next -> nobody; then at 1s
            1s next -> large#4; then on an event
            allow large
            end large tpm
            next -> s6#1; then on an event
        "#]],
    );
}

/// SCH-05
///
/// It goes before its own tenant's jobs only.
#[test]
fn sch_05_a_large_job_without_budget_does_not_hold_up_another_tenant() {
    check(
        1,
        "add large A t tpm=90 tenant:t=90
         next
         deny large tenant:t for 1
         1s next
         deny large tenant:t for 1
         2s next
         deny large tenant:t for 1
         add small A t tpm=10 tenant:t=10
         add other A u tpm=10 tenant:u=10
         next
         allow other
         end other tpm tenant:u
         next
         3s next",
        expect![[r#"
            add large A t tpm=90 tenant:t=90
            next -> large#1; then on an event
            deny large tenant:t for 1
            1s next -> large#2; then on an event
            deny large tenant:t for 1
            2s next -> large#3; then on an event
            deny large tenant:t for 1
            add small A t tpm=10 tenant:t=10
            add other A u tpm=10 tenant:u=10
            next -> other#1; then on an event
            allow other
            end other tpm tenant:u
            next -> nobody; then at 3s
            3s next -> large#4; then on an event
        "#]],
    );
}

/// SCH-05
#[test]
fn sch_05_a_denial_by_the_budget_resets_the_count_of_shared_denials() {
    check(
        1,
        "add large A t tpm=90 tenant:t=90
         next
         deny large tpm for 1
         1s next
         deny large tpm for 1
         2s next
         deny large tenant:t for 1
         3s next
         deny large tpm for 1
         add other A u tpm=10 tenant:u=10
         next",
        expect![[r#"
            add large A t tpm=90 tenant:t=90
            next -> large#1; then on an event
            deny large tpm for 1
            1s next -> large#2; then on an event
            deny large tpm for 1
            2s next -> large#3; then on an event
            deny large tenant:t for 1
            3s next -> large#4; then on an event
            deny large tpm for 1
            add other A u tpm=10 tenant:u=10
            next -> other#1; then on an event
        "#]],
    );
}

/// SCH-05
///
/// Small jobs that are allowed in between widen the gates, so that both ask at a time.
#[test]
fn sch_05_two_jobs_that_go_first_do_not_wait_for_each_other() {
    check(
        9,
        "add x A t tpm=90 tenant:t=90
         add y A t tpm=80 tenant:t=80
         next
         deny x tpm for 1
         deny y tenant:t for 1
         add z1 A t tpm=1 tenant:t=1
         next
         allow z1
         1s next
         deny x tpm for 1
         deny y tenant:t for 1
         add z2 A t tpm=1 tenant:t=1
         next
         allow z2
         2s next
         deny x tpm for 1
         deny y tenant:t for 1
         3s next
         allow x
         next
         allow y",
        expect![[r#"
            add x A t tpm=90 tenant:t=90
            add y A t tpm=80 tenant:t=80
            next -> x#1, y#1; then on an event
            deny x tpm for 1
            deny y tenant:t for 1
            add z1 A t tpm=1 tenant:t=1
            next -> z1#1; then at 1s
            allow z1
            1s next -> x#2, y#2; then on an event
            deny x tpm for 1
            deny y tenant:t for 1
            add z2 A t tpm=1 tenant:t=1
            next -> z2#1; then at 2s
            allow z2
            2s next -> x#3, y#3; then on an event
            deny x tpm for 1
            deny y tenant:t for 1
            3s next -> x#4; then on an event
            allow x
            next -> y#4; then on an event
            allow y
        "#]],
    );
}

/// SCH-05
///
/// Other processes take all the room; after two minutes it no longer goes first.
#[test]
fn sch_05_a_job_that_goes_first_in_vain_yields_after_two_minutes() {
    check(
        1,
        "add large A t tpm=90
         next
         deny large tpm for 1
         1s next
         deny large tpm for 1
         2s next
         deny large tpm for 121
         add small A t tpm=10
         next
         123s next
         deny large tpm for 1
         next",
        expect![[r#"
            add large A t tpm=90
            next -> large#1; then on an event
            deny large tpm for 1
            1s next -> large#2; then on an event
            deny large tpm for 1
            2s next -> large#3; then on an event
            deny large tpm for 121
            add small A t tpm=10
            next -> nobody; then at 123s
            123s next -> large#4; then on an event
            deny large tpm for 1
            next -> small#1; then on an event
        "#]],
    );
}

/// SCH-04
#[test]
fn sch_04_a_cancelled_job_no_longer_goes_first() {
    check(
        1,
        "add large A t tpm=90
         next
         deny large tpm for 1
         1s next
         deny large tpm for 1
         2s next
         deny large tpm for 9
         add small A t tpm=10
         next
         cancel large
         next",
        expect![[r#"
            add large A t tpm=90
            next -> large#1; then on an event
            deny large tpm for 1
            1s next -> large#2; then on an event
            deny large tpm for 1
            2s next -> large#3; then on an event
            deny large tpm for 9
            add small A t tpm=10
            next -> nobody; then at 11s
            cancel large
            next -> small#1; then on an event
        "#]],
    );
}

/// SCH-05
///
/// With as many tenants as jobs, a denied job rarely gets a turn, so the jobs that pass it are counted too.
#[test]
fn sch_05_a_job_that_many_have_passed_goes_first() {
    let mut script = Script::new(1);
    let play = |script: &mut Script, lines: &[&str]| {
        lines.iter().for_each(|line| drop(script.play(line)));
    };
    play(&mut script, &["add large A t tpm=90", "next", "deny large tpm for 60"]);
    for n in 0..PASSES_MAX {
        let small = format!("s{n}");
        script.play(&format!("add {small} A {small} tpm=10"));
        assert!(script.play("next").starts_with(&format!("{small}#1;")));
        script.play(&format!("allow {small}"));
        script.play(&format!("end {small}"));
    }
    play(&mut script, &["add last A last tpm=10"]);
    assert_eq!(script.play("next"), "nobody; then at 60s");
    assert_eq!(script.play("60s next"), "large#2; then on an event");
}
