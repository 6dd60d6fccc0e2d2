//! Scenarios of claims: by topic, extended, begun, postponed.

use std::time::Duration;

use coordination::{Delay, MessageId, NewOutboxMessage, Outbox, Topics};

use super::claim_ids;
use crate::Fixture;
use crate::fixture::{advance_to, lease, units};
use crate::sample::{batch, error, except, only, outbox_message, owner, payload, topic};
use crate::scenario::answer;

/// OUTBOX-M
pub async fn outbox_m_a_claim_takes_only_its_topics<F: Fixture>(fixture: F) {
    let ids = enqueue_all(&fixture, &["c", "a", "b", "a", "c", "b"]).await;
    assert_eq!(claim_of(&fixture, 50, &only(&[])).await, [], "no topic, no message");
    assert_eq!(claim_of(&fixture, 50, &only(&["unknown"])).await, []);
    let first = claim_of(&fixture, 3, &only(&["a", "c", "unknown"])).await;
    assert_eq!(first, [ids[0], ids[1], ids[3]], "in the order of creation, at most the batch");
    assert_eq!(claim_of(&fixture, 50, &only(&["a", "c"])).await, [ids[4]]);
    assert_eq!(claim_of(&fixture, 50, &only(&["b"])).await, [ids[2], ids[5]]);
}

/// OUTBOX-N
pub async fn outbox_n_a_claim_takes_all_but_some_topics<F: Fixture>(fixture: F) {
    let saturated = enqueue_all(&fixture, &["a"; 60]).await;
    let ids = enqueue_all(&fixture, &["c", "a", "b", "c"]).await;
    let others = claim_of(&fixture, 50, &except(&["a", "unknown"])).await;
    assert_eq!(others, [ids[0], ids[2], ids[3]], "no batch full of one topic stands in their way");
    assert_eq!(claim_of(&fixture, 50, &except(&["a"])).await, []);
    assert_eq!(claim_of(&fixture, 1, &except(&["c"])).await, saturated[..1]);
    assert_eq!(claim_of(&fixture, 1, &except(&[])).await, saturated[1..2], "all but none is all");
    assert_eq!(claim_of(&fixture, 1, &Topics::All).await, saturated[2..3]);
}

/// OUTBOX-P
pub async fn outbox_p_a_postponed_message_was_not_tried<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let ids = enqueue_all(&fixture, &["a", "a"]).await;
    let delay = Delay::new(units(10)).expect("a valid delay");
    claim_ids(&fixture, "a").await;
    answer(outbox.reschedule(&owner("a"), &ids[..1], Delay::ZERO, &error("down"))).await;
    for _ in 0..3 {
        claim_ids(&fixture, "a").await;
        assert_eq!(answer(outbox.postpone(&owner("a"), &ids, delay)).await, 2);
        assert_eq!(answer(outbox.postpone(&owner("a"), &ids, delay)).await, 0, "given back once");
        assert_eq!(claim_ids(&fixture, "a").await, [], "not before the delay is over");
        fixture.advance(units(10)).await;
    }
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(10))).await;
    assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>(), ids);
    let counts: Vec<_> = claimed.iter().map(|message| message.retry_count).collect();
    assert_eq!((counts, claimed[0].last_error.as_str()), (vec![1, 0], "down"));
    assert_eq!(answer(outbox.postpone(&owner("a"), &ids[1..], Delay::ZERO)).await, 1);
    assert_eq!(claim_ids(&fixture, "b").await, ids[1..], "a delay of 0 is allowed");
    let (by, reason) = (owner("b"), error("paused"));
    answer(outbox.begin(&by, ids[1], lease(10))).await;
    let postponed = answer(outbox.postpone_because(&by, &ids[1..], Delay::ZERO, &reason)).await;
    assert_eq!(postponed, 1);
    let record = answer(outbox.record(ids[1])).await.expect("it is known");
    assert_eq!((record.retry_count, record.last_error.as_str()), (0, "paused"));
    assert_eq!(record.attempts, 0, "not even the one that began");
}

/// OUTBOX-Q
pub async fn outbox_q_an_extended_claim_lasts<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let ids = enqueue_all(&fixture, &["a", "a"]).await;
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(2))).await;
    let named = [ids[0], ids[0], MessageId::random()];
    assert_eq!(answer(outbox.extend(&owner("a"), &named, lease(3600))).await, 1);
    assert_eq!(answer(outbox.extend(&owner("a"), &ids, lease(1))).await, 2);
    advance_to(&fixture, claimed[1].claimed_until).await;
    assert_eq!(answer(outbox.reap()).await, 1, "the other one");
    assert_eq!(answer(outbox.extend(&owner("a"), &ids, lease(10))).await, 1, "one is lost");
    assert_eq!(claim_ids(&fixture, "b").await, ids[1..]);
    assert_eq!(answer(outbox.mark_dispatched(&owner("a"), &ids)).await, 1);
}

/// OUTBOX-R
pub async fn outbox_r_an_attempt_is_counted_once_a_claim<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = enqueue_all(&fixture, &["a"]).await[0];
    assert_eq!(answer(outbox.begin(&owner("a"), id, lease(10))).await, None, "not claimed");
    for attempts in 0..3 {
        let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(1))).await;
        assert_eq!((claimed[0].attempts, claimed[0].retry_count), (attempts, 0));
        for _ in 0..2 {
            let begun = answer(outbox.begin(&owner("a"), id, lease(20))).await;
            assert_eq!(begun, Some(attempts + 1), "counted once");
        }
        advance_to(&fixture, claimed[0].claimed_until).await;
        assert_eq!(answer(outbox.reap()).await, 0, "the claim was extended");
        fixture.advance(units(20)).await;
        assert_eq!(answer(outbox.reap()).await, 1);
    }
    claim_ids(&fixture, "a").await;
    answer(outbox.postpone(&owner("a"), &[id], Delay::ZERO)).await;
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(1))).await;
    assert_eq!(claimed[0].attempts, 3, "what did not begin is not counted");
    answer(outbox.begin(&owner("a"), id, lease(10))).await;
    answer(outbox.reschedule(&owner("a"), &[id], Delay::ZERO, &error("x"))).await;
    claim_ids(&fixture, "a").await;
    assert_eq!(answer(outbox.begin(&owner("a"), id, lease(10))).await, Some(5));
}

/// OUTBOX-S
pub async fn outbox_s_the_next_due_time_is_known_by_topic<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let every = [Topics::All, only(&["a"]), except(&["b"])];
    for topics in &every {
        assert_eq!(answer(outbox.next_due_after(topics)).await, None);
    }
    let now = fixture.now().await;
    answer(outbox.enqueue(message("b"))).await;
    let (later, far) = (now.after(units(20)), now.after(units(3600)));
    answer(outbox.enqueue(message("a").due_at(far))).await;
    answer(outbox.enqueue(message("a").due_at(later))).await;
    let zero = Some(Duration::ZERO);
    assert_eq!(answer(outbox.next_due_after(&Topics::All)).await, zero);
    assert_eq!(answer(outbox.next_due_after(&except(&["a"]))).await, zero);
    assert_eq!(answer(outbox.next_due_after(&only(&["b", "c"]))).await, zero);
    assert_eq!(answer(outbox.next_due_after(&only(&[]))).await, None);
    assert_eq!(answer(outbox.next_due_after(&except(&["a", "b"]))).await, None);
    for topics in &every[1..] {
        let after = answer(outbox.next_due_after(topics)).await.expect("one waits");
        assert!(after <= units(20), "{after:?}");
        assert!(!after.is_zero(), "none is due");
    }
    assert_eq!(claim_ids(&fixture, "a").await.len(), 1);
    assert_eq!(answer(outbox.next_due_after(&only(&["b"]))).await, None, "claimed");
    advance_to(&fixture, later).await;
    for topics in &every {
        assert_eq!(answer(outbox.next_due_after(topics)).await, zero, "due at the moment itself");
    }
}

/// OUTBOX-X, `CRD-02`, `CRD-03`
pub async fn outbox_x_lost_attempts_are_counted_apart<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = enqueue_all(&fixture, &["a"]).await[0];
    let begin = async || answer(outbox.begin(&owner("a"), id, lease(10))).await;
    let reap = async || {
        fixture.advance(units(10)).await;
        assert_eq!(answer(outbox.reap()).await, 1);
    };
    let counts = async || {
        let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(1))).await;
        (claimed[0].attempts, claimed[0].lost_attempts())
    };
    assert_eq!(counts().await, (0, 0));
    reap().await;
    assert_eq!(counts().await, (0, 0), "it did not begin");
    begin().await;
    reap().await;
    assert_eq!(counts().await, (1, 1), "lost");
    begin().await;
    answer(outbox.reschedule(&owner("a"), &[id], Delay::ZERO, &error("x"))).await;
    assert_eq!(counts().await, (2, 1), "failed");
    answer(outbox.reschedule(&owner("a"), &[id], Delay::ZERO, &error("x"))).await;
    assert_eq!(counts().await, (3, 1), "failed too, and not said to begin");
    begin().await;
    answer(outbox.postpone(&owner("a"), &[id], Delay::ZERO)).await;
    assert_eq!(counts().await, (3, 1), "put off");
    begin().await;
    reap().await;
    assert_eq!(counts().await, (4, 2), "lost again");
}

fn message(topic_text: &str) -> NewOutboxMessage {
    NewOutboxMessage { topic: topic(topic_text), payload: payload("x"), ..outbox_message("x") }
}

async fn enqueue_all<F: Fixture>(fixture: &F, topics: &[&str]) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for text in topics {
        ids.push(answer(fixture.outbox().enqueue(message(text))).await);
    }
    ids
}

async fn claim_of<F: Fixture>(fixture: &F, max: u32, topics: &Topics) -> Vec<MessageId> {
    let (by, lease) = (owner("a"), lease(3600));
    let claimed = answer(fixture.outbox().claim_due_of(&by, lease, batch(max), topics)).await;
    claimed.into_iter().map(|message| message.id).collect()
}
