//! Jobs: definitions, next ticks and runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::work::{LaneFilter, State, WorkItems};
use crate::{
    BatchSize, Delay, Fence, FencingToken, JobDefinition, JobName, JobRun, JobSaved, LeaseDuration,
    Materialised, OwnerToken, ResourceName, Retention, RunId, Timestamp,
};

#[derive(Debug, Default)]
pub(super) struct JobState {
    jobs: HashMap<JobName, Job>,
    /// The jobs by their next tick.
    ticks: BTreeSet<(Timestamp, JobName)>,
    /// When next ticks were last computed; `None` before the first time.
    ticked_at: Option<Timestamp>,
    pub(super) runs: WorkItems<RunId, Occurrence>,
    /// The run of each occurrence, as long as the run is stored.
    run_of: BTreeMap<Occurrence, RunId>,
    /// The largest fencing token seen for each resource.
    fences: HashMap<ResourceName, FencingToken>,
}

#[derive(Debug)]
struct Job {
    definition: JobDefinition,
    /// `None` past the last date.
    next_tick: Option<Timestamp>,
}

/// Identifies a run by its job and scheduled time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Occurrence {
    job: JobName,
    scheduled_at: Timestamp,
}

impl JobState {
    pub(super) fn save(&mut self, now: Timestamp, definition: JobDefinition) -> JobSaved {
        self.handle_clock_step_back(now);
        let name = definition.name.clone();
        let (saved, next_tick) = match self.jobs.get(&name) {
            None => (JobSaved::Created, definition.schedule.next_after(now)),
            Some(job) if job.definition == definition => return JobSaved::Unchanged,
            Some(job) if job.definition.schedule == definition.schedule => {
                (JobSaved::Updated, job.next_tick)
            }
            Some(_) => (JobSaved::Updated, definition.schedule.next_after(now)),
        };
        self.set_next_tick(&name, next_tick);
        self.jobs.insert(name, Job { definition, next_tick });
        saved
    }

    pub(super) fn delete(&mut self, now: Timestamp, name: &JobName) -> usize {
        self.set_next_tick(name, None);
        if self.jobs.remove(name).is_none() {
            return 0;
        }
        let first = Occurrence { job: name.clone(), scheduled_at: Timestamp::MIN };
        let last = Occurrence { job: name.clone(), scheduled_at: Timestamp::MAX };
        for run in self.run_of.range(first..=last).map(|(_, run)| run) {
            self.runs.cancel(now, run);
        }
        1
    }

    /// Creates a run that is due now, or finds it. Returns `None` if the job is unknown.
    pub(super) fn trigger(&mut self, now: Timestamp, name: &JobName, run: RunId) -> Option<RunId> {
        if !self.jobs.contains_key(name) {
            return None;
        }
        if self.runs.get(&run).is_some() {
            return Some(run);
        }
        Some(self.add_run(now, Occurrence { job: name.clone(), scheduled_at: now }, || run))
    }

    pub(super) fn materialise(&mut self, now: Timestamp, fence: &Fence) -> Materialised {
        if let Some(&recorded) = self.fences.get(&fence.resource)
            && fence.token < recorded
        {
            return Materialised::StaleFence { recorded };
        }
        self.fences.insert(fence.resource.clone(), fence.token);
        self.handle_clock_step_back(now);
        let mut count = 0;
        while let Some((tick, name)) = self.ticks.first().cloned() {
            if tick > now {
                break;
            }
            count += self.materialise_job(now, &name, tick);
        }
        Materialised::Runs(count)
    }

    fn materialise_job(&mut self, now: Timestamp, name: &JobName, first: Timestamp) -> usize {
        let job = self.jobs.get(name).expect("a listed tick has a job");
        let (schedule, runs_max) =
            (job.definition.schedule.clone(), job.definition.catch_up.runs_max());
        let before = self.run_of.len();
        let mut tick = first;
        for _ in 0..runs_max {
            let occurrence = Occurrence { job: name.clone(), scheduled_at: tick };
            self.add_run(now, occurrence, RunId::random);
            match schedule.next_after(tick) {
                Some(next) if next <= now => tick = next,
                Some(_) | None => break,
            }
        }
        let next_tick = schedule.next_after(now);
        self.set_next_tick(name, next_tick);
        self.run_of.len() - before
    }

    pub(super) fn claim(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Vec<JobRun> {
        self.runs.claim(now, owner, lease, max, &LaneFilter::All, |id, run| {
            let Occurrence { job, scheduled_at } = &run.value;
            let newest = &self.jobs.get(job).expect("ready runs have a job").definition;
            JobRun {
                id: *id,
                job: job.clone(),
                scheduled_at: *scheduled_at,
                topic: newest.topic.clone(),
                payload: newest.payload.clone(),
                attempts: run.attempts,
            }
        })
    }

    pub(super) fn abandon(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        ids: &[RunId],
        delay: Delay,
    ) -> usize {
        let due_at = now.after(delay.get());
        let mut count = 0;
        for id in ids {
            if self.runs.give_back(owner, id, due_at).is_some() {
                self.cancel_if_orphaned(now, id);
                count += 1;
            }
        }
        count
    }

    pub(super) fn reap(&mut self, now: Timestamp) -> usize {
        let reaped = self.runs.reap(now);
        for id in &reaped {
            self.cancel_if_orphaned(now, id);
        }
        reaped.len()
    }

    pub(super) fn purge(&mut self, now: Timestamp, keep: Retention) -> usize {
        let run_of = &mut self.run_of;
        self.runs.purge(now, &LaneFilter::All, keep, |_, occurrence| {
            run_of.remove(&occurrence);
        })
    }

    pub(super) fn next_tick(&self) -> Option<Timestamp> {
        self.ticks.first().map(|(tick, _)| *tick)
    }

    fn add_run(
        &mut self,
        now: Timestamp,
        occurrence: Occurrence,
        new_id: impl FnOnce() -> RunId,
    ) -> RunId {
        if let Some(run) = self.run_of.get(&occurrence) {
            return *run;
        }
        let id = new_id();
        assert!(occurrence.scheduled_at <= now, "a run is created when it is due");
        self.runs.add((), id, occurrence.scheduled_at, occurrence.clone());
        self.run_of.insert(occurrence, id);
        id
    }

    /// Cancels a returned run whose job was deleted.
    fn cancel_if_orphaned(&mut self, now: Timestamp, id: &RunId) {
        let run = self.runs.get(id).expect("the run was just returned");
        assert!(matches!(run.state, State::Ready), "a returned run is ready");
        if !self.jobs.contains_key(&run.value.job) {
            self.runs.cancel(now, id);
        }
    }

    /// A next tick is never later than the first one after now, unless the clock was ahead when it
    /// was computed. Then it is computed again.
    fn handle_clock_step_back(&mut self, now: Timestamp) {
        let before = self.ticked_at.replace(now);
        if before.is_none_or(|before| before <= now) {
            return;
        }
        let names: Vec<JobName> = self.jobs.keys().cloned().collect();
        for name in names {
            let Job { definition, next_tick } = &self.jobs[&name];
            let after_now = definition.schedule.next_after(now);
            let earliest = after_now.into_iter().chain(*next_tick).min();
            self.set_next_tick(&name, earliest);
        }
    }

    fn set_next_tick(&mut self, name: &JobName, next_tick: Option<Timestamp>) {
        if let Some(job) = self.jobs.get_mut(name)
            && let Some(tick) = std::mem::replace(&mut job.next_tick, next_tick)
        {
            self.ticks.remove(&(tick, name.clone()));
        }
        if let Some(tick) = next_tick {
            self.ticks.insert((tick, name.clone()));
        }
    }
}
