//! Bounded statements, however many items are due (`CRD-14`). A row's `xmin` is the transaction
//! that wrote it.

use std::time::Duration;

use coordination::{
    Fence, FencingToken, Inbox, Materialised, NewOutboxMessage, Outbox, Payload, ResourceName,
    Retention, Scheduler, Timestamp, Topic, TopicSet, Topics,
};
use testkit::postgres::TestSchema;

use crate::server::{batch, connect, execute, lease, number, owner};

/// The bound of a statement.
const BATCH: i64 = 1000;
/// Due, in any order, and not marked due yet.
const WAITING: &str = "
    INSERT INTO {schema}.timers (id, state, due_at, topic, payload)
        SELECT lpad(n::text, 26, '0'), 'waiting', 1, 't', '' FROM generate_series(1, 5000) AS n;
    INSERT INTO {schema}.outbox (id, state, due_at, topic, payload)
        SELECT lpad(n::text, 26, '0'), 'waiting', 1, 't', '' FROM generate_series(1, 5000) AS n";

pub(crate) async fn crd_14_a_claim_notices_a_bounded_number_of_due_items() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    execute(&schema, WAITING).await;
    let timers = provider.claim_timers(&owner(), lease(), batch(10)).await.unwrap();
    assert_eq!(timers.len(), 10);
    let waiting = "SELECT COUNT(*) FROM {schema}.timers WHERE state = 'waiting'";
    assert_eq!(number(&schema, waiting).await, 5000 - BATCH);
    // All are handed out, in the order of their creation.
    let mut places = timers.iter().map(|timer| timer.id.to_string()).collect::<Vec<_>>();
    loop {
        let more = provider.claim_timers(&owner(), lease(), batch(1000)).await.unwrap();
        if more.is_empty() {
            break;
        }
        places.extend(more.iter().map(|timer| timer.id.to_string()));
    }
    assert_eq!(places.len(), 5000);
    assert!(places.is_sorted(), "in the order of their creation");
}

pub(crate) async fn crd_14_a_claim_by_topic_finds_its_own_behind_many_others() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    execute(&schema, WAITING).await;
    // Due last of all, and noticed by nobody yet.
    let other = Topic::new("other").unwrap();
    let message = NewOutboxMessage::new(other.clone(), Payload::empty());
    let id = Outbox::enqueue(&provider, message.due_at(Timestamp::MAX)).await.unwrap();
    let due = "UPDATE {schema}.outbox SET due_at = 2 WHERE topic = 'other'";
    execute(&schema, due).await;
    let only = Topics::Only(TopicSet::of([other.clone()]).unwrap());
    let claimed = provider.claim_due_of(&owner(), lease(), batch(10), &only).await.unwrap();
    assert_eq!(claimed.iter().map(|message| message.id).collect::<Vec<_>>(), [id]);
    let waiting = "SELECT COUNT(*) FROM {schema}.outbox WHERE state = 'waiting'";
    assert_eq!(number(&schema, waiting).await, 5000, "of its own topics alone");
    let except = Topics::Except(TopicSet::of([other]).unwrap());
    let claimed = provider.claim_due_of(&owner(), lease(), batch(10), &except).await.unwrap();
    assert_eq!(claimed.len(), 10);
    assert!(number(&schema, waiting).await >= 5000 - BATCH);
}

pub(crate) async fn crd_14_reaping_and_purging_change_a_bounded_number_of_rows_at_a_time() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    execute(&schema, WAITING).await;
    let expired = "UPDATE {schema}.outbox SET state = 'claimed', owner = 'b', claimed_until = 1;
                   UPDATE {schema}.timers SET state = 'claimed', owner = 'b', claimed_until = 1";
    execute(&schema, expired).await;
    assert_eq!(Outbox::reap(&provider).await.unwrap(), 5000);
    assert_eq!(provider.reap_timers().await.unwrap(), 5000);
    for table in ["outbox", "timers"] {
        let largest = format!(
            "SELECT MAX(rows) FROM (
                 SELECT COUNT(*) AS rows FROM {{schema}}.{table} GROUP BY xmin::text) AS batches"
        );
        assert_eq!(number(&schema, &largest).await, BATCH, "{table}");
    }
    // Deleted rows are gone; a trigger that counts the rows of a statement tells.
    let finished = "
        UPDATE {schema}.outbox SET state = 'done', finished_at = 1;
        INSERT INTO {schema}.inbox (id, state, due_at, finished_at, topic, payload)
            SELECT 's' || chr(9) || n, 'dead', 1, 1, 't', '' FROM generate_series(1, 2500) AS n;
        CREATE TABLE {schema}.statements (rows BIGINT);
        CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO {schema}.statements SELECT COUNT(*) FROM gone; RETURN NULL; END';
        CREATE TRIGGER note AFTER DELETE ON {schema}.outbox REFERENCING OLD TABLE AS gone
            FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note();
        CREATE TRIGGER note AFTER DELETE ON {schema}.inbox REFERENCING OLD TABLE AS gone
            FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()";
    execute(&schema, finished).await;
    let keep = Retention::of_all(Duration::ZERO);
    assert_eq!(Outbox::purge(&provider, &Topics::All, keep).await.unwrap(), 5000);
    assert_eq!(Inbox::purge(&provider, &Topics::All, keep).await.unwrap(), 2500);
    assert_eq!(number(&schema, "SELECT MAX(rows) FROM {schema}.statements").await, BATCH);
}

/// How many rows each statement inserts or updates.
const NOTE_STATEMENTS: &str = "
    CREATE TABLE {schema}.statements (table_name TEXT, rows BIGINT);
    CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO {schema}.statements SELECT TG_TABLE_NAME, COUNT(*) FROM made;
         RETURN NULL; END';
    CREATE TRIGGER note AFTER INSERT ON {schema}.job_runs REFERENCING NEW TABLE AS made
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note();
    CREATE TRIGGER note AFTER UPDATE ON {schema}.jobs REFERENCING NEW TABLE AS made
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()";

/// More jobs are due than one batch takes, each with more missed ticks than it catches up on.
pub(crate) async fn crd_14_materialising_makes_a_bounded_number_of_runs_at_a_time() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    let jobs = "
        INSERT INTO {schema}.jobs (name, topic, payload, cron, time_zone, catch_up_max, next_tick)
            SELECT 'job-' || n, 't', '', '* * * * *', 'UTC', 5, 0
            FROM generate_series(1, 1200) AS n";
    execute(&schema, jobs).await;
    execute(&schema, NOTE_STATEMENTS).await;
    let made = provider.create_job_runs_from_due_jobs(&fence()).await.unwrap();
    assert_eq!(made, Materialised::Runs(6000), "all of them in one call, which ends");
    let largest = "SELECT MAX(rows) FROM {schema}.statements";
    assert!(number(&schema, largest).await <= 2 * BATCH);
    // One statement for the runs of a batch, and one for the next ticks of its jobs.
    let updates = "SELECT COUNT(*) FROM {schema}.statements WHERE table_name = 'jobs'";
    let inserts = "SELECT COUNT(*) FROM {schema}.statements WHERE table_name = 'job_runs'";
    assert_eq!(number(&schema, updates).await, number(&schema, inserts).await);
    assert_eq!(number(&schema, updates).await, 6);
}

/// A clock that was ahead may have computed the ticks of every job.
pub(crate) async fn crd_14_ticks_are_set_right_a_bounded_number_at_a_time() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    let jobs = "
        INSERT INTO {schema}.jobs (name, topic, payload, cron, time_zone, next_tick, ticked_at)
            SELECT 'job-' || n, 't', '', '0 0 1 1 *', 'UTC', 9e15, 8e15
            FROM generate_series(1, 1200) AS n";
    execute(&schema, jobs).await;
    execute(&schema, NOTE_STATEMENTS).await;
    let made = provider.create_job_runs_from_due_jobs(&fence()).await.unwrap();
    assert_eq!(made, Materialised::Runs(0));
    let ahead = "SELECT COUNT(*) FROM {schema}.jobs WHERE next_tick >= 8e15 OR ticked_at >= 8e15";
    assert_eq!(number(&schema, ahead).await, 0, "all of them in one call");
    let largest = "SELECT MAX(rows) FROM {schema}.statements";
    assert_eq!(number(&schema, largest).await, BATCH / 2);
    assert_eq!(number(&schema, "SELECT COUNT(*) FROM {schema}.statements").await, 3);
}

fn fence() -> Fence {
    let resource = ResourceName::new("scheduler").unwrap();
    Fence { resource, token: FencingToken::new(1) }
}
