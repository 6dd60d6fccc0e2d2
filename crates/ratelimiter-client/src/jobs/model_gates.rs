//! Which jobs a runner claims next: plain data with `now` as an argument.
//!
//! A model is *gated* by the limits that denied its jobs: none of its jobs is claimed while one of these gates is closed. Then
//! a few are claimed at a time, more as jobs are allowed, until the gates are fully open. Each gated model has its own claim,
//! and all others share one, so that no model delays another. The jobs of a tenant without budget wait separately. The gates,
//! and which job goes first at them, follow the [admission policy](ratelimiter::admission).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use coordination::{MessageId, TOPICS_MAX, Topic, TopicSet, Topics, retry_delay};
use ratelimiter::admission::{
    Denials, FIRST_LASTS_MAX, GateId, Gates, Owner, STARVING_AFTER, WAIT_MAX,
};
use ratelimiter::clock::Timestamp;
use ratelimiter::{LimitKey, REQUIREMENTS_MAX};

use super::settings::Models;

/// The time between the retries of a tenant without budget. If 100 000 of its jobs came back at once, they would be claimed
/// before all younger jobs, again and again.
const TENANT_RETURNS_EVERY: Duration = Duration::from_millis(10);
/// The most tenants without budget that are remembered.
const TENANTS_MAX: usize = 10_000;
/// How long a model waits after one of its jobs was postponed.
const POSTPONED_EVERY: Duration = Duration::from_secs(1);
/// The most denied jobs that are remembered.
const DENIED_MAX: usize = 10_000;
/// How much longer than its hint a gate is reserved for a job that goes first, so that the job is due by then.
const FIRST_DUE_WITHIN: Duration = Duration::from_millis(100);
/// The most topics that are excluded from claims or claimed separately. The topics of one claim are bounded.
const GATED_MAX: usize = TOPICS_MAX / 4;

/// The state of models and tenants.
#[derive(Debug)]
pub(super) struct ModelGates {
    models: Models,
    /// The most jobs in flight of one model.
    model_workers: usize,
    /// The jobs in flight by topic. No count is 0.
    in_flight: BTreeMap<Topic, InFlight>,
    /// The gates of limits that denied a job recently.
    gates: Gates<MessageId>,
    /// The gated models with their gates, at most [`REQUIREMENTS_MAX`] each, until all of these are fully open.
    gated: BTreeMap<Topic, Vec<GateId>>,
    /// Jobs that were denied by shared limits, with the time of the last denial.
    denials: HashMap<MessageId, (Denials, Timestamp)>,
    /// Topics of messages that are no jobs. They are not claimed.
    foreign: BTreeSet<Topic>,
    /// Topics of jobs that it claimed, at most [`TOPICS_MAX`].
    known_topics: BTreeSet<Topic>,
    /// Tenants without budget, by the key of the budget.
    tenants: HashMap<LimitKey, Tenant>,
}

#[derive(Debug, Default)]
struct InFlight {
    jobs: usize,
    /// How many of them ask, or wait for their turn to.
    asking: usize,
}

#[derive(Debug)]
struct Tenant {
    until: Timestamp,
    /// When the next job that is put off is due. Never before `until`.
    returns_at: Timestamp,
    /// Consecutive denials.
    denials: u32,
}

/// One claim to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claiming {
    pub(super) topics: Topics,
    /// The most jobs to claim.
    pub(super) max: u32,
}

impl ModelGates {
    pub(super) fn new(models: Models, model_workers: usize) -> ModelGates {
        assert!(model_workers > 0, "the settings were checked");
        ModelGates {
            models,
            model_workers,
            in_flight: BTreeMap::new(),
            gates: Gates::default(),
            gated: BTreeMap::new(),
            denials: HashMap::new(),
            foreign: BTreeSet::new(),
            known_topics: BTreeSet::new(),
            tenants: HashMap::new(),
        }
    }

    /// The claims to make: one for each gated model that is open, and one for all models without gates.
    pub(super) fn claims(&self, now: Timestamp) -> Vec<Claiming> {
        let mut claims = Vec::new();
        for (topic, gates) in &self.gated {
            let width = gates.iter().map(|gate| self.gates.width(*gate)).min();
            let max = self.model_room(topic).min(width.unwrap_or(usize::MAX));
            if max > 0 && self.may_ask(now, topic) && !self.is_asking(topic) {
                let max = u32::try_from(max).unwrap_or(u32::MAX);
                claims.push(Claiming { topics: Topics::Only(set([topic.clone()])), max });
            }
        }
        let topics = self.without(self.gated.keys().chain(self.full()));
        claims.push(Claiming { topics, max: u32::MAX });
        claims
    }

    /// The topics whose next job could be claimed now.
    pub(super) fn awaited(&self, now: Timestamp) -> Topics {
        let waits = |topic: &&Topic| !self.may_ask(now, topic) || self.is_asking(topic);
        self.without(self.gated.keys().filter(waits).chain(self.full()))
    }

    fn is_asking(&self, topic: &Topic) -> bool {
        self.in_flight.get(topic).is_some_and(|in_flight| in_flight.asking > 0)
    }

    /// When the next model that was closed at `now` opens, if no room comes back before.
    pub(super) fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.gated.keys().filter_map(|topic| self.closed_until(now, topic)).min()
    }

    /// Until when the model is closed; `None` if its jobs may ask.
    fn closed_until(&self, now: Timestamp, topic: &Topic) -> Option<Timestamp> {
        let closed = |gate: &GateId| {
            // A claim names a model and no amount, so a closed gate is closed for every amount.
            let closed = self.gates.closed_until(now, *gate, 1);
            closed.max(self.gates.kept_until(now, *gate))
        };
        self.gated.get(topic)?.iter().filter_map(closed).max()
    }

    fn without<'a>(&'a self, left_out: impl Iterator<Item = &'a Topic>) -> Topics {
        let left_out: BTreeSet<&Topic> = left_out.chain(&self.foreign).collect();
        match &self.models.only {
            Some(only) => {
                let rest = only.iter().filter(|topic| !left_out.contains(topic));
                Topics::Only(set(rest.cloned()))
            }
            None if left_out.is_empty() => Topics::All,
            None => Topics::Except(set(left_out.into_iter().cloned())),
        }
    }

    fn full(&self) -> impl Iterator<Item = &Topic> {
        let full = |(_, in_flight): &(&Topic, &InFlight)| in_flight.jobs >= self.model_workers;
        self.in_flight.iter().filter(full).map(|(topic, _)| topic).take(GATED_MAX)
    }

    fn model_room(&self, topic: &Topic) -> usize {
        let jobs = self.in_flight.get(topic).map_or(0, |in_flight| in_flight.jobs);
        self.model_workers.saturating_sub(jobs)
    }

    /// The topics that this runner purges: those of its models, or those whose jobs it claimed if it serves all.
    pub(super) fn own_topics(&self) -> Topics {
        match &self.models.only {
            Some(only) => Topics::Only(only.clone()),
            None => Topics::Only(set(self.known_topics.iter().cloned())),
        }
    }

    /// A message that is no job was claimed: its topic is no longer claimed.
    pub(super) fn add_foreign(&mut self, topic: &Topic) {
        if self.foreign.len() < GATED_MAX {
            self.foreign.insert(topic.clone());
        }
    }

    /// A job was claimed. False if its model has too many in flight.
    pub(super) fn try_start(&mut self, topic: &Topic) -> bool {
        if self.known_topics.len() < TOPICS_MAX && !self.known_topics.contains(topic) {
            self.known_topics.insert(topic.clone());
        }
        let in_flight = self.in_flight.entry(topic.clone()).or_default();
        if in_flight.jobs >= self.model_workers {
            return false;
        }
        in_flight.jobs += 1;
        in_flight.asking += 1;
        true
    }

    /// A job asks no more. True if more may be claimed than before.
    pub(super) fn end_asking(&mut self, topic: &Topic) -> bool {
        let in_flight = self.in_flight.get_mut(topic).expect("the job is in flight");
        in_flight.asking -= 1;
        in_flight.asking == 0 && self.gated.contains_key(topic)
    }

    /// A job is no longer in flight. True if more may be claimed than before.
    pub(super) fn finish(&mut self, topic: &Topic) -> bool {
        let in_flight = self.in_flight.get_mut(topic).expect("the job is in flight");
        let was_full = in_flight.jobs >= self.model_workers;
        in_flight.jobs -= 1;
        assert!(in_flight.asking <= in_flight.jobs, "a job that asks is in flight");
        if in_flight.jobs == 0 {
            self.in_flight.remove(topic);
        }
        was_full
    }

    /// True if jobs of this model may ask.
    pub(super) fn may_ask(&self, now: Timestamp, topic: &Topic) -> bool {
        self.closed_until(now, topic).is_none()
    }

    /// How long a job with this budget must wait; `None` if it may ask.
    pub(super) fn tenant_wait(&mut self, now: Timestamp, budget: &LimitKey) -> Option<Duration> {
        let tenant = self.tenants.get_mut(budget).filter(|tenant| tenant.until > now)?;
        let wait = tenant.returns_at.since(now);
        tenant.returns_at = tenant.returns_at.after(TENANT_RETURNS_EVERY);
        Some(wait)
    }

    /// A job was allowed: its model and its tenant have room.
    pub(super) fn allowed(&mut self, id: MessageId, topic: &Topic, budget: Option<&LimitKey>) {
        self.denials.remove(&id);
        if let Some(budget) = budget {
            self.tenants.remove(budget);
        }
        let Some(gates) = self.gated.get(topic) else {
            return;
        };
        for gate in gates {
            self.gates.widen(*gate, self.model_workers);
        }
        if gates.iter().all(|gate| self.gates.width(*gate) == usize::MAX) {
            for gate in self.gated.remove(topic).expect("it was just found") {
                self.gates.leave(gate);
            }
        }
    }

    /// A job was denied by these limits, with this hint. Returns how long the job waits.
    pub(super) fn denied(
        &mut self,
        now: Timestamp,
        id: MessageId,
        topic: &Topic,
        keys: &[LimitKey],
        budget: Option<&LimitKey>,
        wait: Duration,
    ) -> Duration {
        let wait = wait.min(WAIT_MAX);
        // The hint is the longest of all limits: if the budget is among them, it tells nothing about the shared ones.
        if let Some(budget) = budget.filter(|budget| keys.contains(budget)) {
            self.denials.remove(&id);
            return self.tenant_denied(now, budget, wait);
        }
        if !keys.is_empty() {
            let first = self.count_denial(now, id).then_some(id);
            self.close(now, topic, keys, now.after(wait), first);
        }
        wait
    }

    /// A job was postponed because of these limits, or of an error that concerns all of them. The cause may be the job alone,
    /// so its model waits only for a moment. Returns how long the job waits.
    pub(super) fn postponed(
        &mut self,
        now: Timestamp,
        topic: &Topic,
        keys: &[LimitKey],
        budget: Option<&LimitKey>,
        wait: Duration,
    ) -> Duration {
        match budget.filter(|budget| keys.contains(budget)) {
            Some(budget) => self.tenant_denied(now, budget, wait),
            None => {
                self.close(now, topic, keys, now.after(POSTPONED_EVERY), None);
                wait
            }
        }
    }

    fn close(
        &mut self,
        now: Timestamp,
        topic: &Topic,
        keys: &[LimitKey],
        until: Timestamp,
        first: Option<MessageId>,
    ) {
        if self.gated.len() >= GATED_MAX && !self.gated.contains_key(topic) {
            return;
        }
        let gated = self.gated.entry(topic.clone()).or_default();
        for key in keys {
            let gate = self.gates.enter(key);
            if gated.contains(&gate) {
                self.gates.leave(gate);
            } else {
                gated.push(gate);
            }
            // A runner does not track releases while a job asks, so the denial always counts.
            self.gates.close(now, gate, 1, until, self.gates.releases());
            if let Some(id) = first {
                self.gates.put_first(now, gate, id, Some(until.after(FIRST_DUE_WITHIN)));
            }
        }
        // A server may name any key.
        let too_many = gated.len().saturating_sub(REQUIREMENTS_MAX);
        for gate in gated.drain(..too_many) {
            self.gates.leave(gate);
        }
    }

    /// Counts a denial by shared limits. True if the job goes first from now on.
    fn count_denial(&mut self, now: Timestamp, id: MessageId) -> bool {
        if self.denials.len() >= DENIED_MAX {
            self.denials.retain(|_, (_, last_at)| now.since(*last_at) < FIRST_LASTS_MAX);
        }
        if self.denials.len() >= DENIED_MAX && !self.denials.contains_key(&id) {
            return false;
        }
        let (denials, last_at) = self.denials.entry(id).or_insert((Denials::default(), now));
        *last_at = now;
        denials.count(now, Owner::Shared, STARVING_AFTER)
    }

    /// The wait grows with every consecutive denial, because each delays the jobs of other tenants a little.
    fn tenant_denied(&mut self, now: Timestamp, budget: &LimitKey, wait: Duration) -> Duration {
        if self.tenants.len() >= TENANTS_MAX {
            self.tenants.retain(|_, tenant| tenant.returns_at > now);
        }
        let known = self.tenants.get(budget);
        let denials = known.map_or(0, |tenant| tenant.denials);
        let wait = wait.max(retry_delay(denials, 0.0).get());
        let until = now.after(wait);
        let returns_at = known.map_or(until, |tenant| tenant.returns_at.max(until));
        if self.tenants.len() < TENANTS_MAX {
            let tenant = Tenant { until, returns_at, denials: denials.saturating_add(1) };
            self.tenants.insert(budget.clone(), tenant);
        }
        wait
    }

    /// These limits got room back. True if a model opened, so that a claim is worthwhile.
    pub(super) fn released(&mut self, now: Timestamp, keys: &[LimitKey]) -> bool {
        let closed_before = self.closed_count(now);
        for key in keys {
            self.gates.release(key);
        }
        self.closed_count(now) < closed_before
    }

    fn closed_count(&self, now: Timestamp) -> usize {
        self.gated.keys().filter(|topic| !self.may_ask(now, topic)).count()
    }
}

fn set(topics: impl IntoIterator<Item = Topic>) -> TopicSet {
    TopicSet::of(topics).expect("gated, full, known and foreign topics are bounded")
}

#[cfg(test)]
mod tests;
