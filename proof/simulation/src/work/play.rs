//! Playing a plan: each event one call, its answer held against the oracle, and heard by the worker or not.

use std::fmt::Write as _;
use std::time::Duration;

use coordination::{FencingToken, OwnerToken, ProviderError, Tenure};
use coordination_conformance::Fixture;

use super::desk::{Desk, Item, resource_name};
use super::oracle::Oracle;
use super::plan::{Kind, RESOURCES, WORKERS, What, WorkEvent, WorkPlan};
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::outcome::{Outcome, Violation};
use crate::run::Plan;

/// Longer than any claim, delay or lease.
const LONG: Duration = Duration::from_secs(10);

struct Player<F> {
    desk: Desk<F>,
    oracle: Oracle,
    workers: Vec<Worker>,
    outcome: Outcome,
    is_traced: bool,
}

/// A worker, and what it believes.
struct Worker {
    owner: OwnerToken,
    lives: usize,
    holds: Vec<Item>,
    /// What it has held; some of it, it still has.
    has_held: Vec<Item>,
    tenures: [Option<Tenure>; RESOURCES],
    old_token: Option<FencingToken>,
}

pub(super) async fn play<F: Fixture>(
    plan: &WorkPlan,
    flaw: Option<Flaw>,
    is_traced: bool,
) -> Outcome {
    let workers = (0..WORKERS).map(Worker::new).collect();
    let (desk, oracle) = (Desk::<F>::open(flaw).await, Oracle::default());
    let mut player = Player { desk, oracle, workers, outcome: Outcome::default(), is_traced };
    let played = player.play_all(plan).await;
    player.outcome.violation = played.err();
    player.outcome
}

/// A worker's name, new after each crash.
fn owner(worker: usize, lives: usize) -> OwnerToken {
    OwnerToken::new(format!("worker-{worker}.{lives}")).expect("it is a name")
}

fn answered<T>(answer: Result<T, ProviderError>) -> T {
    answer.expect("the provider answers; what is lost is lost by us")
}

impl<F: Fixture> Player<F> {
    async fn play_all(&mut self, plan: &WorkPlan) -> Result<(), Violation> {
        for event in plan.events() {
            self.note(|| event.to_string()).await;
            self.note_faults(event);
            self.play_event(event).await?;
            if event.is_repeated && !matches!(event.what, What::Pass { .. } | What::Crash) {
                self.outcome.faults.note(Fault::CalledAgain);
                self.play_event(event).await?;
            }
        }
        self.drain().await
    }

    async fn note(&mut self, text: impl FnOnce() -> String) {
        if self.is_traced {
            let at = self.desk.now().await.since(self.desk.started_at());
            let line = format!("{:>10.3}ms  {}", at.as_secs_f64() * 1_000.0, text());
            writeln!(self.outcome.trace, "{line}").expect("a text takes any line");
        }
    }

    fn note_faults(&mut self, event: &WorkEvent) {
        if event.what == What::Crash {
            self.outcome.faults.note(Fault::WorkerCrash);
        } else if !matches!(event.what, What::Pass { .. }) {
            self.outcome.requests += 1;
            if event.is_lost {
                self.outcome.faults.note(Fault::AnswerLost);
            }
        }
    }

    async fn play_event(&mut self, event: &WorkEvent) -> Result<(), Violation> {
        self.outcome.checks += 1;
        let WorkEvent { worker, is_lost, .. } = *event;
        match event.what {
            What::Pass { ms } => {
                self.desk.pass(Duration::from_millis(ms)).await;
                Ok(())
            }
            What::Crash => {
                self.workers[worker].crash(worker);
                Ok(())
            }
            What::Add { kind, number, delay_ms } => {
                self.add(Item { kind, number }, Duration::from_millis(delay_ms)).await;
                Ok(())
            }
            What::Claim { kind, lease_ms, max } => {
                self.claim(worker, kind, Duration::from_millis(lease_ms), max, is_lost).await
            }
            What::Finish { kind } => self.act(worker, kind, Act::Finish, is_lost).await,
            What::FinishOthers { kind } => self.finish_others(worker, kind).await,
            What::GiveBack { kind, delay_ms } => {
                let delay = Duration::from_millis(delay_ms);
                self.act(worker, kind, Act::GiveBack(delay), is_lost).await
            }
            What::Fail { kind } => self.act(worker, kind, Act::Fail, is_lost).await,
            What::Reap { kind } => {
                self.reap(kind).await;
                Ok(())
            }
            What::MakeRuns { under_old } => self.make_runs(worker, under_old).await,
            What::Acquire { resource, ms } => {
                self.acquire(worker, resource, Duration::from_millis(ms), is_lost).await
            }
            What::Renew { resource, ms } => {
                self.renew(worker, resource, Duration::from_millis(ms), is_lost).await
            }
            What::Release { resource } => self.release(worker, resource, is_lost).await,
        }
    }

    async fn add(&mut self, item: Item, delay: Duration) {
        let due_at = self.desk.now().await.after(delay);
        let is_again = self.oracle.knows(item);
        self.oracle.added(item, due_at);
        answered(self.desk.add(item, due_at, is_again).await);
    }

    async fn claim(
        &mut self,
        worker: usize,
        kind: Kind,
        lease: Duration,
        max: u32,
        is_lost: bool,
    ) -> Result<(), Violation> {
        let owner = self.workers[worker].owner.clone();
        let handed = answered(self.desk.claim(kind, &owner, lease, max).await);
        let now = self.desk.now().await;
        self.note(|| format!("    handed {:?}", handed.iter().map(|h| h.item).collect::<Vec<_>>()))
            .await;
        self.oracle.claimed(&owner, lease, &handed, now)?;
        if !is_lost {
            let items = handed.iter().map(|handed| handed.item);
            self.workers[worker].hold(items);
        }
        Ok(())
    }

    async fn act(
        &mut self,
        worker: usize,
        kind: Kind,
        act: Act,
        is_lost: bool,
    ) -> Result<(), Violation> {
        let owner = self.workers[worker].owner.clone();
        for item in self.workers[worker].of_kind(kind) {
            self.act_on(&owner, item, act).await?;
            if !is_lost {
                self.workers[worker].holds.retain(|held| *held != item);
            }
        }
        Ok(())
    }

    async fn act_on(&mut self, owner: &OwnerToken, item: Item, act: Act) -> Result<(), Violation> {
        let now = self.desk.now().await;
        if self.oracle.is_late(item, now) || !self.oracle.holds(owner, item) {
            self.outcome.faults.note(Fault::TooLate);
        }
        let (changed, due_again_at) = match act {
            Act::Finish => (answered(self.desk.finish(owner, item).await), None),
            Act::Fail => (answered(self.desk.fail(owner, item).await), None),
            Act::GiveBack(delay) => {
                let changed = answered(self.desk.give_back(owner, item, delay).await);
                (changed, Some(now.after(delay)))
            }
        };
        self.note(|| format!("    {owner} {act:?} {item:?}: {changed}")).await;
        self.oracle.acted(owner, item, changed, due_again_at)
    }

    /// Everything that any worker has ever held, finished by one that may not.
    async fn finish_others(&mut self, worker: usize, kind: Kind) -> Result<(), Violation> {
        let owner = self.workers[worker].owner.clone();
        let items = self.workers.iter().flat_map(|worker| worker.has_held.clone());
        let items: Vec<Item> = items.filter(|item| item.kind == kind).collect();
        for item in items {
            self.act_on(&owner, item, Act::Finish).await?;
        }
        Ok(())
    }

    async fn reap(&mut self, kind: Kind) {
        answered(self.desk.reap(kind).await);
        let now = self.desk.now().await;
        self.oracle.reaped(kind, now);
    }

    async fn make_runs(&mut self, worker: usize, under_old: bool) -> Result<(), Violation> {
        let worker = &self.workers[worker];
        let token = worker.tenures[0].as_ref().map(|tenure| tenure.token);
        let token = if under_old { worker.old_token } else { token };
        let Some(token) = token else {
            return Ok(());
        };
        if self.oracle.is_stale(0, token) {
            self.outcome.faults.note(Fault::StaleFence);
        }
        let made = answered(self.desk.make_runs(0, token).await);
        let now = self.desk.now().await;
        self.note(|| format!("    under {token:?}: {made:?}")).await;
        self.oracle.runs_made(0, token, &made, now)
    }

    async fn acquire(
        &mut self,
        worker: usize,
        resource: usize,
        duration: Duration,
        is_lost: bool,
    ) -> Result<(), Violation> {
        let owner = self.workers[worker].owner.clone();
        let token = answered(self.desk.acquire(resource, &owner, duration).await);
        let now = self.desk.now().await;
        self.note(|| format!("    {token:?}")).await;
        self.oracle.acquired(resource, &owner, token, now.after(duration), now)?;
        if let Some(token) = token.filter(|_| !is_lost) {
            self.workers[worker].take(resource, token);
        }
        Ok(())
    }

    async fn renew(
        &mut self,
        worker: usize,
        resource: usize,
        duration: Duration,
        is_lost: bool,
    ) -> Result<(), Violation> {
        let Some(tenure) = self.workers[worker].tenures[resource].clone() else {
            return Ok(());
        };
        let token = answered(self.desk.renew(&tenure, duration).await);
        let now = self.desk.now().await;
        self.note(|| format!("    {token:?}")).await;
        self.oracle.renewed(resource, &tenure, token, now.after(duration), now)?;
        if let Some(token) = token.filter(|_| !is_lost) {
            self.workers[worker].take(resource, token);
        }
        Ok(())
    }

    async fn release(
        &mut self,
        worker: usize,
        resource: usize,
        is_lost: bool,
    ) -> Result<(), Violation> {
        let Some(tenure) = self.workers[worker].tenures[resource].clone() else {
            return Ok(());
        };
        let changed = answered(self.desk.release(&tenure).await);
        let now = self.desk.now().await;
        self.oracle.released(resource, &tenure, changed, now)?;
        if !is_lost {
            let worker = &mut self.workers[worker];
            worker.tenures[resource] = None;
            worker.old_token = if resource == 0 { Some(tenure.token) } else { worker.old_token };
        }
        Ok(())
    }

    /// All workers are gone; one that is new claims and finishes whatever there is.
    async fn drain(&mut self) -> Result<(), Violation> {
        self.note(|| "all workers are gone, a new one takes over".to_owned()).await;
        self.desk.pass(LONG).await;
        self.workers.push(Worker::new(WORKERS));
        for kind in [Kind::Outbox, Kind::Inbox, Kind::Timer, Kind::Run] {
            self.reap(kind).await;
            loop {
                self.claim(WORKERS, kind, LONG, 50, false).await?;
                if self.workers[WORKERS].of_kind(kind).is_empty() {
                    break;
                }
                self.act(WORKERS, kind, Act::Finish, false).await?;
            }
        }
        self.oracle.all_is_finished()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Finish,
    Fail,
    GiveBack(Duration),
}

impl Worker {
    fn new(number: usize) -> Self {
        Self {
            owner: owner(number, 0),
            lives: 0,
            holds: Vec::new(),
            has_held: Vec::new(),
            tenures: [const { None }; RESOURCES],
            old_token: None,
        }
    }

    fn crash(&mut self, number: usize) {
        self.lives += 1;
        self.owner = owner(number, self.lives);
        self.holds.clear();
        self.tenures = [const { None }; RESOURCES];
    }

    fn hold(&mut self, items: impl Iterator<Item = Item>) {
        for item in items {
            if !self.holds.contains(&item) {
                self.holds.push(item);
            }
            if !self.has_held.contains(&item) {
                self.has_held.push(item);
            }
        }
    }

    fn of_kind(&self, kind: Kind) -> Vec<Item> {
        self.holds.iter().copied().filter(|item| item.kind == kind).collect()
    }

    fn take(&mut self, resource: usize, token: FencingToken) {
        let tenure = Tenure { resource: resource_name(resource), owner: self.owner.clone(), token };
        let before = self.tenures[resource].replace(tenure);
        if resource == 0 {
            self.old_token = before.map(|tenure| tenure.token).or(self.old_token);
        }
    }
}
