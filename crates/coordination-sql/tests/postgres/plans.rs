//! No query plan scans a whole table.

use std::time::Duration;

use coordination::{
    Delay, ErrorText, Inbox, InboxKey, NewInboxMessage, NewOutboxMessage, NewTimer, Outbox,
    Payload, Retention, Scheduler, Source, SourceMessageId, Timestamp, Topic, TopicSet, Topics,
};
use coordination_sql::{PostgresProvider, sqlx};
use testkit::eventually;
use testkit::postgres::TestSchema;

use crate::server::{batch, connect, execute, lease, number, owner, text};

/// No statistics: the planner does not know that the tables have grown.
const NO_HELP: &str = "
    ALTER TABLE {schema}.outbox SET (autovacuum_enabled = off);
    ALTER TABLE {schema}.inbox SET (autovacuum_enabled = off);
    ALTER TABLE {schema}.timers SET (autovacuum_enabled = off)";
/// Finished items.
const GROW: &str = "
    INSERT INTO {schema}.outbox (id, state, due_at, finished_at, topic, payload)
        SELECT 'x' || n, CASE WHEN n % 2 = 0 THEN 'done' ELSE 'dead' END, 0, 9e15, 't', ''
        FROM generate_series(1, 100000) AS n;
    INSERT INTO {schema}.inbox (id, state, due_at, finished_at, topic, payload)
        SELECT 'x' || n, CASE WHEN n % 2 = 0 THEN 'done' ELSE 'dead' END, 0, 9e15, 't', ''
        FROM generate_series(1, 100000) AS n;
    INSERT INTO {schema}.timers (id, state, due_at, finished_at, topic, payload)
        SELECT 'x' || n, 'done', 0, 9e15, 't', '' FROM generate_series(1, 100000) AS n";
/// What all sessions have read of the tables, by scans and by indexes.
const READ: &str = "SELECT COALESCE(SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)), 0)::bigint
                    FROM pg_stat_user_tables WHERE schemaname = '{schema}'
                    AND relname IN ('outbox', 'inbox', 'timers')";
/// The same by table and index, to find the plan.
const BY_INDEX: &str = "
    SELECT string_agg(what || ' ' || read, ', ') FROM (
        SELECT relname || ' as a whole' AS what, seq_tup_read AS read FROM pg_stat_user_tables
        WHERE schemaname = '{schema}'
        UNION ALL
        SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes
        WHERE schemaname = '{schema}' ORDER BY 2 DESC) AS reads WHERE read > 0";
const ROUNDS: usize = 7;

/// The server caches a plan after several runs, and a plan for an empty table is wrong for a large
/// one. The cost is counted in rows: one scan of a table is 100 000, and one of its done or dead
/// items 50 000.
pub(crate) async fn crd_15_calls_read_no_more_when_the_tables_have_grown() {
    let schema = TestSchema::new();
    connect(&schema).await.close().await;
    execute(&schema, NO_HELP).await;
    let provider = connect(&schema).await;
    for _ in 0..ROUNDS {
        round(&provider).await;
    }
    execute(&schema, "ANALYZE {schema}.outbox, {schema}.inbox, {schema}.timers").await;
    for _ in 0..ROUNDS {
        round(&provider).await;
    }
    execute(&schema, GROW).await;
    for _ in 0..ROUNDS {
        round(&provider).await;
    }
    // The session has told all that it has read when it is gone.
    let session: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(provider.pool()).await.unwrap();
    provider.close().await;
    let sessions = format!("SELECT COUNT(*) FROM pg_stat_activity WHERE pid = {session}");
    eventually("the session ends", async || number(&schema, &sessions).await == 0).await;
    let read = number(&schema, READ).await;
    assert!(read > 0, "what was read is counted");
    assert!(read < 50_000, "{read} rows: {}", text(&schema, BY_INDEX).await);
}

/// One call of each kind that searches rows, with a few items.
async fn round(provider: &PostgresProvider) {
    let (me, text) = (owner(), ErrorText::new("x"));
    let only = Topics::Only(TopicSet::of([topic()]).unwrap());
    let except = Topics::Except(TopicSet::of([Topic::new("other").unwrap()]).unwrap());
    for topics in [&Topics::All, &only, &except] {
        let messages = [message(), message()];
        provider.enqueue_all(&messages).await.unwrap();
        let claimed = provider.claim_due_of(&me, lease(), batch(10), topics).await.unwrap();
        assert_eq!(claimed.len(), 2);
        let ids = [claimed[0].id, claimed[1].id];
        Outbox::begin(provider, &me, ids[0], lease()).await.unwrap();
        provider.extend(&me, &ids, lease()).await.unwrap();
        provider.record(ids[0]).await.unwrap();
        assert_eq!(provider.mark_dispatched(&me, &ids[..1]).await.unwrap(), 1);
        assert_eq!(Outbox::fail(provider, &me, &ids[1..], &text).await.unwrap(), 1);
        provider.next_due_after(topics).await.unwrap();
        Outbox::purge(provider, topics, Retention::default()).await.unwrap();
        Inbox::purge(provider, topics, Retention::default()).await.unwrap();
    }
    Outbox::reap(provider).await.unwrap();
    Outbox::oldest_ready_age(provider).await.unwrap();
    let key = InboxKey {
        source: Source::new("shop").unwrap(),
        message_id: SourceMessageId::new(message().id.to_string()).unwrap(),
    };
    let received = NewInboxMessage::new(key.clone(), topic(), Payload::empty());
    let _added = Inbox::enqueue(provider, received).await.unwrap();
    let keys = [key];
    for topics in [&only, &except] {
        let claimed = provider.claim_of(&me, lease(), batch(10), topics).await.unwrap();
        assert_eq!(claimed.len(), 1);
        Inbox::begin(provider, &me, &keys[0], lease()).await.unwrap();
        Inbox::postpone(provider, &me, &keys, Delay::ZERO).await.unwrap();
    }
    assert_eq!(provider.claim(&me, lease(), batch(10)).await.unwrap().len(), 1);
    Inbox::abandon(provider, &me, &keys, &text, Delay::ZERO).await.unwrap();
    assert_eq!(provider.claim(&me, lease(), batch(10)).await.unwrap().len(), 1);
    assert_eq!(provider.ack(&me, &keys).await.unwrap(), 1);
    provider.get(&keys[0]).await.unwrap();
    Inbox::reap(provider).await.unwrap();
    let timer = NewTimer::new(topic(), Payload::empty(), Timestamp::MIN);
    provider.schedule_timer(timer.clone()).await.unwrap();
    assert_eq!(provider.claim_timers(&me, lease(), batch(10)).await.unwrap().len(), 1);
    assert_eq!(provider.ack_timers(&me, &[timer.id]).await.unwrap(), 1);
    provider.reap_timers().await.unwrap();
    provider.next_event_time().await.unwrap();
    Scheduler::purge(provider, Duration::from_secs(3600)).await.unwrap();
}

fn topic() -> Topic {
    Topic::new("t").unwrap()
}

fn message() -> NewOutboxMessage {
    NewOutboxMessage::new(topic(), Payload::empty())
}
