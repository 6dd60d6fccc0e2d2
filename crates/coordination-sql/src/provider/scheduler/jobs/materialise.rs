//! Runs out of ticks: which have come, and what becomes of those that were missed.

use std::collections::BTreeSet;

use coordination::{Fence, FencingToken, JobDefinition, Materialised, RunId, Timestamp};

use super::{JobSql, definition, earliest};
use crate::engine::{Engine, Insert, Values};
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, Value, id, maybe_moment, read};

/// How many due jobs one statement looks at, and how many runs one transaction makes before it leaves
/// the rest of them to the next. One job makes up to `CATCH_UP_MAX`.
const JOBS_BATCH: usize = 500;
const RUNS_BATCH: usize = 1000;

#[derive(Debug)]
pub(super) struct MaterialiseSql {
    look: Statement,
    fence: Statement,
    raise_fence: Statement,
    due_jobs: Statement,
    ticked_later: Statement,
    set_next_ticks: Insert,
    add_runs: Insert,
}

/// How far a materialisation has come. All of it is about one moment, so that it ends: a job that was
/// looked at is not due again by it.
#[derive(Debug)]
struct Pass {
    now: Timestamp,
    /// The last job that was looked at, in the order of ticks and names.
    last: (i64, String),
    /// The last job whose tick was found by a clock that was ahead, in the order of those moments.
    last_ahead: (i64, String),
    runs: usize,
    unreadable: BTreeSet<String>,
}

impl MaterialiseSql {
    pub(super) fn new(dialect: &Dialect) -> MaterialiseSql {
        let statement = |text: &str| dialect.statement(text);
        MaterialiseSql {
            look: statement(
                "SELECT (SELECT token FROM {fences} WHERE resource = $1) AS token,
                        (SELECT MIN(next_tick) FROM {jobs} WHERE name {not_in:2}) - {now}
                            AS next_after,
                        (SELECT MAX(ticked_at) FROM {jobs} WHERE name {not_in:2}) - {now}
                            AS clock_back_by",
            ),
            fence: statement("SELECT token FROM {fences} WHERE resource = $1 {for_share}"),
            raise_fence: statement(
                "INSERT INTO {fences} AS fence (resource, token) VALUES ($1, $2)
                 ON CONFLICT (resource) DO UPDATE SET token = excluded.token
                 WHERE fence.token < excluded.token",
            ),
            due_jobs: statement(&format!(
                "SELECT name, topic, payload, cron, time_zone, catch_up_max, next_tick FROM {{jobs}}
                 WHERE next_tick <= $1 AND (next_tick, name) > ($2, $3)
                 ORDER BY next_tick, name LIMIT {JOBS_BATCH} {{for_update}}"
            )),
            ticked_later: statement(&format!(
                "SELECT name, topic, payload, cron, time_zone, catch_up_max, next_tick, ticked_at
                 FROM {{jobs}} WHERE ticked_at > {{now}} AND (ticked_at, name) > ($1, $2)
                 ORDER BY ticked_at, name LIMIT {JOBS_BATCH} {{for_update}}"
            )),
            set_next_ticks: Insert::quiet(
                dialect,
                "UPDATE {jobs} SET next_tick = $2, ticked_at = $3 WHERE name = $1",
                "UPDATE {jobs} AS job SET next_tick = new.next_tick, ticked_at = new.ticked_at
                 FROM unnest($1::text[], $2::bigint[], $3::bigint[])
                      AS new (name, next_tick, ticked_at)
                 WHERE job.name = new.name",
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
    pub(in crate::provider::scheduler) async fn materialise<E: Engine>(
        &self,
        engine: &E,
        fence: &Fence,
    ) -> Result<Materialised, DatabaseError> {
        // A token that the tables cannot hold was given by nobody.
        let token = read("token", i64::try_from(fence.token.get()))?;
        let left_out = self.unreadable.names();
        if self.is_nothing_due(engine, fence, token, &left_out).await? {
            return Ok(materialised(0, left_out.len()));
        }
        let mut pass: Option<Pass> = None;
        loop {
            let mut transaction = engine.begin().await?;
            if let Some(recorded) =
                self.larger_fence(engine, &mut transaction, fence, token).await?
            {
                return Ok(Materialised::StaleFence { recorded });
            }
            let mut this = match pass.take() {
                Some(pass) => pass,
                None => Pass::at(engine.now_in(&mut transaction).await?),
            };
            let more_ahead = self.set_ticks_right(engine, &mut transaction, &mut this).await?;
            let more_due = self.materialise_batch(engine, &mut transaction, &mut this).await?;
            engine.commit(transaction).await?;
            if !more_ahead && !more_due {
                let made = materialised(this.runs, this.unreadable.len());
                self.unreadable.note(this.unreadable);
                return Ok(made);
            }
            pass = Some(this);
        }
    }

    /// Whether the token is the one recorded and no tick has come: what is true most of the time
    /// is found out without a transaction.
    async fn is_nothing_due<E: Engine>(
        &self,
        engine: &E,
        fence: &Fence,
        token: i64,
        left_out: &[String],
    ) -> Result<bool, DatabaseError> {
        let values = vec![fence.resource.as_str().into(), Value::Texts(left_out.to_vec())];
        let rows = engine.read(&self.materialise.look, values).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let is_due = row.maybe_int("next_after")?.is_some_and(|next_after| next_after <= 0);
        let was_ahead = row.maybe_int("clock_back_by")?.is_some_and(|back_by| back_by > 0);
        Ok(row.maybe_int("token")? == Some(token) && !is_due && !was_ahead)
    }

    /// Finds next ticks again, of some jobs, that were found by a clock that was ahead: nothing else
    /// would before that clock's time has come. Says whether there may be more.
    async fn set_ticks_right<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
        pass: &mut Pass,
    ) -> Result<bool, DatabaseError> {
        let sql = &self.materialise;
        let (ticked_at, name) = &pass.last_ahead;
        let values = vec![(*ticked_at).into(), name.clone().into()];
        let ahead = engine.fetch_in(connection, &sql.ticked_later, values).await?;
        if ahead.is_empty() {
            return Ok(false);
        }
        // Asked once the rows are ours: what others found meanwhile was not found ahead of it.
        let now = engine.now_in(connection).await?;
        let mut next_ticks: Vec<Values<'_>> = Vec::new();
        for row in &ahead {
            let name = row.text("name")?;
            pass.last_ahead = (row.int("ticked_at")?, name.to_owned());
            if row.moment("ticked_at")? <= now {
                continue;
            }
            let Some(job) = self.readable(row, pass)? else { continue };
            let kept = row.maybe_int("next_tick")?.map(Timestamp::from_unix_micros).transpose();
            let next_tick = earliest(read("next_tick", kept)?, job.schedule.next_after(now));
            next_ticks.push(vec![name.into(), maybe_moment(next_tick), now.into()]);
        }
        if !next_ticks.is_empty() {
            engine.insert_in(connection, &sql.set_next_ticks, &next_ticks).await?;
        }
        Ok(ahead.len() == JOBS_BATCH)
    }

    /// A job, unless it cannot be read: such a one is noted, and told of once.
    fn readable(
        &self,
        row: &impl Columns,
        pass: &mut Pass,
    ) -> Result<Option<JobDefinition>, DatabaseError> {
        match definition(row) {
            Err(failure @ DatabaseError::Unreadable { .. }) => {
                let name = row.text("name")?;
                if pass.unreadable.insert(name.to_owned()) && !self.unreadable.is_known(name) {
                    tracing::warn!(job = name, %failure, "job skipped, it cannot be read");
                }
                Ok(None)
            }
            job => job.map(Some),
        }
    }

    /// Records the token, and holds what is recorded until the transaction ends. The answer is a
    /// recorded one that is larger.
    async fn larger_fence<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
        fence: &Fence,
        token: i64,
    ) -> Result<Option<FencingToken>, DatabaseError> {
        let sql = &self.materialise;
        let named = || vec![Value::from(fence.resource.as_str())];
        let rows = engine.fetch_in(connection, &sql.fence, named()).await?;
        let mut recorded = rows.first().map(|row| row.int("token")).transpose()?;
        if recorded.is_none_or(|recorded| recorded < token) {
            let values = vec![fence.resource.as_str().into(), token.into()];
            engine.execute_in(connection, &sql.raise_fence, values).await?;
            let rows = engine.fetch_in(connection, &sql.fence, named()).await?;
            recorded = rows.first().map(|row| row.int("token")).transpose()?;
        }
        let recorded = read("token", u64::try_from(recorded.ok_or(sqlx::Error::RowNotFound)?))?;
        Ok((recorded > fence.token.get()).then_some(FencingToken::new(recorded)))
    }

    /// Makes the runs of some jobs whose tick has come, with one statement for the runs and one for
    /// the next ticks. Says whether there may be more.
    async fn materialise_batch<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
        pass: &mut Pass,
    ) -> Result<bool, DatabaseError> {
        let sql = &self.materialise;
        let (tick, name) = &pass.last;
        let values = vec![pass.now.into(), (*tick).into(), name.clone().into()];
        let due = engine.fetch_in(connection, &sql.due_jobs, values).await?;
        let (mut runs, mut next_ticks): (Vec<Values<'_>>, Vec<Values<'_>>) = (vec![], vec![]);
        let mut looked_at = 0;
        for row in &due {
            if runs.len() >= RUNS_BATCH {
                break;
            }
            let name = row.text("name")?;
            pass.last = (row.int("next_tick")?, name.to_owned());
            looked_at += 1;
            let Some(job) = self.readable(row, pass)? else { continue };
            let run = |tick: Timestamp| vec![id(&RunId::random()), name.into(), tick.into()];
            runs.extend(ticks(&job, row.moment("next_tick")?, pass.now).into_iter().map(run));
            let next_tick = maybe_moment(job.schedule.next_after(pass.now));
            next_ticks.push(vec![name.into(), next_tick, pass.now.into()]);
        }
        if !next_ticks.is_empty() {
            pass.runs += engine.insert_in(connection, &sql.add_runs, &runs).await?;
            engine.insert_in(connection, &sql.set_next_ticks, &next_ticks).await?;
        }
        Ok(looked_at < due.len() || due.len() == JOBS_BATCH)
    }
}

impl Pass {
    fn at(now: Timestamp) -> Pass {
        let first = || (i64::MIN, String::new());
        let unreadable = BTreeSet::new();
        Pass { now, last: first(), last_ahead: first(), runs: 0, unreadable }
    }
}

fn materialised(runs: usize, unreadable: usize) -> Materialised {
    match unreadable {
        0 => Materialised::Runs(runs),
        unreadable => Materialised::Partly { runs, unreadable },
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
