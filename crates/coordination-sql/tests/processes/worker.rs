//! The worker that is killed: from the outbox into the inbox, and perhaps from there into a journal.

use std::io::Read;
use std::time::Duration;

use coordination::{
    BatchSize, CancellationToken, Inbox, InboxKey, LeaseDuration, MessageId, NewInboxMessage,
    OutboxDispatcher, OutboxMessage, OwnerToken, Source, SourceMessageId, Topic, TopicHandlers,
    WorkerSettings,
};
use tokio::time::interval;

use crate::child::say;
use crate::place::Provider;

/// How long a claim lasts that its worker may take to the grave.
const CLAIM_FOR: Duration = Duration::from_secs(2);

/// Dispatches from the outbox into the inbox until stdin ends; says each message after it is in the
/// inbox and before it is marked dispatched.
pub async fn dispatch<P: Provider>(provider: P) {
    let shutdown = until_stdin_ends();
    dispatcher(provider).run(shutdown).await;
}

/// The same, and works on the inbox too.
pub async fn dispatch_and_consume<P: Provider>(provider: P) {
    let shutdown = until_stdin_ends();
    let consuming = consume(provider.clone(), shutdown.clone());
    tokio::join!(dispatcher(provider).run(shutdown), consuming);
}

fn dispatcher<P: Provider>(provider: P) -> OutboxDispatcher<P> {
    let inbox = provider.clone();
    let handlers = TopicHandlers::new().on(topic(), move |message: OutboxMessage| {
        let inbox = inbox.clone();
        async move {
            let copy = NewInboxMessage::new(key(message.id), topic(), message.payload);
            let _added_or_there_already = Inbox::enqueue(&inbox, copy).await?;
            say(message.id);
            Ok(())
        }
    });
    // What a killed worker had claimed is back soon; and there is not so much of it that the others
    // run out of work.
    let settings = WorkerSettings {
        batch: BatchSize::new(10).unwrap(),
        in_flight_max: 16,
        claim_for: LeaseDuration::new(CLAIM_FOR).unwrap(),
        handler_timeout: CLAIM_FOR / 2,
        upkeep_interval: CLAIM_FOR / 4,
        ..eager()
    };
    OutboxDispatcher::new(provider, handlers, settings).unwrap()
}

async fn consume<P: Provider>(inbox: P, shutdown: CancellationToken) {
    let mut poll = interval(Duration::from_millis(50));
    while !shutdown.is_cancelled() {
        let owner = OwnerToken::random();
        let lease = LeaseDuration::new(CLAIM_FOR).unwrap();
        let claimed = inbox.claim(&owner, lease, BatchSize::new(10).unwrap()).await.unwrap();
        for message in &claimed {
            inbox.journal(&owner, &message.key).await;
        }
        if claimed.is_empty() {
            poll.tick().await;
            Inbox::reap(&inbox).await.unwrap();
        }
    }
}

/// Fires when the process that started this one stops it, or has ended.
fn until_stdin_ends() -> CancellationToken {
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    std::thread::spawn(move || {
        let _ended = std::io::stdin().read(&mut [0]);
        stop.cancel();
    });
    shutdown
}

pub fn eager() -> WorkerSettings {
    WorkerSettings {
        // A message may be in the hands of many workers that are killed.
        attempts_max: 1000,
        lost_attempts_max: 1000,
        poll_interval: Duration::from_millis(50),
        ..WorkerSettings::default()
    }
}

pub fn topic() -> Topic {
    Topic::new("order.placed").unwrap()
}

pub fn key(id: MessageId) -> InboxKey {
    InboxKey {
        source: Source::new("shop").unwrap(),
        message_id: SourceMessageId::new(id.to_string()).unwrap(),
    }
}
