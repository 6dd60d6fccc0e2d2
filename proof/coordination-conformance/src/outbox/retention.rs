//! Scenarios of retention.

use std::time::Duration;

use coordination::{
    JoinError, JoinProgress, Joins, NewJoin, NewOutboxMessage, Outbox, Retention, Topics,
};

use super::claim_ids;
use crate::Fixture;
use crate::fixture::{lease, units};
use crate::sample::{batch, error, except, only, outbox_message, owner, topic};
use crate::scenario::answer;

/// OUTBOX-G
pub async fn outbox_g_purge_forgets_only_old_finished_messages<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let messages: Vec<_> = ["old", "failed", "claimed", "ready"].map(outbox_message).to_vec();
    for message in &messages {
        answer(outbox.enqueue(message.clone())).await;
    }
    answer(outbox.claim_due(&owner("a"), lease(3600), batch(3))).await;
    answer(outbox.mark_dispatched(&owner("a"), &[messages[0].id])).await;
    answer(outbox.fail(&owner("a"), &[messages[1].id], &error("x"))).await;
    let keep = Retention::of_all(units(10));
    assert_eq!(answer(outbox.purge(&Topics::All, keep)).await, 0, "too young");
    fixture.advance(units(10)).await;
    assert_eq!(answer(outbox.purge(&Topics::All, keep)).await, 2);
    let none = Retention::of_all(Duration::ZERO);
    assert_eq!(answer(outbox.purge(&Topics::All, none)).await, 0, "no unfinished ones");
    assert_eq!(claim_ids(&fixture, "b").await, [messages[3].id]);
    let count = answer(outbox.mark_dispatched(&owner("a"), &[messages[2].id])).await;
    assert_eq!(count, 1, "the claim was not touched");
}

/// OUTBOX-Y, CRD-07
pub async fn outbox_y_a_purge_forgets_by_topic_and_keeps_the_dead_for_longer<F: Fixture>(
    fixture: F,
) {
    let outbox = fixture.outbox();
    let mut ids = Vec::new();
    for topic_text in ["a", "b", "c"] {
        for _ in 0..2 {
            let message = NewOutboxMessage { topic: topic(topic_text), ..outbox_message("x") };
            ids.push(answer(outbox.enqueue(message)).await);
        }
    }
    let join = NewJoin::over([ids[0], ids[2]]).expect("a valid join");
    answer(outbox.start_join(join.clone())).await;
    claim_ids(&fixture, "a").await;
    let (done, dead) = ([ids[0], ids[2], ids[4]], [ids[1], ids[3], ids[5]]);
    assert_eq!(answer(outbox.mark_dispatched(&owner("a"), &done)).await, 3);
    assert_eq!(answer(outbox.fail(&owner("a"), &dead, &error("x"))).await, 3);
    let kept = async || {
        let mut kept = Vec::new();
        for id in &ids {
            kept.push(answer(outbox.record(*id)).await.is_some());
        }
        kept
    };
    let keep = Retention { done: units(10), dead: units(30) };
    fixture.advance(units(10)).await;
    assert_eq!(answer(outbox.purge(&only(&[]), keep)).await, 0, "no topic, no message");
    assert_eq!(answer(outbox.purge(&only(&["a", "unknown"]), keep)).await, 1);
    assert_eq!(kept().await, [false, true, true, true, true, true], "done, of that topic");
    assert_eq!(answer(outbox.purge(&except(&["b"]), keep)).await, 1);
    assert_eq!(kept().await, [false, true, true, true, false, true], "what another keeps stays");
    let progress = outbox.join_progress(join.id()).await.expect("a message of it is kept");
    assert_eq!(progress, JoinProgress { expected: 2, completed: 2, failed: 0 });
    fixture.advance(units(20)).await;
    assert_eq!(answer(outbox.purge(&only(&["a"]), keep)).await, 1, "dead for long enough");
    assert_eq!(kept().await, [false, false, true, true, false, true]);
    assert_eq!(answer(outbox.purge(&Topics::All, keep)).await, 3);
    let gone = outbox.join_progress(join.id()).await;
    assert!(matches!(gone, Err(JoinError::Unknown { .. })), "with its last message: {gone:?}");
}
