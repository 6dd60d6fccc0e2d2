//! Joins: the progress of a group of outbox messages.
//!
//! Nothing is counted when a message ends: the progress is computed from the members' messages, so
//! joins add no cost to acknowledging, and two messages that end concurrently are both counted. A
//! purge stores the outcomes of the messages that it deletes.

use coordination::{JoinError, JoinId, JoinProgress, Joins, NewJoin, Result, Retention, Topics};

use crate::engine::{Database, Engine};
use crate::error::DatabaseError;
use crate::provider::Provider;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, Value, id, ids};
use crate::work::{ExpiredItemsSql, counted};

#[derive(Debug)]
pub(crate) struct JoinSql {
    start: Statement,
    lock_messages: Statement,
    add_members: Statement,
    progress: Statement,
    lock_expired: Statement,
    note_outcomes: Statement,
    joins_of: Statement,
    lock_joins: Statement,
    forget_joins: Statement,
    forget_members: Statement,
}

impl JoinSql {
    pub(crate) fn new(dialect: &Dialect) -> JoinSql {
        let statement = |text: &str| dialect.statement(text);
        JoinSql {
            start: statement(
                "INSERT INTO {joins} (id, expected, started_at) VALUES ($1, $2, {now})
                 ON CONFLICT (id) DO NOTHING",
            ),
            // A message that ends concurrently does so before or after this, and is counted.
            lock_messages: statement(
                "SELECT id FROM {outbox} WHERE id {in:1} ORDER BY id {for_share}",
            ),
            add_members: statement(
                "INSERT INTO {join_members} (join_id, message_id, outcome)
                 SELECT $1, member.id, (
                     SELECT state FROM {outbox} AS message
                     WHERE message.id = member.id AND message.state IN ('done', 'dead'))
                 FROM {list:2} AS member",
            ),
            progress: statement(
                "SELECT joins.expected,
                        COUNT(CASE WHEN COALESCE(member.outcome, message.state) = 'done' THEN 1 END)
                            AS completed,
                        COUNT(CASE WHEN COALESCE(member.outcome, message.state) = 'dead' THEN 1 END)
                            AS failed
                 FROM {joins} AS joins
                 JOIN {join_members} AS member ON member.join_id = joins.id
                 LEFT JOIN {outbox} AS message ON message.id = member.message_id
                 WHERE joins.id = $1 GROUP BY joins.expected",
            ),
            // First: of two purges of the same messages, one waits for the other here.
            lock_expired: statement(
                "SELECT id FROM {outbox} WHERE id {in:1} AND state IN ('done', 'dead')
                 ORDER BY id {for_update}",
            ),
            note_outcomes: statement(
                "UPDATE {join_members}
                 SET outcome = (SELECT state FROM {outbox} WHERE id = message_id)
                 WHERE outcome IS NULL AND message_id {in:1}",
            ),
            joins_of: statement(
                "SELECT DISTINCT join_id AS id FROM {join_members} WHERE message_id {in:1}",
            ),
            // Two purges that delete the last messages of a join do not see each other's deletions.
            // The second one waits here and then sees them.
            lock_joins: statement(
                "SELECT id FROM {joins} WHERE id {in:1} ORDER BY id {for_update}",
            ),
            forget_joins: statement(
                "DELETE FROM {joins} WHERE id {in:1} AND NOT EXISTS (
                     SELECT 1 FROM {join_members} AS member
                     LEFT JOIN {outbox} AS message ON message.id = member.message_id
                     WHERE member.join_id = {joins}.id
                           AND (member.outcome IS NULL OR message.id IS NOT NULL))",
            ),
            forget_members: statement(
                "DELETE FROM {join_members} WHERE join_id {in:1} AND NOT EXISTS (
                     SELECT 1 FROM {joins} AS kept WHERE kept.id = join_id)",
            ),
        }
    }

    /// Deletes a batch of messages whose retention has passed, and joins without further messages.
    /// Returns how many messages.
    pub(crate) async fn purge_batch<E: Engine>(
        &self,
        engine: &E,
        messages: &ExpiredItemsSql,
        topics: &Topics,
        keep: Retention,
    ) -> Result<usize, DatabaseError> {
        let expired = messages.find(engine, topics, keep).await?;
        if expired.is_empty() {
            return Ok(0);
        }
        let mut transaction = engine.begin().await?;
        let rows = engine
            .fetch_in(&mut transaction, &self.lock_expired, vec![Value::Texts(expired)])
            .await?;
        let expired = listed(&rows)?;
        let expired = || vec![expired.clone()];
        engine.execute_in(&mut transaction, &self.note_outcomes, expired()).await?;
        let delete = &messages.delete;
        let count = engine.execute_in(&mut transaction, delete, expired()).await?;
        // After the messages: a join that starts concurrently has locked them, and is visible here.
        let rows = engine.fetch_in(&mut transaction, &self.joins_of, expired()).await?;
        if !rows.is_empty() {
            let joins = listed(&rows)?;
            engine.fetch_in(&mut transaction, &self.lock_joins, vec![joins.clone()]).await?;
            for forget in [&self.forget_joins, &self.forget_members] {
                engine.execute_in(&mut transaction, forget, vec![joins.clone()]).await?;
            }
        }
        engine.commit(transaction).await?;
        Ok(count)
    }
}

/// The IDs of these rows as a parameter.
pub(super) fn listed(rows: &[impl Columns]) -> Result<Value<'static>, DatabaseError> {
    let ids = rows.iter().map(|row| row.text("id").map(str::to_owned));
    Ok(Value::Texts(ids.collect::<Result<Vec<_>, _>>()?))
}

impl<D: Database> Joins for Provider<D> {
    async fn start_join(&self, join: NewJoin) -> Result<JoinId> {
        let members: Vec<_> = join.members().iter().copied().collect();
        let expected = i64::try_from(members.len()).expect("the number of members is bounded");
        let start = async {
            let (engine, sql) = (self.engine(), &self.sql().joins);
            let mut transaction = engine.begin().await?;
            let values = vec![id(&join.id()), expected.into()];
            if engine.execute_in(&mut transaction, &sql.start, values).await? > 0 {
                engine.fetch_in(&mut transaction, &sql.lock_messages, vec![ids(&members)]).await?;
                let values = vec![id(&join.id()), ids(&members)];
                engine.execute_in(&mut transaction, &sql.add_members, values).await?;
            }
            self.engine().commit(transaction).await
        };
        start.await.map_err(DatabaseError::of("outbox start join"))?;
        Ok(join.id())
    }

    async fn join_progress(&self, join: JoinId) -> Result<JoinProgress, JoinError> {
        let read = async {
            let rows = self.engine().read(&self.sql().joins.progress, vec![id(&join)]).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let (completed, failed) = (counted(row, "completed")?, counted(row, "failed")?);
            let expected = counted(row, "expected")?;
            assert!(completed + failed <= expected, "each member counts once");
            Ok(Some(JoinProgress { expected, completed, failed }))
        };
        let progress = read.await.map_err(DatabaseError::of("outbox join progress"))?;
        progress.ok_or(JoinError::Unknown { id: join })
    }
}
