//! Jobs: definitions, next ticks and runs.

mod materialise;
mod unreadable;

use coordination::{
    CatchUp, CatchUpMax, CronSchedule, JobDefinition, JobName, JobRun, JobSaved, RunId, Timestamp,
    Topic,
};

use self::materialise::MaterialiseSql;
use self::unreadable::UnreadableJobs;
use crate::engine::{ClaimSql, Database, Engine, Values};
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement, WorkQueue};
use crate::value::{Columns, Value, id, maybe_moment, read};
use crate::work::{PurgeSql, Table, TopicFilter, WorkSql, first_due};

/// A run has no topic and payload of its own: a claim returns those of its job, as they are now.
const RUNS: Table = Table {
    name: "job_runs",
    on_claim: "attempts = attempts + 1",
    columns: "id, job, scheduled_at, attempts,
            (SELECT topic FROM {jobs} WHERE name = job) AS topic,
            (SELECT payload FROM {jobs} WHERE name = job) AS payload",
    reopens_if: Some("EXISTS (SELECT 1 FROM {jobs} WHERE name = job)"),
};

#[derive(Debug)]
pub(crate) struct JobSql {
    pub(super) claim_runs: ClaimSql,
    pub(super) runs: WorkSql,
    pub(super) purge_runs: PurgeSql,
    unreadable: UnreadableJobs,
    materialise: MaterialiseSql,
    create: Statement,
    get: Statement,
    update: Statement,
    delete: Statement,
    cancel_runs: Statement,
    exists: Statement,
    trigger: Statement,
    run_of: Statement,
    next_event: Statement,
}

impl JobSql {
    pub(crate) fn new(dialect: &Dialect) -> JobSql {
        let statement = |text: &str| dialect.statement(text);
        let notifying = |text: &str| dialect.notifying(WorkQueue::Scheduler, text);
        JobSql {
            claim_runs: ClaimSql::new(dialect, &RUNS, TopicFilter::All),
            runs: WorkSql::new(dialect, &RUNS),
            purge_runs: PurgeSql::new(dialect, &RUNS),
            unreadable: UnreadableJobs::default(),
            materialise: MaterialiseSql::new(dialect),
            create: notifying(
                "INSERT INTO {jobs}
                     (name, topic, payload, cron, time_zone, catch_up_max, next_tick, ticked_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO NOTHING",
            ),
            get: statement(
                "SELECT name, topic, payload, cron, time_zone, catch_up_max, next_tick
                 FROM {jobs} WHERE name = $1 {for_update}",
            ),
            update: notifying(
                "UPDATE {jobs} SET topic = $2, payload = $3, cron = $4, time_zone = $5,
                     catch_up_max = $6, next_tick = $7, ticked_at = $8
                 WHERE name = $1",
            ),
            delete: statement("DELETE FROM {jobs} WHERE name = $1"),
            cancel_runs: statement(
                "UPDATE {job_runs} SET state = 'dead', finished_at = {now}
                 WHERE job = $1 AND state IN ('waiting', 'due')",
            ),
            exists: statement("SELECT name FROM {jobs} WHERE name = $1 {for_share}"),
            trigger: notifying(
                "INSERT INTO {job_runs} (id, job, scheduled_at, due_at, state)
                 VALUES ($1, $2, $3, $3, 'due') ON CONFLICT DO NOTHING",
            ),
            run_of: statement(
                "SELECT id FROM {job_runs} WHERE id = $1
                 UNION ALL
                 SELECT id FROM {job_runs} WHERE job = $2 AND scheduled_at = $3",
            ),
            next_event: statement(&next_event()),
        }
    }

    pub(super) async fn save<E: Engine>(
        &self,
        engine: &E,
        job: &JobDefinition,
    ) -> Result<JobSaved, DatabaseError> {
        let mut transaction = engine.begin().await?;
        let now = engine.now_in(&mut transaction).await?;
        let first_tick = job.schedule.next_after(now);
        let created = row(job, first_tick, now);
        let saved = if engine.execute_in(&mut transaction, &self.create, created).await? > 0 {
            JobSaved::Created
        } else {
            let values = vec![job.name.as_str().into()];
            let rows = engine.fetch_in(&mut transaction, &self.get, values).await?;
            // Deleted concurrently: a repeated call creates it again.
            let kept = rows.first().ok_or(sqlx::Error::RowNotFound)?;
            // An unreadable definition is a different one.
            let (definition, next_tick) = (definition(kept).ok(), kept.maybe_int("next_tick")?);
            if definition.as_ref() == Some(job) {
                JobSaved::Unchanged
            } else {
                let is_same_schedule = |kept: JobDefinition| kept.schedule == job.schedule;
                let next_tick = if definition.is_some_and(is_same_schedule) {
                    let kept = next_tick.map(Timestamp::from_unix_micros).transpose();
                    earliest(read("next_tick", kept)?, first_tick)
                } else {
                    first_tick
                };
                let values = row(job, next_tick, now);
                engine.execute_in(&mut transaction, &self.update, values).await?;
                JobSaved::Updated
            }
        };
        engine.commit(transaction).await?;
        self.unreadable.forget();
        Ok(saved)
    }

    pub(super) async fn delete<E: Engine>(
        &self,
        engine: &E,
        name: &JobName,
    ) -> Result<usize, DatabaseError> {
        let mut transaction = engine.begin().await?;
        let named = || vec![name.as_str().into()];
        // The job first: another transaction that creates runs of it has locked its row, and its
        // runs are visible after that.
        let deleted = engine.execute_in(&mut transaction, &self.delete, named()).await?;
        engine.execute_in(&mut transaction, &self.cancel_runs, named()).await?;
        engine.commit(transaction).await?;
        Ok(deleted)
    }

    /// Creates a run that is due now, or finds it. Returns `None` if the job is unknown.
    pub(super) async fn trigger<E: Engine>(
        &self,
        engine: &E,
        name: &JobName,
        run: RunId,
    ) -> Result<Option<RunId>, DatabaseError> {
        let mut transaction = engine.begin().await?;
        let named = vec![name.as_str().into()];
        if engine.fetch_in(&mut transaction, &self.exists, named).await?.is_empty() {
            return Ok(None);
        }
        let now = engine.now_in(&mut transaction).await?;
        let values = || vec![id(&run), name.as_str().into(), now.into()];
        engine.execute_in(&mut transaction, &self.trigger, values()).await?;
        let rows = engine.fetch_in(&mut transaction, &self.run_of, values()).await?;
        let made = rows.first().ok_or(sqlx::Error::RowNotFound)?.named("id", str::parse)?;
        engine.commit(transaction).await?;
        Ok(Some(made))
    }

    /// The earliest of the due times of ready items and of the next ticks.
    pub(super) async fn next_event_time<E: Engine>(
        &self,
        engine: &E,
    ) -> Result<Option<Timestamp>, DatabaseError> {
        let unreadable = Value::Texts(self.unreadable.names());
        let rows = engine.read(&self.next_event, vec![unreadable]).await?;
        let at = rows.first().map(|row| row.maybe_int("at")).transpose()?.flatten();
        read("due_at", at.map(Timestamp::from_unix_micros).transpose())
    }
}

fn next_event() -> String {
    let ticks = "SELECT MIN(next_tick) AS at FROM {jobs} WHERE name {not_in:1}";
    let mut earliest = vec![ticks.to_owned()];
    for table in ["timers", "job_runs"] {
        for state in ["due", "waiting"] {
            earliest.push(format!("SELECT ({})", first_due(table, state)));
        }
    }
    format!("SELECT MIN(at) AS at FROM ({}) AS events", earliest.join(" UNION ALL "))
}

/// A next tick is never later than the first one after now, unless the clock was ahead when it was
/// computed.
fn earliest(kept: Option<Timestamp>, after_now: Option<Timestamp>) -> Option<Timestamp> {
    kept.into_iter().chain(after_now).min()
}

fn row(job: &JobDefinition, next_tick: Option<Timestamp>, now: Timestamp) -> Values<'_> {
    let catch_up_max = match job.catch_up {
        CatchUp::Coalesce => None,
        CatchUp::All(max) => Some(i64::from(max.get())),
    };
    vec![
        job.name.as_str().into(),
        job.topic.as_str().into(),
        (&job.payload).into(),
        job.schedule.line().into(),
        job.schedule.zone_name().into(),
        Value::Int(catch_up_max),
        maybe_moment(next_tick),
        now.into(),
    ]
}

fn definition(row: &impl Columns) -> Result<JobDefinition, DatabaseError> {
    let schedule = CronSchedule::parse(row.text("cron")?, row.text("time_zone")?);
    let catch_up = match row.maybe_int("catch_up_max")? {
        None => CatchUp::Coalesce,
        Some(max) => {
            let max = read("catch_up_max", u32::try_from(max))?;
            CatchUp::All(read("catch_up_max", CatchUpMax::new(max))?)
        }
    };
    Ok(JobDefinition {
        name: row.named("name", JobName::new)?,
        topic: row.named("topic", Topic::new)?,
        schedule: read("cron", schedule)?,
        payload: row.payload("payload")?,
        catch_up,
    })
}

/// A claimed run. `None` if its job was deleted concurrently, or is unreadable for this build: when
/// the claim expires, the run ends or goes to another worker.
pub(super) fn readable_run<D: Database>(row: &D::Row) -> Result<Option<JobRun>, DatabaseError> {
    match run::<D>(row) {
        Err(failure @ DatabaseError::Unreadable { .. }) => {
            let job = row.text("job")?;
            tracing::warn!(job, %failure, "unreadable run skipped");
            Ok(None)
        }
        run => run,
    }
}

fn run<D: Database>(row: &D::Row) -> Result<Option<JobRun>, DatabaseError> {
    let Some(topic) = row.maybe_named("topic", Topic::new)? else { return Ok(None) };
    Ok(Some(JobRun {
        id: row.named("id", str::parse)?,
        job: row.named("job", JobName::new)?,
        scheduled_at: row.moment("scheduled_at")?,
        topic,
        payload: row.payload("payload")?,
        attempts: row.count("attempts")?,
    }))
}
