//! The memory backend: one process, no I/O, time from a [`Clock`].
//!
//! The rules are plain data with `now` as an argument: `live_limit` for one limit, `reserve` and `complete` over
//! several. The limits of a model form a group; every other limit is a group of one. A request locks the shard of its lease, then
//! the groups of its limits in a fixed order, reads the clock, and does all its work. So every limit sees time go forward, and
//! threads contend only when they share a limit.
//!
//! A group stores the reservations of its limits, and the open leases that began there. A lease shard locates each lease, from its
//! reserve until it is forgotten.

#[cfg(test)]
mod colliding_keys;
mod complete;
mod group;
mod groups;
mod holds;
mod lease_index;
mod lease_shard;
mod live_limit;
mod open_leases;
mod options;
mod past_leases;
mod place_index;
mod poison;
mod queue;
mod reserve;
mod rolling;
mod sums;
mod sweeper;

use std::sync::Arc;

use self::groups::{GroupNumbers, Groups, LockedGroups};
use self::lease_shard::Leases;
use self::live_limit::LiveLimit;
pub use self::options::MemoryOptions;
use self::reserve::ResolvedRequirements;
use self::sweeper::Sweeper;
use crate::clock::{Clock, Timestamp};
use crate::decision::Decision;
use crate::error::{CompleteError, DefineError, DeleteError, ReserveError, StateError, Unanswered};
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::lease::LeaseId;
use crate::limit::Limit;
use crate::limiter::{Backend, Limiter};
use crate::registry::{LimitState, LimitStatus, Page, RegisteredLimit};
use crate::request::{CompleteRequest, ReserveRequest};

/// The in-process limiter, safe under any number of threads. Clones share one state.
///
/// ```
/// use ratelimiter::{
///     Actuals, Capacity, CompleteRequest, Decision, LeaseId, Limit, LimitKey, LimitKind, MemoryLimiter, Requirements,
///     ReserveRequest, Window,
/// };
///
/// let limiter = MemoryLimiter::new();
/// let tpm = LimitKey::llm_tpm("openai", "gpt-4o")?;
/// let kind = LimitKind::Rolling { window: Window::from_seconds(60)? };
/// limiter.define_now(Limit::new(tpm.clone(), kind, Capacity::new(100)?))?;
///
/// let lease = LeaseId::generate(limiter.now());
/// let request = ReserveRequest::new(lease, Requirements::of([(tpm.clone(), 100)])?);
/// assert!(limiter.reserve_now(&request)?.is_allowed());
///
/// // The call used less than was reserved, so there is room for another.
/// limiter.complete_now(&CompleteRequest::new(lease, Actuals::of([(tpm.clone(), 10)])?))?;
/// let next = LeaseId::generate(limiter.now());
/// let request = ReserveRequest::new(next, Requirements::of([(tpm, 90)])?);
/// assert!(limiter.reserve_now(&request)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryLimiter {
    state: Arc<State>,
    /// Ends the background sweep with the last clone.
    _sweeper: Option<Arc<Sweeper>>,
}

/// The panic message of calls that cannot return an error.
const NOT_POISONED: &str = "the limiter has not panicked while updating its state";

#[derive(Debug)]
struct State {
    clock: Arc<dyn Clock>,
    hints: HintPolicy,
    groups: Groups,
    leases: Leases,
}

impl MemoryLimiter {
    /// An empty limiter on the system clock, with a background sweep.
    pub fn new() -> Self {
        Self::with_options(MemoryOptions::default())
    }

    /// An empty limiter with these options.
    ///
    /// # Panics
    /// If the thread of the background sweep cannot be started, or if `remember_max` is above 2^30.
    pub fn with_options(options: MemoryOptions) -> Self {
        let leases = Leases::new(&options);
        let MemoryOptions { clock, hints, sweep_every, .. } = options;
        let state = Arc::new(State { clock, hints, groups: Groups::default(), leases });
        let sweeper = sweep_every.map(|every| Arc::new(Sweeper::start(&state, every)));
        Self { state, _sweeper: sweeper }
    }

    /// The current time of the limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.state.clock.now()
    }

    /// Whether the limiter is poisoned. After a panic while it updated its state every call fails, and the limiter must be replaced. A
    /// panic before the first change, for example of the clock, does no harm.
    ///
    /// # Errors
    /// The limiter is poisoned. Every call then returns this error.
    pub fn check_poisoned(&self) -> Result<(), Unanswered> {
        self.state.groups.poison.check()
    }

    /// [`Limiter::reserve`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_now(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let State { clock, hints, groups, leases } = &*self.state;
        let (id, mut lease_shard) = leases.lock(request.lease);
        groups.poison.check()?;
        // The group of the lease, if it is open with other limits than this request has; searched at most once.
        let mut home: Option<Option<u32>> = None;
        loop {
            let mut needs = ResolvedRequirements::new();
            let mut numbers = GroupNumbers::default();
            reserve::find_groups(request, groups, &mut needs, &mut numbers)?;
            if let Some(Some(home)) = home {
                numbers.add(home);
            }
            let mut locked = LockedGroups::default();
            groups.lock(&mut locked, &numbers);
            let now = clock.now();
            let _change = groups.poison.begin_change()?;
            // Under all locks: the lookup usually misses the cache; starting it here overlaps the miss with the work below.
            let mut is_unsure = false;
            let known = lease_shard.find(id, |place| match locked.find_if_locked(place.group) {
                Some(group) => locked.group(group).leases.at(place.slot).id == id.id,
                None => {
                    is_unsure = true;
                    false
                }
            });
            if known.is_none() && is_unsure && home.is_none() {
                locked.unlock();
                home = Some(groups.find_lease(id, &lease_shard).map(|found| found.place().group));
                continue;
            }
            let lease = (id, known);
            let answer =
                reserve::reserve(now, lease, &mut needs, &mut lease_shard, &mut locked, hints);
            locked.unlock();
            match &answer {
                // The group may have been removed since it was found, and its number reused.
                Err(ReserveError::UnknownKey { key })
                    if reserve::group_changed(key, &needs, groups) => {}
                _ => return answer,
            }
        }
    }

    /// [`Limiter::complete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn complete_now(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let State { clock, groups, leases, .. } = &*self.state;
        let (id, mut lease_shard) = leases.lock(request.lease);
        groups.poison.check()?;
        let mut locked = LockedGroups::default();
        let found = lease_shard.find_open(id, |place| {
            // Locks one group at a time: this unlocks the group of the previous candidate.
            groups.lock_first(&mut locked, place.group);
            locked.first().1.leases.at(place.slot).id == id.id
        });
        let Some(found) = found else {
            return Ok(());
        };
        let place = found.place();
        let mut others = GroupNumbers::default();
        for held in &locked.first().1.leases.at(place.slot).reservations {
            if held.limit.group != place.group {
                others.add(held.limit.group);
            }
        }
        groups.lock(&mut locked, &others);
        let now = clock.now();
        let _change = groups.poison.begin_change()?;
        let lease = locked.first().1.leases.take(place.slot);
        let completed = complete::complete(now, &lease, &request.actuals, &mut locked);
        let (_, group) = locked.first();
        if completed.is_err() {
            group.leases.put_back(place.slot, lease);
            return completed;
        }
        group.leases.remove(place.slot);
        locked.unlock();
        lease_shard.end(now, id, found);
        Ok(())
    }

    /// [`Backend::define`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn define_now(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let State { clock, groups, .. } = &*self.state;
        let mut group = groups.lock_or_make(&limit.key)?;
        let now = clock.now();
        let _change = groups.poison.begin_change()?;
        group.define(now, limit)
    }

    /// Restores a limit as it was registered, replacing the limit with its key. Live reservations of a limit of the same kind
    /// stay; if there are none, a pending decrease applies at once.
    ///
    /// # Panics
    /// If the limiter is poisoned; see [`MemoryLimiter::check_poisoned`].
    pub fn restore(&self, registered: RegisteredLimit) -> LimitStatus {
        let State { clock, groups, .. } = &*self.state;
        let mut group = groups.lock_or_make(&registered.limit.key).expect(NOT_POISONED);
        let now = clock.now();
        let _change = groups.poison.begin_change().expect(NOT_POISONED);
        group.restore(now, registered)
    }

    /// [`Backend::delete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn delete_now(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let groups = &self.state.groups;
        groups.poison.check()?;
        if let Some(mut group) = groups.lock_for(key) {
            let _change = groups.poison.begin_change()?;
            if group.remove(key) {
                return Ok(());
            }
        }
        Err(DeleteError::UnknownKey { key: key.clone() })
    }

    /// [`Backend::state`] without a future.
    ///
    /// # Panics
    /// If the limiter is poisoned; see [`MemoryLimiter::check_poisoned`].
    pub fn state_now(&self, key: &LimitKey) -> Option<LimitState> {
        self.state.state(key).expect(NOT_POISONED)
    }

    /// [`Backend::states`] without a future.
    ///
    /// # Panics
    /// If the limiter is poisoned; see [`MemoryLimiter::check_poisoned`].
    pub fn states_now(&self, page: &Page) -> Vec<LimitState> {
        self.state.states(page).expect(NOT_POISONED)
    }

    /// Frees expired reservations, applies pending decreases that fit, and forgets old leases. Does nothing if the limiter is
    /// poisoned; see [`MemoryLimiter::check_poisoned`].
    pub fn sweep(&self) {
        self.state.sweep().unwrap_or_default();
    }

    /// Number of open leases: allowed, not completed, and not yet swept.
    pub fn open_leases(&self) -> usize {
        self.state.groups.each().map(|group| group.leases.len()).sum()
    }

    /// Number of ended or denied leases that are remembered.
    pub fn past_leases(&self) -> usize {
        self.state.leases.each().map(|shard| shard.past_count()).sum()
    }
}

impl State {
    fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, Unanswered> {
        let Some(mut group) = self.groups.lock_for(key) else {
            return self.groups.poison.check().map(|()| None);
        };
        let now = self.clock.now();
        let _change = self.groups.poison.begin_change()?;
        group.expire(now);
        Ok(group.find(key).map(|(_, limit)| limit.state()))
    }

    fn states(&self, page: &Page) -> Result<Vec<LimitState>, Unanswered> {
        let mut states = Vec::new();
        for mut group in self.groups.each() {
            let now = self.clock.now();
            let _change = self.groups.poison.begin_change()?;
            group.expire(now);
            let limits = group.limits().filter(|limit| page.has(limit.key()));
            states.extend(limits.map(LiveLimit::state));
        }
        states.sort_unstable_by(|a, b| a.limit.key.cmp(&b.limit.key));
        states.truncate(page.count_max.unwrap_or(usize::MAX));
        Ok(states)
    }

    /// Does nothing if the limiter is poisoned.
    fn sweep(&self) -> Result<(), Unanswered> {
        let poison = &self.groups.poison;
        let mut ended = Vec::new();
        self.groups.sweep(|group| {
            let now = self.clock.now();
            let _change = poison.begin_change()?;
            group.sweep(now);
            ended.extend(group.leases.ended(now));
            Ok(())
        })?;
        for id in ended {
            self.end(id)?;
        }
        for mut shard in self.leases.each() {
            let now = self.clock.now();
            let _change = poison.begin_change()?;
            shard.sweep(now);
        }
        Ok(())
    }

    /// Ends an open lease whose reservations have all expired.
    fn end(&self, id: LeaseId) -> Result<(), Unanswered> {
        let (id, mut lease_shard) = self.leases.lock(id);
        self.groups.poison.check()?;
        // It may have been completed since.
        let Some(found) = self.groups.find_lease(id, &lease_shard) else {
            return Ok(());
        };
        let place = found.place();
        let mut locked = LockedGroups::default();
        self.groups.lock_first(&mut locked, place.group);
        let now = self.clock.now();
        let _change = self.groups.poison.begin_change()?;
        let (_, group) = locked.first();
        let lease = group.leases.take(place.slot);
        if lease.ends_at > now {
            group.leases.put_back(place.slot, lease);
            return Ok(());
        }
        group.leases.remove(place.slot);
        lease_shard.end(now, id, found);
        Ok(())
    }
}

impl Default for MemoryLimiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Limiter for MemoryLimiter {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.reserve_now(request)
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.complete_now(request)
    }
}

impl Backend for MemoryLimiter {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.define_now(limit)
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        self.delete_now(key)
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        Ok(self.state.state(key)?)
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        Ok(self.state.states(page)?)
    }
}
