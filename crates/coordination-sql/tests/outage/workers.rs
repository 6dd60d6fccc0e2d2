//! Workers that go on when the database is back.

use std::time::Duration;

use coordination::{
    CancellationToken, HandlerError, Inbox, InboxDispatcher, InboxKey, InboxMessage,
    NewInboxMessage, OutboxDispatcher, OutboxMessage, Source, SourceMessageId, TopicHandlers,
    WorkerSettings,
};
use coordination_sql::PostgresProvider;
use testkit::eventually;
use testkit::postgres::TestCluster;

use crate::scene::{Journal, enqueue, open, quick, run, topic};

const OUTAGES: usize = 3;
/// How many messages are sent around each outage: some before it, the others when it is over.
const MESSAGES: usize = 200;

/// From the outbox through the inbox to the journal, with an outage every now and then.
pub fn resume(take_away: fn(&mut TestCluster)) {
    run(async |mut cluster| {
        let provider = open(&cluster).await;
        let (journal, shutdown) = (Journal::default(), CancellationToken::new());
        let outbox_worker = outbox_to_inbox(&provider);
        let inbox_worker = inbox_to(&provider, &journal);
        let metrics = [outbox_worker.metrics(), inbox_worker.metrics()];
        let workers = [
            tokio::spawn(outbox_worker.run(shutdown.clone())),
            tokio::spawn(inbox_worker.run(shutdown.clone())),
        ];
        let mut sent = Vec::new();
        for _ in 0..OUTAGES {
            let handled_before = journal.len();
            let sending = tokio::spawn(send(provider.clone()));
            eventually("messages are handled", async || journal.len() > handled_before).await;
            let errors = || metrics.each_ref().map(|metrics| metrics.snapshot().provider_errors);
            let errors_before = errors();
            take_away(&mut cluster);
            eventually("both workers meet errors", async || {
                errors().iter().zip(errors_before).all(|(now, before)| *now > before)
            })
            .await;
            cluster.start_again();
            sent.extend(sending.await.unwrap());
        }
        let all_are_handled = async || sent.iter().all(|id| journal.count_of(id) > 0);
        eventually("all messages are handled", all_are_handled).await;
        shutdown.cancel();
        for worker in workers {
            worker.await.unwrap();
        }
        eprintln!("{OUTAGES} outages: sent {}, handled {}", sent.len(), journal.len());
        assert_eq!(journal.len(), sent.len(), "nothing was handled that was not sent");
    });
}

/// The worker never polls, so it can only have been told.
pub fn hear_again() {
    run(async |mut cluster| {
        let provider = open(&cluster).await;
        let (journal, shutdown) = (Journal::default(), CancellationToken::new());
        let hour = Duration::from_secs(3600);
        let settings =
            WorkerSettings { poll_interval: hour, upkeep_interval: hour, ..Default::default() };
        let handled = journal.clone();
        let handlers = TopicHandlers::new().on(topic(), move |message: OutboxMessage| {
            handled.note(&message.id);
            async { Ok(()) }
        });
        let worker = OutboxDispatcher::new(provider.clone(), handlers, settings).unwrap();
        let worker = tokio::spawn(worker.run(shutdown.clone()));
        for _ in 0..OUTAGES {
            let handled_before = journal.len();
            // One of these is the first that it hears of.
            while journal.len() == handled_before {
                enqueue(&provider).await;
            }
            cluster.stop();
            cluster.start_again();
        }
        shutdown.cancel();
        worker.await.unwrap();
    });
}

async fn send(provider: PostgresProvider) -> Vec<String> {
    let mut sent = Vec::new();
    for _ in 0..MESSAGES {
        sent.push(enqueue(&provider).await);
    }
    sent
}

fn outbox_to_inbox(provider: &PostgresProvider) -> OutboxDispatcher<PostgresProvider> {
    let inbox = provider.clone();
    let handlers = TopicHandlers::new().on(topic(), move |message: OutboxMessage| {
        let inbox = inbox.clone();
        async move {
            let key = InboxKey {
                source: Source::new("shop").map_err(HandlerError::permanent)?,
                message_id: SourceMessageId::new(message.id.to_string())
                    .map_err(HandlerError::permanent)?,
            };
            let copy = NewInboxMessage::new(key, topic(), message.payload);
            let _added_or_there_already = Inbox::enqueue(&inbox, copy).await?;
            Ok(())
        }
    });
    OutboxDispatcher::new(provider.clone(), handlers, quick()).unwrap()
}

fn inbox_to(provider: &PostgresProvider, journal: &Journal) -> InboxDispatcher<PostgresProvider> {
    let journal = journal.clone();
    let handlers = TopicHandlers::new().on(topic(), move |message: InboxMessage| {
        journal.note(&message.key.message_id);
        async { Ok(()) }
    });
    InboxDispatcher::new(provider.clone(), handlers, quick()).unwrap()
}
