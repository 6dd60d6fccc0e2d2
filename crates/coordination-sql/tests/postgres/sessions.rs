//! The provider does not change the application's sessions (`CRD-15`).

use std::time::Duration;

use coordination::{
    CronSchedule, Fence, FencingToken, Inbox, InboxKey, JobDefinition, JobName, Leases,
    Materialised, NewInboxMessage, NewOutboxMessage, Outbox, Payload, ResourceName, Retention,
    Scheduler, Source, SourceMessageId, Topic, Topics,
};
use coordination_sql::{PostgresProvider, sqlx};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection};
use testkit::postgres::TestSchema;

use crate::server::{batch, config, connect, execute, lease, owner};

/// Settings that were changed after the session began.
const CHANGED: &str = "SELECT name || ' = ' || setting FROM pg_settings WHERE source = 'session'";

pub(crate) async fn crd_15_calls_leave_no_setting_in_a_session() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    make_calls(&provider).await;
    let changed: Vec<String> =
        sqlx::query_scalar(CHANGED).fetch_all(provider.pool()).await.unwrap();
    assert_eq!(changed, Vec::<String>::new(), "a connection of the pool");
    let mut transaction = provider.begin().await.unwrap();
    provider.enqueue_in(&mut transaction, message()).await.unwrap();
    let changed: Vec<String> =
        sqlx::query_scalar(CHANGED).fetch_all(&mut *transaction).await.unwrap();
    assert_eq!(changed, Vec::<String>::new(), "the application's transaction");
    transaction.commit().await.unwrap();
}

pub(crate) async fn crd_15_a_provider_works_on_the_applications_pool() {
    let schema = TestSchema::new();
    PostgresProvider::migrate(schema.url(), config(&schema)).await.unwrap();
    let pool = PgPoolOptions::new().max_connections(2).connect(schema.url()).await.unwrap();
    let provider = PostgresProvider::from_pool(pool.clone(), config(&schema)).await.unwrap();
    make_calls(&provider).await;
    // A connection that the application has from elsewhere does as well.
    let mut connection = PgConnection::connect(schema.url()).await.unwrap();
    let id = provider.enqueue_in(&mut connection, message()).await.unwrap();
    assert!(provider.record(id).await.unwrap().is_some());
    for _ in 0..2 {
        let changed: Vec<String> = sqlx::query_scalar(CHANGED).fetch_all(&pool).await.unwrap();
        assert_eq!(changed, Vec::<String>::new());
    }
    provider.close().await;
    let answer: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&pool).await.unwrap();
    assert_eq!(answer, 1, "the pool is the application's");
}

/// A statement that searches rows is planned each time.
pub(crate) async fn crd_15_no_plan_of_a_search_is_kept() {
    let schema = TestSchema::new();
    let provider = connect(&schema).await;
    let schedule = CronSchedule::parse("0 0 1 1 *", "UTC").unwrap();
    let job = JobDefinition::new(JobName::new("j").unwrap(), Topic::new("t").unwrap(), schedule);
    provider.create_or_update_job(job).await.unwrap();
    execute(&schema, "UPDATE {schema}.jobs SET next_tick = 1").await;
    let fence = Fence { resource: ResourceName::new("s").unwrap(), token: FencingToken::new(1) };
    let made = provider.create_job_runs_from_due_jobs(&fence).await.unwrap();
    assert_eq!(made, Materialised::Runs(1));
    make_calls(&provider).await;
    let kept = "SELECT statement FROM pg_prepared_statements
                WHERE statement LIKE '%' || $1 || '%WHERE%'";
    let kept = sqlx::query_scalar(kept).bind(schema.name());
    let kept: Vec<String> = kept.fetch_all(provider.pool()).await.unwrap();
    assert_eq!(kept, Vec::<String>::new());
}

/// A call of each kind.
async fn make_calls(provider: &PostgresProvider) {
    let (me, keep) = (owner(), Retention::of_all(Duration::ZERO));
    let id = Outbox::enqueue(provider, message()).await.unwrap();
    provider.enqueue_all(&[message()]).await.unwrap();
    assert_eq!(provider.claim_due(&me, lease(), batch(10)).await.unwrap().len(), 2);
    assert_eq!(provider.mark_dispatched(&me, &[id]).await.unwrap(), 1);
    Outbox::reap(provider).await.unwrap();
    assert_eq!(Outbox::purge(provider, &Topics::All, keep).await.unwrap(), 1);
    let key = InboxKey {
        source: Source::new("shop").unwrap(),
        message_id: SourceMessageId::new("1").unwrap(),
    };
    let received = NewInboxMessage::new(key, Topic::new("t").unwrap(), Payload::empty());
    let _added = Inbox::enqueue(provider, received).await.unwrap();
    assert_eq!(provider.claim(&me, lease(), batch(10)).await.unwrap().len(), 1);
    let resource = ResourceName::new("r").unwrap();
    let held = provider.acquire(&resource, lease(), None).await.unwrap().unwrap();
    let fence = Fence { resource, token: FencingToken::new(1) };
    let _made = provider.create_job_runs_from_due_jobs(&fence).await.unwrap();
    provider.next_event_time().await.unwrap();
    assert_eq!(held.release().await.unwrap(), 1);
}

fn message() -> NewOutboxMessage {
    NewOutboxMessage::new(Topic::new("t").unwrap(), Payload::empty())
}
