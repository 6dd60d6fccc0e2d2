//! What the tests share: a cluster to take away, a provider on it, and waiting for what must come.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coordination::{LeaseDuration, NewOutboxMessage, Outbox, Payload, Topic, WorkerSettings};
use coordination_sql::{OpenError, PostgresConfig, PostgresProvider};
use testkit::pass;
use testkit::postgres::{Durability, TestCluster};
use tokio::time::timeout;

/// Longer than any test takes, on a busy machine too.
const TEST_MAX: Duration = Duration::from_secs(600);

/// How often each message was handled.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<HashMap<String, usize>>>);

pub fn run<F: Future<Output = ()>>(test: impl FnOnce(TestCluster) -> F) {
    let cluster = TestCluster::start(Durability::ServerCrash);
    let ended = testkit::run(async { timeout(TEST_MAX, test(cluster)).await });
    ended.expect("the test ends");
}

/// A provider that does not wait long for a connection.
pub async fn connect(cluster: &TestCluster) -> Result<PostgresProvider, OpenError> {
    let connect_timeout = Duration::from_millis(500);
    let config = PostgresConfig { connect_timeout, ..PostgresConfig::default() };
    PostgresProvider::connect_with(&cluster.url(), config).await
}

/// The same from a server that is there, however busy the machine is.
pub async fn open(cluster: &TestCluster) -> PostgresProvider {
    loop {
        if let Ok(provider) = connect(cluster).await {
            return provider;
        }
    }
}

/// Enqueues a message, however often it takes until there is an answer (`PRIM-GEN-E`).
pub async fn enqueue_until_answered(outbox: &PostgresProvider, message: &NewOutboxMessage) {
    while Outbox::enqueue(outbox, message.clone()).await.is_err() {
        pass(Duration::from_millis(10)).await;
    }
}

/// Enqueues a new message the same way. Says its ID.
pub async fn enqueue(outbox: &PostgresProvider) -> String {
    let message = NewOutboxMessage::new(topic(), Payload::new("42").unwrap());
    enqueue_until_answered(outbox, &message).await;
    message.id.to_string()
}

pub fn topic() -> Topic {
    Topic::new("order.placed").unwrap()
}

/// Claims come back soon after an outage, and what becomes due is found soon.
pub fn quick() -> WorkerSettings {
    WorkerSettings {
        claim_for: LeaseDuration::new(Duration::from_secs(2)).unwrap(),
        handler_timeout: Duration::from_secs(1),
        attempts_max: 1000,
        lost_attempts_max: 1000,
        poll_interval: Duration::from_millis(50),
        upkeep_interval: Duration::from_millis(200),
        ..WorkerSettings::default()
    }
}

impl Journal {
    pub fn note(&self, id: &impl ToString) {
        *self.0.lock().unwrap().entry(id.to_string()).or_default() += 1;
    }

    pub fn count_of(&self, id: &str) -> usize {
        self.0.lock().unwrap().get(id).copied().unwrap_or(0)
    }

    /// How many messages were handled, once or more.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}
