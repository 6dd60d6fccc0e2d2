//! Runs out of ticks: which have come, and what becomes of those that were missed.

use coordination::{Fence, FencingToken, JobDefinition, Materialised, RunId, Timestamp};

use super::{JobSql, definition, earliest};
use crate::engine::{Engine, Insert, Values};
use crate::failure::Failure;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, Value, id, maybe_moment, read};

/// How many jobs' ticks become runs in one transaction.
const JOBS_BATCH: usize = 500;

#[derive(Debug)]
pub(super) struct MaterialiseSql {
    look: Statement,
    fence: Statement,
    raise_fence: Statement,
    due_jobs: Statement,
    ticked_later: Statement,
    set_next_tick: Statement,
    add_runs: Insert,
}

impl MaterialiseSql {
    pub(super) fn new(dialect: &Dialect) -> MaterialiseSql {
        let statement = |text: &str| dialect.statement(text);
        MaterialiseSql {
            look: statement(
                "SELECT (SELECT token FROM {fences} WHERE resource = $1) AS token,
                        (SELECT MIN(next_tick) FROM {jobs}) - {now} AS next_after,
                        (SELECT MAX(ticked_at) FROM {jobs}) - {now} AS clock_back_by",
            ),
            fence: statement("SELECT token FROM {fences} WHERE resource = $1 {for_share}"),
            raise_fence: statement(
                "INSERT INTO {fences} AS fence (resource, token) VALUES ($1, $2)
                 ON CONFLICT (resource) DO UPDATE SET token = excluded.token
                 WHERE fence.token < excluded.token",
            ),
            due_jobs: statement(&format!(
                "SELECT name, topic, payload, cron, time_zone, catch_up_max, next_tick FROM {{jobs}}
                 WHERE next_tick <= $1 ORDER BY next_tick, name LIMIT {JOBS_BATCH} {{for_update}}"
            )),
            ticked_later: statement(&format!(
                "SELECT name, topic, payload, cron, time_zone, catch_up_max, next_tick FROM {{jobs}}
                 WHERE ticked_at > $1 ORDER BY ticked_at DESC LIMIT {JOBS_BATCH} {{for_update}}"
            )),
            set_next_tick: statement(
                "UPDATE {jobs} SET next_tick = $2, ticked_at = $3 WHERE name = $1",
            ),
            add_runs: Insert::quiet(
                dialect,
                "INSERT INTO {job_runs} (id, job, scheduled_at, due_at, state)
                 VALUES ($1, $2, $3, $3, 'due') ON CONFLICT DO NOTHING",
                "INSERT INTO {job_runs} (id, job, scheduled_at, due_at, state)
                 SELECT id, job, scheduled_at, scheduled_at, 'due'
                 FROM unnest($1::text[], $2::text[], $3::bigint[])
                      WITH ORDINALITY AS new (id, job, scheduled_at, number)
                 ORDER BY number ON CONFLICT DO NOTHING",
            ),
        }
    }
}

impl JobSql {
    pub(in crate::scheduler) async fn materialise<E: Engine>(
        &self,
        engine: &E,
        fence: &Fence,
    ) -> Result<Materialised, Failure> {
        // A token that the tables cannot hold was given by nobody.
        let token = read("token", i64::try_from(fence.token.get()))?;
        if self.is_nothing_due(engine, fence, token).await? {
            return Ok(Materialised::Runs(0));
        }
        let mut count = 0;
        loop {
            let mut transaction = engine.begin().await?;
            if let Some(recorded) =
                self.larger_fence(engine, &mut transaction, fence, token).await?
            {
                return Ok(Materialised::StaleFence { recorded });
            }
            let set_right = self.set_ticks_right(engine, &mut transaction).await?;
            let (jobs, runs) = self.materialise_batch(engine, &mut transaction).await?;
            engine.commit(transaction).await?;
            count += runs;
            if jobs.max(set_right) < JOBS_BATCH {
                return Ok(Materialised::Runs(count));
            }
        }
    }

    /// Whether the token is the one recorded and no tick has come: what is true most of the time
    /// is found out without a transaction.
    async fn is_nothing_due<E: Engine>(
        &self,
        engine: &E,
        fence: &Fence,
        token: i64,
    ) -> Result<bool, Failure> {
        let values = vec![fence.resource.as_str().into()];
        let rows = engine.read(&self.materialise.look, values).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let is_due = row.maybe_int("next_after")?.is_some_and(|next_after| next_after <= 0);
        let was_ahead = row.maybe_int("clock_back_by")?.is_some_and(|back_by| back_by > 0);
        Ok(row.maybe_int("token")? == Some(token) && !is_due && !was_ahead)
    }

    /// Finds next ticks again that were found by a clock that was ahead, and says how many: nothing
    /// else would before that clock's time has come.
    async fn set_ticks_right<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
    ) -> Result<usize, Failure> {
        let sql = &self.materialise;
        let now = engine.now_in(connection).await?;
        let rows = engine.fetch_in(connection, &sql.ticked_later, vec![now.into()]).await?;
        let mut ticks = Vec::with_capacity(rows.len());
        for row in &rows {
            let kept = row.maybe_int("next_tick")?.map(Timestamp::from_unix_micros).transpose();
            let job = definition(row)?;
            let next_tick = earliest(read("next_tick", kept)?, job.schedule.next_after(now));
            ticks.push((job.name, next_tick));
        }
        for (name, next_tick) in &ticks {
            let values = vec![name.as_str().into(), maybe_moment(*next_tick), now.into()];
            engine.execute_in(connection, &sql.set_next_tick, values).await?;
        }
        Ok(ticks.len())
    }

    /// Records the token, and holds what is recorded until the transaction ends. The answer is a
    /// recorded one that is larger.
    async fn larger_fence<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
        fence: &Fence,
        token: i64,
    ) -> Result<Option<FencingToken>, Failure> {
        let sql = &self.materialise;
        let named = || vec![Value::from(fence.resource.as_str())];
        let rows = engine.fetch_in(connection, &sql.fence, named()).await?;
        let mut recorded = rows.first().map(|row| row.int("token")).transpose()?;
        if recorded.is_none_or(|recorded| recorded < token) {
            let values = vec![fence.resource.as_str().into(), Value::Int(token)];
            engine.execute_in(connection, &sql.raise_fence, values).await?;
            let rows = engine.fetch_in(connection, &sql.fence, named()).await?;
            recorded = rows.first().map(|row| row.int("token")).transpose()?;
        }
        let recorded = read("token", u64::try_from(recorded.ok_or(sqlx::Error::RowNotFound)?))?;
        Ok((recorded > fence.token.get()).then_some(FencingToken::new(recorded)))
    }

    /// Makes the runs of some jobs whose tick has come. Says of how many jobs, and how many runs.
    async fn materialise_batch<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
    ) -> Result<(usize, usize), Failure> {
        let sql = &self.materialise;
        let now = engine.now_in(connection).await?;
        // One moment for all of it: a tick between two would be due by one and still to come by the
        // other.
        let due = engine.fetch_in(connection, &sql.due_jobs, vec![now.into()]).await?;
        let mut jobs = Vec::with_capacity(due.len());
        for row in &due {
            jobs.push((definition(row)?, row.moment("next_tick")?));
        }
        let mut runs: Vec<Values<'_>> = Vec::new();
        for (job, first) in &jobs {
            runs.extend(
                ticks(job, *first, now)
                    .into_iter()
                    .map(|tick| vec![id(&RunId::random()), job.name.as_str().into(), tick.into()]),
            );
        }
        let made = if runs.is_empty() {
            0
        } else {
            engine.insert_in(connection, &sql.add_runs, &runs).await?
        };
        for (job, _) in &jobs {
            let next_tick = maybe_moment(job.schedule.next_after(now));
            let values = vec![job.name.as_str().into(), next_tick, now.into()];
            engine.execute_in(connection, &sql.set_next_tick, values).await?;
        }
        Ok((jobs.len(), made))
    }
}

/// The ticks that become runs, the oldest first, of those between `first` and now.
fn ticks(job: &JobDefinition, first: Timestamp, now: Timestamp) -> Vec<Timestamp> {
    let mut ticks = vec![first];
    let mut last = first;
    for _ in 1..job.catch_up.runs_max() {
        match job.schedule.next_after(last) {
            Some(next) if next <= now => last = next,
            Some(_) | None => break,
        }
        ticks.push(last);
    }
    ticks
}
