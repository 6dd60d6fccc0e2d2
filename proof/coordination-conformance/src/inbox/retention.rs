//! Scenarios of retention.

use std::time::Duration;

use coordination::{Delay, Enqueued, Inbox, InboxStatus, NewInboxMessage, Retention, Topics};

use super::{add, claim_keys, status};
use crate::Fixture;
use crate::fixture::{lease, units};
use crate::sample::{batch, error, except, inbox_message, only, owner, topic};
use crate::scenario::answer;

/// INBOX-J
pub async fn inbox_j_purge_forgets_only_old_finished_messages<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let mut keys = Vec::new();
    for message_id in ["done", "dead", "claimed", "ready"] {
        keys.push(add(&fixture, message_id).await);
    }
    answer(inbox.claim(&owner("a"), lease(3600), batch(3))).await;
    answer(inbox.ack(&owner("a"), &keys[..1])).await;
    answer(inbox.fail(&owner("a"), &keys[1..2], &error("x"))).await;
    let keep = Retention::of_all(units(10));
    assert_eq!(answer(inbox.purge(&Topics::All, keep)).await, 0, "too young");
    fixture.advance(units(10)).await;
    assert_eq!(answer(inbox.purge(&Topics::All, keep)).await, 2);
    let none = Retention::of_all(Duration::ZERO);
    assert_eq!(answer(inbox.purge(&Topics::All, none)).await, 0, "no unfinished ones");
    assert!(inbox.get(&keys[0]).await.is_err(), "forgotten");
    assert!(matches!(status(&fixture, &keys[2]).await, InboxStatus::Claimed { .. }));
    assert_eq!(status(&fixture, &keys[3]).await, InboxStatus::Ready);
}

/// INBOX-Y, CRD-07
pub async fn inbox_y_a_purge_forgets_by_topic_and_keeps_the_dead_for_longer<F: Fixture>(
    fixture: F,
) {
    let inbox = fixture.inbox();
    let mut keys = Vec::new();
    for message_id in ["a-done", "a-dead", "b-done", "b-dead"] {
        let message = inbox_message(message_id);
        let message = NewInboxMessage { topic: topic(&message_id[..1]), ..message };
        keys.push(message.key.clone());
        assert_eq!(answer(inbox.enqueue(message)).await, Enqueued::Added);
    }
    claim_keys(&fixture, "a").await;
    let (done, dead) =
        ([&keys[0], &keys[2]].map(Clone::clone), [&keys[1], &keys[3]].map(Clone::clone));
    assert_eq!(answer(inbox.ack(&owner("a"), &done)).await, 2);
    assert_eq!(answer(inbox.fail(&owner("a"), &dead, &error("x"))).await, 2);
    let kept = async || {
        let mut kept = Vec::new();
        for key in &keys {
            kept.push(inbox.get(key).await.is_ok());
        }
        kept
    };
    let keep = Retention { done: units(10), dead: units(30) };
    fixture.advance(units(10)).await;
    assert_eq!(answer(inbox.purge(&only(&["a", "unknown"]), keep)).await, 1);
    assert_eq!(kept().await, [false, true, true, true], "done, of that topic");
    fixture.advance(units(20)).await;
    assert_eq!(answer(inbox.purge(&except(&["b"]), keep)).await, 1, "dead for long enough");
    assert_eq!(kept().await, [false, false, true, true], "what another keeps stays");
    assert_eq!(answer(inbox.revive(&dead[1..], &error("again"), Delay::ZERO)).await, 1);
    assert_eq!(answer(inbox.purge(&Topics::All, keep)).await, 1, "a revived one is not finished");
    assert_eq!(kept().await, [false, false, false, true]);
}
