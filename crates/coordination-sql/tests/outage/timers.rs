//! A scheduler worker whose database is away when a timer comes due.

use std::time::Duration;

use coordination::{
    CancellationToken, Clock, LeaseDuration, NewTimer, OutboxDispatcher, OutboxMessage, Payload,
    Scheduler, SchedulerSettings, SchedulerWorker, TopicHandlers, WallClock, WorkerSettings,
};
use testkit::eventually;

use crate::scene::{Journal, open, quick, run, topic};

pub fn come_due() {
    run(async |mut cluster| {
        let provider = open(&cluster).await;
        let (journal, shutdown) = (Journal::default(), CancellationToken::new());
        let handled = journal.clone();
        let handlers = TopicHandlers::new().on(topic(), move |message: OutboxMessage| {
            handled.note(&message.id);
            async { Ok(()) }
        });
        // Nobody else gets the message while a busy machine has not acknowledged it yet.
        let minute = LeaseDuration::new(Duration::from_secs(60)).unwrap();
        let patient = WorkerSettings { claim_for: minute, ..quick() };
        let dispatcher = OutboxDispatcher::new(provider.clone(), handlers, patient).unwrap();
        let settings = SchedulerSettings {
            // The lease that the worker had is soon free again.
            lease: LeaseDuration::new(Duration::from_secs(2)).unwrap(),
            poll_interval: Duration::from_millis(50),
            upkeep_interval: Duration::from_millis(200),
            ..SchedulerSettings::default()
        };
        let all = || provider.clone();
        let scheduler = SchedulerWorker::new(all(), all(), all(), settings).unwrap();
        let metrics = scheduler.metrics();
        let workers = [
            tokio::spawn(dispatcher.run(shutdown.clone())),
            tokio::spawn(scheduler.run(shutdown.clone())),
        ];
        // Far enough away that the cluster is gone by then; the test holds otherwise too.
        let due_at = WallClock.now().after(Duration::from_secs(1));
        let timer = NewTimer::new(topic(), Payload::empty(), due_at);
        let id = timer.id.to_string();
        while provider.schedule_timer(timer.clone()).await.is_err() {}
        cluster.stop();
        WallClock.wait_until(due_at).await;
        eventually("errors are met", async || metrics.snapshot().provider_errors > 0).await;
        cluster.start_again();
        eventually("the timer is handled", async || journal.count_of(&id) > 0).await;
        shutdown.cancel();
        for worker in workers {
            worker.await.unwrap();
        }
        assert_eq!((journal.count_of(&id), journal.len()), (1, 1), "once, by the timer's own ID");
    });
}
