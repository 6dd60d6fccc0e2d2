//! Observers and counters.

use std::sync::{Arc, Mutex};

use ratelimiter_client::{
    Denial, JobEnd, JobView, LimitKey, LimitMode, Observer, SchedulerOptions, Unanswered,
};

use crate::world::{ModelLimits, ROOMY, Scripted, World, call, id, lasting, secs};

#[derive(Debug, Clone, Default)]
struct RecordingObserver(Arc<Mutex<Vec<String>>>);

impl RecordingObserver {
    fn write(&self, job: &JobView<'_>, what: &str) {
        let name = job.id.map_or("-", |id| id.as_str());
        self.0.lock().unwrap().push(format!("{name}#{} {what}", job.attempts));
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for RecordingObserver {
    fn reserve_started(&self, job: &JobView<'_>) {
        assert!(job.lease.is_some());
        self.write(job, "asks");
    }

    fn denied(&self, job: &JobView<'_>, denial: &Denial) {
        self.write(job, &format!("denied by {}", denial.keys()[0]));
    }

    fn unknown(&self, job: &JobView<'_>, unanswered: &Unanswered) {
        self.write(job, &unanswered.to_string());
    }

    fn shadow_denied(&self, job: &JobView<'_>, keys: &[LimitKey]) {
        self.write(job, &format!("would have been denied by {}", keys[0]));
    }

    fn allowed(&self, job: &JobView<'_>) {
        self.write(job, "allowed");
    }

    fn done(&self, job: &JobView<'_>, end: JobEnd) {
        self.write(job, &format!("{end:?}"));
    }
}

/// SCH-07
#[tokio::test(start_paused = true)]
async fn sch_07_an_observer_sees_every_step_of_a_job() {
    let world = World::new().with_model("p", ModelLimits { rpm: 1, ..ROOMY });
    world.script_reserves([Scripted::RequestLost]);
    let recording = RecordingObserver::default();
    let observer = Arc::new(recording.clone());
    let options = SchedulerOptions { observer, ..SchedulerOptions::with_workers(1) };
    let scheduler = world.scheduler_with(options);
    for name in ["a", "b"] {
        let job = lasting(&call("p", "t", 1), secs(0)).named(id(name));
        scheduler.submit(job).await.unwrap().await.result.unwrap();
    }
    let job = lasting(&call("p", "t", 9_999_999), secs(0)).named(id("c"));
    assert!(scheduler.submit(job).await.unwrap().await.result.is_err());
    assert_eq!(
        recording.read(),
        [
            "a#1 asks",
            "a#1 no answer: lost",
            "a#2 asks",
            "a#2 allowed",
            "a#2 Succeeded",
            "b#1 asks",
            "b#1 denied by global:llm:p:m:rpm",
            "b#2 asks",
            "b#2 allowed",
            "b#2 Succeeded",
            "c#1 asks",
            "c#1 Refused",
        ]
    );
}

/// SCH-07, SHD-01
#[tokio::test(start_paused = true)]
async fn sch_07_an_observer_sees_which_limit_in_shadow_mode_would_have_denied() {
    let world = World::new().with_model("p", ModelLimits { rpm: 1, ..ROOMY });
    let mut limit = world.memory.state_now(&LimitKey::llm_rpm("p", "m").unwrap()).unwrap().limit;
    limit.mode = LimitMode::Shadow;
    world.memory.define_now(limit).unwrap();
    let recording = RecordingObserver::default();
    let observer = Arc::new(recording.clone());
    let options = SchedulerOptions { observer, ..SchedulerOptions::with_workers(1) };
    let scheduler = world.scheduler_with(options);
    for name in ["a", "b"] {
        let job = lasting(&call("p", "t", 1), secs(0)).named(id(name));
        scheduler.submit(job).await.unwrap().await.result.unwrap();
    }
    assert_eq!(
        recording.read(),
        [
            "a#1 asks",
            "a#1 allowed",
            "a#1 Succeeded",
            "b#1 asks",
            "b#1 would have been denied by global:llm:p:m:rpm",
            "b#1 allowed",
            "b#1 Succeeded",
        ]
    );
}

/// SCH-07
#[tokio::test(start_paused = true)]
async fn sch_07_the_counters_add_up() {
    let world = World::new().with_model("p", ModelLimits { slots: 2, ..ROOMY });
    world.script_reserves([Scripted::AnswerLost]);
    let scheduler = world.scheduler(4);
    let mut handles = Vec::new();
    for _ in 0..5 {
        handles.push(scheduler.submit(lasting(&call("p", "t", 1), secs(1))).await.unwrap());
    }
    for handle in handles {
        handle.await.result.unwrap();
    }
    let counters = scheduler.counters();
    assert_eq!((counters.submitted, counters.allowed, counters.succeeded), (5, 5, 5));
    assert_eq!(counters.unanswered, 1);
    let answered = counters.allowed + counters.denied + counters.unanswered;
    assert_eq!(counters.attempts, answered);
    assert_eq!(counters.waiting, 0);
}
