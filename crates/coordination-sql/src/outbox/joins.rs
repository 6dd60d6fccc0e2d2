//! Joins: how far a group of outbox messages has come.
//!
//! Nothing is counted when a message ends: a join's progress is read off its members' messages, so
//! acknowledging costs no more for them and two that end at once cannot miss each other. Only what a
//! purge takes away is written down first.

use std::time::Duration;

use coordination::{JoinError, JoinId, JoinProgress, Joins, NewJoin, ProviderError};

use crate::engine::{Database, Engine};
use crate::failure::Failure;
use crate::provider::Provider;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, Value, id, ids};
use crate::work::{counted, span};

/// How many finished messages one transaction forgets.
const PURGE_BATCH: usize = 5000;

#[derive(Debug)]
pub(crate) struct JoinSql {
    start: Statement,
    lock_messages: Statement,
    add_members: Statement,
    progress: Statement,
    is_there_old: Statement,
    finished: Statement,
    note_outcomes: Statement,
    forget_messages: Statement,
    forget_members: Statement,
    forget_joins: Statement,
}

impl JoinSql {
    pub(crate) fn new(dialect: &Dialect) -> JoinSql {
        let statement = |text: &str| dialect.statement(text);
        let complete = "SELECT id FROM {joins} AS old
             WHERE started_at <= $1 AND NOT EXISTS (
                 SELECT 1 FROM {join_members} AS member
                 WHERE member.join_id = old.id AND member.outcome IS NULL)";
        JoinSql {
            start: statement(
                "INSERT INTO {joins} (id, expected, started_at) VALUES ($1, $2, {now})
                 ON CONFLICT (id) DO NOTHING",
            ),
            // One that ends now does so before or after, and not unseen.
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
            is_there_old: statement(
                "SELECT 1 FROM (
                     SELECT MIN(finished_at) AS since FROM {outbox} {by:outbox_finished}
                     WHERE state IN ('done', 'dead')
                     UNION ALL
                     SELECT MIN(started_at) FROM {joins}) AS oldest
                 WHERE since <= {now} - $1",
            ),
            finished: statement(&format!(
                "SELECT id FROM {{outbox}} {{by:outbox_finished}}
                 WHERE state IN ('done', 'dead') AND finished_at <= $1
                 ORDER BY finished_at LIMIT {PURGE_BATCH}"
            )),
            note_outcomes: statement(
                "UPDATE {join_members}
                 SET outcome = (SELECT state FROM {outbox} WHERE id = message_id)
                 WHERE outcome IS NULL AND message_id {in:1}",
            ),
            forget_messages: statement(
                "DELETE FROM {outbox} WHERE id {in:1} AND state IN ('done', 'dead')",
            ),
            forget_members: statement(&format!(
                "DELETE FROM {{join_members}} WHERE join_id IN ({complete})"
            )),
            forget_joins: statement(
                "DELETE FROM {joins} AS old WHERE old.started_at <= $1 AND NOT EXISTS (
                     SELECT 1 FROM {join_members} AS member WHERE member.join_id = old.id)",
            ),
        }
    }

    /// Forgets messages, and joins that are complete, that were finished so long ago. Says how many
    /// messages.
    pub(crate) async fn purge<E: Engine>(
        &self,
        engine: &E,
        older_than: Duration,
    ) -> Result<usize, Failure> {
        let old = engine.read(&self.is_there_old, vec![span(older_than)]).await?;
        if old.is_empty() {
            return Ok(0);
        }
        let mut count = 0;
        loop {
            let mut transaction = engine.begin().await?;
            let until = engine.now_in(&mut transaction).await?.before(older_than);
            let rows =
                engine.fetch_in(&mut transaction, &self.finished, vec![until.into()]).await?;
            let old = rows.iter().map(|row| row.text("id").map(str::to_owned));
            let old = old.collect::<Result<Vec<_>, _>>()?;
            let found = old.len();
            if found > 0 {
                let old = Value::Texts(old);
                engine.execute_in(&mut transaction, &self.note_outcomes, vec![old.clone()]).await?;
                count +=
                    engine.execute_in(&mut transaction, &self.forget_messages, vec![old]).await?;
            }
            engine.execute_in(&mut transaction, &self.forget_members, vec![until.into()]).await?;
            engine.execute_in(&mut transaction, &self.forget_joins, vec![until.into()]).await?;
            engine.commit(transaction).await?;
            if found < PURGE_BATCH {
                return Ok(count);
            }
        }
    }
}

impl<D: Database> Joins for Provider<D> {
    async fn start_join(&self, join: NewJoin) -> Result<JoinId, ProviderError> {
        let members: Vec<_> = join.members().iter().copied().collect();
        let expected = i64::try_from(members.len()).expect("the number of members is bounded");
        let start = async {
            let (engine, sql) = (self.engine(), &self.sql().joins);
            let mut transaction = engine.begin().await?;
            let values = vec![id(&join.id()), Value::Int(expected)];
            if engine.execute_in(&mut transaction, &sql.start, values).await? > 0 {
                engine.fetch_in(&mut transaction, &sql.lock_messages, vec![ids(&members)]).await?;
                let values = vec![id(&join.id()), ids(&members)];
                engine.execute_in(&mut transaction, &sql.add_members, values).await?;
            }
            self.engine().commit(transaction).await
        };
        start.await.map_err(Failure::of("outbox start join"))?;
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
        let progress = read.await.map_err(Failure::of("outbox join progress"))?;
        progress.ok_or(JoinError::Unknown { id: join })
    }
}
