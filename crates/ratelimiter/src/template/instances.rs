//! Instances: limits that are made from templates, and how many there may be.
//!
//! Every backend counts them alike: an instance has an [`InstanceMark`] for as long as the backend knows it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Templates, check_new_key};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::LimitKey;
use crate::limit::{Limit, LimitKind};
use crate::registry::{LimitState, RegisteredLimit, Usage};

const SECOND: Duration = Duration::from_secs(1);

/// The templates, each with its counters.
#[derive(Debug, Default)]
pub struct CountedTemplates {
    templates: Templates,
    counters: HashMap<LimitKey, Arc<TemplateCounters>>,
    /// Of all templates, deleted ones too.
    total: Arc<AtomicUsize>,
}

/// What is counted for a template.
#[derive(Debug)]
struct TemplateCounters {
    key: LimitKey,
    instance_count: AtomicUsize,
    /// Shared by all templates.
    total: Arc<AtomicUsize>,
    /// Use that no reservation of an instance covered.
    uncovered: Mutex<u128>,
}

/// Marks a limit as an instance, and counts it for as long as the mark exists.
#[derive(Debug)]
pub struct InstanceMark(Arc<TemplateCounters>);

/// A definition for a new instance, and its mark.
pub type NewInstance = (Limit, InstanceMark);

/// How many instances there may be, and how many new ones in a second (`TPL-07`).
#[derive(Debug)]
pub struct InstanceBounds {
    recent: Mutex<RecentInstances>,
    count_max: usize,
    new_per_second_max: usize,
}

/// The instances that were made in the current second.
#[derive(Debug)]
struct RecentInstances {
    since: Timestamp,
    count: usize,
}

/// Why an instance cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoInstance {
    /// No template matches.
    Unknown {
        /// The key that none matches.
        key: LimitKey,
    },
    /// There would be too many.
    TooMany {
        /// The template of the first one.
        template: LimitKey,
    },
}

impl InstanceBounds {
    /// At most `count_max` instances, and `new_per_second_max` new ones in a second.
    pub const fn new(count_max: usize, new_per_second_max: usize) -> Self {
        let recent = RecentInstances { since: Timestamp::from_unix_nanos(0), count: 0 };
        Self { recent: Mutex::new(recent), count_max, new_per_second_max }
    }

    /// Definitions for all these keys, or none.
    ///
    /// # Errors
    /// No template matches a key, or there would be too many instances.
    pub fn make(
        &self,
        now: Timestamp,
        templates: &CountedTemplates,
        keys: &[&LimitKey],
    ) -> Result<Vec<NewInstance>, NoInstance> {
        // Counted under the lock, so that the bounds are exact.
        let mut recent = self.lock_recent();
        let made = templates.instances(keys)?;
        let Some((_, first)) = made.first() else {
            return Ok(made);
        };
        let count = recent.count_at(now) + made.len();
        if templates.instance_count() > self.count_max || count > self.new_per_second_max {
            return Err(NoInstance::TooMany { template: first.template().clone() });
        }
        recent.count = count;
        Ok(made)
    }

    /// Whether so many instances could be made now.
    pub fn has_room(&self, now: Timestamp, templates: &CountedTemplates, new_count: usize) -> bool {
        let recent_count = self.lock_recent().count_at(now);
        templates.instance_count() + new_count <= self.count_max
            && recent_count + new_count <= self.new_per_second_max
    }

    /// Some instances that were made at `now` did not come into use.
    pub fn take_back(&self, now: Timestamp, count: usize) {
        let mut recent = self.lock_recent();
        // In a later second they do not count any more.
        if now.since(recent.since) < SECOND {
            recent.count = recent.count.saturating_sub(count);
        }
    }

    fn lock_recent(&self) -> MutexGuard<'_, RecentInstances> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentInstances {
    /// Those of the second that `now` is in.
    fn count_at(&mut self, now: Timestamp) -> usize {
        if now.since(self.since) >= SECOND {
            *self = Self { since: now, count: 0 };
        }
        self.count
    }
}

impl CountedTemplates {
    /// The templates.
    pub const fn all(&self) -> &Templates {
        &self.templates
    }

    /// Whether a template can be defined.
    ///
    /// # Errors
    /// The kind cannot change, or the key is no pattern.
    pub fn check(&self, template: &Limit) -> Result<(), DefineError> {
        let key = &template.key;
        match self.templates.get(key) {
            Some(defined) if !defined.kind.is_same_kind(template.kind) => {
                Err(DefineError::KindConflict { key: key.clone(), is: defined.kind.name() })
            }
            Some(_) => Ok(()),
            None => check_new_key(key),
        }
    }

    /// Adds a template, or replaces the one with its key. The counters stay.
    ///
    /// # Errors
    /// As for [`CountedTemplates::check`].
    pub fn put(&mut self, template: Limit) -> Result<(), DefineError> {
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

    /// Removes and returns the template with this key.
    pub fn remove(&mut self, key: &LimitKey) -> Option<Limit> {
        self.counters.remove(key);
        self.templates.remove(key)
    }

    /// The definition for an instance with this key.
    ///
    /// # Errors
    /// No template matches.
    pub fn instance(&self, key: &LimitKey) -> Result<NewInstance, NoInstance> {
        let template = self.templates.find(key);
        let template = template.ok_or_else(|| NoInstance::Unknown { key: key.clone() })?;
        let limit = Limit { key: key.clone(), ..template.clone() };
        Ok((limit, InstanceMark::new(&self.counters[&template.key])))
    }

    /// The definitions for instances with these keys, whatever their number.
    ///
    /// # Errors
    /// No template matches one of them.
    pub fn instances(&self, keys: &[&LimitKey]) -> Result<Vec<NewInstance>, NoInstance> {
        keys.iter().map(|key| self.instance(key)).collect()
    }

    /// The number of all instances.
    pub fn instance_count(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// The number of instances of each template, sorted by key.
    pub fn instance_counts(&self) -> Vec<(LimitKey, usize)> {
        let count = |counters: &Arc<TemplateCounters>| {
            (counters.key.clone(), counters.instance_count.load(Ordering::Relaxed))
        };
        let mut counts: Vec<_> = self.counters.values().map(count).collect();
        counts.sort_unstable();
        counts
    }

    /// Counts use that no reservation covers, of an instance of this template.
    pub fn note_uncovered(&self, template: &LimitKey, excess: u64) {
        if let Some(counters) = self.counters.get(template) {
            counters.note_uncovered(excess);
        }
    }

    /// The state of a template at `now`. It is not used itself; what its instances used without cover is counted here.
    pub fn state(&self, now: Timestamp, template: &Limit) -> LimitState {
        let RegisteredLimit { limit, status } = RegisteredLimit::in_force(template.clone());
        let counters = self.counters.get(&limit.key);
        let uncovered = counters.map_or(0, |counters| *counters.lock_uncovered());
        let is_calendar = matches!(limit.kind, LimitKind::Calendar { .. });
        let resets_at = is_calendar.then(|| limit.kind.expires_at(now));
        LimitState { limit, status, usage: Usage { uncovered, ..Usage::default() }, resets_at }
    }
}

impl TemplateCounters {
    fn lock_uncovered(&self) -> MutexGuard<'_, u128> {
        self.uncovered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_uncovered(&self, excess: u64) {
        *self.lock_uncovered() += u128::from(excess);
    }
}

impl InstanceMark {
    fn new(counters: &Arc<TemplateCounters>) -> Self {
        counters.instance_count.fetch_add(1, Ordering::Relaxed);
        counters.total.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counters))
    }

    /// The key of the template that governs the instance.
    pub fn template(&self) -> &LimitKey {
        &self.0.key
    }

    /// Counts use that no reservation covers.
    pub fn note_uncovered(&self, excess: u64) {
        self.0.note_uncovered(excess);
    }
}

impl Drop for InstanceMark {
    fn drop(&mut self) {
        self.0.instance_count.fetch_sub(1, Ordering::Relaxed);
        self.0.total.fetch_sub(1, Ordering::Relaxed);
    }
}
