//! Scenarios of all primitives.

use std::time::Duration;

use coordination::{
    BatchSize, CronSchedule, Delay, Enqueued, Inbox, InvalidName, InvalidPayload, InvalidQuantity,
    InvalidSchedule, JobName, JobSaved, JoinProgress, Joins, LeaseDuration, Leases, MessageId,
    NewJoin, Outbox, OwnerToken, PAYLOAD_BYTES_MAX, Payload, ResourceName, RunId, Scheduler,
    SourceMessageId, TimerId, Topic,
};

use crate::Fixture;
use crate::fixture::{advance_to, lease, units};
use crate::inbox::claim_keys;
use crate::outbox::claim_ids;
use crate::sample::{
    batch, error, inbox_message, job_by, job_name, key, outbox_message, owner, resource, timer,
};
use crate::scenario::{answer, suite};

suite! {
    $
    /// One test per rule that holds for all primitives.
    macro general_suite, module general, fixture Fixture,
    "GEN-003" gen_003_only_the_owner_settles_a_claim:
        "The primitives preserve owner-token safety for claim, ack, abandon and fail.";
    "GEN-A" gen_a_due_and_expired_are_inclusive:
        "PRIM-GEN-A: time comes from the provider's clock; due when `due <= now`, expired when `until <= now`.";
    "GEN-B" gen_b_unknown_and_repeated_ids_are_tolerated:
        "PRIM-GEN-B: calls act only on the owner's claims, say how many items changed, and tolerate unknown and repeated IDs.";
    "GEN-C" gen_c_no_item_has_two_owners:
        "PRIM-GEN-C: an item is never held by two owners; an expired claim is ready again through `reap`.";
    "GEN-D" gen_d_bad_input_is_a_typed_error:
        "PRIM-GEN-D: batch or lease of 0, blank topic, name or ID, empty owner, negative delay, bad cron line or zone, large payload: typed errors, nothing stored.";
    "GEN-E" gen_e_every_operation_may_be_repeated:
        "PRIM-GEN-E: every operation may be repeated after a lost answer.";
}

/// PRIM-INMEMORY-GEN-003, `CRD-20`
pub async fn gen_003_only_the_owner_settles_a_claim<F: Fixture>(fixture: F) {
    let (outbox, inbox, scheduler) = (fixture.outbox(), fixture.inbox(), fixture.scheduler());
    let text = error("x");
    let now = fixture.now().await;
    let (mut messages, mut keys, mut timers, mut runs) = (vec![], vec![], vec![], vec![]);
    for to_be in ["acknowledged", "abandoned", "failed"] {
        messages.push(answer(outbox.enqueue(outbox_message(to_be))).await);
        assert_eq!(answer(inbox.enqueue(inbox_message(to_be))).await, Enqueued::Added);
        keys.push(key("shop", to_be));
        timers.push(answer(scheduler.schedule_timer(timer(to_be, now))).await);
        answer(scheduler.create_or_update_job(job_by(to_be, "0 0 1 1 *"))).await;
        let run = scheduler.trigger_job(&job_name(to_be), RunId::random()).await;
        runs.push(run.expect("a known job"));
    }
    let claimed = async |by: &str| {
        let (owner, lease) = (owner(by), lease(10));
        let timers = answer(scheduler.claim_timers(&owner, lease, batch(50))).await;
        let runs = answer(scheduler.claim_job_runs(&owner, lease, batch(50))).await;
        let messages = (claim_ids(&fixture, by).await, claim_keys(&fixture, by).await);
        [messages.0.len(), messages.1.len(), timers.len(), runs.len()]
    };
    assert_eq!(claimed("a").await, [3; 4]);
    // The owner's calls change something once; those of others never do.
    for (by, expected) in [("b", 0), ("a", 1), ("a", 0)] {
        let by = owner(by);
        assert_eq!(answer(outbox.mark_dispatched(&by, &messages[..1])).await, expected);
        assert_eq!(answer(inbox.ack(&by, &keys[..1])).await, expected);
        assert_eq!(answer(scheduler.ack_timers(&by, &timers[..1])).await, expected);
        assert_eq!(answer(scheduler.ack_job_runs(&by, &runs[..1])).await, expected);
        assert_eq!(answer(outbox.fail(&by, &messages[2..], &text)).await, expected);
        assert_eq!(answer(inbox.fail(&by, &keys[2..], &text)).await, expected);
        let (back, zero) = (1..2, Delay::ZERO);
        let given_back = outbox.reschedule(&by, &messages[back.clone()], zero, &text);
        assert_eq!(answer(given_back).await, expected);
        assert_eq!(answer(inbox.abandon(&by, &keys[back.clone()], &text, zero)).await, expected);
        assert_eq!(
            answer(scheduler.abandon_timers(&by, &timers[back.clone()], zero)).await,
            expected
        );
        assert_eq!(answer(scheduler.abandon_job_runs(&by, &runs[back], zero)).await, expected);
        if expected == 0 && by == owner("b") {
            assert_eq!(claimed("b").await, [0; 4], "the claims stand");
        }
    }
    assert_eq!(claimed("b").await, [1; 4], "what was given back, and nothing else");
}

/// PRIM-GEN-A
pub async fn gen_a_due_and_expired_are_inclusive<F: Fixture>(fixture: F) {
    let (outbox, scheduler) = (fixture.outbox(), fixture.scheduler());
    let due_at = fixture.now().await.after(units(10));
    let id = answer(outbox.enqueue(outbox_message("1").due_at(due_at))).await;
    answer(scheduler.schedule_timer(timer("1", due_at))).await;
    fixture.advance(units(5)).await;
    assert_eq!(claim_ids(&fixture, "a").await, []);
    advance_to(&fixture, due_at).await;
    let claimed = answer(outbox.claim_due(&owner("a"), lease(10), batch(1))).await;
    assert_eq!(claimed[0].id, id, "due at the moment itself");
    let timers = answer(scheduler.claim_timers(&owner("a"), lease(10), batch(1))).await;
    assert_eq!(timers.len(), 1, "due at the moment itself");
    let both_claimed_at = fixture.now().await;
    fixture.advance(units(5)).await;
    assert_eq!(answer(outbox.reap()).await, 0);
    advance_to(&fixture, claimed[0].claimed_until).await;
    assert_eq!(answer(outbox.reap()).await, 1, "expired at the moment itself");
    advance_to(&fixture, both_claimed_at.after(units(10))).await;
    assert_eq!(answer(scheduler.reap_timers()).await, 1, "expired with it");

    let free = resource("inclusive");
    let held = answer(fixture.leases().acquire(&free, lease(10), None)).await;
    let held = held.expect("nobody holds it");
    fixture.advance(units(10)).await;
    assert!(held.ensure_held().is_err(), "lost at the moment itself");
    let next = answer(fixture.leases().acquire(&free, lease(10), None)).await;
    assert!(next.is_some(), "free at the moment itself");
}

/// PRIM-GEN-B
pub async fn gen_b_unknown_and_repeated_ids_are_tolerated<F: Fixture>(fixture: F) {
    let (outbox, inbox, scheduler) = (fixture.outbox(), fixture.inbox(), fixture.scheduler());
    let (a, text) = (owner("a"), error("x"));
    let mut ids = Vec::new();
    for number in ["1", "2", "3"] {
        ids.push(answer(outbox.enqueue(outbox_message(number))).await);
        assert_eq!(answer(inbox.enqueue(inbox_message(number))).await, Enqueued::Added);
    }
    let count = answer(outbox.mark_dispatched(&a, &ids)).await;
    assert_eq!(count, 0, "nothing is claimed yet");
    claim_ids(&fixture, "a").await;
    claim_keys(&fixture, "a").await;
    let unknown = MessageId::random();
    let count = answer(outbox.mark_dispatched(&a, &[unknown, ids[0], ids[0]])).await;
    assert_eq!(count, 1);
    let given_back = [ids[0], ids[1], ids[1], unknown];
    let count = answer(outbox.reschedule(&a, &given_back, Delay::ZERO, &text)).await;
    assert_eq!(count, 1);
    assert_eq!(answer(outbox.fail(&a, &[ids[2], unknown, ids[2]], &text)).await, 1);
    assert_eq!(answer(outbox.mark_dispatched(&a, &[])).await, 0);

    let (one, two, three) = (key("shop", "1"), key("shop", "2"), key("shop", "3"));
    let unknown = key("shop", "unknown");
    let keys = [one.clone(), unknown.clone(), one.clone()];
    assert_eq!(answer(inbox.ack(&a, &keys)).await, 1);
    let keys = [one, two.clone(), two, unknown.clone()];
    assert_eq!(answer(inbox.abandon(&a, &keys, &text, Delay::ZERO)).await, 1);
    let keys = [three.clone(), unknown, three];
    assert_eq!(answer(inbox.fail(&a, &keys, &text)).await, 1);

    let unknown = [TimerId::random()];
    assert_eq!(answer(scheduler.ack_timers(&a, &unknown)).await, 0);
    let count = answer(scheduler.abandon_timers(&a, &unknown, Delay::ZERO)).await;
    assert_eq!(count, 0);
    let unknown = [RunId::random()];
    assert_eq!(answer(scheduler.ack_job_runs(&a, &unknown)).await, 0);
    let count = answer(scheduler.abandon_job_runs(&a, &unknown, Delay::ZERO)).await;
    assert_eq!(count, 0);
}

/// PRIM-GEN-C
pub async fn gen_c_no_item_has_two_owners<F: Fixture>(fixture: F) {
    let outbox = fixture.outbox();
    let id = answer(outbox.enqueue(outbox_message("1"))).await;
    assert_eq!(claim_ids(&fixture, "a").await, [id]);
    assert_eq!(claim_ids(&fixture, "b").await, []);
    fixture.advance(units(10)).await;
    assert_eq!(claim_ids(&fixture, "b").await, [], "ready again through reap alone");
    assert_eq!(answer(outbox.reap()).await, 1);
    assert_eq!(claim_ids(&fixture, "b").await, [id]);
    assert_eq!(claim_ids(&fixture, "a").await, []);
}

/// PRIM-GEN-D
pub async fn gen_d_bad_input_is_a_typed_error<F: Fixture>(fixture: F) {
    assert_eq!(BatchSize::new(0), Err(InvalidQuantity::ZeroBatchSize));
    assert_eq!(LeaseDuration::new(Duration::ZERO), Err(InvalidQuantity::ZeroLeaseDuration));
    let asked = Duration::from_secs(24 * 60 * 60 + 1);
    let too_long = InvalidQuantity::LeaseDurationTooLong { asked };
    assert_eq!(LeaseDuration::new(asked), Err(too_long));
    let negative = InvalidQuantity::NegativeDelay { asked_ms: -1 };
    assert_eq!(Delay::from_millis(-1), Err(negative));
    assert_eq!(Topic::new(" "), Err(InvalidName::Blank { what: "topic" }));
    assert_eq!(JobName::new(""), Err(InvalidName::Blank { what: "job name" }));
    assert_eq!(ResourceName::new("\t"), Err(InvalidName::Blank { what: "resource name" }));
    assert_eq!(SourceMessageId::new(""), Err(InvalidName::Blank { what: "message ID" }));
    assert_eq!(OwnerToken::new(""), Err(InvalidName::Blank { what: "owner token" }));
    let too_large = InvalidPayload::TooLarge { bytes: PAYLOAD_BYTES_MAX + 1 };
    assert_eq!(Payload::new(vec![0; PAYLOAD_BYTES_MAX + 1]), Err(too_large));
    let refused = CronSchedule::parse("* 24 * * *", "UTC").expect_err("there is no such hour");
    assert!(refused.to_string().contains("hour \"24\""), "{refused}");
    let refused = CronSchedule::parse("* * * * *", "Mars/Olympus").expect_err("no such zone");
    assert_eq!(refused, InvalidSchedule::UnknownTimeZone { name: "Mars/Olympus".to_owned() });

    // Such a value cannot be constructed, so nothing was stored.
    fixture.advance(units(10)).await;
    assert_eq!(claim_ids(&fixture, "a").await, []);
    assert_eq!(claim_keys(&fixture, "a").await, []);
    assert_eq!(answer(fixture.scheduler().next_event_time()).await, None);

    // The largest payload is stored whole.
    let largest = Payload::new(vec![7; PAYLOAD_BYTES_MAX]).expect("at the bound");
    let mut message = outbox_message("1");
    message.payload = largest.clone();
    answer(fixture.outbox().enqueue(message)).await;
    let claimed = answer(fixture.outbox().claim_due(&owner("a"), lease(10), BatchSize::ONE)).await;
    assert_eq!(claimed[0].payload, largest);
}

/// PRIM-GEN-E
pub async fn gen_e_every_operation_may_be_repeated<F: Fixture>(fixture: F) {
    let (outbox, inbox, scheduler) = (fixture.outbox(), fixture.inbox(), fixture.scheduler());
    let a = owner("a");
    let message = outbox_message("1");
    let join = NewJoin::over([message.id]).expect("a valid join");
    let due = timer("1", fixture.now().await);
    let yearly = job_by("report", "0 0 1 1 *");
    let run = RunId::random();
    for round in 0..2 {
        assert_eq!(answer(outbox.start_join(join.clone())).await, join.id());
        assert_eq!(answer(outbox.enqueue(message.clone())).await, message.id);
        let enqueued = answer(inbox.enqueue(inbox_message("1"))).await;
        assert_eq!(enqueued == Enqueued::Added, round == 0);
        assert_eq!(answer(scheduler.schedule_timer(due.clone())).await, due.id);
        let saved = answer(scheduler.create_or_update_job(yearly.clone())).await;
        assert_eq!(saved == JobSaved::Created, round == 0);
        let triggered = scheduler.trigger_job(&job_name("report"), run).await;
        assert_eq!(triggered.expect("a known job"), run);
        fixture.advance(units(1)).await;
    }
    assert_eq!(claim_ids(&fixture, "a").await, [message.id], "one message");
    assert_eq!(claim_keys(&fixture, "a").await, [key("shop", "1")], "one message");
    let timers = answer(scheduler.claim_timers(&a, lease(10), batch(10))).await;
    assert_eq!(timers.len(), 1, "one timer");
    let runs = answer(scheduler.claim_job_runs(&a, lease(10), batch(10))).await;
    assert_eq!(runs.len(), 1, "one run");
    for expected in [1, 0] {
        assert_eq!(answer(outbox.mark_dispatched(&a, &[message.id])).await, expected);
        assert_eq!(answer(inbox.ack(&a, &[key("shop", "1")])).await, expected);
        assert_eq!(answer(scheduler.ack_timers(&a, &[due.id])).await, expected);
        assert_eq!(answer(scheduler.ack_job_runs(&a, &[run])).await, expected);
        let deleted = answer(scheduler.delete_job(&job_name("report"))).await;
        assert_eq!(deleted, expected);
    }
    let progress = outbox.join_progress(join.id()).await.expect("a known join");
    assert_eq!(progress, JoinProgress { expected: 1, completed: 1, failed: 0 });
}
