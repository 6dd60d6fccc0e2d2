//! Single calls while the database is away.

use std::time::Duration;

use coordination::{
    BatchSize, LeaseDuration, NewOutboxMessage, Outbox, OwnerToken, Payload, ProviderError,
};
use coordination_sql::{OpenError, PostgresConfig, PostgresProvider, sqlx};
use sqlx::Executor as _;

use crate::scene::{connect, enqueue_until_answered, open, run, topic};

pub fn not_there_at_the_start() {
    run(async |mut cluster| {
        cluster.stop();
        let refused = connect(&cluster).await.unwrap_err();
        assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused:?}");
        let text = refused.to_string();
        eprintln!("{text}");
        assert!(text.starts_with("database_unavailable: postgresql://postgres@"), "{text}");
        let folder = cluster.folder().to_str().unwrap();
        assert!(text.contains(folder), "it says where it looked: {text}");
        cluster.start_again();
        open(&cluster).await;
    });
}

pub fn during_an_outage() {
    run(async |mut cluster| {
        let outbox = open(&cluster).await;
        let [before, during] =
            ["1", "2"].map(|text| NewOutboxMessage::new(topic(), Payload::new(text).unwrap()));
        enqueue_until_answered(&outbox, &before).await;
        cluster.crash();
        let refused: ProviderError = Outbox::enqueue(&outbox, during.clone()).await.unwrap_err();
        let text = refused.to_string();
        eprintln!("{text}");
        assert!(text.starts_with("provider_unavailable: outbox enqueue: "), "{text}");
        // The first failure told that the connection is gone; now there is none to be had.
        let text = Outbox::enqueue(&outbox, during.clone()).await.unwrap_err().to_string();
        eprintln!("{text}");
        assert!(text.starts_with("provider_unavailable: outbox enqueue: "), "{text}");

        cluster.start_again();
        enqueue_until_answered(&outbox, &during).await;
        let (owner, minute) = (OwnerToken::random(), Duration::from_secs(60));
        let lease = LeaseDuration::new(minute).unwrap();
        let batch = BatchSize::new(10).unwrap();
        let claimed = loop {
            // What gets no connection in time has claimed nothing.
            if let Ok(claimed) = outbox.claim_due(&owner, lease, batch).await {
                break claimed;
            }
        };
        let ids: Vec<_> = claimed.into_iter().map(|message| message.id).collect();
        assert_eq!(ids, [before.id, during.id], "what was answered is there, and each once");
    });
}

/// What a commit waits for on the server: a trigger that is put off to the end of its transaction.
const WAIT_AT_COMMIT: &str = "
    CREATE FUNCTION coordination.wait() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN PERFORM pg_sleep(86400); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON coordination.outbox
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION coordination.wait()";

pub fn commit_without_an_answer() {
    run(async |cluster| {
        open(&cluster).await.pool().execute(WAIT_AT_COMMIT).await.unwrap();
        let answer_timeout = Duration::from_secs(5);
        let config = PostgresConfig { answer_timeout, ..PostgresConfig::default() };
        let outbox = PostgresProvider::connect_with(&cluster.url(), config).await.unwrap();
        let message = NewOutboxMessage::new(topic(), Payload::new("1").unwrap());
        let refused = outbox.enqueue_all(&[message]).await.unwrap_err();
        let text = refused.to_string();
        eprintln!("{text}");
        assert!(text.contains("outbox enqueue all: no_answer: "), "{text}");
    });
}
