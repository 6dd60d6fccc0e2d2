//! Which jobs a runner claims next: plain data with `now` as an argument.
//!
//! A model stands at the *gates* of the limits that denied its jobs, and none of its jobs is claimed while one of them is
//! closed. Then a few are at a time, more as jobs are allowed, until the gates are fully open. Models at gates are claimed one
//! by one, all others together, so none stands in another's way. A tenant without budget is put off by itself. The gates, and
//! which job goes first at them, are the [admission policy](ratelimiter::admission)'s.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use coordination::{MessageId, TOPICS_MAX, Topic, TopicSet, Topics, retry_delay};
use ratelimiter::admission::{
    Denials, FIRST_LASTS_MAX, GateNumber, Gates, Owner, STARVING_AFTER, WAIT_MAX,
};
use ratelimiter::clock::Timestamp;
use ratelimiter::{LimitKey, REQUIREMENTS_MAX};

use super::settings::Models;

/// How far apart the jobs of a tenant without budget come back. All at once they would stand before every younger job again
/// and again, and with some 100 000 of them nobody else's turn would come.
const TENANT_RETURNS_EVERY: Duration = Duration::from_millis(10);
/// How many tenants without budget are remembered.
const TENANTS_MAX: usize = 10_000;
/// How far apart the jobs of one model ask that are postponed.
const POSTPONED_EVERY: Duration = Duration::from_secs(1);
/// How many denied jobs are remembered.
const DENIED_MAX: usize = 10_000;
/// By how much longer a gate is kept for a job that goes first, so that the job is due by then.
const FIRST_DUE_WITHIN: Duration = Duration::from_millis(100);
/// How many topics are kept out of claims or claimed one by one. The topics of one claim are bounded.
const GATED_MAX: usize = TOPICS_MAX / 4;

/// What is known of the models and tenants that jobs are for.
#[derive(Debug)]
pub(super) struct ModelGates {
    models: Models,
    /// How many jobs of one model may be in hand.
    model_workers: usize,
    /// Jobs in hand, by topic. Only topics with some.
    in_hand: BTreeMap<Topic, InHand>,
    /// The gates of limits that had no room lately.
    gates: Gates<(), MessageId>,
    /// The models that stand at gates, at most [`REQUIREMENTS_MAX`] each, until all of those are fully open.
    gated: BTreeMap<Topic, Vec<GateNumber>>,
    /// Jobs that were denied by limits that all share, and when they were last.
    denials: HashMap<MessageId, (Denials, Timestamp)>,
    /// Topics that are no jobs'. Left alone.
    foreign: BTreeSet<Topic>,
    /// Topics that it had jobs of, up to [`TOPICS_MAX`].
    met: BTreeSet<Topic>,
    /// Tenants that had no budget lately.
    tenants: HashMap<LimitKey, Tenant>,
}

#[derive(Debug, Default)]
struct InHand {
    jobs: usize,
    /// How many of them wait for the limiter's answer, or to ask.
    asking: usize,
}

#[derive(Debug)]
struct Tenant {
    until: Timestamp,
    /// When the next job that is put off comes back. Never before `until`.
    returns_at: Timestamp,
    /// Denials in a row.
    denials: u32,
}

/// One claim to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claiming {
    pub(super) topics: Topics,
    /// How many jobs, if there is room for them.
    pub(super) max: u32,
}

impl ModelGates {
    pub(super) fn new(models: Models, model_workers: usize) -> ModelGates {
        assert!(model_workers > 0, "the settings were checked");
        ModelGates {
            models,
            model_workers,
            in_hand: BTreeMap::new(),
            gates: Gates::default(),
            gated: BTreeMap::new(),
            denials: HashMap::new(),
            foreign: BTreeSet::new(),
            met: BTreeSet::new(),
            tenants: HashMap::new(),
        }
    }

    /// The claims to make: one for each model whose gates are open, and one for all models without.
    pub(super) fn claims(&self, now: Timestamp) -> Vec<Claiming> {
        let mut claims = Vec::new();
        for (topic, gates) in &self.gated {
            let width = gates.iter().map(|gate| self.gates.width(*gate)).min();
            let max = self.model_room(topic).min(width.unwrap_or(usize::MAX));
            if max > 0 && self.lets_ask(now, topic) && !self.is_asking(topic) {
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
        let waits = |topic: &&Topic| !self.lets_ask(now, topic) || self.is_asking(topic);
        self.without(self.gated.keys().filter(waits).chain(self.full()))
    }

    fn is_asking(&self, topic: &Topic) -> bool {
        self.in_hand.get(topic).is_some_and(|in_hand| in_hand.asking > 0)
    }

    /// When the next model that was closed at `now` opens by itself.
    pub(super) fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.gated.keys().filter_map(|topic| self.closed_until(now, topic)).min()
    }

    /// Until when no job of this model had better ask; none if they may.
    fn closed_until(&self, now: Timestamp, topic: &Topic) -> Option<Timestamp> {
        let closed = |gate: &GateNumber| {
            // A claim names a model and no amount, so gates are closed for the least.
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
        let full = |(_, in_hand): &(&Topic, &InHand)| in_hand.jobs >= self.model_workers;
        self.in_hand.iter().filter(full).map(|(topic, _)| topic).take(GATED_MAX)
    }

    fn model_room(&self, topic: &Topic) -> usize {
        let jobs = self.in_hand.get(topic).map_or(0, |in_hand| in_hand.jobs);
        self.model_workers.saturating_sub(jobs)
    }

    /// The topics that this runner keeps: those of its models, of all models those it has met.
    pub(super) fn own_topics(&self) -> Topics {
        match &self.models.only {
            Some(only) => Topics::Only(only.clone()),
            None => Topics::Only(set(self.met.iter().cloned())),
        }
    }

    /// A message that is no job was claimed: no more of its topic.
    pub(super) fn is_foreign(&mut self, topic: &Topic) {
        if self.foreign.len() < GATED_MAX {
            self.foreign.insert(topic.clone());
        }
    }

    /// A job was claimed. False if there is no room for it.
    pub(super) fn take(&mut self, topic: &Topic) -> bool {
        if self.met.len() < TOPICS_MAX && !self.met.contains(topic) {
            self.met.insert(topic.clone());
        }
        let in_hand = self.in_hand.entry(topic.clone()).or_default();
        if in_hand.jobs >= self.model_workers {
            return false;
        }
        in_hand.jobs += 1;
        in_hand.asking += 1;
        true
    }

    /// A job waits for no answer any more. True if claims may be possible that were not before.
    pub(super) fn end_asking(&mut self, topic: &Topic) -> bool {
        let in_hand = self.in_hand.get_mut(topic).expect("the job is in hand");
        in_hand.asking -= 1;
        in_hand.asking == 0 && self.gated.contains_key(topic)
    }

    /// A job is out of hand. True if claims may be possible that were not before.
    pub(super) fn leave(&mut self, topic: &Topic) -> bool {
        let in_hand = self.in_hand.get_mut(topic).expect("the job is in hand");
        let was_full = in_hand.jobs >= self.model_workers;
        in_hand.jobs -= 1;
        assert!(in_hand.asking <= in_hand.jobs, "who asks is in hand");
        if in_hand.jobs == 0 {
            self.in_hand.remove(topic);
        }
        was_full
    }

    /// Whether a job of this model may ask.
    pub(super) fn lets_ask(&self, now: Timestamp, topic: &Topic) -> bool {
        self.closed_until(now, topic).is_none()
    }

    /// For how long a job with this budget is to be put off; none if it may ask.
    pub(super) fn put_off(&mut self, now: Timestamp, budget: &LimitKey) -> Option<Duration> {
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
            for gate in self.gated.remove(topic).expect("it was just there") {
                self.gates.leave(gate, ());
            }
        }
    }

    /// A job was denied by these limits, with this hint. Says how long the job had better wait.
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
        // The hint is the longest of all: if the budget is among them, it says nothing about the limits that all share.
        if let Some(budget) = budget.filter(|budget| keys.contains(budget)) {
            self.denials.remove(&id);
            return self.tenant_denied(now, budget, wait);
        }
        if !keys.is_empty() {
            let first = self.goes_first(now, id).then_some(id);
            self.close(now, topic, keys, now.after(wait), first);
        }
        wait
    }

    /// A job was postponed because of these limits, or of something that is the same for all of them. It may be the job's
    /// own, so its model waits for a moment only, while the job waits for longer. Says how long.
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
            let gate = self.gates.enter(key, ());
            if gated.contains(&gate) {
                self.gates.leave(gate, ());
            } else {
                gated.push(gate);
            }
            // A runner does not note what was released while the job asked, so the denial stands.
            self.gates.close(now, gate, 1, until, self.gates.releases());
            if let Some(id) = first {
                self.gates.put_first(now, gate, id, Some(until.after(FIRST_DUE_WITHIN)));
            }
        }
        // A server may name any key.
        let too_many = gated.len().saturating_sub(REQUIREMENTS_MAX);
        for gate in gated.drain(..too_many) {
            self.gates.leave(gate, ());
        }
    }

    /// Counts a denial. True if the job goes first from now on.
    fn goes_first(&mut self, now: Timestamp, id: MessageId) -> bool {
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

    /// The wait grows with every denial in a row, because each costs the jobs of all tenants a little.
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

    /// These limits got room back. True if a model opened, so that it is worth a claim.
    pub(super) fn released(&mut self, now: Timestamp, keys: &[LimitKey]) -> bool {
        let closed_before = self.closed_count(now);
        for key in keys {
            self.gates.release(key);
        }
        self.closed_count(now) < closed_before
    }

    fn closed_count(&self, now: Timestamp) -> usize {
        self.gated.keys().filter(|topic| !self.lets_ask(now, topic)).count()
    }
}

fn set(topics: impl IntoIterator<Item = Topic>) -> TopicSet {
    TopicSet::of(topics).expect("models at gates or full, met and foreign topics are bounded")
}

#[cfg(test)]
mod tests;
