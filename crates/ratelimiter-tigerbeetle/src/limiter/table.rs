//! The limits defined at this server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    LimitKey, LimitKind, LimitMode, LimitStatus, Page, RegisteredLimit, Requirement, Requirements,
    ReserveError,
};

use crate::ids;
use crate::ledger::AccountId;
use crate::lock::lock;

#[derive(Debug, Default)]
pub(super) struct LimitTable {
    limits: HashMap<LimitKey, Arc<KnownLimit>, RandomState>,
    keys: HashMap<AccountId, LimitKey, RandomState>,
    /// The same limits, sorted by key.
    sorted: BTreeMap<LimitKey, Arc<KnownLimit>>,
    /// The limits that are decreasing.
    decreasing: BTreeSet<LimitKey>,
}

/// The account that has a limit's capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LimitAccount {
    pub(super) id: AccountId,
    /// The end of the period that it is for, if the limit is a calendar limit; otherwise it lasts.
    pub(super) ends_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub(super) struct KnownLimit {
    pub(super) registered: RegisteredLimit,
    /// Of a calendar limit, that of the latest period that is known here.
    pub(super) account: LimitAccount,
    pub(super) debt_account: AccountId,
    /// Kept when the limit is redefined.
    pub(super) counts: Arc<KeyCounts>,
    /// Held by the complete that reopens the closed account. Kept when the limit is redefined.
    reopen_lock: Arc<tokio::sync::Mutex<()>>,
}

/// This server's counters for one key.
#[derive(Debug, Default)]
pub(super) struct KeyCounts {
    denial_streak: AtomicU32,
    uncovered: Mutex<u128>,
}

/// A requirement with its limit.
#[derive(Clone, Debug)]
pub(super) struct ResolvedRequirement {
    pub(super) limit: Arc<KnownLimit>,
    pub(super) amount: u64,
}

impl LimitTable {
    pub(super) fn get(&self, key: &LimitKey) -> Option<&Arc<KnownLimit>> {
        self.limits.get(key)
    }

    /// The key of the limit with this account; `None` if it is not defined here.
    pub(super) fn key_of(&self, account: AccountId) -> Option<&LimitKey> {
        self.keys.get(&account)
    }

    /// The lock for reopening this account; `None` if its limit is not defined here.
    pub(super) fn reopen_lock_of(&self, account: AccountId) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let limit = self.key_of(account).and_then(|key| self.get(key));
        limit.map(|limit| Arc::clone(&limit.reopen_lock))
    }

    /// The account that lasts of the limit `key`, whether the limit is defined here or not.
    pub(super) fn lasting_account_of(&self, key: &LimitKey) -> AccountId {
        let known = self.limits.get(key).map(|limit| limit.account);
        let lasting = known.filter(|account| account.ends_at.is_none());
        lasting.map_or_else(|| ids::limit_account(key), |account| account.id)
    }

    /// Adds or replaces a limit.
    pub(super) fn put(&mut self, registered: RegisteredLimit, account: LimitAccount) {
        let is_calendar = matches!(registered.limit.kind, LimitKind::Calendar { .. });
        assert_eq!(account.ends_at.is_some(), is_calendar, "only calendar limits have periods");
        let key = registered.limit.key.clone();
        let limit = match self.limits.get(&key) {
            Some(known) => {
                self.keys.remove(&known.account.id);
                KnownLimit { registered, account, ..KnownLimit::clone(known) }
            }
            None => KnownLimit {
                registered,
                account,
                debt_account: ids::debt_account(&key),
                counts: Arc::default(),
                reopen_lock: Arc::default(),
            },
        };
        match limit.is_decreasing() {
            true => self.decreasing.insert(key.clone()),
            false => self.decreasing.remove(&key),
        };
        let limit = Arc::new(limit);
        self.keys.insert(limit.account.id, key.clone());
        self.sorted.insert(key.clone(), Arc::clone(&limit));
        self.limits.insert(key, limit);
    }

    /// Returns whether the limit was defined.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        let removed = self.limits.remove(key);
        if let Some(known) = &removed {
            self.keys.remove(&known.account.id);
            self.sorted.remove(key);
            self.decreasing.remove(key);
        }
        removed.is_some()
    }

    /// The limits of all requirements, in the request's order.
    pub(super) fn find(
        &self,
        requirements: &Requirements,
    ) -> Result<Vec<ResolvedRequirement>, ReserveError> {
        let find = |Requirement { key, amount }: &Requirement| match self.limits.get(key) {
            Some(limit) => {
                Ok(ResolvedRequirement { limit: Arc::clone(limit), amount: amount.get() })
            }
            None => Err(ReserveError::UnknownKey { key: key.clone() }),
        };
        requirements.iter().map(find).collect()
    }

    /// A page of the limits that are listed, sorted by key. There are no instances of templates.
    pub(super) fn page(
        &self,
        page: &Page,
        is_listed: impl Fn(&LimitKey) -> bool,
    ) -> Vec<Arc<KnownLimit>> {
        if page.template.is_some() {
            return Vec::new();
        }
        let prefix = page.prefix.as_str();
        let start = match &page.after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        self.sorted
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .filter(|(key, _)| is_listed(key))
            .map(|(_, limit)| Arc::clone(limit))
            .take(page.count_max.unwrap_or(usize::MAX))
            .collect()
    }

    /// The limits that are decreasing, sorted by key, so that a run is reproducible.
    pub(super) fn decreasing(&self) -> impl Iterator<Item = &Arc<KnownLimit>> {
        self.decreasing.iter().filter_map(|key| self.limits.get(key))
    }

    pub(super) fn decreasing_count(&self) -> usize {
        self.decreasing.len()
    }
}

impl LimitAccount {
    /// Of a rolling or concurrency limit.
    pub(super) fn lasting(key: &LimitKey) -> Self {
        Self { id: ids::limit_account(key), ends_at: None }
    }

    /// Of one period of a calendar limit.
    pub(super) fn of_period(key: &LimitKey, ends_at: Timestamp) -> Self {
        Self { id: ids::period_account(key, ends_at), ends_at: Some(ends_at) }
    }

    /// Whether its period is over.
    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.ends_at.is_some_and(|ends_at| ends_at <= now)
    }
}

impl KnownLimit {
    pub(super) fn key(&self) -> &LimitKey {
        &self.registered.limit.key
    }

    pub(super) fn is_decreasing(&self) -> bool {
        self.registered.waits()
    }

    /// It is paused and denies.
    pub(super) fn is_paused(&self) -> bool {
        self.registered.status == LimitStatus::Paused && !self.is_shadow()
    }

    pub(super) fn is_shadow(&self) -> bool {
        self.registered.limit.mode == LimitMode::Shadow
    }
}

impl ResolvedRequirement {
    /// The amount could never be admitted.
    pub(super) fn exceeds_capacity(&self) -> bool {
        self.amount > self.limit.registered.limit.ceiling().get()
    }
}

impl KeyCounts {
    /// Counts a denial; returns the denials in a row, this one included.
    pub(super) fn record_denial(&self) -> u32 {
        let longer = |streak: u32| Some(streak.saturating_add(1));
        let before = self.denial_streak.fetch_update(Ordering::Relaxed, Ordering::Relaxed, longer);
        before.expect("the closure always answers").saturating_add(1)
    }

    /// The denials in a row.
    pub(super) fn denial_streak(&self) -> u32 {
        self.denial_streak.load(Ordering::Relaxed)
    }

    pub(super) fn record_allow(&self) {
        // Usually it is 0 already, and a read leaves the cache line shared.
        if self.denial_streak() != 0 {
            self.denial_streak.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn record_uncovered(&self, units: u64) {
        *lock(&self.uncovered) += u128::from(units);
    }

    /// Units used without room since this server started.
    pub(super) fn uncovered(&self) -> u128 {
        *lock(&self.uncovered)
    }
}
