//! Definitions, and changes of templates, which reach every instance like a definition of each.
//!
//! The templates change first, then the shards are walked. An instance that is made in the meantime is either made under the old
//! template, before its shard is walked, or under the new one. Walks may overlap: each brings the instances in line with the
//! templates as they are by then.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::task::Poll;

use super::groups::shard_of;
use super::instances::TemplateChange;
use super::{GROUPS_PER_LOCK, State};
use crate::error::{DefineError, DeleteError, Unanswered};
use crate::key::{KeyPattern, LimitKey};
use crate::limit::Limit;
use crate::registry::LimitStatus;

const LOCKED: &str = "the shards of all limits are locked";

/// A walk over all instances after a change of templates, a few groups at a time. If it does not end, the next one looks at all
/// instances.
#[derive(Debug)]
#[must_use = "the instances follow during the walk"]
pub(super) struct Walk {
    change: TemplateChange,
    /// The next shard, and the next slot in it.
    shard: usize,
    slot: u32,
}

/// Whether a walk has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    HasMore,
    Ended,
}

impl Walk {
    const fn new(change: TemplateChange) -> Self {
        Self { change, shard: 0, slot: 0 }
    }

    /// Looks at the next few groups.
    fn step(&mut self, state: &State) -> Result<Progress, Unanswered> {
        let Self { change, shard: number, slot } = self;
        let is_changed = |key: &LimitKey| match &change.changed {
            Some(patterns) => patterns.iter().any(|pattern| pattern.matches(key)),
            None => true,
        };
        let mut seen_count = 0;
        while let Some(shard) = state.groups.shards.each().nth(*number) {
            state.change(shard.lock(), |shard, now| {
                seen_count += shard.len().min(GROUPS_PER_LOCK as usize);
                let templates = state.instances.templates();
                match shard.realign(now, &is_changed, &templates, *slot, GROUPS_PER_LOCK) {
                    Some(next) => *slot = next,
                    None => (*number, *slot) = (*number + 1, 0),
                }
            })?;
            if seen_count >= GROUPS_PER_LOCK as usize {
                return Ok(Progress::HasMore);
            }
        }
        state.instances.templates_mut().end_change(change.number);
        Ok(Progress::Ended)
    }
}

impl State {
    /// Defines limits and templates, all or none: all shards are locked, so nothing changes between the checks and the first
    /// change. Limits come before templates, so that they take over instances as these are. Returns the statuses in the order of
    /// the list, and the walk that remains to be done.
    pub(super) fn define_all(
        &self,
        limits: Vec<Limit>,
    ) -> Result<(Vec<LimitStatus>, Option<Walk>), DefineError> {
        let mut statuses: Vec<_> = limits.iter().map(status_in_force).collect();
        let is_template = |(_, limit): &(usize, Limit)| limit.key.is_template();
        let (templates, limits): (Vec<_>, Vec<_>) =
            limits.into_iter().enumerate().partition(is_template);
        // In the order in which requests lock them, so that threads cannot deadlock.
        let numbers: BTreeSet<_> = limits.iter().map(|(_, limit)| shard_of(&limit.key)).collect();
        let shards = numbers.into_iter().map(|n| (n, self.groups.shards.lock(n as usize)));
        let mut shards: BTreeMap<_, _> = shards.collect();
        let mut defined = (!templates.is_empty()).then(|| self.instances.templates_mut());
        let now = self.clock.now();
        let _change = self.poison.begin_change()?;
        for (_, limit) in &limits {
            let shard = shards.get_mut(&shard_of(&limit.key)).expect(LOCKED);
            shard.check_definition(now, limit)?;
        }
        if let Some(defined) = &defined {
            defined.check_all(templates.iter().map(|(_, template)| template))?;
        }
        for (at, limit) in limits {
            let shard = shards.get_mut(&shard_of(&limit.key)).expect(LOCKED);
            statuses[at] = shard.group_or_new(&limit.key).define(now, limit)?;
        }
        let Some(defined) = &mut defined else { return Ok((statuses, None)) };
        let mut changed = Vec::new();
        for (_, template) in templates {
            changed.extend(defined.put(template)?);
        }
        Ok((statuses, defined.begin_change(changed).map(Walk::new)))
    }

    /// Whether these definitions would be accepted now.
    pub(super) fn check_definitions(&self, limits: &[Limit]) -> Result<(), DefineError> {
        let is_template = |limit: &&Limit| limit.key.is_template();
        for limit in limits.iter().filter(|limit| !is_template(limit)) {
            let mut shard = self.groups.lock_one(&limit.key);
            let now = self.clock.now();
            let _change = self.poison.begin_change()?;
            shard.check_definition(now, limit)?;
        }
        self.instances.templates().check_all(limits.iter().filter(is_template))
    }

    /// Defines a template, whatever its kind was before.
    pub(super) fn restore_template(&self, template: Limit) -> Result<LimitStatus, DefineError> {
        let status = status_in_force(&template);
        let walk = {
            let mut templates = self.instances.templates_mut();
            let _change = self.poison.begin_change()?;
            let defined = templates.all().get(&template.key);
            if defined.is_some_and(|defined| !defined.kind.is_same_kind(template.kind)) {
                templates.remove(&template.key);
            }
            let changed = templates.put(template)?;
            templates.begin_change(changed.into_iter().collect()).map(Walk::new)
        };
        self.walk_now(walk)?;
        Ok(status)
    }

    /// Deletes a template. Returns the walk that remains to be done.
    pub(super) fn delete_template(&self, key: &LimitKey) -> Result<Option<Walk>, DeleteError> {
        let mut templates = self.instances.templates_mut();
        let _change = self.poison.begin_change()?;
        if templates.remove(key).is_none() {
            return Err(DeleteError::UnknownKey { key: key.clone() });
        }
        let pattern = KeyPattern::new(key).expect("a template's key is a pattern");
        Ok(templates.begin_change(vec![pattern]).map(Walk::new))
    }

    /// Brings the instances in line with changed templates.
    pub(super) fn walk_now(&self, walk: Option<Walk>) -> Result<(), Unanswered> {
        let Some(mut walk) = walk else { return Ok(()) };
        while walk.step(self)? == Progress::HasMore {}
        Ok(())
    }

    /// As [`State::walk_now`], and lets other tasks run in between.
    pub(super) async fn walk(&self, walk: Option<Walk>) -> Result<(), Unanswered> {
        let Some(mut walk) = walk else { return Ok(()) };
        while walk.step(self)? == Progress::HasMore {
            yield_now().await;
        }
        Ok(())
    }
}

fn status_in_force(limit: &Limit) -> LimitStatus {
    LimitStatus::in_force_at(limit.capacity)
}

/// Lets the executor run other tasks first, whichever it is.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
