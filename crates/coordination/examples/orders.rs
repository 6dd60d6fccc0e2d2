//! An order service: an outbox that is delivered to an inbox, a nightly job, and a singleton under
//! a lease.
//!
//! `cargo run -p coordination --example orders`. The clock is simulated, so a night passes in a
//! moment.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use coordination::{
    CancellationToken, Clock, CorrelationId, CronSchedule, Enqueued, HandlerError, Inbox,
    InboxDispatcher, InboxKey, InboxMessage, JobDefinition, JobName, LeaseDuration, Leases,
    MemoryProvider, MonotonicClock, NewInboxMessage, NewOutboxMessage, Outbox, OutboxDispatcher,
    OutboxMessage, Payload, ResourceName, Scheduler, SchedulerSettings, SchedulerWorker, Source,
    SourceMessageId, Timestamp, Topic, TopicHandlers, WorkerSettings,
};

/// What a handler returns, named so that the handlers below can be written as functions.
type Handled = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

/// The evening before the clocks change in Berlin.
const START: &str = "2026-03-28T20:00:00Z";

#[derive(Debug, Clone)]
struct Shop {
    /// The order service's own provider: its outbox, scheduler and leases.
    orders: MemoryProvider,
    /// The billing service's provider: its inbox.
    billing: MemoryProvider,
    clock: Arc<dyn Clock>,
}

impl Shop {
    fn say(&self, text: &str) {
        println!("{:<24}{text}", self.clock.now().to_string());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let start: Timestamp = START.parse()?;
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::starting_at(start));
    let shop = Shop {
        orders: MemoryProvider::with_clock(Arc::clone(&clock)),
        billing: MemoryProvider::with_clock(Arc::clone(&clock)),
        clock: Arc::clone(&clock),
    };
    let stop = CancellationToken::new();

    let deliver = TopicHandlers::new()
        .on(Topic::new("order.placed")?, delivery(&shop))
        .on(Topic::new("report.make")?, report(&shop));
    let dispatcher =
        OutboxDispatcher::new(shop.orders.clone(), deliver, WorkerSettings::default())?;
    let bill = TopicHandlers::new().on(Topic::new("order.placed")?, billing(&shop));
    let biller = InboxDispatcher::new(shop.billing.clone(), bill, WorkerSettings::default())?;
    let (sent, billed) = (dispatcher.metrics(), biller.metrics());
    let scheduler = SchedulerWorker::new(
        shop.orders.clone(),
        shop.orders.clone(),
        shop.orders.clone(),
        SchedulerSettings::default(),
    )?;
    let workers = [
        tokio::spawn(dispatcher.run(stop.clone())),
        tokio::spawn(biller.run(stop.clone())),
        tokio::spawn(scheduler.run(stop.clone())),
    ];

    place_orders(&shop).await?;
    schedule_the_nightly_report(&shop).await?;
    pass(Duration::from_secs(60)).await;
    run_a_singleton(&shop).await?;
    shop.say("the night passes; in Berlin the clocks go from 02:00 to 03:00");
    pass(Duration::from_secs(8 * 60 * 60)).await;

    stop.cancel();
    for worker in workers {
        worker.await?;
    }
    let (sent, billed) = (sent.snapshot(), billed.snapshot());
    shop.say(&format!(
        "outbox: {} sent, {} retried, {} failed; inbox: {} handled, {} retried, {} failed",
        sent.acknowledged,
        sent.abandoned,
        sent.failed,
        billed.acknowledged,
        billed.abandoned,
        billed.failed,
    ));
    Ok(())
}

/// Enqueues three orders. In an SQL provider this would be part of the transaction that stores
/// them.
async fn place_orders(shop: &Shop) -> Result<(), Box<dyn Error>> {
    for order in ["order-1", "order-2", "order-3"] {
        let message = NewOutboxMessage::new(Topic::new("order.placed")?, Payload::new(order)?)
            .correlated_with(CorrelationId::new(format!("request-for-{order}"))?);
        Outbox::enqueue(&shop.orders, message).await?;
        shop.say(&format!("order service: {order} placed, message in the outbox"));
    }
    Ok(())
}

/// Delivers a message to the other service's inbox, as a queue or an HTTP call would: at least
/// once.
fn delivery(shop: &Shop) -> impl Fn(OutboxMessage) -> Handled + Send + Sync + 'static {
    let shop = shop.clone();
    move |message| {
        let shop = shop.clone();
        Box::pin(async move {
            let order = text(&message.payload);
            let key = InboxKey {
                source: Source::new("orders").map_err(HandlerError::permanent)?,
                message_id: SourceMessageId::new(message.id.to_string())
                    .map_err(HandlerError::permanent)?,
            };
            let mut incoming = NewInboxMessage::new(key, message.topic, message.payload);
            incoming.correlation_id = message.correlation_id;
            // The network may duplicate messages; the inbox deduplicates.
            for copy in ["first", "second"] {
                let said = match Inbox::enqueue(&shop.billing, incoming.clone()).await? {
                    Enqueued::Added => "added to the inbox",
                    Enqueued::Duplicate => "a duplicate, dropped",
                };
                shop.say(&format!("dispatcher: {order} delivered, {copy} copy: {said}"));
            }
            Ok(())
        })
    }
}

/// Bills an order. The second order fails once, the third one permanently.
fn billing(shop: &Shop) -> impl Fn(InboxMessage) -> Handled + Send + Sync + 'static {
    let shop = shop.clone();
    move |message| {
        let shop = shop.clone();
        Box::pin(async move {
            let (order, attempt) = (text(&message.payload), message.attempts);
            match (order.as_str(), attempt) {
                ("order-2", 1) => {
                    shop.say("billing: order-2, attempt 1: the bank does not answer, try later");
                    Err(HandlerError::retry("the bank does not answer"))
                }
                ("order-3", _) => {
                    shop.say("billing: order-3: no such customer, failed for good");
                    Err(HandlerError::permanent("no such customer"))
                }
                _ => {
                    shop.say(&format!("billing: {order}, attempt {attempt}: billed"));
                    Ok(())
                }
            }
        })
    }
}

async fn schedule_the_nightly_report(shop: &Shop) -> Result<(), Box<dyn Error>> {
    let schedule = CronSchedule::parse("30 2 * * *", "Europe/Berlin")?;
    let name = JobName::new("nightly-report")?;
    let job = JobDefinition::new(name, Topic::new("report.make")?, schedule);
    shop.say(&format!("scheduler: job {} saved: {}", job.name, job.schedule));
    shop.orders.create_or_update_job(job).await?;
    let next = shop.orders.next_event_time().await?.ok_or("a nightly job has a next tick")?;
    shop.say(&format!("scheduler: 02:30 does not exist tonight, the run is due at {next}"));
    Ok(())
}

fn report(shop: &Shop) -> impl Fn(OutboxMessage) -> Handled + Send + Sync + 'static {
    let shop = shop.clone();
    move |message| {
        let shop = shop.clone();
        Box::pin(async move {
            let run = message.correlation_id.map(|id| id.to_string()).unwrap_or_default();
            shop.say(&format!("report: made for {run}"));
            Ok(())
        })
    }
}

/// Two replicas want to compact the archive; the lease admits one, and stops it when it is lost.
async fn run_a_singleton(shop: &Shop) -> Result<(), Box<dyn Error>> {
    let archive = ResourceName::new("archive")?;
    let duration = LeaseDuration::new(Duration::from_secs(10))?;
    let lease = shop.orders.acquire(&archive, duration, None).await?.ok_or("nobody holds it")?;
    shop.say(&format!("replica A: holds the archive, token {}", lease.fencing_token().get()));
    if shop.orders.acquire(&archive, duration, None).await?.is_none() {
        shop.say("replica B: the archive is held, it waits");
    }
    // Without renewal the lease ends after 10 s, in the middle of the work.
    let work = async {
        for part in 1.. {
            shop.say(&format!("replica A: part {part} compacted"));
            pass(Duration::from_secs(4)).await;
        }
    };
    if let Err(lost) = lease.run(work).await {
        shop.say(&format!("replica A: stopped: {lost}"));
    }
    let lease = shop.orders.acquire(&archive, duration, None).await?.ok_or("it has run out")?;
    let lease = lease.renewed_automatically();
    shop.say(&format!("replica B: holds the archive, token {}", lease.fencing_token().get()));
    pass(Duration::from_secs(60)).await;
    lease.ensure_held()?;
    shop.say(&format!(
        "replica B: a minute later it still does, renewed to token {}",
        lease.fencing_token().get()
    ));
    lease.release().await?;
    shop.say("replica B: archive released");
    Ok(())
}

fn text(payload: &Payload) -> String {
    payload.as_text().unwrap_or("not a text").to_owned()
}

/// Lets simulated time pass.
async fn pass(span: Duration) {
    let mut clock = tokio::time::interval(span);
    clock.tick().await;
    clock.tick().await;
}
