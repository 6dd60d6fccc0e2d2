//! Latency until an idle worker handles a message.

use std::time::{Duration, Instant};

use coordination::{
    CancellationToken, Outbox, OutboxDispatcher, OutboxMessage, TopicHandlers, WorkerSettings,
};
use coordination_sql::PostgresProvider;
use coordination_sql::sqlx;
use coordination_sql::sqlx::postgres::PgListener;
use testkit::postgres::TestCluster;
use tokio::sync::mpsc;
use tokio::time::interval;

use crate::queue::{claim, connect, message, topic};
use crate::rounds::{Times, stopwatch};

const ROUNDS: usize = 200;
const WARM_UP: usize = 10;
/// A poll takes a quarter of a second on average; fewer rounds do.
const POLL_ROUNDS: usize = 40;

/// From before the enqueue to the start of the handler: commit, notification, claim.
pub(crate) async fn run(cluster: &TestCluster) {
    let told = told(&connect(cluster, "told", 10).await).await;
    let by_notify = bare_notification(&connect(cluster, "bare_notify", 2).await).await;
    let by_polling = polling(&connect(cluster, "polled", 10).await).await;
    println!("\nPostgreSQL, from enqueue to an idle worker");
    println!("| how the worker knows | µs |\n| --- | --- |");
    println!(
        "| it is told (LISTEN/NOTIFY), claim and handler included | {} |",
        told.micros_each(1)
    );
    println!(
        "| a bare NOTIFY to a bare listener, without a claim | {} |",
        by_notify.micros_each(1)
    );
    println!("| it polls every 500 ms, claim included | {} |", by_polling.micros_each(1));
}

/// A dispatcher that never polls.
async fn told(provider: &PostgresProvider) -> Times {
    let (started, mut starts) = mpsc::unbounded_channel::<Instant>();
    let handlers = TopicHandlers::new().on(topic(), move |_: OutboxMessage| {
        let sent = started.send(stopwatch());
        async move {
            sent.unwrap();
            Ok(())
        }
    });
    let hour = Duration::from_secs(3600);
    let settings =
        WorkerSettings { poll_interval: hour, upkeep_interval: hour, ..WorkerSettings::default() };
    let worker = OutboxDispatcher::new(provider.clone(), handlers, settings).unwrap();
    let metrics = worker.metrics();
    let shutdown = CancellationToken::new();
    let worker = tokio::spawn(worker.run(shutdown.clone()));
    let mut times = Times::default();
    let mut look = interval(Duration::from_millis(1));
    for number in 0..WARM_UP + ROUNDS {
        let before = stopwatch();
        Outbox::enqueue(provider, message()).await.unwrap();
        let started = starts.recv().await.unwrap();
        if number >= WARM_UP {
            times.push(started - before);
        }
        // The worker is idle again once it has acknowledged the message and found no other.
        let settled = u64::try_from(number).unwrap() + 1;
        while metrics.snapshot().acknowledged < settled {
            look.tick().await;
        }
        for _ in 0..5 {
            look.tick().await;
        }
    }
    shutdown.cancel();
    worker.await.unwrap();
    times
}

async fn bare_notification(provider: &PostgresProvider) -> Times {
    let mut listener = PgListener::connect_with(provider.pool()).await.unwrap();
    listener.listen("bare").await.unwrap();
    let mut times = Times::default();
    for number in 0..WARM_UP + ROUNDS {
        let before = stopwatch();
        sqlx::query("SELECT pg_notify('bare', '')").execute(provider.pool()).await.unwrap();
        listener.recv().await.unwrap();
        if number >= WARM_UP {
            times.push(before.elapsed());
        }
    }
    times
}

async fn polling(provider: &PostgresProvider) -> Times {
    let mut poll = interval(WorkerSettings::default().poll_interval);
    let owner = coordination::OwnerToken::random();
    let mut times = Times::default();
    for _ in 0..POLL_ROUNDS {
        // At any moment between two polls.
        let pause = WorkerSettings::default().poll_interval.mul_f64(fastrand::f64());
        poll.tick().await;
        let mut moment = interval(pause.max(Duration::from_micros(1)));
        moment.tick().await;
        moment.tick().await;
        let before = stopwatch();
        Outbox::enqueue(provider, message()).await.unwrap();
        loop {
            poll.tick().await;
            if !claim(provider, &owner, 1).await.is_empty() {
                break;
            }
        }
        times.push(before.elapsed());
    }
    times
}
