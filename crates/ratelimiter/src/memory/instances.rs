//! Instances: limits that are made from templates.
//!
//! An instance is an ordinary limit with an [`InstanceMark`](crate::InstanceMark). It exists while it is in use or owes a debt; then the
//! sweep drops it.

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::MemoryOptions;
use crate::clock::Timestamp;
use crate::key::{KeyPattern, LimitKey};
use crate::template::{CountedTemplates, InstanceBounds, NewInstances, NoInstance};

/// The templates, and a count of their instances.
#[derive(Debug)]
pub(super) struct Instances {
    /// Locked inside the shard of a group, never around it: an instance is made and a template is changed in a fixed order.
    templates: RwLock<FollowedTemplates>,
    bounds: InstanceBounds,
}

/// The templates, and how far the instances have followed their changes.
#[derive(Debug, Default)]
pub(super) struct FollowedTemplates {
    templates: CountedTemplates,
    /// How many changes of templates there were.
    change_count: u64,
    /// All instances have followed the changes up to this one.
    followed_count: u64,
}

/// A change of templates that instances have yet to follow.
#[derive(Debug)]
pub(super) struct TemplateChange {
    pub(super) number: u64,
    /// Which templates have changed; `None` if all instances are to be looked at.
    pub(super) changed: Option<Vec<KeyPattern>>,
}

/// Whether the bounds on instances apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bounds {
    Apply,
    /// The instance goes as soon as the request is answered, or keeps a debt.
    Ignore,
}

impl Instances {
    pub(super) fn new(options: &MemoryOptions) -> Self {
        let MemoryOptions { instances_max, new_instances_per_second_max, .. } = *options;
        let bounds = InstanceBounds::new(instances_max, new_instances_per_second_max);
        Self { templates: RwLock::default(), bounds }
    }

    // A panic under these locks poisons the whole limiter, if it matters.

    pub(super) fn templates(&self) -> RwLockReadGuard<'_, FollowedTemplates> {
        self.templates.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn templates_mut(&self) -> RwLockWriteGuard<'_, FollowedTemplates> {
        self.templates.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Definitions for all these keys, or none. The shards of their groups are locked, so that no change of a template is missed.
    pub(super) fn make(
        &self,
        now: Timestamp,
        keys: &[&LimitKey],
        bounds: Bounds,
    ) -> Result<NewInstances, NoInstance> {
        let templates = self.templates();
        match bounds {
            Bounds::Apply => self.bounds.make(now, &templates, keys),
            Bounds::Ignore => templates.instances(keys),
        }
    }

    /// Some instances that were made did not come into use.
    pub(super) fn take_back(&self, counted_since: Option<Timestamp>, count: usize) {
        self.bounds.take_back(counted_since, count);
    }
}

impl FollowedTemplates {
    /// Counts a change of these templates, unless no instance needs to follow.
    pub(super) fn begin_change(&mut self, changed: Vec<KeyPattern>) -> Option<TemplateChange> {
        let is_followed = self.followed_count == self.change_count;
        if is_followed && changed.is_empty() {
            return None;
        }
        self.change_count += 1;
        // Instances are made under this lock.
        if self.instance_count() == 0 {
            self.followed_count = self.change_count;
            return None;
        }
        // A walk that did not end may have left any instance behind.
        let changed = is_followed.then_some(changed);
        Some(TemplateChange { number: self.change_count, changed })
    }

    /// All instances have followed a change.
    pub(super) fn end_change(&mut self, number: u64) {
        self.followed_count = self.followed_count.max(number);
    }
}

impl Deref for FollowedTemplates {
    type Target = CountedTemplates;

    fn deref(&self) -> &CountedTemplates {
        &self.templates
    }
}

impl DerefMut for FollowedTemplates {
    fn deref_mut(&mut self) -> &mut CountedTemplates {
        &mut self.templates
    }
}
