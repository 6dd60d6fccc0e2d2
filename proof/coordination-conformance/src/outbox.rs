//! Scenarios of the outbox.

mod claims;
mod joins;
mod outcomes;
mod retention;

use std::collections::HashSet;

use coordination::{CorrelationId, Delay, ErrorText, MessageId, Outbox, OutboxStatus};

pub use self::claims::{
    outbox_m_a_claim_takes_only_its_topics, outbox_n_a_claim_takes_all_but_some_topics,
    outbox_p_a_postponed_message_was_not_tried, outbox_q_an_extended_claim_lasts,
    outbox_r_an_attempt_is_counted_once_a_claim, outbox_s_the_next_due_time_is_known_by_topic,
    outbox_x_lost_attempts_are_counted_apart,
};
pub use self::joins::{
    outbox_j_each_member_of_a_join_counts_once, outbox_k_only_what_really_happened_counts,
    outbox_l_members_finished_before_the_join_count,
};
pub use self::outcomes::{
    outbox_t_an_outcome_is_kept_until_it_is_purged, outbox_u_a_message_can_be_read_in_every_state,
    outbox_v_only_the_owner_extends_begins_finishes_and_postpones,
    outbox_w_a_failed_message_is_listed_and_can_be_revived,
};
pub use self::retention::{
    outbox_g_purge_forgets_only_old_finished_messages,
    outbox_y_a_purge_forgets_by_topic_and_keeps_the_dead_for_longer,
};
use crate::Fixture;
use crate::fixture::{ClockSkew, advance_to, lease, units};
use crate::sample::{batch, error, outbox_message, owner, payload, topic};
use crate::scenario::{answer, each_is_claimed_once, suite};

suite! {
    $
    /// One test per scenario of the outbox.
    macro outbox_suite, module outbox, fixture Fixture,
    "OUTBOX-001" outbox_001_an_empty_outbox_gives_nothing:
        "`claim_due` with no data returns an empty list.";
    "OUTBOX-002" outbox_002_due_messages_are_claimed_with_topic_and_payload:
        "Due messages are claimable and returned with topic and payload.";
    "OUTBOX-003" outbox_003_a_future_message_waits_until_it_is_due:
        "Future-due messages are not claimable until due.";
    "OUTBOX-004" outbox_004_a_claim_shows_correlation_and_due_time:
        "Claimed messages include the persisted correlation ID and due time.";
    "OUTBOX-005" outbox_005_a_dispatched_message_is_not_claimed_again:
        "`mark_dispatched` finalizes claimed messages and removes them from future claims.";
    "OUTBOX-006" outbox_006_reschedule_makes_ready_and_counts_the_retry:
        "`reschedule` returns messages to ready and increments the retry count.";
    "OUTBOX-007" outbox_007_reschedule_keeps_the_error:
        "`reschedule` stores the last error; an empty one keeps the one before; delay 0 is allowed.";
    "OUTBOX-008" outbox_008_a_failed_message_is_not_claimed_again:
        "`fail` marks a message as failed and unavailable for claim.";
    "OUTBOX-009" outbox_009_the_providers_clock_decides:
        "Claim eligibility is based on the provider's time source, however wrong the machine's clock is.";
    "OUTBOX-A" outbox_a_claims_come_in_the_order_of_creation:
        "Claims come in creation order, whatever the due times and retries, and at most `max`.";
    "OUTBOX-B" outbox_b_another_owner_changes_nothing:
        "Dispatch, reschedule and fail by another owner change nothing.";
    "OUTBOX-C" outbox_c_an_owner_that_lost_its_claim_changes_nothing:
        "An owner whose claim ran out and went to another changes nothing.";
    "OUTBOX-D" outbox_d_reap_never_touches_finished_messages:
        "`reap` makes expired claims ready and never touches finished messages or running claims.";
    "OUTBOX-E" outbox_e_an_id_is_enqueued_once:
        "Enqueueing a known ID adds nothing, also after it is finished.";
    "OUTBOX-F" outbox_f_racing_claims_hand_out_each_message_once:
        "Claims from many tasks hand out each message once.";
    "OUTBOX-G" outbox_g_purge_forgets_only_old_finished_messages:
        "`purge` forgets finished messages by age and nothing else.";
    "OUTBOX-H" outbox_h_the_age_of_the_oldest_ready_message_is_known:
        "`oldest_ready_age` is the time since the oldest due and unclaimed message became due.";
    "OUTBOX-J" outbox_j_each_member_of_a_join_counts_once:
        "Joins: each member counts once, the first outcome wins, completed + failed never exceeds expected.";
    "OUTBOX-K" outbox_k_only_what_really_happened_counts:
        "Joins: only a dispatch or failure that really happened counts.";
    "OUTBOX-L" outbox_l_members_finished_before_the_join_count:
        "Joins: members that were finished before the join started count; starting it again changes nothing.";
    "OUTBOX-M" outbox_m_a_claim_takes_only_its_topics:
        "`claim_due_of` takes messages of the named topics only, in creation order over all of them.";
    "OUTBOX-N" outbox_n_a_claim_takes_all_but_some_topics:
        "`claim_due_of` takes messages of all topics but the named ones, in creation order, however many of those wait.";
    "OUTBOX-P" outbox_p_a_postponed_message_was_not_tried:
        "`postpone` makes messages ready after the delay in their place, counts no retry and no attempt that began, and notes its reason or keeps the error.";
    "OUTBOX-Q" outbox_q_an_extended_claim_lasts:
        "`extend` makes a claim last longer and never shorter, and says how many were still the owner's.";
    "OUTBOX-R" outbox_r_an_attempt_is_counted_once_a_claim:
        "`begin` counts an attempt once a claim, extends the claim, and the count outlives lost claims.";
    "OUTBOX-S" outbox_s_the_next_due_time_is_known_by_topic:
        "`next_due_after` is the time until a ready message of the topics is due: zero if one is, none without one.";
    "OUTBOX-T" outbox_t_an_outcome_is_kept_until_it_is_purged:
        "`finish` is a dispatch, joins included, whose outcome can be read until it is purged.";
    "OUTBOX-U" outbox_u_a_message_can_be_read_in_every_state:
        "`record` shows a message in every state with its counts and its last error; an unknown one is none.";
    "OUTBOX-V" outbox_v_only_the_owner_extends_begins_finishes_and_postpones:
        "Extend, begin, finish and postpone by another owner, or after the claim was lost, change nothing.";
    "OUTBOX-W" outbox_w_a_failed_message_is_listed_and_can_be_revived:
        "`dead` lists failed messages; `revive` makes them ready with all their attempts, and no others.";
    "OUTBOX-X" outbox_x_lost_attempts_are_counted_apart:
        "An attempt that began and was reaped is lost; rescheduled, postponed and unbegun ones are not (`CRD-02`, `CRD-03`).";
    "OUTBOX-Y" outbox_y_a_purge_forgets_by_topic_and_keeps_the_dead_for_longer:
        "`purge` forgets messages of its topics alone, dead ones after a time of their own, and a join with its last message.";
}

/// PRIM-INMEMORY-OUTBOX-001
pub async fn outbox_001_an_empty_outbox_gives_nothing<F: Fixture>(fixture: F) {
    let claimed = answer(fixture.outbox().claim_due(&owner("a"), lease(10), batch(10))).await;
    assert_eq!(claimed, []);
}

/// PRIM-INMEMORY-OUTBOX-002
pub async fn outbox_002_due_messages_are_claimed_with_topic_and_payload<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let message = outbox_message("42");
    let id = answer(outbox.enqueue(message.clone())).await;
    assert_eq!(id, message.id);
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(10))).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id, id);
    assert_eq!(claimed[0].topic, topic("order.placed"));
    assert_eq!(claimed[0].payload, payload("42"));
    assert_eq!((claimed[0].retry_count, claimed[0].last_error.as_str()), (0, ""));
}

/// PRIM-INMEMORY-OUTBOX-003
pub async fn outbox_003_a_future_message_waits_until_it_is_due<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let due_at = fixture.now().await.after(units(10));
    let id = answer(outbox.enqueue(outbox_message("later").due_at(due_at))).await;
    assert_eq!(claim_ids(&fixture, "a").await, []);
    advance_to(&fixture, due_at).await;
    assert_eq!(claim_ids(&fixture, "a").await, [id]);
}

/// PRIM-INMEMORY-OUTBOX-004
pub async fn outbox_004_a_claim_shows_correlation_and_due_time<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let correlation_id = CorrelationId::new("request-7").expect("a valid ID");
    let due_at = fixture.now().await.after(units(2));
    let message = outbox_message("42").correlated_with(correlation_id.clone()).due_at(due_at);
    answer(outbox.enqueue(message)).await;
    let before = fixture.now().await;
    answer(outbox.enqueue(outbox_message("now"))).await;
    let after = fixture.now().await;
    advance_to(&fixture, due_at).await;
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(10))).await;
    assert_eq!(claimed[0].correlation_id, Some(correlation_id));
    assert_eq!(claimed[0].due_at, due_at);
    assert_eq!(claimed[1].correlation_id, None);
    assert!((before..=after).contains(&claimed[1].due_at), "due when it was enqueued");
}

/// PRIM-INMEMORY-OUTBOX-005
pub async fn outbox_005_a_dispatched_message_is_not_claimed_again<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = answer(outbox.enqueue(outbox_message("42"))).await;
    assert_eq!(claim_ids(&fixture, "a").await, [id]);
    assert_eq!(answer(outbox.mark_dispatched(&owner("a"), &[id])).await, 1);
    fixture.advance(units(20)).await;
    answer(outbox.reap()).await;
    assert_eq!(claim_ids(&fixture, "a").await, []);
}

/// PRIM-INMEMORY-OUTBOX-006
pub async fn outbox_006_reschedule_makes_ready_and_counts_the_retry<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = answer(outbox.enqueue(outbox_message("42"))).await;
    for retry_count in 0..3 {
        let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(1))).await;
        assert_eq!(claimed[0].retry_count, retry_count);
        let delay = Delay::new(units(10)).expect("a valid delay");
        let count = answer(outbox.reschedule(&owner("a"), &[id], delay, &error("down"))).await;
        assert_eq!(count, 1);
        assert_eq!(claim_ids(&fixture, "a").await, [], "not before the delay is over");
        fixture.advance(units(10)).await;
    }
}

/// PRIM-INMEMORY-OUTBOX-007
pub async fn outbox_007_reschedule_keeps_the_error<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = answer(outbox.enqueue(outbox_message("42"))).await;
    for (new, kept) in [("", ""), ("timeout", "timeout"), ("", "timeout"), ("gone", "gone")] {
        claim_ids(&fixture, "a").await;
        let count = answer(outbox.reschedule(&owner("a"), &[id], Delay::ZERO, &error(new))).await;
        assert_eq!(count, 1);
        let claimed = answer(outbox.claim_due(&owner("b"), lease(10), batch(1))).await;
        assert_eq!(claimed[0].last_error, error(kept));
        let count =
            answer(outbox.reschedule(&owner("b"), &[id], Delay::ZERO, &ErrorText::default())).await;
        assert_eq!(count, 1);
    }
}

/// PRIM-INMEMORY-OUTBOX-008, `CRD-20`
pub async fn outbox_008_a_failed_message_is_not_claimed_again<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = answer(outbox.enqueue(outbox_message("42"))).await;
    claim_ids(&fixture, "a").await;
    assert_eq!(answer(outbox.fail(&owner("a"), &[id], &error("no"))).await, 1);
    let failed = async || {
        let record = answer(outbox.record(id)).await.expect("it is kept");
        assert_eq!((record.status, record.last_error), (OutboxStatus::Dead, error("no")));
    };
    failed().await;
    fixture.advance(units(20)).await;
    assert_eq!(answer(outbox.reap()).await, 0, "it is nobody's claim");
    assert_eq!(claim_ids(&fixture, "a").await, []);
    let count = answer(outbox.mark_dispatched(&owner("a"), &[id])).await;
    assert_eq!(count, 0, "failed is final");
    failed().await;
}

/// PRIM-INMEMORY-OUTBOX-009, `CRD-20`
pub async fn outbox_009_the_providers_clock_decides<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    for skew in [ClockSkew::Ahead, ClockSkew::Behind] {
        let now = skew.apply(&fixture).await;
        let near = outbox_message("near").due_at(now.after(units(10)));
        let far = outbox_message("far").due_at(now.after(units(3600)));
        answer(outbox.enqueue(far.clone())).await;
        let near = answer(outbox.enqueue(near)).await;
        assert_eq!(claim_ids(&fixture, "a").await, [], "{skew:?}");
        fixture.advance(units(10)).await;
        assert_eq!(claim_ids(&fixture, "a").await, [near], "{skew:?}: what the clock reached");
        let due = answer(outbox.enqueue(outbox_message("now").due_at(now))).await;
        assert_eq!(claim_ids(&fixture, "a").await, [due], "{skew:?}: due when it is enqueued");
        advance_to(&fixture, far.due_at.expect("it has one")).await;
        assert_eq!(claim_ids(&fixture, "a").await, [far.id], "{skew:?}");
    }
}

/// OUTBOX-A
pub async fn outbox_a_claims_come_in_the_order_of_creation<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let now = fixture.now().await;
    let mut ids = Vec::new();
    for (number, due_after) in [4, 1, 3, 0, 2].into_iter().enumerate() {
        let due_at = now.after(units(due_after));
        let message = outbox_message(&number.to_string()).due_at(due_at);
        ids.push(answer(outbox.enqueue(message)).await);
    }
    fixture.advance(units(5)).await;
    let first = answer(outbox.claim_due(&owner("a"), lease(60), batch(2))).await;
    assert_eq!(first.iter().map(|message| message.id).collect::<Vec<_>>(), ids[..2]);
    answer(outbox.reschedule(&owner("a"), &ids[..1], Delay::ZERO, &error("x"))).await;
    let rest = claim_ids(&fixture, "a").await;
    assert_eq!(rest, [ids[0], ids[2], ids[3], ids[4]], "a retry keeps its place");
}

/// OUTBOX-B
pub async fn outbox_b_another_owner_changes_nothing<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = answer(outbox.enqueue(outbox_message("42"))).await;
    claim_ids(&fixture, "a").await;
    let other = owner("b");
    assert_eq!(answer(outbox.mark_dispatched(&other, &[id])).await, 0);
    let count = answer(outbox.reschedule(&other, &[id], Delay::ZERO, &error("x"))).await;
    assert_eq!(count, 0);
    assert_eq!(answer(outbox.fail(&other, &[id], &error("x"))).await, 0);
    assert_eq!(claim_ids(&fixture, "b").await, [], "the claim stands");
    fixture.advance(units(10)).await;
    assert_eq!(answer(outbox.reap()).await, 1);
    let claimed = answer(outbox.claim_due(&other, lease(10), batch(1))).await;
    assert_eq!((claimed[0].retry_count, claimed[0].last_error.as_str()), (0, ""));
}

/// OUTBOX-C
pub async fn outbox_c_an_owner_that_lost_its_claim_changes_nothing<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = answer(outbox.enqueue(outbox_message("42"))).await;
    claim_ids(&fixture, "a").await;
    fixture.advance(units(10)).await;
    assert_eq!(answer(outbox.reap()).await, 1);
    assert_eq!(
        answer(outbox.mark_dispatched(&owner("a"), &[id])).await,
        0,
        "a reaped message is nobody's"
    );
    assert_eq!(claim_ids(&fixture, "b").await, [id]);
    assert_eq!(answer(outbox.mark_dispatched(&owner("a"), &[id])).await, 0);
    assert_eq!(answer(outbox.fail(&owner("a"), &[id], &error("x"))).await, 0);
    assert_eq!(answer(outbox.mark_dispatched(&owner("b"), &[id])).await, 1);
}

/// OUTBOX-D
pub async fn outbox_d_reap_never_touches_finished_messages<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let mut ids = Vec::new();
    for number in 0..4 {
        let message = outbox_message(&number.to_string());
        ids.push(answer(outbox.enqueue(message)).await);
    }
    answer(outbox.claim_due(&owner("a"), lease(10), batch(3))).await;
    answer(outbox.claim_due(&owner("b"), lease(3600), batch(1))).await;
    answer(outbox.mark_dispatched(&owner("a"), &ids[..1])).await;
    answer(outbox.fail(&owner("a"), &ids[1..2], &error("x"))).await;
    assert_eq!(answer(outbox.reap()).await, 0, "nothing has run out");
    fixture.advance(units(10)).await;
    assert_eq!(answer(outbox.reap()).await, 1);
    assert_eq!(answer(outbox.reap()).await, 0, "once");
    assert_eq!(claim_ids(&fixture, "c").await, [ids[2]]);
}

/// OUTBOX-E
pub async fn outbox_e_an_id_is_enqueued_once<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let message = outbox_message("42");
    let other = outbox_message("43").with_id(message.id);
    answer(outbox.enqueue(message.clone())).await;
    assert_eq!(answer(outbox.enqueue(other.clone())).await, message.id);
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(10))).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].payload, payload("42"), "the first stays");
    answer(outbox.enqueue(other.clone())).await;
    assert_eq!(claim_ids(&fixture, "b").await, [], "a claimed one stays claimed");
    answer(outbox.mark_dispatched(&owner("a"), &[message.id])).await;
    answer(outbox.enqueue(other)).await;
    assert_eq!(claim_ids(&fixture, "b").await, [], "a finished one stays finished");
}

/// OUTBOX-F
pub async fn outbox_f_racing_claims_hand_out_each_message_once<F: Fixture>(fixture: F) {
    let mut enqueued = HashSet::new();
    for number in 0..200 {
        let message = outbox_message(&number.to_string());
        enqueued.insert(answer(fixture.outbox().enqueue(message)).await);
    }
    let outbox = fixture.outbox().clone();
    each_is_claimed_once(enqueued, move |owner| {
        let outbox = outbox.clone();
        async move {
            let claimed = answer(outbox.claim_due(&owner, lease(3600), batch(7))).await;
            claimed.into_iter().map(|claimed| claimed.id).collect()
        }
    })
    .await;
}

/// OUTBOX-H
pub async fn outbox_h_the_age_of_the_oldest_ready_message_is_known<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    assert_eq!(answer(outbox.oldest_ready_age()).await, None);
    let due_at = fixture.now().await.after(units(10));
    answer(outbox.enqueue(outbox_message("42").due_at(due_at))).await;
    assert_eq!(answer(outbox.oldest_ready_age()).await, None, "not due");
    fixture.advance(units(30)).await;
    let age = answer(outbox.oldest_ready_age()).await.expect("it is due");
    assert!(units(20) <= age, "{age:?}");
    claim_ids(&fixture, "a").await;
    assert_eq!(answer(outbox.oldest_ready_age()).await, None, "claimed");
}

/// Claims up to 50 messages for 10 units.
pub(crate) async fn claim_ids<F: Fixture>(fixture: &F, by: &str) -> Vec<MessageId> {
    let claimed = answer(fixture.outbox().claim_due(&owner(by), lease(10), batch(50))).await;
    claimed.into_iter().map(|message| message.id).collect()
}
