//! Denied, unanswered, refused, gone.

use std::time::Duration;

use expect_test::expect;

use super::super::{Admission, WAIT_MAX, no_answer_pause};
use super::{START, Script, check};
use crate::{LeaseId, LimitKey};

/// SCH-02
#[test]
fn sch_02_a_denied_job_waits_and_asks_again_with_a_new_lease() {
    check(
        9,
        "add a A t rpm=1
         next
         deny a rpm for 1.5
         next
         1.4s next
         1.5s next",
        expect![[r#"
            add a A t rpm=1
            next -> a#1; then on an event
            deny a rpm for 1.5
            next -> nobody; then at 1.5s
            1.4s next -> nobody; then at 1.5s
            1.5s next -> a#2; then on an event
        "#]],
    );
}

/// SCH-02
#[test]
fn sch_02_an_unanswered_job_asks_again_with_the_same_lease() {
    check(
        9,
        "add a A t rpm=1
         next
         silence a
         next
         0.1s next
         silence a
         0.2s next
         0.3s next
         deny a rpm for 1
         1.3s next",
        expect![[r#"
            add a A t rpm=1
            next -> a#1; then on an event
            silence a
            next -> nobody; then at 0.1s
            0.1s next -> a#2 same lease; then on an event
            silence a
            0.2s next -> nobody; then at 0.3s
            0.3s next -> a#3 same lease; then on an event
            deny a rpm for 1
            1.3s next -> a#4; then on an event
        "#]],
    );
}

/// SCH-02
///
/// After the first answer all jobs may ask again whose own pause is over.
#[test]
fn sch_02_during_an_outage_one_job_at_a_time_asks() {
    check(
        9,
        "add a A t rpm=1
         add b B t rpmB=1
         next
         add c C t rpmC=1
         add d D t rpmD=1
         silence a
         silence b
         next
         0.1s next
         silence c
         0.2s next
         0.3s next
         allow d
         next",
        expect![[r#"
            add a A t rpm=1
            add b B t rpmB=1
            next -> a#1, b#1; then on an event
            add c C t rpmC=1
            add d D t rpmD=1
            silence a
            silence b
            next -> nobody; then at 0.1s
            0.1s next -> c#1; then on an event
            silence c
            0.2s next -> nobody; then at 0.3s
            0.3s next -> d#1; then on an event
            allow d
            next -> a#2 same lease, b#2 same lease, c#2 same lease; then on an event
        "#]],
    );
}

/// SCH-02
#[test]
fn sch_02_a_refused_job_is_removed() {
    check(
        9,
        "add a A t nokey=1
         next
         refuse a
         next",
        expect![[r#"
            add a A t nokey=1
            next -> a#1; then on an event
            refuse a
            next -> nobody; then on an event
        "#]],
    );
}

/// No hint makes a timestamp overflow.
#[test]
fn a_wait_is_bounded() {
    let second = Duration::from_secs(1);
    for (hint, wait) in [
        (WAIT_MAX - second, WAIT_MAX - second),
        (WAIT_MAX, WAIT_MAX),
        (WAIT_MAX + second, WAIT_MAX),
        (Duration::MAX, WAIT_MAX),
    ] {
        let mut script = Script::new(1);
        for line in ["add a A t rpm=1", "next"] {
            script.play(line);
        }
        let job = script.names["a"];
        script.admission.denied(START, job, &[LimitKey::new("rpm").unwrap()], hint);
        assert_eq!(script.admission.next(START), None);
        assert_eq!(script.admission.wake_at(), Some(START.after(wait)), "denied, {hint:?}");

        let mut script = Script::new(1);
        for line in ["add a A t rpm=1", "next"] {
            script.play(line);
        }
        script.admission.unanswered(START, script.names["a"], LeaseId::from_u128(7), hint, 0.0);
        assert_eq!(script.admission.next(START), None);
        assert_eq!(script.admission.wake_at(), Some(START.after(wait)), "unanswered, {hint:?}");
    }
    assert_eq!(no_answer_pause(1, WAIT_MAX, 0.5), WAIT_MAX, "jitter is part of the wait");
}

#[test]
fn jobs_that_left_leave_no_state_behind() {
    let mut script = Script::new(4);
    for line in [
        "add a A t tpm=1 tenant:t=1",
        "add b B u tpmB=1",
        "add c A u tpm=5",
        "next",
        "deny a tpm for 1",
        "silence b",
        "allow c",
        "end c tpm",
        "cancel a",
    ] {
        script.play(line);
    }
    let admission = &mut script.admission;
    assert_eq!(admission.remove_all().len(), 1);
    assert_eq!((admission.waiting(), admission.busy()), (0, 0));
    let Admission { rooms, resting, gates, .. } = admission;
    assert!(rooms.is_empty() && resting.is_empty() && gates.is_empty(), "{rooms:?} {gates:?}");
}

/// WAIT-06
#[test]
fn wait_06_all_limits_that_denied_a_waiter_are_scarce_until_they_have_room() {
    check(
        8,
        "add x q t slots=1
         add y q t tpm=1
         next
         allow x
         allow y
         add a q t slots=3 rpm=1 tpm=5
         next
         deny a slots tpm for 10
         scarce
         end x slots
         next
         scarce
         end y tpm
         next",
        expect![[r"
            add x q t slots=1
            add y q t tpm=1
            next -> x#1, y#1; then on an event
            allow x
            allow y
            add a q t slots=3 rpm=1 tpm=5
            next -> a#1; then on an event
            deny a slots tpm for 10
            scarce -> slots=3, tpm=5
            end x slots
            next -> nobody; then at 10s
            scarce -> tpm=5
            end y tpm
            next -> a#2; then on an event
        "]],
    );
}

/// WAIT-06
#[test]
fn wait_06_scarce_limits_are_those_that_hold_waiters_up() {
    check(
        8,
        "scarce
         add a q t slots=3 rpm=1
         next
         deny a slots for 10
         add b q t slots=2
         next
         scarce
         cancel b
         scarce
         cancel a
         scarce",
        expect![[r"
            scarce
            add a q t slots=3 rpm=1
            next -> a#1; then on an event
            deny a slots for 10
            add b q t slots=2
            next -> nobody; then at 10s
            scarce -> slots=2
            cancel b
            scarce -> slots=3
            cancel a
            scarce
        "]],
    );
}

/// WAIT-06: a gate that held others up opens with the last job that its limit denied. One in its room that another limit denied does
/// not count.
#[test]
fn wait_06_a_gate_opens_when_the_last_one_that_it_denied_leaves() {
    check(
        8,
        "add runs A t rpm=1
         next
         allow runs
         add both A t rpm=1 slots=6
         next
         deny both rpm for 60
         add large A u slots=7
         next
         deny large slots for 60
         end runs rpm
         next
         cancel large
         next",
        expect![[r#"
            add runs A t rpm=1
            next -> runs#1; then on an event
            allow runs
            add both A t rpm=1 slots=6
            next -> both#1; then on an event
            deny both rpm for 60
            add large A u slots=7
            next -> large#1; then at 60s
            deny large slots for 60
            end runs rpm
            next -> nobody; then at 60s
            cancel large
            next -> both#2; then on an event
        "#]],
    );
}

/// WAIT-06: with a job leaves what its denial held up, also next to a larger one that goes on waiting.
#[test]
fn wait_06_a_smaller_one_may_ask_when_the_one_that_held_it_up_leaves() {
    check(
        8,
        "add large A t slots=5
         next
         deny large slots for 60
         add middle A u slots=3
         add small A u slots=2
         next
         deny small slots for 10
         10s next
         deny middle slots for 50
         10s next
         20s cancel middle
         20s next",
        expect![[r#"
            add large A t slots=5
            next -> large#1; then on an event
            deny large slots for 60
            add middle A u slots=3
            add small A u slots=2
            next -> small#1; then on an event
            deny small slots for 10
            10s next -> middle#1; then on an event
            deny middle slots for 50
            10s next -> nobody; then at 60s
            20s cancel middle
            20s next -> small#2; then on an event
        "#]],
    );
}

/// WAIT-06: a gate opens with the last job of its room, for those that another limit denied before.
#[test]
fn wait_06_a_gate_opens_when_nobody_is_left_in_its_room() {
    check(
        8,
        "add both A t rpm=1 slots=6
         next
         deny both rpm for 10
         add large A u slots=7
         next
         deny large slots for 60
         cancel large
         10s next",
        expect![[r#"
            add both A t rpm=1 slots=6
            next -> both#1; then on an event
            deny both rpm for 10
            add large A u slots=7
            next -> large#1; then at 10s
            deny large slots for 60
            cancel large
            10s next -> both#2; then on an event
        "#]],
    );
}
