//! Instances: limits that are made from templates, and how many there may be.
//!
//! Every backend counts them alike: an instance has an [`InstanceMark`] for as long as the backend knows it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Templates, check_new_key, instance_of, pattern_of};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::{KeyPattern, LimitKey};
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
    /// There is a template, or was.
    has_changed: bool,
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

/// Definitions for new instances, all for one request.
#[derive(Debug)]
pub struct NewInstances {
    /// One for each key, in order.
    pub instances: Vec<NewInstance>,
    /// The beginning of the second in which they were counted, if the bounds apply.
    pub counted_since: Option<Timestamp>,
}

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
    ) -> Result<NewInstances, NoInstance> {
        let found = templates.find_all(keys)?;
        // Counted under the lock, so that the bounds are exact.
        let mut recent = self.lock_recent();
        if !self.is_within(recent.at(now), templates, keys.len())
            && let Some(first) = found.first()
        {
            return Err(NoInstance::TooMany { template: first.key.clone() });
        }
        recent.count += keys.len();
        let pairs = keys.iter().zip(found);
        let instances = pairs.map(|(key, template)| templates.make(template, key)).collect();
        Ok(NewInstances { instances, counted_since: Some(recent.since) })
    }

    /// Whether so many instances could be made now.
    pub fn has_room(&self, now: Timestamp, templates: &CountedTemplates, count: usize) -> bool {
        self.is_within(self.lock_recent().at(now), templates, count)
    }

    /// The first request of a second may need more than the bound, so that it is not denied for ever.
    fn is_within(
        &self,
        recent: &RecentInstances,
        templates: &CountedTemplates,
        count: usize,
    ) -> bool {
        let is_first = recent.count == 0 && self.new_per_second_max > 0;
        templates.instance_count() + count <= self.count_max
            && (is_first || recent.count + count <= self.new_per_second_max)
    }

    /// Some instances that were made did not come into use. In a later second they do not count any more.
    pub fn take_back(&self, counted_since: Option<Timestamp>, count: usize) {
        let mut recent = self.lock_recent();
        if counted_since == Some(recent.since) {
            recent.count -= count;
        }
    }

    fn lock_recent(&self) -> MutexGuard<'_, RecentInstances> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentInstances {
    /// Those of the second that `now` is in.
    fn at(&mut self, now: Timestamp) -> &Self {
        if now.since(self.since) >= SECOND {
            *self = Self { since: now, count: 0 };
        }
        self
    }
}

impl CountedTemplates {
    /// The templates.
    pub const fn all(&self) -> &Templates {
        &self.templates
    }

    /// Whether all these templates can be defined.
    ///
    /// # Errors
    /// A kind cannot change, a key is no pattern, or there would be too many templates.
    pub fn check_all<'a>(
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
            None => check_new_key(key),
        }
    }

    /// Adds a template, or replaces the one with its key, whatever its kind is. The counters stay. Returns the pattern, unless the
    /// template was the same before.
    ///
    /// # Errors
    /// As for [`Templates::put`].
    pub fn put(&mut self, template: Limit) -> Result<Option<KeyPattern>, DefineError> {
        self.templates.check_count(usize::from(self.templates.get(&template.key).is_none()))?;
        self.restore(template)
    }

    /// The same, however many there are: a registry has checked that, and deletes others next.
    ///
    /// # Errors
    /// The key is no pattern, or has neither `*` nor `**`.
    pub fn restore(&mut self, template: Limit) -> Result<Option<KeyPattern>, DefineError> {
        let key = template.key.clone();
        if self.templates.get(&key) == Some(&template) {
            return Ok(None);
        }
        let pattern = pattern_of(&key)?;
        self.templates.restore(template)?;
        self.has_changed = true;
        self.counters.entry(key.clone()).or_insert_with(|| {
            Arc::new(TemplateCounters {
                key,
                instance_count: AtomicUsize::new(0),
                total: Arc::clone(&self.total),
                uncovered: Mutex::new(0),
            })
        });
        Ok(Some(pattern))
    }

    /// Removes and returns the template with this key.
    pub fn remove(&mut self, key: &LimitKey) -> Option<Limit> {
        self.counters.remove(key);
        self.templates.remove(key)
    }

    /// Whether a mark counts for a template that is defined. It does not if that was deleted since, even if it was defined again.
    pub fn counts(&self, mark: &InstanceMark) -> bool {
        self.counters.get(mark.template()).is_some_and(|counters| Arc::ptr_eq(counters, &mark.0))
    }

    /// True if there is a template, or was.
    pub const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// The definition for an instance with this key.
    ///
    /// # Errors
    /// No template matches.
    pub fn instance(&self, key: &LimitKey) -> Result<NewInstance, NoInstance> {
        Ok(self.make(self.find(key)?, key))
    }

    /// The definitions for instances with these keys, whatever their number.
    ///
    /// # Errors
    /// No template matches one of them.
    pub fn instances(&self, keys: &[&LimitKey]) -> Result<NewInstances, NoInstance> {
        let pairs = keys.iter().zip(self.find_all(keys)?);
        let instances = pairs.map(|(key, template)| self.make(template, key)).collect();
        Ok(NewInstances { instances, counted_since: None })
    }

    /// The templates that govern these keys.
    fn find_all(&self, keys: &[&LimitKey]) -> Result<Vec<&Limit>, NoInstance> {
        keys.iter().map(|key| self.find(key)).collect()
    }

    fn find(&self, key: &LimitKey) -> Result<&Limit, NoInstance> {
        let template = self.templates.find(key);
        template.ok_or_else(|| NoInstance::Unknown { key: key.clone() })
    }

    fn make(&self, template: &Limit, key: &LimitKey) -> NewInstance {
        let mark = InstanceMark::new(&self.counters[&template.key]);
        (instance_of(template, key), mark)
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
        let usage = Usage { available: limit.capacity.get(), uncovered, ..Usage::default() };
        LimitState { limit, status, usage, resets_at }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Capacity, HoldTimeout, LimitKind};

    /// The number of new limits in a second.
    const NEW_MAX: usize = 3;

    /// A template, and a bound on its instances.
    struct Bounded(CountedTemplates, InstanceBounds);

    fn instances(new_per_second_max: usize) -> Bounded {
        let mut templates = CountedTemplates::default();
        let kind = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(60).unwrap() };
        let template = Limit::new(key("t:*"), kind, Capacity::new(1).unwrap());
        templates.put(template).unwrap();
        Bounded(templates, InstanceBounds::new(1_000, new_per_second_max))
    }

    fn key(text: &str) -> LimitKey {
        LimitKey::new(text).unwrap()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_nanos(ms * 1_000_000)
    }

    fn make(
        Bounded(templates, bounds): &Bounded,
        ms: u64,
        count: usize,
    ) -> Result<NewInstances, NoInstance> {
        let keys: Vec<_> = (0..count).map(|n| key(&format!("t:{n}"))).collect();
        bounds.make(at(ms), templates, &keys.iter().collect::<Vec<_>>())
    }

    /// TPL-07
    #[test]
    fn tpl_07_what_is_taken_back_counts_in_its_own_second() {
        let instances = instances(NEW_MAX);
        let first = make(&instances, 5_000, 2).unwrap();
        let same = make(&instances, 5_999, 1).unwrap();
        assert!(make(&instances, 5_999, 1).is_err());
        instances.1.take_back(same.counted_since, 1);
        assert!(make(&instances, 5_999, 1).is_ok(), "there is room again");
        assert!(make(&instances, 6_000, NEW_MAX).is_ok());
        instances.1.take_back(first.counted_since, 2);
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
