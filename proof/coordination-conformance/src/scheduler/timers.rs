//! Scenarios of timers.

use std::collections::HashSet;

use coordination::{Delay, Scheduler, TimerId};

use crate::Fixture;
use crate::fixture::{advance_to, lease, units};
use crate::sample::{batch, owner, payload, timer, topic};
use crate::scenario::{answer, each_is_claimed_once};

/// PRIM-INMEMORY-SCHED-001
pub async fn sched_001_due_timers_are_claimed<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    assert_eq!(claim_timers(&fixture, "a").await, []);
    let due_at = fixture.now().await.after(units(10));
    let soon = timer("soon", due_at);
    let id = answer(scheduler.schedule_timer(soon.clone())).await;
    assert_eq!(id, soon.id);
    assert_eq!(claim_timers(&fixture, "a").await, [], "not due");
    advance_to(&fixture, due_at).await;
    let claimed = answer(scheduler.claim_timers(&owner("a"), lease(10), batch(10))).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!((claimed[0].id, claimed[0].due_at), (id, due_at));
    assert_eq!(claimed[0].topic, topic("order.remind"));
    assert_eq!((&claimed[0].payload, claimed[0].attempts), (&payload("soon"), 1));
}

/// PRIM-INMEMORY-SCHED-002
pub async fn sched_002_a_timer_claim_respects_the_batch_size<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let mut ids = Vec::new();
    for text in ["1", "2", "3", "4", "5"] {
        ids.push(add(&fixture, text).await);
    }
    for expected in [&ids[..2], &ids[2..4], &ids[4..], &[]] {
        let claimed = answer(scheduler.claim_timers(&owner("a"), lease(10), batch(2))).await;
        let claimed: Vec<_> = claimed.iter().map(|timer| timer.id).collect();
        assert_eq!(claimed, expected);
    }
}

/// PRIM-INMEMORY-SCHED-003
pub async fn sched_003_an_acknowledged_timer_is_not_claimed_again<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let id = add(&fixture, "1").await;
    claim_timers(&fixture, "a").await;
    assert_eq!(answer(scheduler.ack_timers(&owner("a"), &[id])).await, 1);
    fixture.advance(units(20)).await;
    answer(scheduler.reap_timers()).await;
    assert_eq!(claim_timers(&fixture, "a").await, []);
}

/// PRIM-INMEMORY-SCHED-004
pub async fn sched_004_an_abandoned_timer_is_ready_again<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let id = add(&fixture, "1").await;
    claim_timers(&fixture, "a").await;
    let count = answer(scheduler.abandon_timers(&owner("a"), &[id], Delay::ZERO)).await;
    assert_eq!(count, 1);
    assert_eq!(claim_timers(&fixture, "b").await, [id]);
    let delay = Delay::new(units(10)).expect("a valid delay");
    let count = answer(scheduler.abandon_timers(&owner("b"), &[id], delay)).await;
    assert_eq!(count, 1);
    assert_eq!(claim_timers(&fixture, "a").await, [], "not before the delay is over");
    fixture.advance(units(10)).await;
    assert_eq!(claim_timers(&fixture, "a").await, [id]);
}

/// PRIM-INMEMORY-SCHED-005
pub async fn sched_005_an_expired_timer_claim_is_reaped<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let done = add(&fixture, "done").await;
    let held = add(&fixture, "held").await;
    assert_eq!(claim_timers(&fixture, "a").await, [done, held]);
    answer(scheduler.ack_timers(&owner("a"), &[done])).await;
    assert_eq!(answer(scheduler.reap_timers()).await, 0, "nothing has run out");
    fixture.advance(units(10)).await;
    assert_eq!(answer(scheduler.reap_timers()).await, 1);
    assert_eq!(answer(scheduler.ack_timers(&owner("a"), &[held])).await, 0);
    assert_eq!(claim_timers(&fixture, "b").await, [held]);
}

/// SCHED-A
pub async fn sched_a_a_cancelled_timer_is_never_claimed<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let now = fixture.now().await;
    let waiting = timer("waiting", now.after(units(10)));
    answer(scheduler.schedule_timer(waiting.clone())).await;
    let due = add(&fixture, "due").await;
    assert_eq!(answer(scheduler.cancel_timer(waiting.id)).await, 1);
    assert_eq!(answer(scheduler.cancel_timer(waiting.id)).await, 0, "once");
    assert_eq!(answer(scheduler.cancel_timer(TimerId::random())).await, 0, "unknown");
    fixture.advance(units(10)).await;
    assert_eq!(claim_timers(&fixture, "a").await, [due]);
    assert_eq!(answer(scheduler.cancel_timer(due)).await, 0, "claimed");
    assert_eq!(answer(scheduler.ack_timers(&owner("a"), &[due])).await, 1);
    assert_eq!(answer(scheduler.cancel_timer(due)).await, 0, "finished");
    let late = add(&fixture, "late").await;
    assert_eq!(answer(scheduler.cancel_timer(late)).await, 1, "due, not claimed");
    assert_eq!(claim_timers(&fixture, "a").await, []);
}

/// SCHED-B
pub async fn sched_b_a_timer_id_is_scheduled_once<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let now = fixture.now().await;
    let (once, cancelled) = (timer("once", now), timer("cancelled", now));
    for timer in [&once, &once, &cancelled] {
        answer(scheduler.schedule_timer(timer.clone())).await;
    }
    answer(scheduler.cancel_timer(cancelled.id)).await;
    answer(scheduler.schedule_timer(cancelled)).await;
    assert_eq!(claim_timers(&fixture, "a").await, [once.id]);
    answer(scheduler.schedule_timer(once.clone())).await;
    assert_eq!(claim_timers(&fixture, "b").await, [], "a claimed one stays claimed");
    answer(scheduler.ack_timers(&owner("a"), &[once.id])).await;
    answer(scheduler.schedule_timer(once)).await;
    assert_eq!(claim_timers(&fixture, "b").await, [], "a finished one stays finished");
}

/// SCHED-C
pub async fn sched_c_another_owner_changes_no_timer<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let id = add(&fixture, "1").await;
    claim_timers(&fixture, "a").await;
    assert_eq!(answer(scheduler.ack_timers(&owner("b"), &[id])).await, 0);
    let count = answer(scheduler.abandon_timers(&owner("b"), &[id], Delay::ZERO)).await;
    assert_eq!(count, 0);
    assert_eq!(claim_timers(&fixture, "b").await, [], "the claim stands");
    assert_eq!(answer(scheduler.ack_timers(&owner("a"), &[id])).await, 1);
}

/// SCHED-D
pub async fn sched_d_racing_timer_claims_hand_out_each_timer_once<F: Fixture>(fixture: F) {
    let mut scheduled = HashSet::new();
    for number in 0..200 {
        scheduled.insert(add(&fixture, &number.to_string()).await);
    }
    let scheduler = fixture.scheduler().clone();
    each_is_claimed_once(scheduled, move |owner| {
        let scheduler = scheduler.clone();
        async move {
            let claimed = answer(scheduler.claim_timers(&owner, lease(3600), batch(7))).await;
            claimed.into_iter().map(|claimed| claimed.id).collect()
        }
    })
    .await;
}

/// Schedules a timer that is due.
pub(super) async fn add<F: Fixture>(fixture: &F, text: &str) -> TimerId {
    let due_at = fixture.now().await;
    answer(fixture.scheduler().schedule_timer(timer(text, due_at))).await
}

/// Claims up to 50 timers for 10 units.
pub(super) async fn claim_timers<F: Fixture>(fixture: &F, by: &str) -> Vec<TimerId> {
    let claimed = answer(fixture.scheduler().claim_timers(&owner(by), lease(10), batch(50))).await;
    claimed.into_iter().map(|timer| timer.id).collect()
}
