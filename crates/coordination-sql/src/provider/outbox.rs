//! The outbox.

mod joins;
mod topics;

use std::future::Future;
use std::time::Duration;

use coordination::{
    BatchSize, CorrelationId, Delay, ErrorText, LeaseDuration, MessageId, NewOutboxMessage, Outbox,
    OutboxMessage, OutboxRecord, OutboxStatus, OwnerToken, Payload, Result, Retention, Settlement,
    Topic, Topics,
};

pub(crate) use self::joins::JoinSql;
use self::topics::TopicSql;
use super::Provider;
use crate::engine::{ClaimSql, Database, Insert, Values};
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement, WorkQueue};
use crate::value::{Columns, correlation, id, ids, maybe_moment, topics_value};
use crate::work::{
    ExpiredItemsSql, NOTE_ERROR, POSTPONED, PerTopicFilter, RETRIED, Table, WorkSql, begin,
    in_batches, settle,
};

/// How many messages one statement adds.
const ENQUEUE_BATCH: usize = 500;

const TABLE: Table = Table {
    name: "outbox",
    on_claim: "begun = FALSE",
    columns: "id, topic, payload, correlation_id, due_at, retry_count, attempts, last_error, \
            claimed_until",
    reopens_if: None,
};

/// The columns of a record, without its ID.
const RECORD: &str = "topic, payload, correlation_id, due_at, retry_count, attempts, last_error, \
                      state, claimed_until, outcome";

#[derive(Debug)]
pub(crate) struct OutboxSql {
    enqueue: Insert,
    work: WorkSql,
    claims: PerTopicFilter<ClaimSql>,
    expired: ExpiredItemsSql,
    topics: TopicSql,
    begin: Statement,
    extend: Statement,
    finish: Statement,
    postpone: Statement,
    reschedule: Statement,
    fail: Statement,
    dead: Statement,
    /// Which of these are dead.
    dead_of: Statement,
    /// Makes joins keep counting these as failed.
    stay_failed: Statement,
    revive: Statement,
    record: Statement,
    reap: Statement,
}

impl OutboxSql {
    pub(crate) fn new(dialect: &Dialect) -> OutboxSql {
        let statement = |text: &str| dialect.statement(text);
        let notifying = |text: &str| dialect.notifying(WorkQueue::Outbox, text);
        OutboxSql {
            enqueue: enqueue(dialect),
            work: WorkSql::new(dialect, &TABLE),
            claims: PerTopicFilter::new(|filter| ClaimSql::new(dialect, &TABLE, filter)),
            expired: ExpiredItemsSql::new(dialect, &TABLE),
            topics: TopicSql::new(dialect),
            begin: statement(&begin("outbox")),
            extend: statement(
                "UPDATE {outbox} SET claimed_until = {greatest}(claimed_until, {now} + $3)
                 WHERE id {locked:2:outbox} AND state = 'claimed' AND owner = $1",
            ),
            finish: statement(&settle("outbox", "done", ", outcome = $3")),
            postpone: notifying(&TABLE.give_back(POSTPONED)),
            reschedule: notifying(
                &TABLE.give_back(&format!("{RETRIED}, retry_count = retry_count + 1")),
            ),
            fail: statement(&settle("outbox", "dead", NOTE_ERROR)),
            dead: statement(&format!(
                "SELECT id, {RECORD} FROM {{outbox}} WHERE state = 'dead' AND id > $1 ORDER BY id LIMIT $2"
            )),
            dead_of: statement(
                "SELECT id FROM {outbox} WHERE id {in:1} AND state = 'dead' ORDER BY id {for_update}",
            ),
            stay_failed: statement(
                "UPDATE {join_members} SET outcome = 'dead' WHERE outcome IS NULL AND message_id {in:1}",
            ),
            revive: notifying(&format!(
                "UPDATE {{outbox}}
                 SET state = CASE WHEN $2 = 0 THEN 'due' ELSE 'waiting' END, due_at = {{now}} + $2,
                     finished_at = NULL, retry_count = 0, attempts = 0{NOTE_ERROR}
                 WHERE id {{in:1}} AND state = 'dead'"
            )),
            record: statement(&format!("SELECT {RECORD} FROM {{outbox}} WHERE id = $1")),
            reap: notifying(&TABLE.reap(dialect)),
        }
    }
}

#[cfg(feature = "testing")]
impl OutboxSql {
    pub(crate) fn measured(&self) -> [&Statement; 2] {
        [&self.claims.of(&Topics::All).claim, &self.work.finish]
    }
}

/// A message without a due time is due at once by the database's clock, and stored as `due`.
fn enqueue(dialect: &Dialect) -> Insert {
    let one = "INSERT INTO {outbox} (id, topic, payload, correlation_id, due_at, state)
               VALUES ($1, $2, $3, $4, COALESCE($5, {now}),
                       CASE WHEN COALESCE($5, {now}) <= {now} THEN 'due' ELSE 'waiting' END)
               ON CONFLICT (id) DO NOTHING";
    let many = "INSERT INTO {outbox} (id, topic, payload, correlation_id, due_at, state)
                SELECT id, topic, payload, correlation_id, COALESCE(due_at, {now}),
                       CASE WHEN COALESCE(due_at, {now}) <= {now} THEN 'due' ELSE 'waiting' END
                FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[])
                     WITH ORDINALITY AS new (id, topic, payload, correlation_id, due_at, number)
                ORDER BY number
                ON CONFLICT (id) DO NOTHING";
    Insert::notifying(dialect, WorkQueue::Outbox, one, many)
}

fn row(message: &NewOutboxMessage) -> Values<'_> {
    vec![
        id(&message.id),
        message.topic.as_str().into(),
        (&message.payload).into(),
        correlation(message.correlation_id.as_ref()),
        maybe_moment(message.due_at),
    ]
}

impl<D: Database> Provider<D> {
    /// Adds messages in one transaction, which is much faster in SQLite. Messages whose ID is known
    /// stay as they are.
    ///
    /// # Errors
    /// [`ProviderError`](coordination::ProviderError) if there was no answer.
    pub async fn enqueue_all(&self, messages: &[NewOutboxMessage]) -> Result<()> {
        let add = async {
            let mut transaction = self.engine().begin().await?;
            for batch in messages.chunks(ENQUEUE_BATCH) {
                let rows: Vec<_> = batch.iter().map(row).collect();
                let insert = &self.sql().outbox.enqueue;
                self.engine().insert_in(&mut transaction, insert, &rows).await?;
            }
            self.engine().commit(transaction).await
        };
        add.await.map_err(DatabaseError::of("outbox enqueue all"))?;
        self.engine().notify_work(WorkQueue::Outbox);
        Ok(())
    }

    /// Adds a message in the application's own transaction: it exists when that commits, and then
    /// workers are notified.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use coordination::{NewOutboxMessage, Payload, Topic};
    /// use coordination_sql::{SqliteProvider, sqlx};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let provider = SqliteProvider::open(folder.path().join("shop.sqlite")).await?;
    /// # sqlx::query("CREATE TABLE orders (id INTEGER)").execute(provider.pool()).await?;
    /// let mut transaction = provider.begin().await?;
    /// sqlx::query("INSERT INTO orders (id) VALUES (42)").execute(&mut *transaction).await?;
    /// let placed = NewOutboxMessage::new(Topic::new("order.placed")?, Payload::new("42")?);
    /// provider.enqueue_in(&mut transaction, placed).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// [`ProviderError`](coordination::ProviderError) if there was no answer; the transaction is as
    /// after any failed statement.
    pub async fn enqueue_in(
        &self,
        connection: &mut <D::Driver as sqlx::Database>::Connection,
        message: NewOutboxMessage,
    ) -> Result<MessageId> {
        let insert = &self.sql().outbox.enqueue.one;
        let added = self.engine().execute_in(connection, insert, row(&message)).await;
        added.map_err(DatabaseError::of("outbox enqueue"))?;
        Ok(message.id)
    }
}

impl<D: Database> Outbox for Provider<D> {
    async fn enqueue(&self, message: NewOutboxMessage) -> Result<MessageId> {
        let insert = &self.sql().outbox.enqueue.one;
        let added = self.engine().execute(insert, row(&message)).await;
        if added.map_err(DatabaseError::of("outbox enqueue"))? > 0 {
            self.engine().notify_work(WorkQueue::Outbox);
        }
        Ok(message.id)
    }

    async fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>> {
        let (sql, by) = (&self.sql().outbox, (owner, lease, max));
        let claimed =
            sql.claims.of(topics).run(self.engine(), by, topics_value(topics), claimed::<D>).await;
        claimed.map_err(DatabaseError::of("outbox claim"))
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        message: MessageId,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        let begin = async {
            let values = vec![owner.into(), id(&message), lease.into()];
            let rows = self.engine().fetch(&self.sql().outbox.begin, values).await?;
            rows.first().map(|row| row.count("attempts")).transpose()
        };
        begin.await.map_err(DatabaseError::of("outbox begin"))
    }

    async fn extend(
        &self,
        owner: &OwnerToken,
        messages: &[MessageId],
        lease: LeaseDuration,
    ) -> Result<usize> {
        let values = vec![owner.into(), ids(messages), lease.into()];
        self.change("outbox extend", &self.sql().outbox.extend, messages, values).await
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        messages: &[MessageId],
        settlement: &Settlement,
    ) -> Result<usize> {
        let sql = &self.sql().outbox;
        let (operation, statement, more) = match settlement {
            Settlement::Finish { outcome: None } => {
                ("outbox mark dispatched", &sql.work.finish, vec![])
            }
            Settlement::Finish { outcome: Some(outcome) } => {
                ("outbox finish", &sql.finish, vec![outcome.into()])
            }
            Settlement::Retry { delay, error } => {
                ("outbox reschedule", &sql.reschedule, vec![(*delay).into(), error.into()])
            }
            Settlement::Fail { error } => ("outbox fail", &sql.fail, vec![error.into()]),
            Settlement::Postpone { delay, reason } => {
                ("outbox postpone", &sql.postpone, vec![(*delay).into(), reason.into()])
            }
        };
        let mut values: Values<'_> = vec![owner.into(), ids(messages)];
        values.extend(more);
        let count = self.change(operation, statement, messages, values).await?;
        if let Settlement::Retry { .. } | Settlement::Postpone { .. } = settlement {
            self.engine().notify_work(WorkQueue::Outbox);
        }
        Ok(count)
    }

    async fn dead(&self, after: Option<MessageId>, max: BatchSize) -> Result<Vec<OutboxRecord>> {
        let read = async {
            let after = after.map_or_else(String::new, |after| after.to_string());
            let values = vec![after.into(), i64::from(max.get()).into()];
            let rows = self.engine().read(&self.sql().outbox.dead, values).await?;
            let record = |row| record::<D>(Columns::named(row, "id", str::parse)?, row);
            rows.iter().map(record).collect::<Result<Vec<_>, _>>()
        };
        read.await.map_err(DatabaseError::of("outbox dead"))
    }

    async fn revive(
        &self,
        messages: &[MessageId],
        reason: &ErrorText,
        delay: Delay,
    ) -> Result<usize> {
        if messages.is_empty() {
            return Ok(0);
        }
        let (engine, sql) = (self.engine(), &self.sql().outbox);
        let revive = async {
            let mut transaction = engine.begin().await?;
            let rows = engine.fetch_in(&mut transaction, &sql.dead_of, vec![ids(messages)]).await?;
            let dead = joins::listed(&rows)?;
            engine.execute_in(&mut transaction, &sql.stay_failed, vec![dead.clone()]).await?;
            let values = vec![dead, delay.into(), reason.into()];
            let count = engine.execute_in(&mut transaction, &sql.revive, values).await?;
            engine.commit(transaction).await?;
            Ok(count)
        };
        let count = revive.await.map_err(DatabaseError::of("outbox revive"))?;
        engine.notify_work(WorkQueue::Outbox);
        Ok(count)
    }

    async fn record(&self, message: MessageId) -> Result<Option<OutboxRecord>> {
        let read = async {
            let rows = self.engine().read(&self.sql().outbox.record, vec![id(&message)]).await?;
            rows.first().map(|row| record::<D>(message, row)).transpose()
        };
        read.await.map_err(DatabaseError::of("outbox record"))
    }

    async fn reap(&self) -> Result<usize> {
        let reap = &self.sql().outbox.reap;
        let reaped = in_batches(|| self.engine().execute(reap, Vec::new())).await;
        let count = reaped.map_err(DatabaseError::of("outbox reap"))?;
        if count > 0 {
            self.engine().notify_work(WorkQueue::Outbox);
        }
        Ok(count)
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        let (joins, expired) = (&self.sql().joins, &self.sql().outbox.expired);
        let purge = in_batches(|| joins.purge_batch(self.engine(), expired, topics, keep));
        purge.await.map_err(DatabaseError::of("outbox purge"))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        let age = self.sql().outbox.work.oldest_ready_age(self.engine()).await;
        age.map_err(DatabaseError::of("outbox oldest ready age"))
    }

    async fn next_due_after(&self, topics: &Topics) -> Result<Option<Duration>> {
        let next = self.sql().outbox.topics.next_due_after(self.engine(), topics).await;
        next.map_err(DatabaseError::of("outbox next due"))
    }

    // Not an `async fn`: the future must see notifications from this call on, polled or not.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.engine().work_added(WorkQueue::Outbox)
    }
}

fn claimed<D: Database>(row: &D::Row) -> Result<OutboxMessage, DatabaseError> {
    Ok(OutboxMessage {
        id: row.named("id", str::parse)?,
        topic: row.named("topic", Topic::new)?,
        payload: row.payload("payload")?,
        correlation_id: row.maybe_named("correlation_id", CorrelationId::new)?,
        due_at: row.moment("due_at")?,
        retry_count: row.count("retry_count")?,
        attempts: row.count("attempts")?,
        last_error: row.error_text("last_error")?,
        claimed_until: row.moment("claimed_until")?,
    })
}

fn record<D: Database>(id: MessageId, row: &D::Row) -> Result<OutboxRecord, DatabaseError> {
    let status = match row.text("state")? {
        "claimed" => OutboxStatus::Claimed { until: row.moment("claimed_until")? },
        "done" => {
            let outcome = row.maybe_bytes("outcome")?.map(Payload::new).transpose();
            OutboxStatus::Done { outcome: crate::value::read("outcome", outcome)? }
        }
        "dead" => OutboxStatus::Dead,
        _ => OutboxStatus::Ready,
    };
    Ok(OutboxRecord {
        id,
        topic: row.named("topic", Topic::new)?,
        payload: row.payload("payload")?,
        correlation_id: row.maybe_named("correlation_id", CorrelationId::new)?,
        due_at: row.moment("due_at")?,
        retry_count: row.count("retry_count")?,
        attempts: row.count("attempts")?,
        last_error: row.error_text("last_error")?,
        status,
    })
}
