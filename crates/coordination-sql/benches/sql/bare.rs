//! The baseline: statements on one connection, in a loop.

use coordination_sql::PostgresProvider;
use coordination_sql::sqlx::postgres::PgConnection;
use coordination_sql::sqlx::{self, AssertSqlSafe, Connection, Row};
use testkit::postgres::TestCluster;

use crate::queue::{BATCH, message};

/// A connection and the three statements of a round.
#[derive(Debug)]
pub(crate) struct Bare {
    connection: PgConnection,
    enqueue: String,
    claim: String,
    acknowledge: String,
    /// Whether claims and acknowledgements are planned once, and not each time.
    keeps_plans: bool,
}

/// A textbook queue: one table, one index, only what a claim needs.
const TEXTBOOK: &str = "
    CREATE TABLE textbook (
        place BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id TEXT NOT NULL UNIQUE,
        topic TEXT NOT NULL, payload BYTEA NOT NULL, correlation_id TEXT, due_at BIGINT,
        state TEXT NOT NULL DEFAULT 'due', owner TEXT, claimed_until BIGINT);
    CREATE INDEX textbook_due ON textbook (place) WHERE state = 'due'";

impl Bare {
    /// The very statements that the provider uses, in its schema. It must have one connection, and
    /// have enqueued.
    pub(crate) async fn as_used_by(provider: &PostgresProvider, cluster: &TestCluster) -> Bare {
        let prepared = sqlx::query_scalar("SELECT statement FROM pg_prepared_statements");
        let prepared: Vec<String> = prepared.fetch_all(provider.pool()).await.unwrap();
        let find = |part: &str| {
            let found = prepared.iter().find(|text| text.contains(part));
            found.expect("the provider has used it").clone()
        };
        let [claim, acknowledge] = provider.outbox_statements();
        Bare {
            connection: PgConnection::connect(&cluster.url()).await.unwrap(),
            enqueue: find(".outbox (id, topic"),
            claim,
            acknowledge,
            keeps_plans: false,
        }
    }

    pub(crate) async fn textbook(cluster: &TestCluster) -> Bare {
        let mut connection = PgConnection::connect(&cluster.url()).await.unwrap();
        sqlx::raw_sql(TEXTBOOK).execute(&mut connection).await.unwrap();
        let claim = "UPDATE textbook SET state = 'claimed', owner = $1,
                         claimed_until = (EXTRACT(EPOCH FROM now()) * 1000000)::bigint + $2
                     WHERE place = ANY(ARRAY(
                         SELECT place FROM textbook WHERE state = 'due'
                         ORDER BY place LIMIT $3 FOR UPDATE SKIP LOCKED))
                     RETURNING id, topic, payload, correlation_id, due_at, claimed_until";
        Bare {
            connection,
            enqueue: "INSERT INTO textbook (id, topic, payload, correlation_id, due_at)
                      VALUES ($1, $2, $3, $4, $5)"
                .to_owned(),
            claim: claim.to_owned(),
            acknowledge: "UPDATE textbook SET state = 'done' WHERE owner = $1 AND id = ANY($2)"
                .to_owned(),
            keeps_plans: true,
        }
    }

    /// Enqueues a batch one by one, claims it, and acknowledges it.
    pub(crate) async fn round(&mut self) {
        for _ in 0..BATCH {
            let message = message();
            let enqueue = sqlx::query(AssertSqlSafe(self.enqueue.as_str()));
            let enqueue = enqueue
                .bind(message.id.to_string())
                .bind(message.topic.as_str())
                .bind(message.payload.as_bytes())
                .bind(None::<&str>)
                .bind(None::<i64>);
            enqueue.execute(&mut self.connection).await.unwrap();
        }
        let owner = coordination::OwnerToken::random();
        let claim = sqlx::query(AssertSqlSafe(self.claim.as_str())).bind(owner.as_str());
        let claim = claim.bind(3_600_000_000_i64).bind(i64::from(BATCH));
        let claim = claim.persistent(self.keeps_plans);
        let rows = claim.fetch_all(&mut self.connection).await.unwrap();
        let ids: Vec<String> = rows.iter().map(|row| row.get("id")).collect();
        assert_eq!(ids.len(), BATCH as usize);
        let acknowledge = sqlx::query(AssertSqlSafe(self.acknowledge.as_str()));
        let acknowledge = acknowledge.bind(owner.as_str()).bind(ids).persistent(self.keeps_plans);
        let done = acknowledge.execute(&mut self.connection).await.unwrap();
        assert_eq!(done.rows_affected(), u64::from(BATCH));
    }
}
