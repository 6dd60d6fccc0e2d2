//! Scenarios of outcomes and records.

use std::time::Duration;

use coordination::{
    CorrelationId, Delay, JoinProgress, Joins, MessageId, NewJoin, Outbox, OutboxStatus,
    PAYLOAD_BYTES_MAX, Payload, Retention, Settlement, Topics,
};

use super::claim_ids;
use crate::Fixture;
use crate::fixture::{advance_to, lease, units};
use crate::sample::{batch, error, outbox_message, owner, payload, topic};
use crate::scenario::answer;

/// OUTBOX-T
pub async fn outbox_t_an_outcome_is_kept_until_it_is_purged<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let largest = Payload::new(vec![7; PAYLOAD_BYTES_MAX]).expect("at the bound");
    for outcome in [payload("42"), Payload::empty(), largest] {
        let id = answer(outbox.enqueue(outbox_message("x"))).await;
        let join = NewJoin::over([id]).expect("a valid join");
        answer(outbox.start_join(join.clone())).await;
        claim_ids(&fixture, "a").await;
        assert_eq!(answer(outbox.finish(&owner("a"), id, &outcome)).await, 1);
        let again = answer(outbox.finish(&owner("a"), id, &payload("other"))).await;
        assert_eq!(again, 0, "the first outcome stays");
        let record = answer(outbox.record(id)).await.expect("it is kept");
        assert_eq!(record.status, OutboxStatus::Done { outcome: Some(outcome) });
        let progress = outbox.join_progress(join.id()).await.expect("a known join");
        assert_eq!(progress, JoinProgress { expected: 1, completed: 1, failed: 0 });
        fixture.advance(units(20)).await;
        answer(outbox.reap()).await;
        assert_eq!(claim_ids(&fixture, "a").await, [], "finished is final");
        assert_eq!(answer(outbox.purge(&Topics::All, Retention::of_all(Duration::ZERO))).await, 1);
        assert_eq!(answer(outbox.record(id)).await, None);
    }
    let mut ids = Vec::new();
    for text in ["1", "2"] {
        ids.push(answer(outbox.enqueue(outbox_message(text))).await);
    }
    claim_ids(&fixture, "a").await;
    let both = Settlement::Finish { outcome: Some(payload("both")) };
    assert_eq!(answer(outbox.settle(&owner("a"), &ids, &both)).await, 2, "one outcome for many");
    for id in ids {
        let record = answer(outbox.record(id)).await.expect("it is kept");
        assert_eq!(record.status, OutboxStatus::Done { outcome: Some(payload("both")) });
    }
}

/// OUTBOX-U
pub async fn outbox_u_a_message_can_be_read_in_every_state<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    assert_eq!(answer(outbox.record(MessageId::random())).await, None);
    let correlation_id = CorrelationId::new("request-7").expect("a valid ID");
    let due_at = fixture.now().await.after(units(2));
    let message = outbox_message("42").correlated_with(correlation_id.clone()).due_at(due_at);
    let id = answer(outbox.enqueue(message)).await;
    let record = answer(outbox.record(id)).await.expect("it is known");
    assert_eq!((record.id, record.status), (id, OutboxStatus::Ready));
    assert_eq!((record.topic, record.payload), (topic("order.placed"), payload("42")));
    assert_eq!((record.correlation_id, record.due_at), (Some(correlation_id), due_at));
    assert_eq!((record.retry_count, record.attempts, record.last_error.as_str()), (0, 0, ""));

    advance_to(&fixture, due_at).await;
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(1))).await;
    let record = answer(outbox.record(id)).await.expect("it is known");
    assert_eq!(record.status, OutboxStatus::Claimed { until: claimed[0].claimed_until });

    answer(outbox.begin(&owner("a"), id, lease(10))).await;
    answer(outbox.reschedule(&owner("a"), &[id], Delay::ZERO, &error("down"))).await;
    let record = answer(outbox.record(id)).await.expect("it is known");
    assert_eq!(record.status, OutboxStatus::Ready);
    assert_eq!((record.retry_count, record.attempts, record.last_error.as_str()), (1, 1, "down"));

    claim_ids(&fixture, "a").await;
    answer(outbox.fail(&owner("a"), &[id], &error("broken"))).await;
    let record = answer(outbox.record(id)).await.expect("it is known");
    assert_eq!((record.status, record.last_error.as_str()), (OutboxStatus::Dead, "broken"));

    let id = answer(outbox.enqueue(outbox_message("43"))).await;
    claim_ids(&fixture, "a").await;
    answer(outbox.mark_dispatched(&owner("a"), &[id])).await;
    let record = answer(outbox.record(id)).await.expect("it is known");
    assert_eq!(record.status, OutboxStatus::Done { outcome: None });
}

/// OUTBOX-V
pub async fn outbox_v_only_the_owner_extends_begins_finishes_and_postpones<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = answer(outbox.enqueue(outbox_message("42"))).await;
    let nothing_changes = async |by: &str| {
        let (by, lease) = (owner(by), lease(3600));
        assert_eq!(answer(outbox.extend(&by, &[id], lease)).await, 0);
        assert_eq!(answer(outbox.begin(&by, id, lease)).await, None);
        assert_eq!(answer(outbox.finish(&by, id, &payload("no"))).await, 0);
        assert_eq!(answer(outbox.postpone(&by, &[id], Delay::ZERO)).await, 0);
    };
    nothing_changes("a").await;
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(1))).await;
    nothing_changes("b").await;
    assert_eq!(claim_ids(&fixture, "b").await, [], "the claim stands");
    advance_to(&fixture, claimed[0].claimed_until).await;
    assert_eq!(answer(outbox.reap()).await, 1, "and ends when it did");
    nothing_changes("a").await;
    assert_eq!(claim_ids(&fixture, "b").await, [id]);
    nothing_changes("a").await;
    assert_eq!(answer(outbox.finish(&owner("b"), id, &payload("yes"))).await, 1);
    let record = answer(outbox.record(id)).await.expect("it is kept");
    assert_eq!(record.status, OutboxStatus::Done { outcome: Some(payload("yes")) });
    assert_eq!((record.retry_count, record.attempts), (0, 0));
}

/// OUTBOX-W
pub async fn outbox_w_a_failed_message_is_listed_and_can_be_revived<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let mut ids = Vec::new();
    for text in ["1", "2", "3", "4"] {
        ids.push(answer(outbox.enqueue(outbox_message(text))).await);
    }
    ids.sort_unstable();
    let join = NewJoin::over(ids.clone()).expect("a valid join");
    answer(outbox.start_join(join.clone())).await;
    claim_ids(&fixture, "a").await;
    answer(outbox.begin(&owner("a"), ids[0], lease(10))).await;
    answer(outbox.reschedule(&owner("a"), &ids[..1], Delay::ZERO, &error("down"))).await;
    claim_ids(&fixture, "a").await;
    assert_eq!(answer(outbox.fail(&owner("a"), &ids[..3], &error("broken"))).await, 3);

    let dead = async |after, max| {
        let records = answer(outbox.dead(after, batch(max))).await;
        assert!(records.iter().all(|record| record.status == OutboxStatus::Dead), "{records:?}");
        records.into_iter().map(|record| record.id).collect::<Vec<_>>()
    };
    assert_eq!(dead(None, 10).await, ids[..3]);
    assert_eq!(dead(None, 2).await, ids[..2]);
    assert_eq!(dead(Some(ids[1]), 10).await, ids[2..3]);

    let delay = Delay::new(units(10)).expect("a valid delay");
    let revived = [&ids[..1], &ids[3..], &[MessageId::random()]].concat();
    assert_eq!(answer(outbox.revive(&revived, &error("fixed"), delay)).await, 1, "only dead ones");
    assert_eq!(answer(outbox.revive(&revived, &error("again"), Delay::ZERO)).await, 0);
    assert_eq!(answer(outbox.revive(&[], &error("none"), Delay::ZERO)).await, 0);
    assert_eq!(dead(None, 10).await, ids[1..3]);
    let record = answer(outbox.record(ids[0])).await.expect("it is known");
    assert_eq!((record.status, record.last_error.as_str()), (OutboxStatus::Ready, "fixed"));
    assert_eq!((record.retry_count, record.attempts), (0, 0), "it has all its attempts");
    assert_eq!(answer(outbox.mark_dispatched(&owner("a"), &ids[3..])).await, 1);
    assert_eq!(claim_ids(&fixture, "a").await, [], "not before the delay is over");
    fixture.advance(units(10)).await;
    assert_eq!(claim_ids(&fixture, "a").await, ids[..1]);
    assert_eq!(answer(outbox.finish(&owner("a"), ids[0], &payload("done"))).await, 1);
    let progress = outbox.join_progress(join.id()).await.expect("a known join");
    let expected = JoinProgress { expected: 4, completed: 1, failed: 3 };
    assert_eq!(progress, expected, "the first outcome counts");
}
