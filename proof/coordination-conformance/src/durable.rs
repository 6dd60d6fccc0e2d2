//! Scenarios of durable providers.

use coordination::{
    Enqueued, Fence, FencingToken, Inbox, InboxStatus, Leases, Materialised, Outbox, OutboxStatus,
    RunId, Scheduler,
};

use crate::DurableFixture;
use crate::fixture::{lease, units};
use crate::inbox::claim_keys;
use crate::outbox::claim_ids;
use crate::sample::{
    batch, fence, inbox_message, job_by, job_name, key, outbox_message, owner, payload, resource,
    timer,
};
use crate::scenario::{answer, suite};

suite! {
    $
    /// One test per scenario of a provider that outlives its process.
    macro durable_suite, module durable, fixture DurableFixture,
    "DURABLE-A" durable_a_messages_outlive_the_process:
        "Outbox and inbox messages, claims and outcomes outlive a restart.";
    "DURABLE-B" durable_b_timers_and_jobs_outlive_the_process:
        "Timers, jobs, runs and the recorded fencing token outlive a restart.";
    "DURABLE-C" durable_c_the_fencing_token_grows_through_restarts:
        "A resource's fencing token grows through restarts, and a lease from before is held until it ends.";
    "DURABLE-D" durable_d_outcomes_and_attempts_outlive_the_process:
        "A message's outcome, its attempts and its extended claim outlive a restart.";
}

/// DURABLE-A
pub async fn durable_a_messages_outlive_the_process<F: DurableFixture>(fixture: F) {
    let ids = {
        let mut ids = Vec::new();
        for text in ["done", "claimed", "ready"] {
            ids.push(answer(fixture.outbox().enqueue(outbox_message(text))).await);
        }
        let claimed = answer(fixture.outbox().claim_due(&owner("a"), lease(3600), batch(2))).await;
        assert_eq!(claimed.len(), 2);
        let count = answer(fixture.outbox().mark_dispatched(&owner("a"), &ids[..1])).await;
        assert_eq!(count, 1);
        ids
    };
    let keys = [key("shop", "1")];
    let enqueued = answer(fixture.inbox().enqueue(inbox_message("1"))).await;
    assert_eq!(enqueued, Enqueued::Added);
    claim_keys(&fixture, "a").await;
    assert_eq!(answer(fixture.inbox().ack(&owner("a"), &keys)).await, 1);

    let fixture = fixture.reopen().await;
    assert_eq!(claim_ids(&fixture, "b").await, ids[2..], "what was ready is ready");
    let count = answer(fixture.outbox().mark_dispatched(&owner("a"), &ids[..2])).await;
    assert_eq!(count, 1, "what was claimed is claimed, what was done is done");
    let again = answer(fixture.inbox().enqueue(inbox_message("1"))).await;
    assert_eq!(again, Enqueued::Duplicate);
    let message = fixture.inbox().get(&keys[0]).await.expect("a known message");
    assert_eq!(message.status, InboxStatus::Done);
}

/// DURABLE-D
pub async fn durable_d_outcomes_and_attempts_outlive_the_process<F: DurableFixture>(fixture: F) {
    let mut ids = Vec::new();
    for text in ["done", "begun"] {
        ids.push(answer(fixture.outbox().enqueue(outbox_message(text))).await);
    }
    claim_ids(&fixture, "a").await;
    answer(fixture.outbox().finish(&owner("a"), ids[0], &payload("42"))).await;
    let begun = answer(fixture.outbox().begin(&owner("a"), ids[1], lease(3600))).await;
    assert_eq!(begun, Some(1));

    let fixture = fixture.reopen().await;
    let outbox = fixture.outbox();
    let record = answer(outbox.record(ids[0])).await.expect("it is kept");
    assert_eq!(record.status, OutboxStatus::Done { outcome: Some(payload("42")) });
    fixture.advance(units(20)).await;
    assert_eq!(answer(outbox.reap()).await, 0, "the claim is as long as it was made");
    let begun = answer(outbox.begin(&owner("a"), ids[1], lease(10))).await;
    assert_eq!(begun, Some(1), "the same claim, the same attempt");
}

/// DURABLE-B
pub async fn durable_b_timers_and_jobs_outlive_the_process<F: DurableFixture>(fixture: F) {
    let due = timer("1", fixture.now().await);
    answer(fixture.scheduler().schedule_timer(due.clone())).await;
    let yearly = job_by("report", "0 0 1 1 *").with_payload(payload("kept"));
    answer(fixture.scheduler().create_or_update_job(yearly)).await;
    let run = RunId::random();
    let triggered = fixture.scheduler().trigger_job(&job_name("report"), run).await;
    assert_eq!(triggered.expect("a known job"), run);
    let made = answer(fixture.scheduler().create_job_runs_from_due_jobs(&fence(7))).await;
    assert_eq!(made, Materialised::Runs(0));

    let fixture = fixture.reopen().await;
    let scheduler = fixture.scheduler();
    let timers = answer(scheduler.claim_timers(&owner("a"), lease(10), batch(10))).await;
    assert_eq!(timers.iter().map(|timer| timer.id).collect::<Vec<_>>(), [due.id]);
    let runs = answer(scheduler.claim_job_runs(&owner("a"), lease(10), batch(10))).await;
    assert_eq!((runs[0].id, &runs[0].payload), (run, &payload("kept")));
    let stale = Fence { token: FencingToken::new(6), ..fence(7) };
    let made = answer(scheduler.create_job_runs_from_due_jobs(&stale)).await;
    assert_eq!(made, Materialised::StaleFence { recorded: FencingToken::new(7) });
}

/// DURABLE-C
pub async fn durable_c_the_fencing_token_grows_through_restarts<F: DurableFixture>(fixture: F) {
    let name = resource("report");
    let mut fixture = fixture;
    let mut last = FencingToken::new(0);
    for _ in 0..3 {
        // Acquired without a guard, as by a process that died before it could release it.
        let leases = fixture.leases();
        let token = answer(leases.try_acquire(&name, lease(10), &owner("a"))).await;
        let token = token.expect("nobody holds it");
        assert!(token > last, "{} after {}", token.get(), last.get());
        last = token;
        fixture = fixture.reopen().await;
        let held = answer(fixture.leases().try_acquire(&name, lease(10), &owner("b"))).await;
        assert_eq!(held, None, "held through the restart");
        fixture.advance(units(10)).await;
    }
}
