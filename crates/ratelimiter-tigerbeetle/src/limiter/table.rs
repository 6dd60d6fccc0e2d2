//! The limits that this server knows: defined ones, and those made from templates.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foldhash::fast::RandomState;
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    InstanceMark, KeyPattern, Limit, LimitKey, LimitKind, LimitMode, LimitStatus, Page,
    RegisteredLimit, Requirement, Requirements, ReserveError,
};

use super::templates::KnownTemplates;
use crate::ids;
use crate::ledger::AccountId;
use crate::lock::lock;

/// An instance is verified so long after it was checked, when every server has read the limits file,
/// and again so long after that.
const VERIFIED_FIRST_AFTER: Duration = Duration::from_secs(5);
const VERIFIED_AGAIN_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct LimitTable {
    pub(super) templates: KnownTemplates,
    limits: HashMap<LimitKey, Arc<KnownLimit>, RandomState>,
    keys: HashMap<AccountId, LimitKey, RandomState>,
    /// The limits that are defined, sorted by key.
    defined: BTreeMap<LimitKey, Arc<KnownLimit>>,
    /// The limits that were made from templates, sorted by key.
    instances: BTreeMap<LimitKey, Arc<KnownLimit>>,
    /// The defined limits that are decreasing.
    decreasing: BTreeSet<LimitKey>,
    /// The instances that are decreasing.
    decreasing_instances: BTreeSet<LimitKey>,
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
    pub(super) origin: LimitOrigin,
    /// Kept when the limit is redefined.
    pub(super) counts: Arc<KeyCounts>,
    /// Held by the complete or renew that reopens the closed account. Kept when the limit is redefined.
    reopen_lock: Arc<tokio::sync::Mutex<()>>,
}

/// Where a limit comes from.
#[derive(Clone, Debug)]
pub(super) enum LimitOrigin {
    /// Its key is defined.
    Defined,
    /// It was made from a template. Unless its account agrees with its definition, as far as is known
    /// here, it is checked before its next reserve.
    Instance { mark: Arc<InstanceMark>, is_checked: bool },
    /// Only a template matches its key, and it is not ready in the table: its account may not exist, or
    /// have another capacity.
    NotMade,
}

/// This server's counters for one key.
#[derive(Debug, Default)]
pub(super) struct KeyCounts {
    denial_streak: AtomicU32,
    uncovered: Mutex<u128>,
    /// When this server last allowed or completed a lease of an instance.
    used_at_ms: AtomicU64,
    /// Before this moment nobody needs to know whether an instance is idle.
    looked_at_next_ms: AtomicU64,
    /// From this moment on an instance is compared with its account, though it is in use.
    verified_next_ms: AtomicU64,
    /// In this generation of the templates an instance had the definition of its template.
    generation: AtomicU64,
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

    /// The limit with this account; `None` if it is not defined here.
    fn limit_of(&self, account: AccountId) -> Option<&Arc<KnownLimit>> {
        self.key_of(account).and_then(|key| self.get(key))
    }

    /// Whether this account is that of a limit whose decrease waits, as far as is known here.
    pub(super) fn is_decreasing(&self, account: AccountId) -> bool {
        self.limit_of(account).is_some_and(|limit| limit.is_decreasing())
    }

    /// The lock for reopening this account, and the key of its limit; `None` if that is not defined here.
    pub(super) fn reopen_lock_of(
        &self,
        account: AccountId,
    ) -> Option<(LimitKey, Arc<tokio::sync::Mutex<()>>)> {
        let limit = self.limit_of(account)?;
        Some((limit.key().clone(), Arc::clone(&limit.reopen_lock)))
    }

    /// The account that lasts of the limit `key`, whether the limit is defined here or not.
    pub(super) fn lasting_account_of(&self, key: &LimitKey) -> AccountId {
        let known = self.limits.get(key).map(|limit| limit.account);
        let lasting = known.filter(|account| account.ends_at.is_none());
        lasting.map_or_else(|| ids::limit_account(key), |account| account.id)
    }

    /// The limit of a key that this server knows, or else the one that would be made from a template.
    pub(super) fn resolve(&self, key: &LimitKey) -> Option<Arc<KnownLimit>> {
        match self.limits.get(key) {
            Some(limit) if self.is_ready(limit) => Some(Arc::clone(limit)),
            _ => self
                .templates
                .all()
                .instance(key)
                .map(|limit| Arc::new(KnownLimit::not_made(limit))),
        }
    }

    /// Whether reserves can be sent to the account of a known limit: it is defined, or it was checked
    /// and its template has not changed since.
    pub(super) fn is_ready(&self, limit: &KnownLimit) -> bool {
        match &limit.origin {
            LimitOrigin::Defined => true,
            LimitOrigin::Instance { mark, is_checked } => *is_checked && self.follows(limit, mark),
            LimitOrigin::NotMade => false,
        }
    }

    /// Whether a known limit is an instance whose template has changed since it was checked.
    pub(super) fn is_outdated(&self, limit: &KnownLimit) -> bool {
        limit.mark().is_some_and(|mark| !self.follows(limit, mark))
    }

    /// Whether an instance has the definition of its template, and no late change of the template may
    /// reach it. After a change of the templates, only the first call compares them.
    fn follows(&self, limit: &KnownLimit, mark: &InstanceMark) -> bool {
        if limit.counts.generation() == self.templates.generation() {
            return true;
        }
        let is_same = |template: &Limit| {
            template.key == *mark.template()
                && self.templates.counted().counts(mark)
                && Limit { key: limit.key().clone(), ..template.clone() } == limit.requested()
        };
        let follows = self.templates.all().find(limit.key()).is_some_and(is_same)
            && !self.may_change_late(limit.key());
        if follows {
            limit.counts.generation.store(self.templates.generation(), Ordering::Relaxed);
        }
        follows
    }

    /// Whether a late change of a template may still arrive at the account of an instance.
    pub(super) fn may_change_late(&self, key: &LimitKey) -> bool {
        let checked = self.limits.get(key).map_or(0, |limit| limit.counts.generation());
        self.templates.may_change_late(key, checked)
    }

    /// Whether a template matches the key, and its instance is not ready.
    pub(super) fn needs_check(&self, key: &LimitKey) -> bool {
        !self.limits.get(key).is_some_and(|limit| self.is_ready(limit))
            && self.templates.all().find(key).is_some()
    }

    /// The definition that governs a key: its own, or that of a template. An instance without a
    /// template keeps its own.
    pub(super) fn definition_of(&self, key: &LimitKey) -> Option<Limit> {
        let known = self.limits.get(key);
        let template = known.is_none_or(|limit| self.is_outdated(limit));
        let template = template.then(|| self.templates.all().instance(key)).flatten();
        template.or_else(|| known.map(|limit| limit.registered.limit.clone()))
    }

    /// The definition that the account of a key should have: its own, or that of a template.
    pub(super) fn target_of(&self, key: &LimitKey) -> Option<Limit> {
        match self.limits.get(key) {
            Some(limit) if limit.mark().is_none() => Some(limit.requested()),
            _ => self.templates.all().instance(key),
        }
    }

    /// The template that governs a key which is not defined itself.
    pub(super) fn template_of(&self, key: &LimitKey) -> Option<&LimitKey> {
        match self.limits.get(key) {
            Some(limit) if !self.is_outdated(limit) => limit.mark().map(|mark| mark.template()),
            _ => self.templates.all().find(key).map(|template| &template.key),
        }
    }

    /// Adds or replaces a defined limit. An instance becomes one.
    pub(super) fn put(&mut self, registered: RegisteredLimit, account: LimitAccount) {
        self.store(registered, account, LimitOrigin::Defined);
    }

    /// Adds or replaces an instance whose account agrees with its template.
    pub(super) fn put_instance(
        &mut self,
        registered: RegisteredLimit,
        account: LimitAccount,
        mark: Arc<InstanceMark>,
        now: Timestamp,
    ) {
        let key = registered.limit.key.clone();
        let is_new = !self.limits.contains_key(&key);
        self.store(registered, account, LimitOrigin::Instance { mark, is_checked: true });
        let known = &self.limits[&key];
        known.counts.generation.store(self.templates.generation(), Ordering::Relaxed);
        known.counts.verify_after(now, VERIFIED_FIRST_AFTER);
        if is_new {
            known.record_use(now);
        }
    }

    /// Changes a limit, wherever it comes from.
    pub(super) fn update(&mut self, registered: RegisteredLimit, account: LimitAccount) {
        let known = self.limits.get(&registered.limit.key);
        let origin = known.expect("a known limit changes").origin.clone();
        self.store(registered, account, origin);
    }

    /// The instance is checked before its next reserve.
    pub(super) fn set_unchecked(&mut self, key: &LimitKey) {
        let Some(known) = self.instances.get(key).cloned() else {
            return;
        };
        if let LimitOrigin::Instance { mark, is_checked: true } = &known.origin {
            let origin = LimitOrigin::Instance { mark: Arc::clone(mark), is_checked: false };
            self.store(known.registered.clone(), known.account, origin);
        }
    }

    fn store(&mut self, registered: RegisteredLimit, account: LimitAccount, origin: LimitOrigin) {
        let is_calendar = matches!(registered.limit.kind, LimitKind::Calendar { .. });
        assert_eq!(account.ends_at.is_some(), is_calendar, "only calendar limits have periods");
        let key = registered.limit.key.clone();
        let limit = match self.limits.get(&key) {
            Some(known) => {
                self.keys.remove(&known.account.id);
                KnownLimit { registered, account, origin, ..KnownLimit::clone(known) }
            }
            None => KnownLimit::new(registered, account, origin),
        };
        self.decreasing.remove(&key);
        self.decreasing_instances.remove(&key);
        let limit = Arc::new(limit);
        self.keys.insert(limit.account.id, key.clone());
        let (of_origin, other, decreasing) = match limit.origin {
            LimitOrigin::Defined => (&mut self.defined, &mut self.instances, &mut self.decreasing),
            LimitOrigin::Instance { .. } => {
                (&mut self.instances, &mut self.defined, &mut self.decreasing_instances)
            }
            LimitOrigin::NotMade => unreachable!("it is not in the table"),
        };
        of_origin.insert(key.clone(), Arc::clone(&limit));
        other.remove(&key);
        if limit.is_decreasing() {
            decreasing.insert(key.clone());
        }
        self.limits.insert(key, limit);
    }

    /// Returns whether the limit was defined.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        let is_defined = self.defined.contains_key(key);
        if is_defined {
            self.drop_limit(key);
        }
        is_defined
    }

    /// Forgets an instance. Its account stays.
    pub(super) fn forget(&mut self, key: &LimitKey) {
        if self.instances.contains_key(key) {
            self.drop_limit(key);
        }
    }

    fn drop_limit(&mut self, key: &LimitKey) {
        if let Some(known) = self.limits.remove(key) {
            self.keys.remove(&known.account.id);
        }
        self.defined.remove(key);
        self.instances.remove(key);
        self.decreasing.remove(key);
        self.decreasing_instances.remove(key);
    }

    /// The instances after a key, in the order of their keys.
    pub(super) fn instances_after(
        &self,
        after: Option<&LimitKey>,
    ) -> impl Iterator<Item = &Arc<KnownLimit>> {
        let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        self.instances.range::<str, _>((start, Bound::Unbounded)).map(|(_, limit)| limit)
    }

    pub(super) fn instance_count(&self) -> usize {
        self.instances.len()
    }

    /// The limits of all requirements, in the request's order; some may have to be made.
    pub(super) fn find(
        &self,
        requirements: &Requirements,
    ) -> Result<Vec<ResolvedRequirement>, ReserveError> {
        let find = |Requirement { key, amount }: &Requirement| match self.resolve(key) {
            Some(limit) => Ok(ResolvedRequirement { limit, amount: amount.get() }),
            None => Err(ReserveError::UnknownKey { key: key.clone() }),
        };
        requirements.iter().map(find).collect()
    }

    /// The defined limits of a page that are listed, sorted by key; or, if the page is about a template,
    /// its instances.
    pub(super) fn page(
        &self,
        page: &Page,
        is_listed: impl Fn(&LimitKey) -> bool,
    ) -> Vec<Arc<KnownLimit>> {
        let template = page.template.as_ref().map(KeyPattern::key);
        let limits = if template.is_some() { &self.instances } else { &self.defined };
        let prefix = page.prefix.as_str();
        let start = match &page.after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        limits
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .filter(|(key, _)| self.template_of(key) == template && is_listed(key))
            .filter_map(|(key, _)| self.resolve(key))
            .take(page.count_max.unwrap_or(usize::MAX))
            .collect()
    }

    /// The defined limits that are decreasing.
    pub(super) fn decreasing_defined(&self) -> impl Iterator<Item = &Arc<KnownLimit>> {
        self.decreasing.iter().filter_map(|key| self.limits.get(key))
    }

    /// The instances after a key that are decreasing, in the order of their keys.
    pub(super) fn decreasing_instances_after(
        &self,
        after: Option<&LimitKey>,
    ) -> impl Iterator<Item = &Arc<KnownLimit>> {
        let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let next = self.decreasing_instances.range::<str, _>((start, Bound::Unbounded));
        next.filter_map(|key| self.limits.get(key))
    }

    pub(super) fn decreasing_count(&self) -> usize {
        self.decreasing.len() + self.decreasing_instances.len()
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
    fn new(registered: RegisteredLimit, account: LimitAccount, origin: LimitOrigin) -> Self {
        Self {
            debt_account: ids::debt_account(&registered.limit.key),
            registered,
            account,
            origin,
            counts: Arc::default(),
            reopen_lock: Arc::default(),
        }
    }

    /// A limit that would be made from a template. The period of a calendar limit is not known.
    fn not_made(limit: Limit) -> Self {
        let account = match limit.kind {
            LimitKind::Rolling { .. } | LimitKind::Concurrency { .. } => {
                LimitAccount::lasting(&limit.key)
            }
            LimitKind::Calendar { .. } => {
                LimitAccount::of_period(&limit.key, Timestamp::from_unix_ms(0))
            }
        };
        Self::new(RegisteredLimit::in_force(limit), account, LimitOrigin::NotMade)
    }

    /// Whether the table had it ready when it was resolved.
    pub(super) const fn is_made(&self) -> bool {
        !matches!(self.origin, LimitOrigin::NotMade)
    }

    /// `None` if it is not an instance.
    pub(super) const fn mark(&self) -> Option<&Arc<InstanceMark>> {
        match &self.origin {
            LimitOrigin::Instance { mark, .. } => Some(mark),
            LimitOrigin::Defined | LimitOrigin::NotMade => None,
        }
    }

    /// Notes that this server uses it; only of instances anybody asks.
    pub(super) fn record_use(&self, now: Timestamp) {
        if self.mark().is_some() {
            self.counts.used_at_ms.store(now.unix_ms(), Ordering::Relaxed);
            self.counts.looked_at_next_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Counts units used without room: of an instance, for its template.
    pub(super) fn record_uncovered(&self, units: u64) {
        match self.mark() {
            Some(mark) => mark.note_uncovered(units),
            None => *lock(&self.counts.uncovered) += u128::from(units),
        }
    }

    /// The definition without a decrease that waits.
    pub(super) fn requested(&self) -> Limit {
        requested(&self.registered)
    }

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

/// The definition of a limit without a decrease that waits.
pub(super) fn requested(registered: &RegisteredLimit) -> Limit {
    Limit { capacity: registered.target(), ..registered.limit.clone() }
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

    /// How long this server has not used the instance.
    pub(super) fn unused_for(&self, now: Timestamp) -> Duration {
        now.since(Timestamp::from_unix_ms(self.used_at_ms.load(Ordering::Relaxed)))
    }

    /// Whether it is time to look whether the instance, unused for `idle_after`, is idle.
    pub(super) fn may_be_idle(&self, now: Timestamp, idle_after: Duration) -> bool {
        self.unused_for(now) >= idle_after
            && self.looked_at_next_ms.load(Ordering::Relaxed) <= now.unix_ms()
    }

    /// Whether it is time to compare the instance with its account.
    pub(super) fn is_verified_now(&self, now: Timestamp) -> bool {
        self.verified_next_ms.load(Ordering::Relaxed) <= now.unix_ms()
    }

    fn verify_after(&self, now: Timestamp, after: Duration) {
        self.verified_next_ms.store(now.after(after).unix_ms(), Ordering::Relaxed);
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The instance was compared with its account, and is not idle; look again after this time.
    pub(super) fn look_again_after(&self, now: Timestamp, after: Duration) {
        self.looked_at_next_ms.store(now.after(after).unix_ms(), Ordering::Relaxed);
        self.verify_after(now, VERIFIED_AGAIN_AFTER);
    }

    /// Units used without room since this server started.
    pub(super) fn uncovered(&self) -> u128 {
        *lock(&self.uncovered)
    }
}
