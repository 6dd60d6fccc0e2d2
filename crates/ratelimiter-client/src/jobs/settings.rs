//! Settings of a runner.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use coordination::{InvalidName, LeaseDuration, Retention, TooManyTopics, TopicSet};

use super::job::LlmJob;
use crate::scheduler::{NoObserver, Observer};

/// The most jobs that one runner has in flight.
pub const WORKERS_MAX: usize = 1000;

/// The shortest claim: one that is extended three times within its duration, in whole milliseconds.
pub const CLAIM_FOR_MIN: Duration = Duration::from_millis(10);

/// Settings of a runner.
///
/// ```
/// use std::time::Duration;
/// use ratelimiter_client::jobs::RunnerSettings;
///
/// let settings = RunnerSettings { job_timeout: Duration::from_secs(120), ..RunnerSettings::default() };
/// assert_eq!(settings.attempts_max, 5);
/// ```
#[derive(Debug, Clone)]
pub struct RunnerSettings {
    /// The models whose jobs it runs: all.
    pub models: Models,
    /// How many jobs it has in flight: 32, at most [`WORKERS_MAX`].
    pub workers: usize,
    /// How many of them may be for one model: 24, so that a slow model leaves room for the others.
    pub model_workers: usize,
    /// How long a claim lasts: 30 s, at least [`CLAIM_FOR_MIN`]. It is extended while the runner lives, so the jobs of a crashed runner wait this long for
    /// another.
    pub claim_for: LeaseDuration,
    /// How long a handler may take: 10 min. Then its future is dropped and the attempt fails.
    pub job_timeout: Duration,
    /// How many attempts may fail before the job fails: 5.
    pub attempts_max: u32,
    /// How many attempts may begin and never end before the job fails: 10. Such a job probably crashes its runners.
    pub lost_attempts_max: u32,
    /// How often the runner polls for work when it gets no notification: every 1 s.
    pub poll_interval: Duration,
    /// How often it reaps expired claims and purges old messages: every 5 s.
    pub upkeep_interval: Duration,
    /// How long finished jobs of its models are kept: 7 days, and failed ones 30.
    pub keep: Retention,
    /// How long a runner that stops waits for its handlers: 30 s.
    pub drain_timeout: Duration,
    /// Random extra time on a denial's hint, so that runners do not retry together: up to 50 ms, and at most the hint itself.
    pub jitter: Duration,
    /// How long the complete of a lease is retried when there is no answer: 60 s.
    pub complete_for: Duration,
    /// Observes every step of every job.
    pub observer: Arc<dyn Observer>,
}

/// The models whose jobs a runner runs.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Models {
    /// `None` means all.
    pub(super) only: Option<TopicSet>,
}

/// Why settings were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum InvalidRunnerSettings {
    /// A number or an interval that must not be zero.
    #[error("zero_setting: {name} must not be 0")]
    Zero { name: &'static str },
    /// `workers` above [`WORKERS_MAX`].
    #[error("too_many_workers: {asked}, at most {WORKERS_MAX}; start another runner")]
    TooManyWorkers { asked: usize },
    /// `claim_for` below [`CLAIM_FOR_MIN`].
    #[error("claim_too_short: claim_for is {claim_for:?}, at least {CLAIM_FOR_MIN:?}")]
    ClaimTooShort { claim_for: Duration },
    /// A model that no job can name.
    #[error("a model of `models` makes no topic: {0}")]
    Model(#[from] InvalidName),
    /// More models than one claim can name.
    #[error("`models`: {0}; start several runners, or serve all")]
    TooManyModels(#[from] TooManyTopics),
}

impl Default for RunnerSettings {
    fn default() -> RunnerSettings {
        RunnerSettings {
            models: Models::all(),
            workers: 32,
            model_workers: 24,
            claim_for: LeaseDuration::new(Duration::from_secs(30)).expect("30 s are in range"),
            job_timeout: Duration::from_secs(600),
            attempts_max: 5,
            lost_attempts_max: 10,
            poll_interval: Duration::from_secs(1),
            upkeep_interval: Duration::from_secs(5),
            keep: Retention::default(),
            drain_timeout: Duration::from_secs(30),
            jitter: Duration::from_millis(50),
            complete_for: Duration::from_secs(60),
            observer: Arc::new(NoObserver),
        }
    }
}

impl RunnerSettings {
    pub(super) fn check(&self) -> Result<(), InvalidRunnerSettings> {
        let zeros = [
            ("workers", self.workers == 0),
            ("model_workers", self.model_workers == 0),
            ("job_timeout", self.job_timeout.is_zero()),
            ("attempts_max", self.attempts_max == 0),
            ("lost_attempts_max", self.lost_attempts_max == 0),
            ("poll_interval", self.poll_interval.is_zero()),
            ("upkeep_interval", self.upkeep_interval.is_zero()),
        ];
        if let Some((name, _)) = zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(InvalidRunnerSettings::Zero { name });
        }
        if self.workers > WORKERS_MAX {
            return Err(InvalidRunnerSettings::TooManyWorkers { asked: self.workers });
        }
        let claim_for = self.claim_for.get();
        if claim_for < CLAIM_FOR_MIN {
            return Err(InvalidRunnerSettings::ClaimTooShort { claim_for });
        }
        Ok(())
    }
}

impl Models {
    /// Every model. Messages of the outbox that are no jobs are left alone.
    pub const fn all() -> Models {
        Models { only: None }
    }

    /// These models, as `(provider, model)`. Use this on an outbox that also has other messages.
    ///
    /// # Errors
    /// [`InvalidRunnerSettings`] if a name makes no topic, or there are too many.
    pub fn only<'a>(
        models: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Models, InvalidRunnerSettings> {
        let topic = |(provider, model)| LlmJob::topic_of(provider, model);
        let topics: Vec<_> = models.into_iter().map(topic).collect::<Result<_, _>>()?;
        Ok(Models { only: Some(TopicSet::of(topics)?) })
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.only {
            None => f.write_str("all"),
            Some(topics) => f.debug_set().entries(topics.iter()).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(RunnerSettings::default().check(), Ok(()));
    }

    #[test]
    fn a_setting_out_of_range_is_refused_by_name() {
        let settings = RunnerSettings { attempts_max: 0, ..RunnerSettings::default() };
        assert_eq!(settings.check(), Err(InvalidRunnerSettings::Zero { name: "attempts_max" }));
        let workers = |workers| RunnerSettings { workers, ..RunnerSettings::default() };
        assert_eq!(workers(WORKERS_MAX).check(), Ok(()));
        let refused = workers(WORKERS_MAX + 1).check();
        assert_eq!(refused, Err(InvalidRunnerSettings::TooManyWorkers { asked: 1001 }));
        let claimed = |claim_for| {
            let claim_for = LeaseDuration::new(claim_for).unwrap();
            RunnerSettings { claim_for, ..RunnerSettings::default() }.check()
        };
        assert_eq!(claimed(CLAIM_FOR_MIN), Ok(()));
        let claim_for = CLAIM_FOR_MIN - Duration::from_nanos(1);
        assert_eq!(claimed(claim_for), Err(InvalidRunnerSettings::ClaimTooShort { claim_for }));
        assert!(Models::only([("p", "\n")]).is_err());
    }
}
