//! The registry of defined limits, and how they are redefined.
//!
//! A registry is plain data: a backend uses one to look up its limits, a server to write its limits file.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::{KeyPattern, LimitKey};
use crate::limit::{Capacity, Limit, LimitMode};
use crate::template;

/// The defined limits and templates, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    limits: BTreeMap<LimitKey, RegisteredLimit>,
}

/// A limit in force and its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredLimit {
    /// The limit with the capacity in force.
    pub limit: Limit,
    /// Active, paused or decreasing.
    pub status: LimitStatus,
}

/// What a limit admits according to its last definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitStatus {
    /// Up to its capacity, which is above 0.
    #[default]
    Active,
    /// Nothing: the requested capacity is 0. It applies when all units have been returned.
    Paused,
    /// Nothing for now: a lower capacity applies when enough units have been returned.
    Decreasing {
        /// The target capacity: lower than the one in force, and above 0.
        to: Capacity,
    },
}

/// A limit with its current usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitState {
    /// The limit with the capacity in force.
    pub limit: Limit,
    /// Active, paused or decreasing.
    pub status: LimitStatus,
    /// Current usage.
    pub usage: Usage,
    /// When a calendar limit resets next.
    pub resets_at: Option<Timestamp>,
}

/// How much of a limit is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Units in live reservations or holds. Of a limit in shadow mode they may be more than its capacity.
    pub used: u64,
    /// Units that could be reserved now, if the limit is active.
    pub available: u64,
    /// Units used beyond what was reserved, when no capacity was left to cover them, while the overage was `debt`.
    pub debt: u128,
    /// The same whatever the overage; counted since this backend started.
    pub uncovered: u128,
}

/// Which limits to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Only keys that begin with this.
    pub prefix: String,
    /// Only keys that sort after this one.
    pub after: Option<LimitKey>,
    /// At most this many; `None` for all.
    pub count_max: Option<usize>,
    /// Instead of the defined limits, those that were made from this template and are in use or owe a debt.
    pub template: Option<KeyPattern>,
}

impl Page {
    /// True if a key matches `prefix` and `after`. The caller applies `count_max`.
    pub fn has(&self, key: &LimitKey) -> bool {
        key.as_str().starts_with(&self.prefix)
            && self.after.as_ref().is_none_or(|after| key > after)
    }
}

impl LimitState {
    /// True while the requested capacity is not in force yet because too many units are in use.
    pub const fn waits(&self) -> bool {
        self.status.target(self.limit.capacity).get() < self.limit.capacity.get()
    }
}

impl LimitStatus {
    /// The status of a limit without a pending decrease.
    pub(crate) const fn in_force_at(capacity: Capacity) -> Self {
        if capacity.get() == 0 { Self::Paused } else { Self::Active }
    }

    /// The requested capacity of a limit whose capacity in force is `in_force`.
    const fn target(self, in_force: Capacity) -> Capacity {
        match self {
            Self::Active => in_force,
            Self::Paused => Capacity::ZERO,
            Self::Decreasing { to } => to,
        }
    }
}

impl RegisteredLimit {
    /// A limit without a pending decrease: active, or paused if its capacity is 0.
    pub const fn in_force(limit: Limit) -> Self {
        let status = LimitStatus::in_force_at(limit.capacity);
        Self { limit, status }
    }

    /// A limit whose capacity is lowered to `to` when enough units have been returned.
    ///
    /// # Panics
    /// If `to` is not below the capacity in force.
    pub fn going_down(limit: Limit, to: Capacity) -> Self {
        assert!(to < limit.capacity, "a decrease goes down");
        let paused = to.get() == 0;
        let status = if paused { LimitStatus::Paused } else { LimitStatus::Decreasing { to } };
        Self { limit, status }
    }

    /// This limit after it is redefined as `new`. A capacity at or above the one in force applies at once and cancels
    /// a decrease; a lower one is pending; all other fields apply at once. A limit in shadow mode admits whatever can be
    /// counted: any capacity applies at once there, and enforcing one afterwards is a decrease.
    ///
    /// # Errors
    /// The kind cannot change.
    pub fn redefined(&self, new: Limit) -> Result<Self, DefineError> {
        if !self.limit.kind.is_same_kind(new.kind) {
            return Err(DefineError::KindConflict { key: new.key, is: self.limit.kind.name() });
        }
        let in_force = self.limit.ceiling();
        if new.mode == LimitMode::Shadow || new.capacity >= in_force {
            return Ok(Self::in_force(new));
        }
        let to = new.capacity;
        Ok(Self::going_down(Limit { capacity: in_force, ..new }, to))
    }

    /// The requested capacity: the pending one, or else the one in force.
    pub const fn target(&self) -> Capacity {
        self.status.target(self.limit.capacity)
    }

    /// True while the requested capacity is not in force yet because too many units are in use.
    pub const fn waits(&self) -> bool {
        self.target().get() < self.limit.capacity.get()
    }

    /// Applies the pending capacity.
    pub const fn settle(&mut self) {
        self.limit.capacity = self.target();
        self.status = LimitStatus::in_force_at(self.limit.capacity);
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The limit with this key.
    pub fn get(&self, key: &LimitKey) -> Option<&RegisteredLimit> {
        self.limits.get(key)
    }

    /// The limit with this key. Its key must not be changed.
    pub fn get_mut(&mut self, key: &LimitKey) -> Option<&mut RegisteredLimit> {
        self.limits.get_mut(key)
    }

    /// Inserts a limit, or replaces the one with its key.
    pub fn put(&mut self, registered: RegisteredLimit) {
        self.limits.insert(registered.limit.key.clone(), registered);
    }

    /// Removes and returns the limit with this key.
    pub fn remove(&mut self, key: &LimitKey) -> Option<RegisteredLimit> {
        self.limits.remove(key)
    }

    /// The result of defining `limit`, without changing the registry.
    ///
    /// # Errors
    /// The kind cannot change, or the key is new and has a `*` that is not a whole segment.
    pub fn plan(&self, limit: Limit) -> Result<RegisteredLimit, DefineError> {
        match self.get(&limit.key) {
            Some(registered) => registered.redefined(limit),
            None => {
                template::check_new_key(&limit.key)?;
                Ok(RegisteredLimit::in_force(limit))
            }
        }
    }

    /// All limits, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &RegisteredLimit> {
        self.limits.values()
    }

    /// The limits of a page, sorted by key.
    pub fn page(&self, page: &Page) -> impl Iterator<Item = &RegisteredLimit> {
        let prefix = page.prefix.as_str();
        let start = match &page.after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        self.limits
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.as_str().starts_with(prefix))
            .map(|(_, registered)| registered)
            .take(page.count_max.unwrap_or(usize::MAX))
    }

    /// Number of limits.
    pub fn len(&self) -> usize {
        self.limits.len()
    }

    /// Number of templates among them.
    pub fn template_count(&self) -> usize {
        self.limits.keys().filter(|key| key.is_template()).count()
    }

    /// True if no limit is defined.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }
}

impl FromIterator<RegisteredLimit> for Registry {
    fn from_iter<I: IntoIterator<Item = RegisteredLimit>>(limits: I) -> Self {
        let keyed = |registered: RegisteredLimit| (registered.limit.key.clone(), registered);
        Self { limits: limits.into_iter().map(keyed).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{HoldTimeout, LimitKind, Window};

    fn limit(key: &str, capacity: u64) -> Limit {
        let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
        Limit::new(LimitKey::new(key).unwrap(), kind, Capacity::new(capacity).unwrap())
    }

    /// DEF-04
    #[test]
    fn def_04_the_kind_cannot_change() {
        let registered = RegisteredLimit::in_force(limit("k", 10));
        let timeout = HoldTimeout::from_seconds(60).unwrap();
        let other = Limit { kind: LimitKind::Concurrency { timeout }, ..limit("k", 10) };
        let error = registered.redefined(other.clone()).unwrap_err();
        assert_eq!(error, DefineError::KindConflict { key: other.key, is: "rolling" });
    }

    /// DEF-06
    #[test]
    fn def_06_a_capacity_at_or_above_the_one_in_force_cancels_a_decrease() {
        let status = LimitStatus::Decreasing { to: Capacity::new(5).unwrap() };
        let decreasing = RegisteredLimit { limit: limit("k", 10), status };
        for capacity in [10, 11] {
            let next = decreasing.redefined(limit("k", capacity)).unwrap();
            assert_eq!(next, RegisteredLimit::in_force(limit("k", capacity)));
        }
    }

    /// DEF-07
    #[test]
    fn def_07_only_the_capacity_of_a_decrease_is_pending() {
        let registered = RegisteredLimit::in_force(limit("k", 10));
        let window = Window::from_seconds(30).unwrap();
        let new = Limit { kind: LimitKind::Rolling { window }, ..limit("k", 4) };
        let mut next = registered.redefined(new.clone()).unwrap();
        assert_eq!(next.limit.capacity.get(), 10);
        assert_eq!(next.limit.kind, new.kind);
        assert_eq!(next.target().get(), 4);
        let lower = next.redefined(limit("k", 3)).unwrap();
        assert_eq!(lower.target().get(), 3, "another lower value replaces the target");
        next.settle();
        assert_eq!(next, RegisteredLimit::in_force(new));
    }

    #[test]
    fn a_page_is_a_sorted_part_of_the_limits() {
        let registry: Registry = ["b:2", "a:1", "b:1", "c", "b:3"]
            .map(|key| RegisteredLimit::in_force(limit(key, 1)))
            .into_iter()
            .collect();
        let list = |prefix: &str, after: Option<&str>, count_max| {
            let after = after.map(|key| LimitKey::new(key).unwrap());
            let page = Page { prefix: prefix.into(), after, count_max, template: None };
            let keys = registry.page(&page).map(|registered| registered.limit.key.to_string());
            keys.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(list("", None, None), "a:1 b:1 b:2 b:3 c");
        assert_eq!(list("b:", None, None), "b:1 b:2 b:3");
        assert_eq!(list("b:", Some("b:1"), Some(1)), "b:2");
        assert_eq!(list("b:", Some("a:9"), None), "b:1 b:2 b:3");
        assert_eq!(list("b:", Some("c"), None), "");
        assert_eq!(list("x", None, None), "");
    }
}
