//! The inbox.

use std::future::Future;
use std::time::Duration;

use coordination::{
    BatchSize, ContentHash, CorrelationId, Delay, Enqueued, ErrorText, GetError, Inbox, InboxKey,
    InboxMessage, InboxStatus, LeaseDuration, NewInboxMessage, OwnerToken, Processed, Result,
    Retention, Settlement, Source, SourceMessageId, Topic, Topics,
};

use super::Provider;
use crate::engine::{ClaimSql, Database, Values};
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement, WorkQueue};
use crate::value::{Columns, Value, correlation, id, maybe_moment, read, topics_value};
use crate::work::{
    ExpiredItemsSql, NOTE_ERROR, POSTPONED, PerTopicFilter, RETRIED, Table, WorkSql, begin, settle,
};

/// Separates source and message ID in the stored ID; names have no control characters.
const SEPARATOR: char = '\t';

const TABLE: Table = Table {
    name: "inbox",
    // An attempt of an earlier claim without an outcome is lost.
    on_claim: "lost_attempts = lost_attempts + CASE WHEN begun THEN 1 ELSE 0 END, begun = FALSE",
    columns: COLUMNS,
    reopens_if: None,
};
const COLUMNS: &str = "id, topic, payload, correlation_id, hash, state, claimed_until, due_at, \
                     attempts, attempts_at_revival, lost_attempts, last_error";

#[derive(Debug)]
pub(crate) struct InboxSql {
    work: WorkSql,
    claims: PerTopicFilter<ClaimSql>,
    expired: ExpiredItemsSql,
    enqueue: Statement,
    processed: Statement,
    begin: Statement,
    postpone: Statement,
    abandon: Statement,
    fail: Statement,
    get: Statement,
    revive: Statement,
}

impl InboxSql {
    pub(crate) fn new(dialect: &Dialect) -> InboxSql {
        let statement = |text: &str| dialect.statement(text);
        InboxSql {
            work: WorkSql::new(dialect, &TABLE),
            claims: PerTopicFilter::new(|filter| ClaimSql::new(dialect, &TABLE, filter)),
            expired: ExpiredItemsSql::new(dialect, &TABLE),
            enqueue: dialect.notifying(
                WorkQueue::Inbox,
                "INSERT INTO {inbox} (id, topic, payload, correlation_id, hash, due_at, state)
                 VALUES ($1, $2, $3, $4, $5, COALESCE($6, {now}),
                         CASE WHEN COALESCE($6, {now}) <= {now} THEN 'due' ELSE 'waiting' END)
                 ON CONFLICT (id) DO NOTHING",
            ),
            processed: statement("SELECT hash FROM {inbox} WHERE id = $1 AND state = 'done'"),
            begin: statement(&begin("inbox")),
            postpone: dialect.notifying(WorkQueue::Inbox, &TABLE.give_back(POSTPONED)),
            abandon: statement(&TABLE.give_back(RETRIED)),
            fail: statement(&settle("inbox", "dead", NOTE_ERROR)),
            get: statement(&format!("SELECT {COLUMNS} FROM {{inbox}} WHERE id = $1")),
            revive: dialect.notifying(
                WorkQueue::Inbox,
                &format!(
                    "UPDATE {{inbox}}
                     SET state = CASE WHEN $2 = 0 THEN 'due' ELSE 'waiting' END,
                         due_at = {{now}} + $2, finished_at = NULL,
                         attempts_at_revival = attempts, lost_attempts = 0, begun = FALSE
                         {NOTE_ERROR}
                     WHERE id {{locked:1:inbox}} AND state = 'dead'"
                ),
            ),
        }
    }
}

impl<D: Database> Provider<D> {
    /// Adds a message to the inbox in the application's own transaction.
    ///
    /// # Errors
    /// [`ProviderError`](coordination::ProviderError) if there was no answer; the transaction is as
    /// after any failed statement.
    pub async fn receive_in(
        &self,
        connection: &mut <D::Driver as sqlx::Database>::Connection,
        message: NewInboxMessage,
    ) -> Result<Enqueued> {
        let insert = &self.sql().inbox.enqueue;
        let added = self.engine().execute_in(connection, insert, row(&message)).await;
        Ok(enqueued(added.map_err(DatabaseError::of("inbox enqueue"))?))
    }

    /// Finishes claimed inbox messages in the application's own transaction: what the handler wrote
    /// in it happens exactly once, because it commits with the acknowledgement or not at all.
    /// Returns how many; if that is too few, a claim was lost and the transaction must not commit.
    ///
    /// # Errors
    /// [`ProviderError`](coordination::ProviderError) if there was no answer; the transaction is as
    /// after any failed statement.
    pub async fn ack_in(
        &self,
        connection: &mut <D::Driver as sqlx::Database>::Connection,
        owner: &OwnerToken,
        keys: &[InboxKey],
    ) -> Result<usize> {
        if keys.is_empty() {
            return Ok(0);
        }
        let (ack, values) = (&self.sql().inbox.work.finish, vec![owner.into(), ids(keys)]);
        let acked = self.engine().execute_in(connection, ack, values).await;
        acked.map_err(DatabaseError::of("inbox ack"))
    }
}

impl<D: Database> Inbox for Provider<D> {
    async fn already_processed(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
    ) -> Result<Processed> {
        let look = async {
            let rows = self.engine().read(&self.sql().inbox.processed, vec![identity(key)]).await?;
            let Some(row) = rows.first() else { return Ok(Processed::No) };
            Ok(match (hash, row.maybe_bytes("hash")?) {
                (Some(hash), Some(kept)) if hash.as_bytes() != kept => Processed::WithOtherContent,
                (Some(_) | None, _) => Processed::Yes,
            })
        };
        look.await.map_err(DatabaseError::of("inbox already processed"))
    }

    async fn enqueue(&self, message: NewInboxMessage) -> Result<Enqueued> {
        let added = self.engine().execute(&self.sql().inbox.enqueue, row(&message)).await;
        let enqueued = enqueued(added.map_err(DatabaseError::of("inbox enqueue"))?);
        if enqueued == Enqueued::Added {
            self.engine().notify_work(WorkQueue::Inbox);
        }
        Ok(enqueued)
    }

    async fn claim_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<InboxMessage>> {
        let (sql, by) = (&self.sql().inbox, (owner, lease, max));
        let claimed =
            sql.claims.of(topics).run(self.engine(), by, topics_value(topics), message::<D>).await;
        claimed.map_err(DatabaseError::of("inbox claim"))
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        key: &InboxKey,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        let begin = async {
            let values = vec![owner.into(), identity(key), lease.into()];
            let rows = self.engine().fetch(&self.sql().inbox.begin, values).await?;
            rows.first().map(|row| row.count("attempts")).transpose()
        };
        begin.await.map_err(DatabaseError::of("inbox begin"))
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        settlement: &Settlement,
    ) -> Result<usize> {
        let sql = &self.sql().inbox;
        let (operation, statement, more) = match settlement {
            Settlement::Finish { .. } => ("inbox ack", &sql.work.finish, vec![]),
            Settlement::Retry { delay, error } => {
                ("inbox abandon", &sql.abandon, vec![(*delay).into(), error.into()])
            }
            Settlement::Fail { error } => ("inbox fail", &sql.fail, vec![error.into()]),
            Settlement::Postpone { delay, reason } => {
                ("inbox postpone", &sql.postpone, vec![(*delay).into(), reason.into()])
            }
        };
        let mut values: Values<'_> = vec![owner.into(), ids(keys)];
        values.extend(more);
        let count = self.change(operation, statement, keys, values).await?;
        if let Settlement::Postpone { .. } = settlement {
            self.engine().notify_work(WorkQueue::Inbox);
        }
        Ok(count)
    }

    async fn get(&self, key: &InboxKey) -> Result<InboxMessage, GetError> {
        let get = async {
            let rows = self.engine().read(&self.sql().inbox.get, vec![identity(key)]).await?;
            rows.first().map(message::<D>).transpose()
        };
        let message = get.await.map_err(DatabaseError::of("inbox get"))?;
        message.ok_or_else(|| GetError::Unknown { key: key.clone() })
    }

    async fn revive(&self, keys: &[InboxKey], reason: &ErrorText, delay: Delay) -> Result<usize> {
        let values = vec![ids(keys), delay.into(), reason.into()];
        let revived = self.change("inbox revive", &self.sql().inbox.revive, keys, values).await?;
        self.engine().notify_work(WorkQueue::Inbox);
        Ok(revived)
    }

    async fn reap(&self) -> Result<usize> {
        self.sql().inbox.work.reap(self.engine()).await.map_err(DatabaseError::of("inbox reap"))
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        let purged = self.sql().inbox.expired.purge(self.engine(), topics, keep).await;
        purged.map_err(DatabaseError::of("inbox purge"))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        let age = self.sql().inbox.work.oldest_ready_age(self.engine()).await;
        age.map_err(DatabaseError::of("inbox oldest ready age"))
    }

    // Not an `async fn`: the future must see notifications from this call on, polled or not.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.engine().work_added(WorkQueue::Inbox)
    }
}

fn enqueued(added: usize) -> Enqueued {
    if added == 0 { Enqueued::Duplicate } else { Enqueued::Added }
}

fn text_of(key: &InboxKey) -> String {
    format!("{}{SEPARATOR}{}", key.source, key.message_id)
}

fn identity(key: &InboxKey) -> Value<'static> {
    id(&text_of(key))
}

fn ids(keys: &[InboxKey]) -> Value<'static> {
    Value::Texts(keys.iter().map(text_of).collect())
}

fn row(message: &NewInboxMessage) -> Values<'_> {
    vec![
        identity(&message.key),
        message.topic.as_str().into(),
        (&message.payload).into(),
        correlation(message.correlation_id.as_ref()),
        Value::Bytes(message.hash.as_ref().map(ContentHash::as_bytes)),
        maybe_moment(message.due_at),
    ]
}

fn message<D: Database>(row: &D::Row) -> Result<InboxMessage, DatabaseError> {
    let (source, message_id) = read(
        "id",
        row.text("id")?.split_once(SEPARATOR).ok_or("no tab between source and message ID"),
    )?;
    let key = InboxKey {
        source: read("id", Source::new(source))?,
        message_id: read("id", SourceMessageId::new(message_id))?,
    };
    let status = match row.text("state")? {
        "claimed" => InboxStatus::Claimed { until: row.moment("claimed_until")? },
        "done" => InboxStatus::Done,
        "dead" => InboxStatus::Dead,
        _ => InboxStatus::Ready,
    };
    Ok(InboxMessage {
        key,
        topic: row.named("topic", Topic::new)?,
        payload: row.payload("payload")?,
        correlation_id: row.maybe_named("correlation_id", CorrelationId::new)?,
        hash: read("hash", row.maybe_bytes("hash")?.map(ContentHash::new).transpose())?,
        status,
        due_at: row.moment("due_at")?,
        attempts: row.count("attempts")?,
        attempts_at_revival: row.count("attempts_at_revival")?,
        lost_attempts: row.count("lost_attempts")?,
        last_error: row.error_text("last_error")?,
    })
}
