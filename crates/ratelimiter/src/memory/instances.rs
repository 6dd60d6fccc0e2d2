//! Instances: limits that are made from templates.
//!
//! An instance is an ordinary limit with an [`InstanceMark`](crate::InstanceMark). It exists while it is in use or owes a debt; then the
//! sweep drops it.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::MemoryOptions;
use crate::clock::Timestamp;
use crate::key::LimitKey;
use crate::template::{CountedTemplates, InstanceBounds, NewInstance, NoInstance};

/// The templates, and a count of their instances.
#[derive(Debug)]
pub(super) struct Instances {
    /// Locked inside the shard of a group, never around it: an instance is made and a template is changed in a fixed order.
    templates: RwLock<CountedTemplates>,
    /// Changes of templates happen one at a time.
    changes: Mutex<()>,
    bounds: InstanceBounds,
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
        Self {
            templates: RwLock::default(),
            changes: Mutex::default(),
            bounds: InstanceBounds::new(instances_max, new_instances_per_second_max),
        }
    }

    // A panic under these locks poisons the whole limiter, if it matters.

    pub(super) fn templates(&self) -> RwLockReadGuard<'_, CountedTemplates> {
        self.templates.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn templates_mut(&self) -> RwLockWriteGuard<'_, CountedTemplates> {
        self.templates.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for other changes of templates.
    pub(super) fn begin_template_change(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Definitions for all these keys, or none. The shards of their groups are locked, so that no change of a template is missed.
    pub(super) fn make(
        &self,
        now: Timestamp,
        keys: &[&LimitKey],
        bounds: Bounds,
    ) -> Result<Vec<NewInstance>, NoInstance> {
        let templates = self.templates();
        match bounds {
            Bounds::Apply => self.bounds.make(now, &templates, keys),
            Bounds::Ignore => templates.instances(keys),
        }
    }

    /// Some instances that were made at `now` did not come into use.
    pub(super) fn take_back(&self, now: Timestamp, count: usize) {
        self.bounds.take_back(now, count);
    }
}
