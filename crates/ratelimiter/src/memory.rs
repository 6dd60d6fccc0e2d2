//! The backend in memory: one process, no I/O, time from a [`Clock`].
//!
//! The rules are plain data with `now` as an argument: `live_limit` for one limit, `reserve` and `complete` over
//! several. The limits of a model form a group, every other limit is one of its own; a request locks the shard of its lease, then
//! the groups of its limits in one order, reads the clock, and does all its work. So every limit sees time go forward, and
//! threads meet only where their keys do.
//!
//! A group keeps what is reserved of its limits, and the open leases that began there. Shards of leases tell where a lease is, from
//! its reserve until it is forgotten.

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
mod queue;
mod reserve;
mod rolling;
mod soundness;
mod sums;
mod sweeper;

use std::sync::Arc;

use self::groups::{GroupNumbers, Groups, LockedGroups};
use self::lease_shard::Leases;
use self::live_limit::LiveLimit;
pub use self::options::MemoryOptions;
use self::reserve::Needs;
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

/// The limiter in memory, safe under any number of threads. Clones share one state.
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

/// What calls rely on that have no error to answer with.
const SOUND: &str = "the limiter has not panicked in the midst of a change";

#[derive(Debug)]
struct State {
    clock: Arc<dyn Clock>,
    hints: HintPolicy,
    groups: Groups,
    leases: Leases,
}

impl MemoryLimiter {
    /// An empty limiter on the machine's clock, which sweeps itself in the background.
    pub fn new() -> Self {
        Self::with_options(MemoryOptions::default())
    }

    /// An empty limiter with these options.
    ///
    /// # Panics
    /// When it should sweep itself and the system has no room for a thread, or when it should remember more than
    /// 2^30 leases.
    pub fn with_options(options: MemoryOptions) -> Self {
        let leases = Leases::new(&options);
        let MemoryOptions { clock, hints, sweep_every, .. } = options;
        let state = Arc::new(State { clock, hints, groups: Groups::default(), leases });
        let sweeper = sweep_every.map(|every| Arc::new(Sweeper::start(&state, every)));
        Self { state, _sweeper: sweeper }
    }

    /// The limiter's present moment.
    pub fn now(&self) -> Timestamp {
        self.state.clock.now()
    }

    /// Whether the limiter's state may be trusted. Once it has panicked in the midst of a change it answers nothing any more, and
    /// must be made anew; a panic that changed nothing, of the clock for example, does no harm.
    ///
    /// # Errors
    /// What every call answers from then on.
    pub fn check_sound(&self) -> Result<(), Unanswered> {
        self.state.groups.soundness.check()
    }

    /// [`Limiter::reserve`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_now(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let State { clock, hints, groups, leases } = &*self.state;
        let (id, mut lease_shard) = leases.lock(request.lease);
        groups.soundness.check()?;
        // The group of the lease, if it is open with other limits than it asks for now; looked for at most once.
        let mut home: Option<Option<u32>> = None;
        loop {
            let mut needs = Needs::new();
            let mut numbers = GroupNumbers::default();
            reserve::find_groups(request, groups, &mut needs, &mut numbers)?;
            if let Some(Some(home)) = home {
                numbers.add(home);
            }
            let mut locked = LockedGroups::default();
            groups.lock(&mut locked, &numbers);
            let now = clock.now();
            let _change = groups.soundness.begin_change()?;
            // Under all the locks: that an ID is not known is mostly told by memory that is far away, and what follows need not
            // wait for it.
            let mut is_unsure = false;
            let known = lease_shard.find(id, |place| match locked.find_any(place.group) {
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
                // A group that was found a moment ago may have been taken out, and another have its number.
                Err(ReserveError::UnknownKey { key })
                    if reserve::has_moved(key, &needs, groups) => {}
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
        groups.soundness.check()?;
        let mut locked = LockedGroups::default();
        let found = lease_shard.find_open(id, |place| {
            // One at a time: what was locked for another lease is unlocked.
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
        let _change = groups.soundness.begin_change()?;
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
        let _change = groups.soundness.begin_change()?;
        group.define(now, limit)
    }

    /// Puts a limit back as it was registered, in the place of whatever has its key. What is live of a limit of the same kind
    /// stays; where nothing is live, a decrease that was under way ends at once.
    ///
    /// # Panics
    /// When the state cannot be trusted; see [`MemoryLimiter::check_sound`].
    pub fn restore(&self, registered: RegisteredLimit) -> LimitStatus {
        let State { clock, groups, .. } = &*self.state;
        let mut group = groups.lock_or_make(&registered.limit.key).expect(SOUND);
        let now = clock.now();
        let _change = groups.soundness.begin_change().expect(SOUND);
        group.restore(now, registered)
    }

    /// [`Backend::delete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn delete_now(&self, key: &LimitKey) -> Result<(), DeleteError> {
        let groups = &self.state.groups;
        groups.soundness.check()?;
        if let Some(mut group) = groups.lock_for(key) {
            let _change = groups.soundness.begin_change()?;
            if group.remove(key) {
                return Ok(());
            }
        }
        Err(DeleteError::UnknownKey { key: key.clone() })
    }

    /// [`Backend::state`] without a future.
    ///
    /// # Panics
    /// When the state cannot be trusted; see [`MemoryLimiter::check_sound`].
    pub fn state_now(&self, key: &LimitKey) -> Option<LimitState> {
        self.state.state(key).expect(SOUND)
    }

    /// [`Backend::states`] without a future.
    ///
    /// # Panics
    /// When the state cannot be trusted; see [`MemoryLimiter::check_sound`].
    pub fn states_now(&self, page: &Page) -> Vec<LimitState> {
        self.state.states(page).expect(SOUND)
    }

    /// Returns what has expired, applies decreases that have become possible, forgets what may be forgotten. Does nothing when the
    /// state cannot be trusted; see [`MemoryLimiter::check_sound`].
    pub fn sweep(&self) {
        self.state.sweep().unwrap_or_default();
    }

    /// How many leases are open: allowed, not completed, and not yet swept away.
    pub fn open_leases(&self) -> usize {
        self.state.groups.each().map(|group| group.leases.len()).sum()
    }

    /// How many ended or denied leases are remembered.
    pub fn past_leases(&self) -> usize {
        self.state.leases.each().map(|shard| shard.past_count()).sum()
    }
}

impl State {
    fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, Unanswered> {
        let Some(mut group) = self.groups.lock_for(key) else {
            return self.groups.soundness.check().map(|()| None);
        };
        let now = self.clock.now();
        let _change = self.groups.soundness.begin_change()?;
        group.expire(now);
        Ok(group.find(key).map(|(_, limit)| limit.state()))
    }

    fn states(&self, page: &Page) -> Result<Vec<LimitState>, Unanswered> {
        let mut states = Vec::new();
        for mut group in self.groups.each() {
            let now = self.clock.now();
            let _change = self.groups.soundness.begin_change()?;
            group.expire(now);
            let limits = group.limits().filter(|limit| page.has(limit.key()));
            states.extend(limits.map(LiveLimit::state));
        }
        states.sort_unstable_by(|a, b| a.limit.key.cmp(&b.limit.key));
        states.truncate(page.count_max.unwrap_or(usize::MAX));
        Ok(states)
    }

    /// A state that cannot be trusted stays as it is.
    fn sweep(&self) -> Result<(), Unanswered> {
        let soundness = &self.groups.soundness;
        let mut ended = Vec::new();
        self.groups.sweep(|group| {
            let now = self.clock.now();
            let _change = soundness.begin_change()?;
            group.sweep(now);
            ended.extend(group.leases.ended(now));
            Ok(())
        })?;
        for id in ended {
            self.end(id)?;
        }
        for mut shard in self.leases.each() {
            let now = self.clock.now();
            let _change = soundness.begin_change()?;
            shard.sweep(now);
        }
        Ok(())
    }

    /// Ends an open lease of which nothing is live any more.
    fn end(&self, id: LeaseId) -> Result<(), Unanswered> {
        let (id, mut lease_shard) = self.leases.lock(id);
        self.groups.soundness.check()?;
        // It may have been completed meanwhile.
        let Some(found) = self.groups.find_lease(id, &lease_shard) else {
            return Ok(());
        };
        let place = found.place();
        let mut locked = LockedGroups::default();
        self.groups.lock_first(&mut locked, place.group);
        let now = self.clock.now();
        let _change = self.groups.soundness.begin_change()?;
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
