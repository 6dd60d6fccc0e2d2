//! The templates that this server knows (`TB-21`).
//!
//! A change of a template is in force at once for what is made from then on. An instance that was
//! checked in an earlier generation of the templates is compared with its template before its next
//! reserve, and checked again if it differs.

use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{CountedTemplates, DefineError, KeyPattern, Limit, LimitKey, Templates};

/// A late change of a template may arrive for this time.
const LATE_FOR: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct KnownTemplates {
    counted: CountedTemplates,
    /// Grows with every change.
    generation: u64,
    late_changes: Vec<LateChange>,
}

/// A change of a template that a server began and did not confirm, so that it may still arrive at the
/// account of any instance.
#[derive(Debug)]
struct LateChange {
    pattern: KeyPattern,
    /// An instance that was checked in this generation, or later, is safe from it.
    generation: u64,
    until: Timestamp,
}

impl KnownTemplates {
    pub(super) const fn all(&self) -> &Templates {
        self.counted.all()
    }

    pub(super) const fn counted(&self) -> &CountedTemplates {
        &self.counted
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds or replaces a template, whatever its kind was and however many there are: the registry has
    /// checked that.
    ///
    /// # Errors
    /// The key is no pattern.
    pub(super) fn put(&mut self, template: Limit) -> Result<(), DefineError> {
        let before = self.all().get(&template.key);
        if before.is_some_and(|before| !before.kind.is_same_kind(template.kind)) {
            self.counted.remove(&template.key);
        }
        let changed = self.counted.restore(template)?;
        self.generation += u64::from(changed.is_some());
        Ok(())
    }

    /// Returns whether the template was defined.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        let is_defined = self.counted.remove(key).is_some();
        self.generation += u64::from(is_defined);
        is_defined
    }

    /// A change of a template may arrive late.
    pub(super) fn note_late_change(&mut self, pattern: KeyPattern, now: Timestamp) {
        self.generation += 1;
        self.late_changes.retain(|late| late.pattern.key() != pattern.key());
        let (generation, until) = (self.generation, now.after(LATE_FOR));
        self.late_changes.push(LateChange { pattern, generation, until });
    }

    /// Forgets late changes that can arrive no more.
    pub(super) fn forget_late_changes(&mut self, now: Timestamp) {
        self.late_changes.retain(|late| late.until > now);
    }

    /// Whether a late change may arrive at an instance that was last checked in this generation.
    pub(super) fn may_change_late(&self, key: &LimitKey, checked: u64) -> bool {
        let mut later = self.late_changes.iter().filter(|late| late.generation > checked);
        later.any(|late| late.pattern.matches(key))
    }
}
