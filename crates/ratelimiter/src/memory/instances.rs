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
use crate::key::{KeyPattern, LimitKey};
use crate::limit::Limit;
use crate::template::{self, Templates};

const SECOND: Duration = Duration::from_secs(1);

/// The templates, and a count of their instances.
#[derive(Debug)]
pub(super) struct Instances {
    /// Locked inside the shard of a group, never around it: an instance is made and a template is changed in a fixed order.
    templates: RwLock<CountedTemplates>,
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

/// Definitions for new instances, all for one request.
#[derive(Debug)]
pub(super) struct NewInstances {
    pub(super) instances: Vec<NewInstance>,
    /// The beginning of the second in which they were counted, if the bounds apply.
    pub(super) counted_since: Option<Timestamp>,
}

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

    /// Definitions for all these keys, or none. The shards of their groups are locked, so that no change of a template is missed.
    pub(super) fn make(
        &self,
        now: Timestamp,
        keys: &[&LimitKey],
        bounds: Bounds,
    ) -> Result<NewInstances, NoInstance> {
        let templates = self.templates();
        let found: Result<Vec<_>, _> = keys.iter().map(|key| templates.find(key)).collect();
        let found = found?;
        let make = || {
            let pairs = keys.iter().zip(&found);
            pairs.map(|(key, template)| templates.instance_of(template, key)).collect()
        };
        if bounds == Bounds::Ignore {
            return Ok(NewInstances { instances: make(), counted_since: None });
        }
        // Counted under the lock, so that the bounds are exact.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(recent.since) >= SECOND {
            *recent = RecentInstances { since: now, count: 0 };
        }
        if templates.instance_count() + keys.len() > self.count_max
            || !recent.has_room(keys.len(), self.new_per_second_max)
        {
            return Err(NoInstance::TooMany { template: found[0].key.clone() });
        }
        recent.count += keys.len();
        Ok(NewInstances { instances: make(), counted_since: Some(recent.since) })
    }

    /// Some instances that were made did not come into use. In a later second they do not count any more.
    pub(super) fn take_back(&self, counted_since: Option<Timestamp>, count: usize) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if counted_since == Some(recent.since) {
            recent.count -= count;
        }
    }
}

impl RecentInstances {
    /// Whether so many more may be made. The first request of a second may need more than the bound, so that it is not denied for ever.
    const fn has_room(&self, count: usize, count_max: usize) -> bool {
        self.count == 0 && count_max > 0 || self.count + count <= count_max
    }
}

impl CountedTemplates {
    pub(super) const fn all(&self) -> &Templates {
        &self.templates
    }

    /// Whether all these templates can be defined.
    pub(super) fn check_all<'a>(
        &self,
        templates: impl Iterator<Item = &'a Limit> + Clone,
    ) -> Result<(), DefineError> {
        templates.clone().try_for_each(|template| self.check(template))?;
        let new = templates.filter(|template| self.templates.get(&template.key).is_none());
        self.templates.check_count(new.count())
    }

    fn check(&self, template: &Limit) -> Result<(), DefineError> {
        let key = &template.key;
        match self.templates.get(key) {
            Some(defined) if !defined.kind.is_same_kind(template.kind) => {
                Err(DefineError::KindConflict { key: key.clone(), is: defined.kind.name() })
            }
            Some(_) => Ok(()),
            None => template::check_new_key(key),
        }
    }

    /// Adds a template, or replaces the one with its key, whatever its kind is. The counters stay. Returns the pattern, unless the
    /// template was the same before.
    pub(super) fn put(&mut self, template: Limit) -> Result<Option<KeyPattern>, DefineError> {
        let key = template.key.clone();
        if self.templates.get(&key) == Some(&template) {
            return Ok(None);
        }
        self.templates.put(template)?;
        self.counters.entry(key.clone()).or_insert_with(|| {
            Arc::new(TemplateCounters {
                key: key.clone(),
                instance_count: AtomicUsize::new(0),
                total: Arc::clone(&self.total),
                uncovered: Mutex::new(0),
            })
        });
        Ok(Some(KeyPattern::new(&key).expect("a template's key is a pattern")))
    }

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

    /// True if there is a template, or was.
    pub(super) const fn has_changed(&self) -> bool {
        self.change_count > 0
    }

    pub(super) fn remove(&mut self, key: &LimitKey) -> Option<Limit> {
        self.counters.remove(key);
        self.templates.remove(key)
    }

    /// The template that governs a key.
    fn find(&self, key: &LimitKey) -> Result<&Limit, NoInstance> {
        let template = self.templates.find(key);
        template.ok_or_else(|| NoInstance::Unknown { key: key.clone() })
    }

    /// The definition for an instance with this key.
    pub(super) fn instance(&self, key: &LimitKey) -> Result<NewInstance, NoInstance> {
        Ok(self.instance_of(self.find(key)?, key))
    }

    fn instance_of(&self, template: &Limit, key: &LimitKey) -> NewInstance {
        let mark = InstanceMark::new(&self.counters[&template.key]);
        (template::instance_of(template, key), mark)
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
    pub(super) fn note_uncovered(&self, excess: u64) {
        *self.0.lock_uncovered() += u128::from(excess);
    }
}

impl Drop for InstanceMark {
    fn drop(&mut self) {
        self.0.instance_count.fetch_sub(1, Ordering::Relaxed);
        self.0.total.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Capacity, HoldTimeout, LimitKind};

    /// The number of new limits in a second.
    const NEW_MAX: usize = 3;

    fn instances(new_per_second_max: usize) -> Instances {
        let options = MemoryOptions {
            new_instances_per_second_max: new_per_second_max,
            ..MemoryOptions::default()
        };
        let instances = Instances::new(&options);
        let kind = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(60).unwrap() };
        let template = Limit::new(key("t:*"), kind, Capacity::new(1).unwrap());
        instances.templates_mut().put(template).unwrap();
        instances
    }

    fn key(text: &str) -> LimitKey {
        LimitKey::new(text).unwrap()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_nanos(ms * 1_000_000)
    }

    fn make(instances: &Instances, ms: u64, count: usize) -> Result<NewInstances, NoInstance> {
        let keys: Vec<_> = (0..count).map(|n| key(&format!("t:{n}"))).collect();
        instances.make(at(ms), &keys.iter().collect::<Vec<_>>(), Bounds::Apply)
    }

    /// TPL-07
    #[test]
    fn tpl_07_what_is_taken_back_counts_in_its_own_second() {
        let instances = instances(NEW_MAX);
        let first = make(&instances, 5_000, 2).unwrap();
        let same = make(&instances, 5_999, 1).unwrap();
        assert!(make(&instances, 5_999, 1).is_err());
        instances.take_back(same.counted_since, 1);
        assert!(make(&instances, 5_999, 1).is_ok(), "there is room again");
        assert!(make(&instances, 6_000, NEW_MAX).is_ok());
        instances.take_back(first.counted_since, 2);
        assert!(make(&instances, 6_000, 1).is_err(), "the second is another one by now");
    }

    /// TPL-07
    #[test]
    fn tpl_07_a_request_for_more_than_the_bound_comes_first_in_its_second() {
        let instances = instances(NEW_MAX);
        assert!(make(&instances, 5_000, 1).is_ok());
        assert!(make(&instances, 5_000, NEW_MAX + 1).is_err());
        assert!(make(&instances, 6_000, NEW_MAX + 1).is_ok());
        assert!(make(&instances, 6_000, 1).is_err());
        assert!(make(&instances, 7_000, 1).is_ok());
    }

    /// TPL-07
    #[test]
    fn tpl_07_a_bound_of_0_allows_no_new_limits() {
        assert!(make(&instances(0), 5_000, 1).is_err());
    }
}
