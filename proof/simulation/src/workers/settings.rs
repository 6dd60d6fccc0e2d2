//! Settings of the workers and limits.

use std::time::Duration;

use coordination::{BatchSize, LeaseDuration, SchedulerSettings, Topic, WorkerSettings};
use ratelimiter_client::jobs::{Models, RunnerSettings};

/// The LLM provider, and its models with little and with much room.
pub(super) const PROVIDER: &str = "provider";
pub(super) const TIGHT: &str = "tight";
pub(super) const ROOMY: &str = "roomy";
pub(super) const TIGHT_SLOTS: u64 = 1;
pub(super) const ROOMY_SLOTS: u64 = 8;
/// Longer than a job may take.
pub(super) const HOLD_SECONDS: u64 = 12;
/// How far apart the cron job's ticks are.
pub(super) const TICK_SECONDS: u64 = 5;
/// How often a handler may fail, and how often its attempt may never end.
pub(super) const ATTEMPTS_MAX: u32 = 3;
pub(super) const LOST_ATTEMPTS_MAX: u32 = 4;
/// How long the job runner's claims last.
pub(super) const JOB_CLAIM: Duration = Duration::from_secs(4);

pub(super) fn topic(number: u8) -> Topic {
    Topic::new(format!("topic-{number}")).expect("it is a name")
}

/// The topic of the cron job's runs.
pub(super) fn tick_topic() -> Topic {
    Topic::new("tick").expect("it is a name")
}

pub(super) fn worker_settings() -> WorkerSettings {
    let seconds = Duration::from_secs;
    WorkerSettings {
        batch: BatchSize::new(5).expect("it is a size"),
        claim_for: lease(seconds(6)),
        handler_timeout: seconds(3),
        attempts_max: ATTEMPTS_MAX,
        lost_attempts_max: LOST_ATTEMPTS_MAX,
        topic_concurrency_max: 2,
        in_flight_max: 5,
        poll_interval: seconds(2),
        upkeep_interval: seconds(3),
        drain_timeout: seconds(1),
        ..WorkerSettings::default()
    }
}

pub(super) fn scheduler_settings() -> SchedulerSettings {
    let seconds = Duration::from_secs;
    SchedulerSettings {
        lease: lease(seconds(5)),
        batch: BatchSize::new(5).expect("it is a size"),
        claim_for: lease(seconds(6)),
        poll_interval: seconds(2),
        upkeep_interval: seconds(3),
        ..SchedulerSettings::default()
    }
}

pub(super) fn runner_settings() -> RunnerSettings {
    let seconds = Duration::from_secs;
    RunnerSettings {
        models: Models::only([(PROVIDER, TIGHT), (PROVIDER, ROOMY)]).expect("they are names"),
        workers: 8,
        model_workers: 6,
        claim_for: lease(JOB_CLAIM),
        job_timeout: seconds(8),
        attempts_max: ATTEMPTS_MAX,
        lost_attempts_max: LOST_ATTEMPTS_MAX,
        poll_interval: seconds(2),
        upkeep_interval: seconds(3),
        drain_timeout: seconds(1),
        ..RunnerSettings::default()
    }
}

fn lease(span: Duration) -> LeaseDuration {
    LeaseDuration::new(span).expect("it is a duration")
}
