//! Which jobs a runner claims next: plain data with `now` as an argument.
//!
//! A model without room has a *gate*: closed until the limiter's hint is over or a lease of this runner gives room back, and
//! then open for a few jobs at a time, more with every allow, until it is as open as the others. Models with a gate are
//! claimed one by one, all others together, so none stands in another's way. A tenant without budget is put off by itself. A job
//! that was denied too often *goes first*: its gate opens for nobody else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use coordination::{MessageId, TOPICS_MAX, Topic, TopicSet, Topics, retry_delay};
use ratelimiter::LimitKey;
use ratelimiter::admission::WAIT_MAX;
use ratelimiter::clock::Timestamp;

use super::settings::Models;

/// How far apart the jobs of a tenant without budget come back. All at once they would stand before every younger job again
/// and again, and with some 100 000 of them nobody else's turn would come.
const TENANT_RETURNS_EVERY: Duration = Duration::from_millis(10);
/// How many tenants without budget are remembered.
const TENANTS_MAX: usize = 10_000;
/// How far apart the jobs of one model ask that are postponed.
const POSTPONED_EVERY: Duration = Duration::from_secs(1);
/// After how many denials a job goes first.
const STARVING_AFTER: u32 = 8;
/// How many denied jobs are remembered.
const DENIED_MAX: usize = 10_000;
/// For how long a job may go first. One that other runners never let in does not stop this one for good.
const FIRST_FOR_MAX: Duration = Duration::from_secs(120);
/// By how much the gate of a job that goes first opens later, so that the job is due by then.
const FIRST_DUE_WITHIN: Duration = Duration::from_millis(100);
/// How many topics are kept out of claims or claimed one by one. The topics of one claim are bounded.
const GATES_MAX: usize = TOPICS_MAX / 4;

/// What is known of the models and tenants that jobs are for.
#[derive(Debug)]
pub(super) struct Gates {
    models: Models,
    /// How many jobs of one model may be in hand.
    model_workers: usize,
    /// Jobs in hand, by topic. Only topics with some.
    in_hand: BTreeMap<Topic, InHand>,
    /// Models that had no room lately.
    closed: BTreeMap<Topic, Gate>,
    /// Topics that are no jobs'. Left alone.
    foreign: BTreeSet<Topic>,
    /// Tenants that had no budget lately.
    tenants: HashMap<LimitKey, Tenant>,
    /// Jobs that were denied by limits that all share.
    denied: HashMap<MessageId, Denied>,
}

#[derive(Debug)]
struct Denied {
    count: u32,
    last_at: Timestamp,
    /// Since when it goes first.
    first_since: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct InHand {
    jobs: usize,
    /// How many of them wait for the limiter's answer, or to ask.
    asking: usize,
}

#[derive(Debug)]
struct Gate {
    /// Nobody asks before; none is open.
    until: Option<Timestamp>,
    /// The limits that had no room, as far as they have not got some back.
    keys: Vec<LimitKey>,
    /// Whether a job goes first. Then the gate opens when its time is over, and not before.
    is_claimed: bool,
    /// How many jobs may be claimed at a time when it is open.
    width: u32,
    /// How many of them were allowed since the width changed.
    allowed: u32,
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

impl Gates {
    pub(super) fn new(models: Models, model_workers: usize) -> Gates {
        assert!(model_workers > 0, "the settings were checked");
        Gates {
            models,
            model_workers,
            in_hand: BTreeMap::new(),
            closed: BTreeMap::new(),
            foreign: BTreeSet::new(),
            tenants: HashMap::new(),
            denied: HashMap::new(),
        }
    }

    /// The claims to make: one for each open gate, and one for all models without.
    pub(super) fn claims(&self, now: Timestamp) -> Vec<Claiming> {
        let mut claims = Vec::new();
        for (topic, gate) in &self.closed {
            let max = gate.width.min(self.model_room(topic));
            if gate.is_open(now) && !self.is_asking(topic) && max > 0 {
                claims.push(Claiming { topics: Topics::Only(set([topic.clone()])), max });
            }
        }
        let topics = self.without(self.closed.keys().chain(self.full()));
        claims.push(Claiming { topics, max: u32::MAX });
        claims
    }

    /// The topics whose next job could be claimed now.
    pub(super) fn awaited(&self, now: Timestamp) -> Topics {
        let waits = |(topic, gate): &(&Topic, &Gate)| !gate.is_open(now) || self.is_asking(topic);
        let waiting = self.closed.iter().filter(waits).map(|(topic, _)| topic);
        self.without(waiting.chain(self.full()))
    }

    fn is_asking(&self, topic: &Topic) -> bool {
        self.in_hand.get(topic).is_some_and(|in_hand| in_hand.asking > 0)
    }

    /// When the next gate opens by itself.
    pub(super) fn opens_at(&self) -> Option<Timestamp> {
        self.closed.values().filter_map(|gate| gate.until).min()
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
        self.in_hand.iter().filter(full).map(|(topic, _)| topic).take(GATES_MAX)
    }

    fn model_room(&self, topic: &Topic) -> u32 {
        let jobs = self.in_hand.get(topic).map_or(0, |in_hand| in_hand.jobs);
        u32::try_from(self.model_workers.saturating_sub(jobs)).unwrap_or(u32::MAX)
    }

    /// A message that is no job was claimed: no more of its topic.
    pub(super) fn is_foreign(&mut self, topic: &Topic) {
        if self.foreign.len() < GATES_MAX {
            self.foreign.insert(topic.clone());
        }
    }

    /// A job was claimed. False if there is no room for it.
    pub(super) fn take(&mut self, topic: &Topic) -> bool {
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
        in_hand.asking == 0 && self.closed.contains_key(topic)
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
        self.closed.get(topic).is_none_or(|gate| gate.is_open(now))
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
        self.denied.remove(&id);
        if let Some(budget) = budget {
            self.tenants.remove(budget);
        }
        let Some(gate) = self.closed.get_mut(topic) else {
            return;
        };
        gate.allowed += 1;
        if gate.allowed >= gate.width {
            gate.allowed = 0;
            gate.width = gate.width.saturating_mul(2);
            if gate.width as usize > self.model_workers {
                self.closed.remove(topic);
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
            return self.tenant_denied(now, budget, wait);
        }
        if !keys.is_empty() {
            let is_claimed = self.goes_first(now, id);
            let margin = if is_claimed { FIRST_DUE_WITHIN } else { Duration::ZERO };
            self.close(topic, now.after(wait + margin), keys.to_vec(), is_claimed);
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
                self.close(topic, now.after(POSTPONED_EVERY), keys.to_vec(), false);
                wait
            }
        }
    }

    fn close(&mut self, topic: &Topic, until: Timestamp, keys: Vec<LimitKey>, is_claimed: bool) {
        if self.closed.len() < GATES_MAX || self.closed.contains_key(topic) {
            let gate = Gate { until: Some(until), keys, is_claimed, width: 1, allowed: 0 };
            self.closed.insert(topic.clone(), gate);
        }
    }

    /// Counts a denial. True if the job goes first from now on.
    fn goes_first(&mut self, now: Timestamp, id: MessageId) -> bool {
        if self.denied.len() >= DENIED_MAX {
            self.denied.retain(|_, denied| now.since(denied.last_at) < FIRST_FOR_MAX);
        }
        if self.denied.len() >= DENIED_MAX {
            return false;
        }
        let new = Denied { count: 0, last_at: now, first_since: None };
        let denied = self.denied.entry(id).or_insert(new);
        denied.count += 1;
        denied.last_at = now;
        if denied.count < STARVING_AFTER {
            return false;
        }
        let since = *denied.first_since.get_or_insert(now);
        if now.since(since) > FIRST_FOR_MAX {
            (denied.count, denied.first_since) = (0, None);
            return false;
        }
        true
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

    /// These limits got room back. True if a gate opened.
    pub(super) fn released(&mut self, keys: &[LimitKey]) -> bool {
        let mut has_opened = false;
        for gate in self.closed.values_mut().filter(|gate| gate.may_open_early()) {
            gate.keys.retain(|key| !keys.contains(key));
            if gate.keys.is_empty() {
                gate.until = None;
                has_opened = true;
            }
        }
        has_opened
    }

    /// Opens the gates whose time is over.
    pub(super) fn open_due(&mut self, now: Timestamp) {
        for gate in self.closed.values_mut() {
            if gate.is_open(now) {
                gate.until = None;
            }
        }
    }
}

impl Gate {
    fn may_open_early(&self) -> bool {
        self.until.is_some() && !self.is_claimed
    }

    fn is_open(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

fn set(topics: impl IntoIterator<Item = Topic>) -> TopicSet {
    TopicSet::of(topics).expect("gates, full models and foreign topics are bounded")
}

#[cfg(test)]
mod tests;
