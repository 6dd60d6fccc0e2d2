//! Queues and tenants take turns, and no job waits for the limits of others.

use expect_test::expect;

use super::check;

/// SCH-01
#[test]
fn sch_01_the_queues_take_turns() {
    check(
        9,
        "add a1 A t rpmA=1
         add a2 A t rpmA=1
         add a3 A t rpmA=1
         add b1 B t rpmB=1
         add b2 B t rpmB=1
         next",
        expect![[r#"
            add a1 A t rpmA=1
            add a2 A t rpmA=1
            add a3 A t rpmA=1
            add b1 B t rpmB=1
            add b2 B t rpmB=1
            next -> a1#1, b1#1, a2#1, b2#1, a3#1; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_the_tenants_of_a_queue_take_turns() {
    check(
        9,
        "add t1 A t rpm=1
         add t2 A t rpm=1
         add t3 A t rpm=1
         add u1 A u rpm=1
         next",
        expect![[r#"
            add t1 A t rpm=1
            add t2 A t rpm=1
            add t3 A t rpm=1
            add u1 A u rpm=1
            next -> t1#1, u1#1, t2#1, t3#1; then on an event
        "#]],
    );
}

/// SCH-01
///
/// The second job of the saturated model does not ask: it needs as much as the denied one.
#[test]
fn sch_01_a_saturated_model_never_delays_another() {
    check(
        1,
        "add a1 A t tpmA=10
         add a2 A t tpmA=10
         add b1 B t tpmB=10
         next
         deny a1 tpmA for 60
         next
         allow b1
         end b1
         1s next
         60s next",
        expect![[r#"
            add a1 A t tpmA=10
            add a2 A t tpmA=10
            add b1 B t tpmB=10
            next -> a1#1; then on an event
            deny a1 tpmA for 60
            next -> b1#1; then on an event
            allow b1
            end b1
            1s next -> nobody; then at 60s
            60s next -> a1#2; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_a_tenant_out_of_budget_never_delays_another() {
    check(
        1,
        "add t1 A t tpm=10 tenant:t=10
         add t2 A t tpm=10 tenant:t=10
         add u1 A u tpm=10 tenant:u=10
         next
         deny t1 tenant:t for 5
         next
         allow u1
         end u1 tpm tenant:u
         1s next
         5s next",
        expect![[r#"
            add t1 A t tpm=10 tenant:t=10
            add t2 A t tpm=10 tenant:t=10
            add u1 A u tpm=10 tenant:u=10
            next -> t1#1; then on an event
            deny t1 tenant:t for 5
            next -> u1#1; then on an event
            allow u1
            end u1 tpm tenant:u
            1s next -> nobody; then at 5s
            5s next -> t1#2; then on an event
        "#]],
    );
}

/// SCH-01
///
/// The hint is the longest of all limits that denied, so it tells nothing about the shared one.
#[test]
fn sch_01_a_tenant_out_of_budget_closes_no_shared_limit() {
    check(
        1,
        "add t1 A t rpm=1 tenant:t=1
         add u1 A u rpm=1 tenant:u=1
         next
         deny t1 rpm tenant:t for 300
         next
         allow u1
         end u1
         next
         300s next",
        expect![[r#"
            add t1 A t rpm=1 tenant:t=1
            add u1 A u rpm=1 tenant:u=1
            next -> t1#1; then on an event
            deny t1 rpm tenant:t for 300
            next -> u1#1; then on an event
            allow u1
            end u1
            next -> nobody; then at 300s
            300s next -> t1#2; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_a_tenant_out_of_budget_waits_in_all_its_queues() {
    check(
        9,
        "add a1 A t tpmA=10 tenant:t=10
         next
         deny a1 tenant:t for 5
         add b1 B t tpmB=10 tenant:t=10
         next
         5s next
         allow a1
         next",
        expect![[r#"
            add a1 A t tpmA=10 tenant:t=10
            next -> a1#1; then on an event
            deny a1 tenant:t for 5
            add b1 B t tpmB=10 tenant:t=10
            next -> nobody; then at 5s
            5s next -> a1#2; then on an event
            allow a1
            next -> b1#1; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_a_smaller_job_may_pass_a_denied_one() {
    check(
        1,
        "add large A t tpm=100
         add equal A t tpm=100
         add small A t tpm=10
         next
         deny large tpm for 30
         next
         allow small",
        expect![[r#"
            add large A t tpm=100
            add equal A t tpm=100
            add small A t tpm=10
            next -> large#1; then on an event
            deny large tpm for 30
            next -> small#1; then on an event
            allow small
        "#]],
    );
}

/// SCH-01
///
/// After a denial one asks at a time; when it is allowed, others do.
#[test]
fn sch_01_room_that_comes_back_opens_the_gate() {
    check(
        9,
        "add first A t slots=1
         next
         allow first
         add second A t slots=1
         add third A t slots=1
         next
         deny second slots for 2
         deny third slots for 2
         next
         end first slots
         next
         allow second
         next",
        expect![[r#"
            add first A t slots=1
            next -> first#1; then on an event
            allow first
            add second A t slots=1
            add third A t slots=1
            next -> second#1, third#1; then on an event
            deny second slots for 2
            deny third slots for 2
            next -> nobody; then at 2s
            end first slots
            next -> second#2; then on an event
            allow second
            next -> third#2; then on an event
        "#]],
    );
}

/// SCH-01
///
/// The width doubles after as many allows.
#[test]
fn sch_01_after_a_denial_more_ask_as_others_are_allowed() {
    check(
        9,
        "add a A t rpm=1
         next
         add b A t rpm=1
         add c A t rpm=1
         add d A t rpm=1
         add e A t rpm=1
         add f A t rpm=1
         add g A t rpm=1
         deny a rpm for 1
         1s next
         allow a
         next
         allow b
         next
         allow c
         next",
        expect![[r#"
            add a A t rpm=1
            next -> a#1; then on an event
            add b A t rpm=1
            add c A t rpm=1
            add d A t rpm=1
            add e A t rpm=1
            add f A t rpm=1
            add g A t rpm=1
            deny a rpm for 1
            1s next -> a#2; then on an event
            allow a
            next -> b#1, c#1; then on an event
            allow b
            next -> d#1; then on an event
            allow c
            next -> e#1, f#1, g#1; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_room_that_comes_back_while_a_job_asks_outdates_its_denial() {
    check(
        9,
        "add first A t slots=1
         next
         allow first
         add second A t slots=1
         next
         end first slots
         deny second slots for 2
         next",
        expect![[r#"
            add first A t slots=1
            next -> first#1; then on an event
            allow first
            add second A t slots=1
            next -> second#1; then on an event
            end first slots
            deny second slots for 2
            next -> second#2; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_no_more_jobs_ask_or_run_than_there_are_workers() {
    check(
        2,
        "add a A t rpm=1
         add b A t rpm=1
         add c A t rpm=1
         next
         allow a
         next
         end a
         next",
        expect![[r#"
            add a A t rpm=1
            add b A t rpm=1
            add c A t rpm=1
            next -> a#1, b#1; then on an event
            allow a
            next -> nobody; then on an event
            end a
            next -> c#1; then on an event
        "#]],
    );
}
