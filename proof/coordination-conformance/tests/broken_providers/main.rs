//! The suite can fail: for each provider with one thing wrong, the scenarios that find it out.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a flaw changes one call and leaves all others as they are"
)]

mod flawed;
mod messages;
mod schedules;

use coordination_conformance::{Outcome, cases};
use expect_test::{Expect, expect};

use crate::flawed::{Flaw, FlawedFixture};

/// The IDs of the scenarios that do not hold.
fn check(flaw: Flaw, expected: &Expect) {
    FlawedFixture::plant(flaw);
    let failed: Vec<String> = cases::<FlawedFixture>()
        .iter()
        .filter(|case| case.outcome() != Outcome::Passed)
        .map(|case| case.scenario.id_for("FLAWED"))
        .collect();
    expected.assert_eq(&failed.join("\n"));
}

macro_rules! flaws {
    ($( $test:ident: $flaw:ident, $expected:expr; )*) => {
        $(
            #[test]
            fn $test() {
                check(Flaw::$flaw, &$expected);
            }
        )*
    };
}

flaws! {
    without_a_flaw_every_scenario_holds: None, expect![[""]];
    a_provider_that_acks_for_the_wrong_owner_fails: AcksForTheWrongOwner, expect![[r#"
        PRIM-FLAWED-GEN-003
        PRIM-FLAWED-OUTBOX-B
        PRIM-FLAWED-OUTBOX-C
        PRIM-FLAWED-OUTBOX-K
        PRIM-FLAWED-OUTBOX-Q
        PRIM-FLAWED-OUTBOX-V
        PRIM-FLAWED-INBOX-F
        PRIM-FLAWED-SCHED-C
        PRIM-FLAWED-SCHED-L"#]];
    a_provider_that_reuses_fencing_tokens_fails: ReusesFencingTokens, expect![[r#"
        PRIM-FLAWED-LEASE-010
        PRIM-FLAWED-LEASE-B
        PRIM-FLAWED-LEASE-C"#]];
    a_provider_that_ignores_due_times_fails: IgnoresDueTimes, expect![[r#"
        PRIM-FLAWED-GEN-A
        PRIM-FLAWED-OUTBOX-003
        PRIM-FLAWED-OUTBOX-004
        PRIM-FLAWED-OUTBOX-009
        PRIM-FLAWED-OUTBOX-H
        PRIM-FLAWED-OUTBOX-S
        PRIM-FLAWED-OUTBOX-U
        PRIM-FLAWED-INBOX-003
        PRIM-FLAWED-INBOX-007
        PRIM-FLAWED-INBOX-009
        PRIM-FLAWED-SCHED-001
        PRIM-FLAWED-SCHED-010"#]];
    a_provider_that_hands_out_twice_fails: HandsOutTwice, expect![[r#"
        PRIM-FLAWED-GEN-003
        PRIM-FLAWED-GEN-C
        PRIM-FLAWED-OUTBOX-005
        PRIM-FLAWED-OUTBOX-006
        PRIM-FLAWED-OUTBOX-008
        PRIM-FLAWED-OUTBOX-009
        PRIM-FLAWED-OUTBOX-A
        PRIM-FLAWED-OUTBOX-B
        PRIM-FLAWED-OUTBOX-C
        PRIM-FLAWED-OUTBOX-D
        PRIM-FLAWED-OUTBOX-E
        PRIM-FLAWED-OUTBOX-F
        PRIM-FLAWED-OUTBOX-G
        PRIM-FLAWED-OUTBOX-M
        PRIM-FLAWED-OUTBOX-N
        PRIM-FLAWED-OUTBOX-P
        PRIM-FLAWED-OUTBOX-Q
        PRIM-FLAWED-OUTBOX-T
        PRIM-FLAWED-OUTBOX-V
        PRIM-FLAWED-OUTBOX-W"#]];
    a_provider_that_reaps_finished_messages_fails: ReapsFinishedMessages, expect![[r#"
        PRIM-FLAWED-OUTBOX-005
        PRIM-FLAWED-OUTBOX-D"#]];
    a_provider_that_never_reaps_fails: NeverReaps, expect![[r#"
        PRIM-FLAWED-GEN-A
        PRIM-FLAWED-GEN-C
        PRIM-FLAWED-OUTBOX-B
        PRIM-FLAWED-OUTBOX-C
        PRIM-FLAWED-OUTBOX-D
        PRIM-FLAWED-OUTBOX-K
        PRIM-FLAWED-OUTBOX-Q
        PRIM-FLAWED-OUTBOX-R
        PRIM-FLAWED-OUTBOX-V
        PRIM-FLAWED-OUTBOX-X
        PRIM-FLAWED-INBOX-H
        PRIM-FLAWED-INBOX-P
        PRIM-FLAWED-INBOX-Q
        PRIM-FLAWED-SCHED-005
        PRIM-FLAWED-SCHED-M"#]];
    a_provider_that_delivers_duplicates_fails: DeliversDuplicates, expect![[r#"
        PRIM-FLAWED-GEN-E
        PRIM-FLAWED-INBOX-A"#]];
    a_provider_that_ignores_fences_fails: IgnoresFences, expect!["PRIM-FLAWED-SCHED-J"];
    a_provider_that_makes_up_for_missed_ticks_fails: MakesUpForMissedTicks, expect![[r#"
        PRIM-FLAWED-SCHED-G
        PRIM-FLAWED-SCHED-H
        PRIM-FLAWED-SCHED-S"#]];
    a_provider_that_forgets_retries_fails: ForgetsRetries, expect![[r#"
        PRIM-FLAWED-OUTBOX-006
        PRIM-FLAWED-OUTBOX-P
        PRIM-FLAWED-OUTBOX-X"#]];
    a_provider_that_counts_joins_by_calls_fails: CountsJoinsByCalls, expect![[r#"
        PRIM-FLAWED-GEN-E
        PRIM-FLAWED-OUTBOX-J
        PRIM-FLAWED-OUTBOX-K
        PRIM-FLAWED-OUTBOX-L
        PRIM-FLAWED-OUTBOX-T
        PRIM-FLAWED-OUTBOX-Y"#]];
    a_provider_that_claims_newest_first_fails: ClaimsNewestFirst, expect![[r#"
        PRIM-FLAWED-OUTBOX-004
        PRIM-FLAWED-OUTBOX-A
        PRIM-FLAWED-OUTBOX-M
        PRIM-FLAWED-OUTBOX-N
        PRIM-FLAWED-OUTBOX-P"#]];
    a_provider_that_lets_the_same_owner_in_fails: LetsTheSameOwnerIn, expect!["PRIM-FLAWED-LEASE-A"];
    a_provider_that_ignores_topics_fails: IgnoresTopics, expect![[r#"
        PRIM-FLAWED-OUTBOX-M
        PRIM-FLAWED-OUTBOX-N
        PRIM-FLAWED-OUTBOX-S
        PRIM-FLAWED-INBOX-L
        PRIM-FLAWED-INBOX-M"#]];
    a_provider_that_claims_topic_by_topic_fails: ClaimsTopicByTopic, expect!["PRIM-FLAWED-OUTBOX-M"];
    a_provider_that_counts_postponements_fails: CountsPostponements, expect![[r#"
        PRIM-FLAWED-OUTBOX-P
        PRIM-FLAWED-OUTBOX-R
        PRIM-FLAWED-OUTBOX-X
        PRIM-FLAWED-INBOX-N
        PRIM-FLAWED-INBOX-Q"#]];
    a_provider_that_counts_every_begin_fails: CountsEveryBegin, expect![[r#"
        PRIM-FLAWED-OUTBOX-R
        PRIM-FLAWED-INBOX-P"#]];
    a_provider_that_extends_in_words_only_fails: ExtendsInWordsOnly, expect![[r#"
        PRIM-FLAWED-OUTBOX-Q
        PRIM-FLAWED-OUTBOX-V"#]];
    a_provider_that_forgets_outcomes_fails: ForgetsOutcomes, expect![[r#"
        PRIM-FLAWED-OUTBOX-T
        PRIM-FLAWED-OUTBOX-V"#]];
    a_provider_that_shows_the_dead_as_ready_fails: ShowsTheDeadAsReady, expect![[r#"
        PRIM-FLAWED-OUTBOX-008
        PRIM-FLAWED-OUTBOX-U"#]];
    a_provider_that_fails_in_words_only_fails: FailsInWordsOnly, expect![[r#"
        PRIM-FLAWED-OUTBOX-008
        PRIM-FLAWED-OUTBOX-J
        PRIM-FLAWED-OUTBOX-K
        PRIM-FLAWED-OUTBOX-L
        PRIM-FLAWED-OUTBOX-U
        PRIM-FLAWED-OUTBOX-W
        PRIM-FLAWED-OUTBOX-Y"#]];
    a_provider_that_fails_for_the_wrong_owner_fails: FailsForTheWrongOwner, expect![[r#"
        PRIM-FLAWED-GEN-003
        PRIM-FLAWED-OUTBOX-B
        PRIM-FLAWED-OUTBOX-C
        PRIM-FLAWED-OUTBOX-K
        PRIM-FLAWED-INBOX-F"#]];
    a_provider_that_asks_the_machines_clock_fails: AsksTheMachinesClock, expect![[r#"
        PRIM-FLAWED-GEN-A
        PRIM-FLAWED-OUTBOX-003
        PRIM-FLAWED-OUTBOX-004
        PRIM-FLAWED-OUTBOX-009
        PRIM-FLAWED-OUTBOX-H
        PRIM-FLAWED-OUTBOX-S
        PRIM-FLAWED-OUTBOX-U
        PRIM-FLAWED-INBOX-003
        PRIM-FLAWED-INBOX-007
        PRIM-FLAWED-INBOX-009"#]];
    a_provider_that_purges_for_others_fails: PurgesForOthers, expect![[r#"
        PRIM-FLAWED-OUTBOX-Y
        PRIM-FLAWED-INBOX-Y"#]];
    a_provider_that_purges_the_dead_early_fails: PurgesTheDeadEarly, expect![[r#"
        PRIM-FLAWED-OUTBOX-Y
        PRIM-FLAWED-INBOX-Y"#]];
    a_provider_that_renews_the_lost_fails: RenewsTheLost, expect![[r#"
        PRIM-FLAWED-LEASE-006
        PRIM-FLAWED-LEASE-008
        PRIM-FLAWED-LEASE-C"#]];
    a_provider_that_begins_what_it_hands_out_fails: BeginsWhatItHandsOut, expect![[r#"
        PRIM-FLAWED-INBOX-008
        PRIM-FLAWED-INBOX-C
        PRIM-FLAWED-INBOX-N
        PRIM-FLAWED-INBOX-P
        PRIM-FLAWED-INBOX-Q"#]];
    a_provider_that_forgets_lost_attempts_fails: ForgetsLostAttempts, expect!["PRIM-FLAWED-INBOX-Q"];
}
