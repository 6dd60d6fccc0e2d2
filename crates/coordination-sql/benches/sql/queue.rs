//! Outbox operations of the benchmarks.

use std::time::Duration;

use coordination::{
    BatchSize, LeaseDuration, MessageId, NewOutboxMessage, Outbox, OwnerToken, Payload, Topic,
};
use coordination_sql::{Database, PostgresConfig, PostgresProvider, Provider, SchemaName};
use testkit::postgres::TestCluster;

/// How many messages a round has.
pub(crate) const BATCH: u32 = 50;

pub(crate) fn topic() -> Topic {
    Topic::new("order.placed").unwrap()
}

pub(crate) fn message() -> NewOutboxMessage {
    NewOutboxMessage::new(
        topic(),
        Payload::new("a payload of some forty bytes, like an ID").unwrap(),
    )
}

pub(crate) fn messages(count: u32) -> Vec<NewOutboxMessage> {
    (0..count).map(|_| message()).collect()
}

pub(crate) fn hour() -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(3600)).unwrap()
}

/// A schema of the cluster, with this many connections.
pub(crate) async fn connect(
    cluster: &TestCluster,
    schema: &str,
    connections_max: u32,
) -> PostgresProvider {
    let schema = SchemaName::new(schema).unwrap();
    let config = PostgresConfig { schema, connections_max, ..PostgresConfig::default() };
    PostgresProvider::connect_with(&cluster.url(), config).await.unwrap()
}

pub(crate) async fn claim<D: Database>(
    provider: &Provider<D>,
    owner: &OwnerToken,
    max: u32,
) -> Vec<MessageId> {
    let max = BatchSize::new(max).unwrap();
    let claimed = provider.claim_due(owner, hour(), max).await.unwrap();
    claimed.into_iter().map(|message| message.id).collect()
}

pub(crate) async fn acknowledge<D: Database>(
    provider: &Provider<D>,
    owner: &OwnerToken,
    ids: &[MessageId],
) {
    let count = provider.mark_dispatched(owner, ids).await.unwrap();
    assert_eq!(count, ids.len());
}
