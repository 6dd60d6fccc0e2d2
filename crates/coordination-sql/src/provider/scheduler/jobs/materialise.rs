//! Creates job runs from due ticks and applies the catch-up policy.

use std::collections::BTreeSet;

use coordination::{Fence, FencingToken, JobDefinition, Materialised, RunId, Timestamp};

use super::{JobSql, definition, earliest};
use crate::engine::{Engine, Insert, Values};
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, Value, id, maybe_moment, read};

/// How many due jobs one statement reads, and how many runs one transaction creates before it
/// leaves the rest to the next. One job creates up to `CATCH_UP_MAX`.
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

/// The progress of a materialisation. All of it uses one `now`, so that it ends: a processed job is
/// not due again at that time.
#[derive(Debug)]
struct MaterialiseProgress {
    now: Timestamp,
    /// The last processed job, by tick and name.
    last: (i64, String),
    /// The last job whose tick was computed by a clock that was ahead, by that time and name.
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
            set_next_ticks: Insert::silent(
                dialect,
                "UPDATE {jobs} SET next_tick = $2, ticked_at = $3 WHERE name = $1",
                "UPDATE {jobs} AS job SET next_tick = new.next_tick, ticked_at = new.ticked_at
                 FROM unnest($1::text[], $2::bigint[], $3::bigint[])
                      AS new (name, next_tick, ticked_at)
                 WHERE job.name = new.name",
            ),
            add_runs: Insert::silent(
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
        // No lease issues a token that does not fit the column.
        let token = read("token", i64::try_from(fence.token.get()))?;
        let skipped = self.unreadable.names();
        if self.nothing_due(engine, fence, token, &skipped).await? {
            return Ok(materialised(0, skipped.len()));
        }
        let mut progress: Option<MaterialiseProgress> = None;
        loop {
            let mut transaction = engine.begin().await?;
            if let Some(recorded) =
                self.newer_fencing_token(engine, &mut transaction, fence, token).await?
            {
                return Ok(Materialised::StaleFence { recorded });
            }
            let mut this = match progress.take() {
                Some(progress) => progress,
                None => MaterialiseProgress::at(engine.now_in(&mut transaction).await?),
            };
            let more_ahead = self.correct_ticks(engine, &mut transaction, &mut this).await?;
            let more_due = self.materialise_batch(engine, &mut transaction, &mut this).await?;
            engine.commit(transaction).await?;
            if !more_ahead && !more_due {
                let made = materialised(this.runs, this.unreadable.len());
                self.unreadable.note(this.unreadable);
                return Ok(made);
            }
            progress = Some(this);
        }
    }

    /// Whether the token is the recorded one and no tick is due. Usually true, so this is checked
    /// without a transaction.
    async fn nothing_due<E: Engine>(
        &self,
        engine: &E,
        fence: &Fence,
        token: i64,
        skipped: &[String],
    ) -> Result<bool, DatabaseError> {
        let values = vec![fence.resource.as_str().into(), Value::Texts(skipped.to_vec())];
        let rows = engine.read(&self.materialise.look, values).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let is_due = row.maybe_int("next_after")?.is_some_and(|next_after| next_after <= 0);
        let was_ahead = row.maybe_int("clock_back_by")?.is_some_and(|back_by| back_by > 0);
        Ok(row.maybe_int("token")? == Some(token) && !is_due && !was_ahead)
    }

    /// Recomputes next ticks that were computed by a clock that was ahead, for a batch of jobs;
    /// otherwise those jobs would wait until that clock's time. Returns whether there may be more.
    async fn correct_ticks<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
        progress: &mut MaterialiseProgress,
    ) -> Result<bool, DatabaseError> {
        let sql = &self.materialise;
        let (ticked_at, name) = &progress.last_ahead;
        let values = vec![(*ticked_at).into(), name.clone().into()];
        let ahead = engine.fetch_in(connection, &sql.ticked_later, values).await?;
        if ahead.is_empty() {
            return Ok(false);
        }
        // Read after the rows are locked, so not before any time that others have stored in them.
        let now = engine.now_in(connection).await?;
        let mut next_ticks: Vec<Values<'_>> = Vec::new();
        for row in &ahead {
            let name = row.text("name")?;
            progress.last_ahead = (row.int("ticked_at")?, name.to_owned());
            if row.moment("ticked_at")? <= now {
                continue;
            }
            let Some(job) = self.readable(row, progress)? else { continue };
            let kept = row.maybe_int("next_tick")?.map(Timestamp::from_unix_micros).transpose();
            let next_tick = earliest(read("next_tick", kept)?, job.schedule.next_after(now));
            next_ticks.push(vec![name.into(), maybe_moment(next_tick), now.into()]);
        }
        if !next_ticks.is_empty() {
            engine.insert_in(connection, &sql.set_next_ticks, &next_ticks).await?;
        }
        Ok(ahead.len() == JOBS_BATCH)
    }

    /// The job, or `None` if it is unreadable; that is remembered, and logged once.
    fn readable(
        &self,
        row: &impl Columns,
        progress: &mut MaterialiseProgress,
    ) -> Result<Option<JobDefinition>, DatabaseError> {
        match definition(row) {
            Err(failure @ DatabaseError::Unreadable { .. }) => {
                let name = row.text("name")?;
                if progress.unreadable.insert(name.to_owned()) && !self.unreadable.is_known(name) {
                    tracing::warn!(job = name, %failure, "unreadable job skipped");
                }
                Ok(None)
            }
            job => job.map(Some),
        }
    }

    /// Records the token and locks the record until the transaction ends. Returns the recorded
    /// token if it is larger.
    async fn newer_fencing_token<E: Engine>(
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

    /// Creates the runs of a batch of due jobs, with one statement for the runs and one for the
    /// next ticks. Returns whether there may be more.
    async fn materialise_batch<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
        progress: &mut MaterialiseProgress,
    ) -> Result<bool, DatabaseError> {
        let sql = &self.materialise;
        let (tick, name) = &progress.last;
        let values = vec![progress.now.into(), (*tick).into(), name.clone().into()];
        let due = engine.fetch_in(connection, &sql.due_jobs, values).await?;
        let (mut runs, mut next_ticks): (Vec<Values<'_>>, Vec<Values<'_>>) = (vec![], vec![]);
        let mut processed = 0;
        for row in &due {
            if runs.len() >= RUNS_BATCH {
                break;
            }
            let name = row.text("name")?;
            progress.last = (row.int("next_tick")?, name.to_owned());
            processed += 1;
            let Some(job) = self.readable(row, progress)? else { continue };
            let run = |tick: Timestamp| vec![id(&RunId::random()), name.into(), tick.into()];
            runs.extend(ticks(&job, row.moment("next_tick")?, progress.now).into_iter().map(run));
            let next_tick = maybe_moment(job.schedule.next_after(progress.now));
            next_ticks.push(vec![name.into(), next_tick, progress.now.into()]);
        }
        if !next_ticks.is_empty() {
            progress.runs += engine.insert_in(connection, &sql.add_runs, &runs).await?;
            engine.insert_in(connection, &sql.set_next_ticks, &next_ticks).await?;
        }
        Ok(processed < due.len() || due.len() == JOBS_BATCH)
    }
}

impl MaterialiseProgress {
    fn at(now: Timestamp) -> MaterialiseProgress {
        let first = || (i64::MIN, String::new());
        let unreadable = BTreeSet::new();
        MaterialiseProgress { now, last: first(), last_ahead: first(), runs: 0, unreadable }
    }
}

fn materialised(runs: usize, unreadable: usize) -> Materialised {
    match unreadable {
        0 => Materialised::Runs(runs),
        unreadable => Materialised::Partly { runs, unreadable },
    }
}

/// The ticks from `first` to `now` that become runs, the oldest first.
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
