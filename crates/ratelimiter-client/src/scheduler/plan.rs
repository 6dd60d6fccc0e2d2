//! Which job asks next, and when: plain data with `now` as an argument.
//!
//! A job waits in its queue until it may ask, asks, and then either leaves (it was allowed, or failed) or waits again.
//! What a denial says of a limit holds for every job that needs about as much of it, so those wait at the limit's
//! *gate* and do not ask in vain; much smaller ones may pass. After a denial fewer ask at a time, after an allow more. A
//! job that was denied too often *claims* the limits that stood in its way, and then nobody passes it. When a lease ends,
//! the gates of the limits that got room back open at once.

mod gates;
mod job;
mod outage;
mod queues;

use std::collections::BTreeMap;
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{LeaseId, LimitKey, Requirements};

use self::gates::{GateNumber, Gates};
pub(super) use self::job::PlannedJob;
use self::job::{Need, Owner, Standing, Wait};
use self::outage::Outage;
use self::queues::Queues;
use crate::no_answer;

/// How many jobs of one tenant in one queue are looked at to find one that may ask.
const LOOK_AHEAD_MAX: usize = 8;
/// For how long a job may hold its claims. One that other processes never let in does not stop this one for good.
const CLAIM_LASTS_MAX: Duration = Duration::from_secs(120);

/// The name of a job within one scheduler, in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct JobNumber(u64);

/// A provider and one of its models.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueueName {
    pub(super) provider: Box<str>,
    pub(super) model: Box<str>,
}

/// A job that may ask now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) job: JobNumber,
    /// Counted from 1, over all leases.
    pub(super) count: u32,
    /// The lease of the last attempt, if nobody knows what became of it.
    pub(super) repeats: Option<LeaseId>,
}

/// What became of a job that is to be cancelled.
#[derive(Debug)]
pub(super) enum Removed<W> {
    /// It waited, and is gone.
    Waiting(PlannedJob<W>),
    /// It is asking; whoever asks for it must look.
    Asking,
    /// It is not here: it runs, or has ended.
    Absent,
}

/// All jobs that wait or ask, and how many workers are busy with them or with those that run.
///
/// Invariant: a job of `jobs` stands in a lane of `queues` if and only if it is not [`Standing::Asking`].
#[derive(Debug)]
pub(super) struct Plan<W> {
    workers_max: usize,
    /// After how many denials a job claims the limits that stood in its way.
    starving_after: u32,
    /// Jobs that ask or run. At most `workers_max`.
    busy: usize,
    /// Jobs that ask. At most `busy`.
    asking: usize,
    jobs: BTreeMap<JobNumber, PlannedJob<W>>,
    queues: Queues,
    gates: Gates,
    outage: Outage,
    numbers: u64,
}

/// Whether a job may ask.
enum Readiness {
    Now,
    /// Not before this moment, unless something happens.
    At(Timestamp),
    /// Not before something happens.
    OnEvent,
}

impl<W> Plan<W> {
    pub(super) fn new(workers_max: usize, starving_after: u32) -> Self {
        assert!(workers_max > 0, "somebody must do the work");
        assert!(starving_after > 0, "a job is not starving before it was denied");
        Self {
            workers_max,
            starving_after,
            busy: 0,
            asking: 0,
            jobs: BTreeMap::new(),
            queues: Queues::default(),
            gates: Gates::default(),
            outage: Outage::default(),
            numbers: 0,
        }
    }

    /// How many jobs wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.jobs.len() - self.asking
    }

    /// How many workers ask for a job or run one.
    pub(super) const fn busy(&self) -> usize {
        self.busy
    }

    pub(super) fn get(&self, job: JobNumber) -> Option<&PlannedJob<W>> {
        self.jobs.get(&job)
    }

    /// Takes a job in.
    pub(super) fn add(
        &mut self,
        queue: QueueName,
        tenant: &str,
        requirements: &Requirements,
        work: W,
    ) -> JobNumber {
        let number = JobNumber(self.numbers);
        self.numbers += 1;
        let queue = self.queues.open(queue);
        let need = |requirement: &ratelimiter::Requirement| Need {
            gate: self.gates.enter(&requirement.key, queue),
            amount: requirement.amount.get(),
            owner: Owner::of(&requirement.key),
        };
        let needs = requirements.iter().map(need).collect();
        let job = PlannedJob::new(queue, tenant.into(), needs, work);
        self.queues.put(queue, &job.tenant, number);
        self.jobs.insert(number, job);
        number
    }

    /// The next job that may ask, taking the queues in turn, and in each queue its tenants.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Attempt> {
        self.queues.wake_due(now);
        if self.busy == self.workers_max || !self.outage.lets_ask(now, self.asking) {
            return None;
        }
        while let Some(queue) = self.queues.next_awake() {
            let (jobs, gates) = (&self.jobs, &self.gates);
            let readiness = |number| readiness(&jobs[&number], number, gates, now);
            match self.queues.pick(queue, readiness) {
                Ok(number) => return Some(self.begin(now, number)),
                Err(due) => self.queues.sleep(queue, due),
            }
        }
        None
    }

    fn begin(&mut self, now: Timestamp, number: JobNumber) -> Attempt {
        self.busy += 1;
        self.asking += 1;
        let job = self.jobs.get_mut(&number).expect("a picked job is there");
        for need in &job.needs {
            self.gates.ask(need.gate);
        }
        job.attempts += 1;
        job.standing = Standing::Asking { since: self.gates.releases(), begun_at: now };
        Attempt { job: number, count: job.attempts, repeats: job.unanswered_lease }
    }

    /// When [`Plan::next`] may have something, if nothing else happens.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        if self.busy == self.workers_max {
            return None;
        }
        let due = self.queues.earliest_due();
        match self.outage.until() {
            None => due,
            Some(_) if self.asking > 0 => None,
            Some(until) if self.queues.anyone_awake() => Some(until),
            Some(until) => due.map(|due| due.max(until)),
        }
    }

    /// The job does not ask any more. Who waited for its answer may ask now.
    fn end_asking(&mut self, number: JobNumber, is_allowed: bool) {
        self.asking -= 1;
        for need in &self.jobs[&number].needs {
            for queue in self.gates.end_asking(need.gate, is_allowed, self.workers_max) {
                self.queues.wake(queue);
            }
        }
    }

    /// The job was allowed and leaves the plan; its worker stays busy with it.
    pub(super) fn allowed(&mut self, number: JobNumber) -> PlannedJob<W> {
        self.outage.ends();
        self.end_asking(number, true);
        self.take_out(number)
    }

    /// The job was refused for good and leaves the plan; its worker is free.
    pub(super) fn refused(&mut self, number: JobNumber) -> PlannedJob<W> {
        self.outage.ends();
        self.give_up(number)
    }

    /// A job that asks leaves the plan whatever the answer is; its worker is free.
    pub(super) fn give_up(&mut self, number: JobNumber) -> PlannedJob<W> {
        self.end_asking(number, false);
        self.busy -= 1;
        self.take_out(number)
    }

    /// The job was denied by these limits, and asks again with a new lease after `wait` or when they get room back.
    pub(super) fn denied(
        &mut self,
        now: Timestamp,
        number: JobNumber,
        keys: &[LimitKey],
        wait: Duration,
    ) {
        self.outage.ends();
        let until = now.after(wait.min(no_answer::WAIT_MAX));
        let job = self.jobs.get_mut(&number).expect("a job that asks is there");
        let Standing::Asking { since, .. } = job.standing else {
            unreachable!("only a job that asks is denied")
        };
        let is_denied = |need: &&Need| keys.contains(self.gates.key(need.gate));
        let denied: Box<[Need]> = job.needs.iter().filter(is_denied).copied().collect();
        // The hint is the longest of all: if the tenant's own limit is among them, it says nothing about the shared ones.
        let owner = Owner::of_denial(&denied);
        let blamed: Box<[&Need]> = denied.iter().filter(|need| need.owner == owner).collect();
        for need in &blamed {
            self.gates.close(now, need.gate, need.amount, until, since);
        }
        job.unanswered_lease = None;
        job.unanswered_count = 0;
        let claims = match job.count_denial(now, owner, self.starving_after) {
            true => blamed.iter().map(|need| need.gate).collect(),
            false => Box::default(),
        };
        job.standing = Standing::Waiting(Wait {
            until,
            denied: denied.iter().map(|need| need.gate).collect(),
            since,
        });
        self.claim(number, &claims);
        self.wait_again(number);
    }

    /// Nobody knows whether the job was allowed: it asks again with the same lease. Until somebody gets an answer, one
    /// job at a time finds out whether there are any.
    pub(super) fn unanswered(
        &mut self,
        now: Timestamp,
        number: JobNumber,
        lease: LeaseId,
        retry_after: Duration,
        jitter: f64,
    ) {
        let job = self.jobs.get_mut(&number).expect("a job that asks is there");
        let Standing::Asking { begun_at, since } = job.standing else {
            unreachable!("only a job that asks goes without an answer")
        };
        job.unanswered_lease = Some(lease);
        job.unanswered_count = job.unanswered_count.saturating_add(1);
        let pause = no_answer::pause(job.unanswered_count, retry_after, jitter);
        job.standing =
            Standing::Waiting(Wait { until: now.after(pause), denied: Box::default(), since });
        self.outage.grows(now, begun_at, retry_after, jitter);
        self.wait_again(number);
    }

    /// The job's lease turned out to be of no use: it asks again at once with a new one.
    pub(super) fn lease_was_spent(&mut self, number: JobNumber) {
        self.outage.ends();
        let job = self.jobs.get_mut(&number).expect("a job that asks is there");
        job.unanswered_lease = None;
        job.unanswered_count = 0;
        job.standing = Standing::Ready;
        self.wait_again(number);
    }

    /// A job that was allowed has ended: its worker is free.
    pub(super) fn ended(&mut self) {
        self.busy -= 1;
        assert!(self.asking <= self.busy, "who asks is busy");
    }

    /// These limits got room back.
    pub(super) fn released(&mut self, keys: &[LimitKey]) {
        for key in keys {
            for queue in self.gates.release(key) {
                self.queues.wake(queue);
            }
        }
    }

    /// Takes out a job that waits.
    pub(super) fn remove(&mut self, number: JobNumber) -> Removed<W> {
        let Some(job) = self.jobs.get(&number) else {
            return Removed::Absent;
        };
        match job.standing {
            Standing::Asking { .. } => Removed::Asking,
            Standing::Ready | Standing::Waiting(_) => {
                self.queues.take(job.queue, &job.tenant, number);
                Removed::Waiting(self.take_out(number))
            }
        }
    }

    /// Takes out every job that waits, in the order of submission.
    pub(super) fn remove_all(&mut self) -> Vec<PlannedJob<W>> {
        let numbers: Vec<_> = self.jobs.keys().copied().collect();
        let waiting = numbers.into_iter().filter_map(|number| match self.remove(number) {
            Removed::Waiting(job) => Some(job),
            Removed::Asking | Removed::Absent => None,
        });
        waiting.collect()
    }

    fn wait_again(&mut self, number: JobNumber) {
        self.end_asking(number, false);
        self.busy -= 1;
        let job = &self.jobs[&number];
        self.queues.put(job.queue, &job.tenant, number);
    }

    fn take_out(&mut self, number: JobNumber) -> PlannedJob<W> {
        self.claim(number, &[]);
        let job = self.jobs.remove(&number).expect("the job is there");
        for need in &job.needs {
            self.gates.leave(need.gate, job.queue);
        }
        self.queues.close_if_unused(job.queue);
        job
    }

    /// Gives the job these claims and no others.
    fn claim(&mut self, number: JobNumber, claims: &[GateNumber]) {
        let job = self.jobs.get_mut(&number).expect("the job is there");
        let before = std::mem::take(&mut job.claims);
        for gate in before.iter().filter(|gate| !claims.contains(gate)) {
            for queue in self.gates.unclaim(*gate, number) {
                self.queues.wake(queue);
            }
        }
        let got = |gate: &GateNumber| self.gates.claim(*gate, number);
        job.claims = claims.iter().copied().filter(got).collect();
    }
}

fn readiness<W>(
    job: &PlannedJob<W>,
    number: JobNumber,
    gates: &Gates,
    now: Timestamp,
) -> Readiness {
    let mut due = match &job.standing {
        Standing::Waiting(wait) if !wait.is_over(now, gates) => Some(wait.until),
        Standing::Ready | Standing::Waiting(_) => None,
        Standing::Asking { .. } => unreachable!("a job that asks stands in no lane"),
    };
    // Whoever was told to come back now may do so, whatever others were told meanwhile.
    let is_expected = matches!(&job.standing, Standing::Waiting(wait) if wait.until <= now);
    for need in &job.needs {
        let goes_after = gates.is_claimed_against(need.gate, number, !job.claims.is_empty());
        if goes_after || gates.is_crowded(need.gate) {
            return Readiness::OnEvent;
        }
        if !is_expected {
            due = due.max(gates.closed_until(need.gate, need.amount, now));
        }
    }
    due.map_or(Readiness::Now, Readiness::At)
}

#[cfg(test)]
mod tests;
