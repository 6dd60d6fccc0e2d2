//! Scenarios of joins.

use coordination::{Delay, JoinError, JoinId, JoinProgress, Joins, NewJoin, Outbox};

use super::claim_ids;
use crate::Fixture;
use crate::fixture::units;
use crate::sample::{error, outbox_message, owner};
use crate::scenario::answer;

/// OUTBOX-J
pub async fn outbox_j_each_member_of_a_join_counts_once<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let messages = ["a", "b", "c"].map(outbox_message);
    let ids = messages.each_ref().map(|message| message.id);
    let join = NewJoin::over(ids).expect("a valid join");
    let join_id = answer(outbox.start_join(join)).await;
    for message in messages {
        answer(outbox.enqueue(message)).await;
    }
    assert_eq!(progress(&fixture, join_id).await, (3, 0, 0));
    claim_ids(&fixture, "a").await;
    for _ in 0..2 {
        answer(outbox.mark_dispatched(&owner("a"), &ids[..1])).await;
        answer(outbox.fail(&owner("a"), &ids[..2], &error("x"))).await;
        answer(outbox.mark_dispatched(&owner("a"), &ids[..2])).await;
    }
    assert_eq!(progress(&fixture, join_id).await, (3, 1, 1), "the first outcome wins");
    answer(outbox.mark_dispatched(&owner("a"), &[ids[2], ids[2]])).await;
    assert_eq!(progress(&fixture, join_id).await, (3, 2, 1));
    let progress = outbox.join_progress(join_id).await.expect("a known join");
    assert!(progress.is_complete());
}

/// OUTBOX-K
pub async fn outbox_k_only_what_really_happened_counts<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let unknown = outbox.join_progress(JoinId::random()).await;
    assert!(matches!(unknown, Err(JoinError::Unknown { .. })), "{unknown:?}");
    let message = outbox_message("a");
    let join = NewJoin::over([message.id]).expect("a valid join");
    let join_id = answer(outbox.start_join(join)).await;
    let ids = [message.id];
    answer(outbox.enqueue(message)).await;
    answer(outbox.mark_dispatched(&owner("a"), &ids)).await;
    assert_eq!(progress(&fixture, join_id).await, (1, 0, 0), "not claimed");
    claim_ids(&fixture, "a").await;
    answer(outbox.mark_dispatched(&owner("b"), &ids)).await;
    answer(outbox.fail(&owner("b"), &ids, &error("x"))).await;
    assert_eq!(progress(&fixture, join_id).await, (1, 0, 0), "not theirs");
    answer(outbox.reschedule(&owner("a"), &ids, Delay::ZERO, &error("x"))).await;
    assert_eq!(progress(&fixture, join_id).await, (1, 0, 0), "not finished");
    claim_ids(&fixture, "a").await;
    fixture.advance(units(10)).await;
    answer(outbox.reap()).await;
    answer(outbox.mark_dispatched(&owner("a"), &ids)).await;
    assert_eq!(progress(&fixture, join_id).await, (1, 0, 0), "too late");
    claim_ids(&fixture, "b").await;
    answer(outbox.fail(&owner("b"), &ids, &error("x"))).await;
    assert_eq!(progress(&fixture, join_id).await, (1, 0, 1));
}

/// OUTBOX-L
pub async fn outbox_l_members_finished_before_the_join_count<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let messages = ["a", "b", "c"].map(outbox_message);
    let ids = messages.each_ref().map(|message| message.id);
    for message in messages {
        answer(outbox.enqueue(message)).await;
    }
    claim_ids(&fixture, "a").await;
    answer(outbox.mark_dispatched(&owner("a"), &ids[..1])).await;
    answer(outbox.fail(&owner("a"), &ids[1..2], &error("x"))).await;
    let join = NewJoin::over(ids).expect("a valid join");
    for _ in 0..2 {
        let join_id = answer(outbox.start_join(join.clone())).await;
        assert_eq!(progress(&fixture, join_id).await, (3, 1, 1));
    }
    answer(outbox.mark_dispatched(&owner("a"), &ids)).await;
    answer(outbox.start_join(join.clone())).await;
    assert_eq!(progress(&fixture, join.id()).await, (3, 2, 1));
}

/// Expected, completed, failed.
async fn progress<F: Fixture>(fixture: &F, id: JoinId) -> (usize, usize, usize) {
    let progress = fixture.outbox().join_progress(id).await.expect("a known join");
    let JoinProgress { expected, completed, failed } = progress;
    (expected, completed, failed)
}
