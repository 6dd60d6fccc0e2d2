//! Timers: one message at one time.

use coordination::{CorrelationId, NewTimer, Timer, TimerId, Topic};

use crate::engine::{ClaimSql, Database, Engine};
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement, WorkQueue};
use crate::value::{Columns, correlation, id};
use crate::work::{PurgeSql, Table, TopicFilter, WorkSql};

const TABLE: Table = Table {
    name: "timers",
    on_claim: "attempts = attempts + 1",
    columns: "id, topic, payload, correlation_id, due_at, attempts",
    reopens_if: None,
};

#[derive(Debug)]
pub(crate) struct TimerSql {
    pub(super) claim: ClaimSql,
    pub(super) work: WorkSql,
    pub(super) purge: PurgeSql,
    schedule: Statement,
    cancel: Statement,
}

impl TimerSql {
    pub(crate) fn new(dialect: &Dialect) -> TimerSql {
        TimerSql {
            claim: ClaimSql::new(dialect, &TABLE, TopicFilter::All),
            work: WorkSql::new(dialect, &TABLE),
            purge: PurgeSql::new(dialect, &TABLE),
            schedule: dialect.notifying(
                WorkQueue::Scheduler,
                "INSERT INTO {timers} (id, topic, payload, correlation_id, due_at, state)
                 VALUES ($1, $2, $3, $4, $5, CASE WHEN $5 <= {now} THEN 'due' ELSE 'waiting' END)
                 ON CONFLICT (id) DO NOTHING",
            ),
            cancel: dialect.statement(
                "UPDATE {timers} SET state = 'dead', finished_at = {now}
                 WHERE id = $1 AND state IN ('waiting', 'due')",
            ),
        }
    }

    pub(super) async fn schedule<E: Engine>(
        &self,
        engine: &E,
        timer: &NewTimer,
    ) -> Result<usize, DatabaseError> {
        let values = vec![
            id(&timer.id),
            timer.topic.as_str().into(),
            (&timer.payload).into(),
            correlation(timer.correlation_id.as_ref()),
            timer.due_at.into(),
        ];
        engine.execute(&self.schedule, values).await
    }

    pub(super) async fn cancel<E: Engine>(
        &self,
        engine: &E,
        timer: TimerId,
    ) -> Result<usize, DatabaseError> {
        engine.execute(&self.cancel, vec![id(&timer)]).await
    }
}

pub(super) fn timer<D: Database>(row: &D::Row) -> Result<Timer, DatabaseError> {
    Ok(Timer {
        id: row.named("id", str::parse)?,
        topic: row.named("topic", Topic::new)?,
        payload: row.payload("payload")?,
        correlation_id: row.maybe_named("correlation_id", CorrelationId::new)?,
        due_at: row.moment("due_at")?,
        attempts: row.count("attempts")?,
    })
}
