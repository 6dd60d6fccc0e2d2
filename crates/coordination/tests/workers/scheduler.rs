//! The scheduler worker: each due item becomes one outbox message, whoever dies or loses the lease
//! on the way.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coordination::{
    BatchSize, Clock, CronSchedule, JobDefinition, JobName, Leases, MemoryProvider, MessageId,
    MonotonicClock, NewTimer, Outbox, OutboxMessage, OwnerToken, Payload, Scheduler,
    SchedulerSettings, SchedulerWorker, Timestamp, Wait,
};
use tokio_util::sync::CancellationToken;

use crate::unreliable::{Losable, Stuck, Unreliable};
use crate::{eventually, lease, pass, provider, topic};

fn worker(
    memory: &MemoryProvider,
) -> SchedulerWorker<MemoryProvider, MemoryProvider, MemoryProvider> {
    let settings = SchedulerSettings::default();
    SchedulerWorker::new(memory.clone(), memory.clone(), memory.clone(), settings).unwrap()
}

/// Schedules timers that are due now. The messages they become have these IDs.
async fn add_timers(memory: &MemoryProvider, count: usize) -> HashSet<MessageId> {
    let now = memory.clock().now();
    let mut ids = HashSet::new();
    for number in 0..count {
        let payload = Payload::new(number.to_string()).unwrap();
        let timer = NewTimer::new(topic("remind"), payload, now);
        ids.insert(memory.schedule_timer(timer).await.unwrap().into());
    }
    ids
}

/// Everything in the outbox.
async fn drain(memory: &MemoryProvider) -> Vec<OutboxMessage> {
    let max = BatchSize::new(1000).unwrap();
    memory.claim_due(&OwnerToken::random(), lease(3600), max).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn due_timers_become_outbox_messages_with_their_ids() {
    let memory = provider();
    let expected = add_timers(&memory, 120).await;
    let later = memory.clock().now().after(Duration::from_secs(30));
    let later = NewTimer::new(topic("remind"), Payload::empty(), later);
    memory.schedule_timer(later.clone()).await.unwrap();
    let worker = worker(&memory);
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("the due ones are moved", || metrics.snapshot().acknowledged == 120).await;
    let moved: HashSet<_> = drain(&memory).await.iter().map(|message| message.id).collect();
    assert_eq!(moved, expected);
    eventually("the later one is moved", || metrics.snapshot().acknowledged == 121).await;
    assert!(memory.clock().now() >= later.due_at);
    assert!(memory.clock().now() < later.due_at.after(Duration::from_secs(1)), "woken in time");
    assert_eq!(drain(&memory).await[0].id, later.id.into());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_due_timers_do_not_hold_up_a_due_job() {
    let memory = provider();
    add_timers(&memory, 100).await;
    let every_second = CronSchedule::parse("* * * * * *", "UTC").unwrap();
    let job = JobDefinition::new(JobName::new("often").unwrap(), topic("report"), every_second);
    memory.create_or_update_job(job).await.unwrap();
    pass(Duration::from_secs(1)).await;
    let settings = SchedulerSettings { batch: BatchSize::new(10).unwrap(), ..Default::default() };
    let worker =
        SchedulerWorker::new(memory.clone(), memory.clone(), memory.clone(), settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("all are moved", || metrics.snapshot().acknowledged >= 101).await;
    stop.cancel();
    running.await.unwrap();
    let messages = drain(&memory).await;
    let report = messages.iter().position(|message| message.topic == topic("report"));
    assert_eq!(report, Some(10), "after the first batch of timers");
}

/// A job at 02:30 local time runs once on either night: at 03:00 summer time in spring, at the
/// first 02:30 in autumn.
/// The runtime's clock, which need not be looked at again and again: days pass in few steps.
#[derive(Debug)]
struct NeverSuspended(MonotonicClock);

impl Clock for NeverSuspended {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wait_until(&self, at: Timestamp) -> Wait<'_> {
        Box::pin(async move {
            while self.now() < at {
                pass(at.since(self.now())).await;
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_nightly_job_runs_once_on_the_nights_when_the_clocks_change() {
    for (start, expected) in [
        (
            "2026-03-27T12:00:00Z",
            ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "2026-10-23T12:00:00Z",
            ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
    ] {
        let clock = MonotonicClock::starting_at(start.parse().unwrap());
        let memory = MemoryProvider::with_clock(Arc::new(NeverSuspended(clock)));
        let nightly = JobDefinition::new(
            JobName::new("nightly").unwrap(),
            topic("report"),
            CronSchedule::parse("30 2 * * *", "Europe/Berlin").unwrap(),
        );
        memory.create_or_update_job(nightly).await.unwrap();
        let stop = CancellationToken::new();
        // Long waits, so that the three days pass in few steps.
        let settings = SchedulerSettings {
            lease: lease(24 * 60 * 60),
            poll_interval: Duration::from_secs(60 * 60),
            ..Default::default()
        };
        let worker =
            SchedulerWorker::new(memory.clone(), memory.clone(), memory.clone(), settings).unwrap();
        let running = tokio::spawn(worker.run(stop.clone()));
        pass(Duration::from_secs(3 * 24 * 60 * 60)).await;
        stop.cancel();
        running.await.unwrap();
        let moments: Vec<_> = drain(&memory)
            .await
            .iter()
            .map(|message| message.correlation_id.clone().unwrap().to_string())
            .collect();
        assert_eq!(moments, expected.map(|moment| format!("nightly@{moment}")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_killed_between_message_and_acknowledgement_makes_no_second_message() {
    let memory = provider();
    let expected = add_timers(&memory, 3).await;
    let stuck = Stuck::after_enqueue(memory.clone());
    let settings = SchedulerSettings::default();
    let killed =
        SchedulerWorker::new(memory.clone(), stuck.clone(), memory.clone(), settings).unwrap();
    let running = tokio::spawn(killed.run(CancellationToken::new()));
    eventually("the first is enqueued", || stuck.hook.count() == 1).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());

    let next = worker(&memory);
    let (metrics, stop) = (next.metrics(), CancellationToken::new());
    let running = tokio::spawn(next.run(stop.clone()));
    eventually("the next worker moves them all", || metrics.snapshot().acknowledged == 3).await;
    stop.cancel();
    running.await.unwrap();
    let moved: Vec<_> = drain(&memory).await.iter().map(|message| message.id).collect();
    assert_eq!(moved.len(), 3, "one message each");
    assert_eq!(moved.into_iter().collect::<HashSet<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_in_the_middle_of_a_run_stops_it_before_its_next_effect() {
    let memory = provider();
    let expected = add_timers(&memory, 5).await;
    let stuck = Stuck::after_enqueue(memory.clone());
    let leases = Losable::around_leases(memory.clone());
    let settings = SchedulerSettings::default();
    let resource = settings.resource.clone();
    let first =
        SchedulerWorker::new(memory.clone(), stuck.clone(), leases.clone(), settings).unwrap();
    let (metrics, stop) = (first.metrics(), CancellationToken::new());
    let running = tokio::spawn(first.run(stop.clone()));
    eventually("the first is enqueued", || stuck.hook.count() == 1).await;
    leases.hook.lose.store(true, Ordering::SeqCst);
    eventually("the renewal finds the lease lost", || !leases.hook.lose.load(Ordering::SeqCst))
        .await;
    let other = memory.acquire(&resource, lease(60), None).await.unwrap().expect("it is free");
    stuck.hook.let_go.add_permits(1);
    pass(Duration::from_secs(10)).await;
    assert_eq!(stuck.hook.count(), 1, "no further message");
    assert_eq!(metrics.snapshot().acknowledged, 0, "no acknowledgement");

    other.release().await.unwrap();
    eventually("with the lease it goes on", || metrics.snapshot().acknowledged == 5).await;
    stop.cancel();
    running.await.unwrap();
    let moved: Vec<_> = drain(&memory).await.iter().map(|message| message.id).collect();
    assert_eq!(moved.len(), 5, "one message each");
    assert_eq!(moved.into_iter().collect::<HashSet<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_between_two_items_stops_the_run_before_the_second() {
    let memory = provider();
    add_timers(&memory, 5).await;
    let scheduler = Stuck::after_ack(memory.clone());
    let leases = Losable::around_leases(memory.clone());
    let settings = SchedulerSettings::default();
    let resource = settings.resource.clone();
    let worker =
        SchedulerWorker::new(scheduler.clone(), memory.clone(), leases.clone(), settings).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("the first is acknowledged", || scheduler.hook.count() == 1).await;
    leases.hook.lose.store(true, Ordering::SeqCst);
    eventually("the renewal finds the lease lost", || !leases.hook.lose.load(Ordering::SeqCst))
        .await;
    let _other = memory.acquire(&resource, lease(60), None).await.unwrap().expect("it is free");
    scheduler.hook.let_go.add_permits(1);
    pass(Duration::from_secs(10)).await;
    assert_eq!(drain(&memory).await.len(), 1, "no further message");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_told_to_stop_gives_back_what_it_has_not_moved() {
    let memory = provider();
    add_timers(&memory, 4).await;
    let stuck = Stuck::after_enqueue(memory.clone());
    let settings = SchedulerSettings::default();
    let first =
        SchedulerWorker::new(memory.clone(), stuck.clone(), memory.clone(), settings).unwrap();
    let (metrics, stop) = (first.metrics(), CancellationToken::new());
    let running = tokio::spawn(first.run(stop.clone()));
    eventually("the first is enqueued", || stuck.hook.count() == 1).await;
    stop.cancel();
    stuck.hook.let_go.add_permits(1);
    running.await.unwrap();
    let snapshot = metrics.snapshot();
    assert_eq!((snapshot.acknowledged, snapshot.abandoned), (1, 3));
    let max = BatchSize::new(10).unwrap();
    let ready = memory.claim_timers(&OwnerToken::random(), lease(60), max).await.unwrap();
    assert_eq!(ready.len(), 3, "ready at once");
    let free = memory.acquire(&SchedulerSettings::default().resource, lease(60), None).await;
    assert!(free.unwrap().is_some(), "and the lease is given back");
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_the_outbox_make_no_second_message() {
    let memory = provider();
    let expected = add_timers(&memory, 20).await;
    let outbox = Unreliable::every_third_answer_is_lost(memory.clone());
    let settings = SchedulerSettings::default();
    let worker = SchedulerWorker::new(memory.clone(), outbox, memory.clone(), settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("all are moved", || metrics.snapshot().acknowledged == 20).await;
    stop.cancel();
    running.await.unwrap();
    assert!(metrics.snapshot().provider_errors > 0);
    let moved: Vec<_> = drain(&memory).await.iter().map(|message| message.id).collect();
    assert_eq!(moved.len(), 20, "one message each");
    assert_eq!(moved.into_iter().collect::<HashSet<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn of_two_workers_one_leads_and_the_other_takes_over() {
    let memory = provider();
    let stop = CancellationToken::new();
    let (first, second) = (worker(&memory), worker(&memory));
    let (first_metrics, second_metrics) = (first.metrics(), second.metrics());
    let leader = tokio::spawn(first.run(stop.clone()));
    pass(Duration::from_secs(1)).await;
    let follower = tokio::spawn(second.run(stop.clone()));
    add_timers(&memory, 3).await;
    pass(Duration::from_secs(100)).await;
    assert_eq!(first_metrics.snapshot().acknowledged, 3);
    assert_eq!(second_metrics.snapshot().claimed, 0, "only one works");
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    add_timers(&memory, 2).await;
    eventually("the other takes over", || second_metrics.snapshot().acknowledged == 2).await;
    stop.cancel();
    follower.await.unwrap();
}

/// `CRD-04`
#[tokio::test(start_paused = true)]
async fn crd_04_a_worker_told_to_stop_does_not_wait_for_its_upkeep() {
    let memory = provider();
    let scheduler = Unreliable::reaping_never_ends(memory.clone());
    let settings = SchedulerSettings::default();
    let resource = settings.resource.clone();
    let worker = SchedulerWorker::new(scheduler, memory.clone(), memory.clone(), settings).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    pass(Duration::from_secs(10)).await;
    stop.cancel();
    let stopped = tokio::time::timeout(Duration::from_secs(3600), running).await;
    stopped.expect("it stops").unwrap();
    let next = memory.acquire(&resource, lease(60), None).await.unwrap();
    assert!(next.is_some(), "and gives its lease up");
}
