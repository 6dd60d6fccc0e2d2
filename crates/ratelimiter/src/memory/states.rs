//! States of limits, templates and instances, one at a time or page by page.

use super::State;
use super::live_limit::LiveLimit;
use crate::error::Unanswered;
use crate::key::{KeyPattern, LimitKey};
use crate::limit::Limit;
use crate::registry::{LimitState, Page, RegisteredLimit};

impl State {
    /// The state of a limit or a template. A key that only a template matches has the state of its instance, or of a new one.
    pub(super) fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, Unanswered> {
        let mut shard = self.groups.lock_one(key);
        let now = self.clock.now();
        let _change = self.poison.begin_change()?;
        if let Some(group) = shard.group_of(key) {
            group.expire(now);
            if let Some((slot, _)) = group.find(key) {
                return Ok(Some(group.limit(slot).state(now)));
            }
        }
        let templates = self.instances.templates();
        if let Some(template) = templates.all().get(key) {
            return Ok(Some(templates.state(now, template)));
        }
        let instance = templates.all().instance(key);
        let new = |limit| LiveLimit::new(now, RegisteredLimit::in_force(limit), None).state(now);
        Ok(instance.map(new))
    }

    pub(super) fn states(
        &self,
        page: &Page,
        is_listed: &impl Fn(&LimitKey) -> bool,
    ) -> Result<Vec<LimitState>, Unanswered> {
        let mut first = FirstStates::new(page);
        let template = page.template.as_ref().map(KeyPattern::key);
        for shard in self.groups.shards.each() {
            let mut shard = shard.lock();
            let now = self.clock.now();
            let _change = self.poison.begin_change()?;
            for group in shard.groups_mut() {
                group.expire(now);
                for limit in group.limits() {
                    let key = &limit.registered().limit.key;
                    let is_asked_for = limit.template() == template && !limit.is_unused_instance();
                    if is_asked_for && first.admits(key) && is_listed(key) {
                        first.add(limit.state(now));
                    }
                }
            }
        }
        if template.is_none() {
            let now = self.clock.now();
            let templates = self.instances.templates();
            self.poison.check()?;
            for template in templates.all().iter() {
                if first.admits(&template.key) && is_listed(&template.key) {
                    first.add(templates.state(now, template));
                }
            }
        }
        Ok(first.into_sorted())
    }

    /// The definition of a limit, or the template from which it is or would be made.
    pub(super) fn governing(&self, key: &LimitKey) -> Option<Limit> {
        let mut shard = self.groups.lock_one(key);
        if let Some((_, limit)) = shard.group_of(key).and_then(|group| group.find(key)) {
            return Some(limit.registered().limit.clone());
        }
        self.instances.templates().all().find(key).cloned()
    }

    /// The key under which metrics are kept: that of the limit itself, or of the template that governs it; `None` if nothing matches.
    pub(super) fn metrics_key(&self, key: &LimitKey) -> Option<LimitKey> {
        // Each denial at a server asks, and many have never had a template.
        if !self.instances.templates().has_changed() {
            return Some(key.clone());
        }
        let mut shard = self.groups.lock_one(key);
        if let Some((_, limit)) = shard.group_of(key).and_then(|group| group.find(key)) {
            return Some(limit.template().unwrap_or(key).clone());
        }
        let templates = self.instances.templates();
        let template = templates.all().get(key).or_else(|| templates.all().find(key));
        template.map(|template| template.key.clone())
    }
}

/// The first states of a page, by key. Never many more than the page takes, however many limits there are.
struct FirstStates<'a> {
    page: &'a Page,
    count_max: usize,
    states: Vec<LimitState>,
    /// When the page is full, its last key: later ones are not needed.
    last: Option<LimitKey>,
}

impl<'a> FirstStates<'a> {
    fn new(page: &'a Page) -> Self {
        let count_max = page.count_max.unwrap_or(usize::MAX);
        Self { page, count_max, states: Vec::new(), last: None }
    }

    /// False if the key is not on the page.
    fn admits(&self, key: &LimitKey) -> bool {
        self.page.has(key) && self.last.as_ref().is_none_or(|last| key < last)
    }

    fn add(&mut self, state: LimitState) {
        self.states.push(state);
        if self.states.len() / 2 >= self.count_max {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.states.sort_unstable_by(|a, b| a.limit.key.cmp(&b.limit.key));
        if self.states.len() >= self.count_max {
            self.states.truncate(self.count_max);
            self.last = self.states.last().map(|state| state.limit.key.clone());
        }
    }

    fn into_sorted(mut self) -> Vec<LimitState> {
        self.cut();
        self.states
    }
}
