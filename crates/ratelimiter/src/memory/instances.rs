//! Instances: limits that are made from templates, and how many there may be.
//!
//! An instance is an ordinary limit with an [`InstanceMark`]. It exists while it is in use or owes a debt; then the sweep drops it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::MemoryOptions;
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::LimitKey;
use crate::limit::Limit;
use crate::template::{self, Templates};

const SECOND: Duration = Duration::from_secs(1);

/// The templates, and a count of their instances.
#[derive(Debug)]
pub(super) struct Instances {
    /// Locked inside the shard of a group, never around it: an instance is made and a template is changed in a fixed order.
    templates: RwLock<CountedTemplates>,
    /// Changes of templates happen one at a time.
    changes: Mutex<()>,
    recent: Mutex<RecentInstances>,
    count_max: usize,
    new_per_second_max: usize,
}

/// The templates, each with its counters.
#[derive(Debug, Default)]
pub(super) struct CountedTemplates {
    templates: Templates,
    counters: HashMap<LimitKey, Arc<TemplateCounters>>,
    /// Of all templates, deleted ones too.
    total: Arc<AtomicUsize>,
}

/// What is counted for a template.
#[derive(Debug)]
pub(super) struct TemplateCounters {
    key: LimitKey,
    instance_count: AtomicUsize,
    /// Shared by all templates.
    total: Arc<AtomicUsize>,
    /// Use that no reservation of an instance covered.
    uncovered: Mutex<u128>,
}

/// Marks a limit as an instance, and counts it for as long as the mark exists.
#[derive(Debug)]
pub(super) struct InstanceMark(Arc<TemplateCounters>);

/// A definition for a new instance, and its mark.
pub(super) type NewInstance = (Limit, InstanceMark);

/// The instances that were made in the current second.
#[derive(Debug)]
struct RecentInstances {
    since: Timestamp,
    count: usize,
}

/// Whether the bounds on instances apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bounds {
    Apply,
    /// The instance goes as soon as the request is answered, or keeps a debt.
    Ignore,
}

/// Why an instance cannot be made.
#[derive(Debug)]
pub(super) enum NoInstance {
    /// No template matches.
    Unknown {
        key: LimitKey,
    },
    TooMany {
        template: LimitKey,
    },
}

impl Instances {
    pub(super) fn new(options: &MemoryOptions) -> Self {
        let recent = RecentInstances { since: Timestamp::from_unix_nanos(0), count: 0 };
        Self {
            templates: RwLock::default(),
            changes: Mutex::default(),
            recent: Mutex::new(recent),
            count_max: options.instances_max,
            new_per_second_max: options.new_instances_per_second_max,
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
        // Counted under the lock, so that the bounds are exact.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let made: Result<Vec<_>, _> = keys.iter().map(|key| templates.instance(key)).collect();
        let made = made?;
        if bounds == Bounds::Ignore {
            return Ok(made);
        }
        if now.since(recent.since) >= SECOND {
            *recent = RecentInstances { since: now, count: 0 };
        }
        let is_within = templates.instance_count() <= self.count_max
            && recent.count + made.len() <= self.new_per_second_max;
        if !is_within {
            let template = made[0].1.template().clone();
            return Err(NoInstance::TooMany { template });
        }
        recent.count += made.len();
        Ok(made)
    }

    /// Some instances that were made at `now` did not come into use.
    pub(super) fn take_back(&self, now: Timestamp, count: usize) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        // In a later second they do not count any more.
        if now.since(recent.since) < SECOND {
            recent.count = recent.count.saturating_sub(count);
        }
    }
}

impl CountedTemplates {
    pub(super) const fn all(&self) -> &Templates {
        &self.templates
    }

    /// Whether a template can be defined.
    pub(super) fn check(&self, template: &Limit) -> Result<(), DefineError> {
        let key = &template.key;
        match self.templates.get(key) {
            Some(defined) if !defined.kind.is_same_kind(template.kind) => {
                Err(DefineError::KindConflict { key: key.clone(), is: defined.kind.name() })
            }
            Some(_) => Ok(()),
            None => template::check_new_key(key),
        }
    }

    /// Adds a template, or replaces the one with its key. The counters stay.
    pub(super) fn put(&mut self, template: Limit) -> Result<(), DefineError> {
        self.check(&template)?;
        let key = template.key.clone();
        self.templates.put(template)?;
        self.counters.entry(key.clone()).or_insert_with(|| {
            Arc::new(TemplateCounters {
                key,
                instance_count: AtomicUsize::new(0),
                total: Arc::clone(&self.total),
                uncovered: Mutex::new(0),
            })
        });
        Ok(())
    }

    pub(super) fn remove(&mut self, key: &LimitKey) -> Option<Limit> {
        self.counters.remove(key);
        self.templates.remove(key)
    }

    /// The definition for an instance with this key.
    pub(super) fn instance(&self, key: &LimitKey) -> Result<NewInstance, NoInstance> {
        let template = self.templates.find(key);
        let template = template.ok_or_else(|| NoInstance::Unknown { key: key.clone() })?;
        let limit = Limit { key: key.clone(), ..template.clone() };
        Ok((limit, InstanceMark::new(&self.counters[&template.key])))
    }

    /// The number of all instances.
    pub(super) fn instance_count(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// The number of instances of each template, in no order.
    pub(super) fn instance_counts(&self) -> impl Iterator<Item = (&LimitKey, usize)> {
        let count = |counters: &TemplateCounters| counters.instance_count.load(Ordering::Relaxed);
        self.counters.values().map(move |counters| (&counters.key, count(counters)))
    }

    /// What the instances of a template used without cover.
    pub(super) fn uncovered(&self, template: &LimitKey) -> u128 {
        self.counters.get(template).map_or(0, |counters| *counters.lock_uncovered())
    }
}

impl TemplateCounters {
    fn lock_uncovered(&self) -> MutexGuard<'_, u128> {
        self.uncovered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InstanceMark {
    fn new(counters: &Arc<TemplateCounters>) -> Self {
        counters.instance_count.fetch_add(1, Ordering::Relaxed);
        counters.total.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counters))
    }

    /// The key of the template that governs the instance.
    pub(super) fn template(&self) -> &LimitKey {
        &self.0.key
    }

    /// Counts use that no reservation covers.
    pub(super) fn note_uncovered(&self, excess: u128) {
        *self.0.lock_uncovered() += excess;
    }
}

impl Drop for InstanceMark {
    fn drop(&mut self) {
        self.0.instance_count.fetch_sub(1, Ordering::Relaxed);
        self.0.total.fetch_sub(1, Ordering::Relaxed);
    }
}
