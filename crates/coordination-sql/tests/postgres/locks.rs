//! Concurrent calls on the same rows wait for each other.

use std::pin::Pin;
use std::time::Duration;

use coordination::{
    Delay, ErrorText, JoinError, Joins, MessageId, NewJoin, NewOutboxMessage, Outbox, Payload,
    Result, Retention, Topic, TopicSet, Topics,
};
use coordination_sql::sqlx;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::eventually;
use testkit::postgres::TestSchema;

use crate::server::{self, batch, connect, lease, number, owner};

/// Makes a transaction that deletes a message wait before its commit, while the lock is held.
const WAIT_BEFORE_COMMIT: &str = "
    CREATE FUNCTION {schema}.wait() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock_shared(hashtext('{schema}')); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER wait AFTER DELETE ON {schema}.outbox
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.wait()";

/// Two workers with one topic each purge the last two messages of a join; neither sees the other's
/// deletion.
pub(crate) async fn a_join_is_deleted_when_two_workers_purge_its_last_messages() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    let messages = ["a", "b"].map(|name| NewOutboxMessage::new(topic(name), Payload::empty()));
    let ids = messages.clone().map(|message| message.id);
    provider.enqueue_all(&messages).await.unwrap();
    let join = provider.start_join(NewJoin::over(ids).unwrap()).await.unwrap();
    provider.claim_due(&owner(), lease(), batch(2)).await.unwrap();
    assert_eq!(provider.mark_dispatched(&owner(), &ids).await.unwrap(), 2);

    server::execute(&schema, WAIT_BEFORE_COMMIT).await;
    let mut held = hold(&schema, "SELECT pg_advisory_xact_lock(hashtext('{schema}'))").await;
    let purge = async |name: &str| {
        let worker = connect(&schema).await;
        let topics = Topics::Only(TopicSet::of([topic(name)]).unwrap());
        worker.purge(&topics, Retention::of_all(Duration::ZERO)).await.unwrap()
    };
    let let_go = async {
        waiting(&schema, 2).await;
        execute(&mut held, &schema, "COMMIT").await.unwrap();
    };
    let (a, b, ()) = tokio::join!(purge("a"), purge("b"), let_go);
    assert_eq!((a, b), (1, 1));
    let gone = provider.join_progress(join).await;
    assert!(matches!(gone, Err(JoinError::Unknown { .. })), "{gone:?}");
    assert_eq!(number(&schema, "SELECT COUNT(*) FROM {schema}.join_members").await, 0);
}

/// A join that starts locks its messages in that order: a holder of a later one never waits for an
/// earlier one.
pub(crate) async fn messages_are_locked_in_the_order_of_their_ids() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    let mut messages = [(); 2].map(|()| NewOutboxMessage::new(topic("t"), Payload::empty()));
    // The table has them in the other order.
    messages.sort_by_key(|message| std::cmp::Reverse(message.id));
    let [later, earlier] = messages.clone().map(|message| message.id);
    provider.enqueue_all(&messages).await.unwrap();
    let (me, ids, text) = (owner(), [later, earlier], ErrorText::new("no"));
    provider.claim_due(&me, lease(), batch(2)).await.unwrap();
    let share = |id: MessageId| {
        format!("SELECT 1 FROM {{schema}}.outbox WHERE id = '{id}' FOR SHARE NOWAIT")
    };
    let check = async |call: Call<'_>| {
        let mut held = hold(&schema, &share(earlier)).await;
        let take_later = async {
            waiting(&schema, 1).await;
            execute(&mut held, &schema, &share(later)).await.expect("nobody has the later one");
            execute(&mut held, &schema, "COMMIT").await.unwrap();
        };
        let (changed, ()) = tokio::join!(call, take_later);
        assert_eq!(changed.unwrap(), 2);
    };
    let keep = Retention::of_all(Duration::ZERO);
    check(Box::pin(provider.extend(&me, &ids, lease()))).await;
    check(Box::pin(Outbox::fail(&provider, &me, &ids, &text))).await;
    check(Box::pin(Outbox::revive(&provider, &ids, &text, Delay::ZERO))).await;
    provider.claim_due(&me, lease(), batch(2)).await.unwrap();
    check(Box::pin(provider.mark_dispatched(&me, &ids))).await;
    check(Box::pin(Outbox::purge(&provider, &Topics::All, keep))).await;
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<usize>> + Send + 'a>>;

/// A transaction of the test that has run this statement.
async fn hold(schema: &TestSchema, text: &str) -> PgConnection {
    let mut connection = PgConnection::connect(schema.url()).await.unwrap();
    execute(&mut connection, schema, "BEGIN").await.unwrap();
    execute(&mut connection, schema, text).await.unwrap();
    connection
}

async fn execute(
    connection: &mut PgConnection,
    schema: &TestSchema,
    text: &str,
) -> Result<(), sqlx::Error> {
    let text = AssertSqlSafe(text.replace("{schema}", schema.name()));
    sqlx::raw_sql(text).execute(connection).await.map(|_| ())
}

/// Waits until this many transactions on the schema wait for a lock.
async fn waiting(schema: &TestSchema, count: i64) {
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity
                   WHERE wait_event_type = 'Lock' AND pid IN (
                       SELECT pid FROM pg_locks JOIN pg_class ON pg_class.oid = relation
                       WHERE relnamespace = '{schema}'::regnamespace)";
    let all_wait = async || number(schema, waiting).await == count;
    eventually("they come to wait for the lock", all_wait).await;
}

fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}
