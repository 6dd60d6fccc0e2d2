//! Jobs: recurring schedules and their runs.

use thiserror::Error;

use crate::{CronSchedule, JobName, Payload, ProviderError, RunId, Timestamp, Topic};

/// The most runs that one job creates for missed ticks.
pub const CATCH_UP_MAX: u32 = 1000;

/// A job as it is saved.
///
/// ```
/// use coordination::{CronSchedule, JobDefinition, JobName, Topic};
///
/// let job = JobDefinition::new(
///     JobName::new("nightly-report").unwrap(),
///     Topic::new("report.make").unwrap(),
///     CronSchedule::parse("30 2 * * *", "Europe/Berlin").unwrap(),
/// );
/// assert_eq!(job.schedule.to_string(), "30 2 * * * Europe/Berlin");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDefinition {
    /// Its name.
    pub name: JobName,
    /// The topic of its messages.
    pub topic: Topic,
    /// When it is due.
    pub schedule: CronSchedule,
    /// The payload of its messages.
    pub payload: Payload,
    /// What happens to missed ticks.
    pub catch_up: CatchUp,
}

/// What happens to ticks that were missed because no worker was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// One run, scheduled at the first of them.
    #[default]
    Coalesce,
    /// A run for each, the oldest first, up to a bound; the rest is dropped.
    All(CatchUpMax),
}

/// How many runs a job may create for missed ticks; 1 to [`CATCH_UP_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUpMax(u32);

/// Why a bound was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("catch_up_out_of_range: {asked}, 1 to {CATCH_UP_MAX} are allowed")]
pub struct InvalidCatchUp {
    /// The bound asked for.
    pub asked: u32,
}

/// One occurrence of a job, as its claimer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRun {
    /// Its identity.
    pub id: RunId,
    /// The job.
    pub job: JobName,
    /// The tick, or when it was triggered. No job has two runs with the same time.
    pub scheduled_at: Timestamp,
    /// The topic in the job's definition when the run was claimed.
    pub topic: Topic,
    /// The payload in the job's definition when the run was claimed.
    pub payload: Payload,
    /// How often it was claimed.
    pub attempts: u32,
}

/// Why a job was not triggered.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum TriggerError {
    /// There is no such job.
    #[error("unknown_job: {name}")]
    UnknownJob { name: JobName },
    /// The provider gave no answer.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl JobDefinition {
    /// A job without a payload whose missed ticks become one run.
    pub fn new(name: JobName, topic: Topic, schedule: CronSchedule) -> JobDefinition {
        let (payload, catch_up) = (Payload::empty(), CatchUp::default());
        JobDefinition { name, topic, schedule, payload, catch_up }
    }

    /// The same with a payload.
    #[must_use]
    pub fn with_payload(self, payload: Payload) -> JobDefinition {
        JobDefinition { payload, ..self }
    }

    /// The same with another rule for missed ticks.
    #[must_use]
    pub fn catching_up(self, catch_up: CatchUp) -> JobDefinition {
        JobDefinition { catch_up, ..self }
    }
}

impl CatchUpMax {
    /// Up to `count` runs.
    ///
    /// # Errors
    /// [`InvalidCatchUp`] for 0 and above [`CATCH_UP_MAX`].
    pub const fn new(count: u32) -> Result<CatchUpMax, InvalidCatchUp> {
        if count == 0 || count > CATCH_UP_MAX {
            return Err(InvalidCatchUp { asked: count });
        }
        Ok(CatchUpMax(count))
    }

    /// The count.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl CatchUp {
    /// The most runs that missed ticks become.
    pub const fn runs_max(self) -> u32 {
        match self {
            CatchUp::Coalesce => 1,
            CatchUp::All(max) => max.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catching_up_is_bounded() {
        assert_eq!(CatchUpMax::new(0), Err(InvalidCatchUp { asked: 0 }));
        assert!(CatchUpMax::new(CATCH_UP_MAX).is_ok());
        assert_eq!(CatchUpMax::new(1001), Err(InvalidCatchUp { asked: 1001 }));
    }
}
