//! The memory backend: one process, no I/O, time from a [`Clock`].
//!
//! The rules are plain data with `now` as an argument: `live_limit` for one limit, `reserve`, `renew` and `complete` over
//! several. The limits of a model form a group; every other limit is a group of one. Groups and leases are in shards with one lock
//! each. A request locks the shard of its lease, then the shards of its groups in a fixed order, reads the clock, and does all its
//! work. So every limit sees time go forward, and threads contend only when they share a shard.
//!
//! A group stores the reservations of its limits. A lease shard stores the open leases, each of which knows its reservations, and
//! the IDs of past ones.

#[cfg(test)]
mod colliding_keys;
mod complete;
mod group;
mod groups;
mod instances;
mod joined_amounts;
mod leases;
mod listing;
mod live_limit;
mod options;
mod past_leases;
mod poison;
mod queue;
mod renew;
mod reservations;
mod reserve;
mod shards;
mod states;
mod sweeper;
mod templates;

use std::sync::{Arc, MutexGuard};
use std::thread;

use arrayvec::ArrayVec;

use self::groups::{Groups, LockedGroups, shard_of};
use self::instances::Instances;
use self::leases::{LeaseExtras, LeaseShard, Leases, OpenLease};
pub use self::options::MemoryOptions;
use self::poison::PoisonFlag;
use self::renew::RenewAttempt;
use self::reserve::Attempt;
use self::sweeper::Sweeper;
use crate::admission::{Turn, TurnAnswer, TurnBackend};
use crate::clock::{Clock, Timestamp};
use crate::decision::{Decision, Renewal};
use crate::error::{
    CompleteError, DefineError, DeleteError, ForgiveError, LeasesError, ReleaseError, RenewError,
    ReserveError, StateError, Unanswered,
};
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::lease::LeaseId;
use crate::limit::Limit;
use crate::limiter::{Backend, Limiter};
use crate::open_lease::{self, LeasePage};
use crate::registry::{LimitState, LimitStatus, Page, RegisteredLimit};
use crate::request::{CompleteRequest, RenewRequest, ReserveRequest};

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

/// The sweep, or a change of a template, looks at most at so many groups before it lets go of the lock.
const GROUPS_PER_LOCK: u32 = 64;
/// The sweep ends or forgets at most so many leases before it lets go of the lock.
const LEASES_PER_LOCK: usize = 256;

/// The panic message of calls that cannot return an error.
const NOT_POISONED: &str = "the limiter has not panicked while updating its state";

#[derive(Debug)]
struct State {
    clock: Arc<dyn Clock>,
    hints: HintPolicy,
    groups: Groups,
    leases: Leases,
    instances: Instances,
    /// Covers the groups, the leases and the templates.
    poison: PoisonFlag,
}

/// What a lease was before it was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndedLease {
    Live,
    /// Unknown, completed, or all of it has expired.
    NotLive,
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
        let (leases, instances) = (Leases::new(&options), Instances::new(&options));
        let MemoryOptions { clock, hints, sweep_every, .. } = options;
        let (groups, poison) = (Groups::default(), PoisonFlag::default());
        let state = Arc::new(State { clock, hints, groups, leases, instances, poison });
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
        self.state.poison.check()
    }

    /// [`Limiter::reserve`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_now(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.reserve_in_turn_now(request, Turn::default()).map(|answer| answer.decision)
    }

    /// [`TurnBackend::reserve_in_turn`] without a future.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn reserve_in_turn_now(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        let State { clock, hints, groups, leases, instances, poison } = &*self.state;
        let (id, mut lease_shard) = leases.lock(request.lease);
        let mut locked = LockedGroups::default();
        groups.lock(&mut locked, request.requirements.iter().map(|need| shard_of(&need.key)));
        let now = clock.now();
        let _change = poison.begin_change()?;
        let (needs, leases, groups) = (ArrayVec::new(), &mut *lease_shard, &mut locked);
        let policy = hints;
        let (ask_again_after, is_new) = (None, false);
        let mut attempt = Attempt {
            now,
            id,
            needs,
            leases,
            groups,
            instances,
            policy,
            turn,
            ask_again_after,
            is_new,
        };
        let decision = attempt.reserve(request)?;
        let Attempt { ask_again_after, is_new, .. } = attempt;
        Ok(TurnAnswer { decision, ask_again_after, is_new })
    }

    /// [`Limiter::complete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn complete_now(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let ended = self.state.end(request.lease, |now, lease, extras, groups| {
            let instances = &self.state.instances;
            complete::complete(now, lease, extras, &request.actuals, groups, instances)
        });
        ended.map(|_| ())
    }

    /// [`TurnBackend::complete_freeing`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn complete_freeing_now(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        let mut freed = Vec::new();
        self.state.end(request.lease, |now, lease, extras, groups| {
            let instances = &self.state.instances;
            complete::complete(now, lease, extras, &request.actuals, groups, instances)?;
            let live = lease.reservations.iter().filter(|held| held.is_live(now));
            // A hold's slot may be free by now, if its limit was deleted.
            freed.extend(
                live.filter_map(|held| groups.group(held.group).key_in(held.slot).cloned()),
            );
            Ok::<_, CompleteError>(())
        })?;
        Ok(freed)
    }

    /// [`Limiter::renew`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn renew_now(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        self.renew_freeing_now(request).map(|(renewal, _)| renewal)
    }

    /// [`TurnBackend::renew_freeing`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn renew_freeing_now(
        &self,
        request: &RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        let State { clock, hints, groups, leases, instances, poison } = &*self.state;
        let (id, mut lease_shard) = leases.lock(request.lease);
        poison.check()?;
        let lease = lease_shard.find_open(id).ok_or(RenewError::LeaseEnded)?;
        let mut locked = LockedGroups::default();
        groups.lock(&mut locked, lease.reservations.iter().map(|held| held.group.shard()));
        let now = clock.now();
        let _change = poison.begin_change()?;
        let LeaseShard { open, details, renewed, random, .. } = &mut *lease_shard;
        let lease = open.find_mut(id.hash, |lease| lease.id == id.id);
        let mut attempt = RenewAttempt {
            now,
            id,
            lease: lease.ok_or(RenewError::LeaseEnded)?,
            details,
            renewed,
            groups: &mut locked,
            instances,
            policy: hints,
            random: random.f64(),
            earlier: Vec::new(),
        };
        attempt.renew(request)
    }

    /// [`Backend::leases`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn leases_now(&self, page: &LeasePage) -> Result<Vec<open_lease::OpenLease>, LeasesError> {
        self.leases_where(page, |_| true)
    }

    /// A page of the open leases that have something of a listed limit, with their amounts of listed limits.
    ///
    /// # Errors
    /// As for [`Backend::leases`].
    pub fn leases_where(
        &self,
        page: &LeasePage,
        is_listed: impl Fn(&LimitKey) -> bool,
    ) -> Result<Vec<open_lease::OpenLease>, LeasesError> {
        self.state.leases(page, &is_listed)
    }

    /// [`Backend::release`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn release_now(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        let ended = self.state.end(lease, |now, lease, extras, groups| {
            complete::release(now, lease, extras, groups, &self.state.instances);
            Ok::<_, ReleaseError>(())
        });
        match ended? {
            EndedLease::Live => Ok(()),
            EndedLease::NotLive => Err(ReleaseError::UnknownLease { lease }),
        }
    }

    /// [`Backend::forgive`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn forgive_now(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        let State { groups, instances, poison, .. } = &*self.state;
        let mut shard = groups.lock_one(key);
        let _change = poison.begin_change()?;
        let group = shard.group_of(key);
        let found = group.and_then(|group| Some((group.find(key)?.0, group)));
        if let Some((slot, group)) = found {
            let forgiven = group.limit(slot).forgive();
            shard.drop_unused_instance(key);
            return Ok(forgiven);
        }
        // A template owes nothing, and neither does an instance that does not exist.
        let templates = instances.templates();
        match templates.all().get(key).or_else(|| templates.all().find(key)) {
            Some(_) => Ok(0),
            None => Err(ForgiveError::UnknownKey { key: key.clone() }),
        }
    }

    /// [`Backend::define`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn define_now(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let (statuses, walk) = self.state.define_all(vec![limit])?;
        self.state.walk_now(walk)?;
        Ok(statuses[0])
    }

    /// Whether these definitions would be accepted now.
    ///
    /// # Errors
    /// Why the first of them would not be; see [`Backend::define_all`].
    pub fn check_definitions(&self, limits: &[Limit]) -> Result<(), DefineError> {
        self.state.check_definitions(limits)
    }

    /// Restores a limit as it was registered, replacing the limit with its key. Live reservations of a limit of the same kind
    /// stay; if there are none, a pending decrease applies at once.
    ///
    /// # Panics
    /// If the limiter is poisoned, see [`MemoryLimiter::check_poisoned`]; or if the key is that of a template and no
    /// [pattern](crate::KeyPattern), or there are [`TEMPLATES_MAX`](crate::TEMPLATES_MAX) others.
    pub fn restore(&self, registered: RegisteredLimit) -> LimitStatus {
        if registered.limit.key.is_template() {
            let template = Limit { capacity: registered.target(), ..registered.limit };
            let restored = self.state.restore_template(template);
            return restored.expect("a template can be restored");
        }
        let State { clock, groups, poison, .. } = &*self.state;
        let mut shard = groups.lock_one(&registered.limit.key);
        let now = clock.now();
        let _change = poison.begin_change().expect(NOT_POISONED);
        shard.group_or_new(&registered.limit.key).restore(now, registered)
    }

    /// [`Backend::delete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn delete_now(&self, key: &LimitKey) -> Result<(), DeleteError> {
        if key.is_template() {
            let walk = self.state.delete_template(key)?;
            return Ok(self.state.walk_now(walk)?);
        }
        let State { groups, poison, .. } = &*self.state;
        let mut shard = groups.lock_one(key);
        let _change = poison.begin_change()?;
        if !shard.group_of(key).is_some_and(|group| group.remove(key)) {
            return Err(DeleteError::UnknownKey { key: key.clone() });
        }
        shard.drop_unused(key);
        Ok(())
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
        self.states_where(page, |_| true).expect(NOT_POISONED)
    }

    /// A page of the limits that are listed.
    ///
    /// # Errors
    /// As for [`Backend::states`].
    pub fn states_where(
        &self,
        page: &Page,
        is_listed: impl Fn(&LimitKey) -> bool,
    ) -> Result<Vec<LimitState>, StateError> {
        Ok(self.state.states(page, &is_listed)?)
    }

    /// Frees expired reservations, applies pending decreases that fit, and forgets old leases. Does nothing if the limiter is
    /// poisoned; see [`MemoryLimiter::check_poisoned`].
    pub fn sweep(&self) {
        self.state.sweep().unwrap_or_default();
    }

    /// Number of open leases: allowed, not completed, and not yet swept.
    pub fn open_leases(&self) -> usize {
        self.state.leases.shards.each().map(|shard| shard.lock().open.len()).sum()
    }

    /// Number of limits that were made from templates, and not yet swept.
    pub fn instances(&self) -> usize {
        self.state.instances.templates().instance_count()
    }

    /// The number of these limits for each template, sorted by key.
    pub fn instances_by_template(&self) -> Vec<(LimitKey, usize)> {
        self.state.instances.templates().instance_counts()
    }

    /// The key of the template that governs a key which is not defined itself.
    pub fn template_of(&self, key: &LimitKey) -> Option<LimitKey> {
        self.metrics_key(key).filter(|defined| defined != key)
    }

    /// The definition that governs a key: its own, or that of the template from which its limit is or would be made.
    pub fn governing(&self, key: &LimitKey) -> Option<Limit> {
        self.state.governing(key)
    }

    /// The key for which metrics of a limit are kept: its own, or that of the template that governs it. `None` if a template may
    /// have governed the key, and neither a definition nor a template does any more.
    pub fn metrics_key(&self, key: &LimitKey) -> Option<LimitKey> {
        self.state.metrics_key(key)
    }

    /// Number of ended or denied leases that are remembered.
    pub fn past_leases(&self) -> usize {
        self.state.leases.shards.each().map(|shard| shard.lock().past.len()).sum()
    }
}

impl State {
    /// Ends a lease if it is open. `complete` settles its reservations first, or refuses to.
    #[inline]
    fn end<E: From<Unanswered>>(
        &self,
        lease: LeaseId,
        complete: impl FnOnce(
            Timestamp,
            &OpenLease,
            LeaseExtras<'_>,
            &mut LockedGroups<'_>,
        ) -> Result<(), E>,
    ) -> Result<EndedLease, E> {
        let (id, mut lease_shard) = self.leases.lock(lease);
        let lease_shard = &mut *lease_shard;
        self.poison.check()?;
        let Ok(found) = lease_shard.open.find_entry(id.hash, |lease| lease.id == id.id) else {
            return Ok(EndedLease::NotLive);
        };
        let mut locked = LockedGroups::default();
        let shards = found.get().reservations.iter().map(|held| held.group.shard());
        self.groups.lock(&mut locked, shards);
        let now = self.clock.now();
        let _change = self.poison.begin_change()?;
        let details = lease_shard.details.of(id);
        let extras = LeaseExtras { details, renewed: lease_shard.renewed.of(id) };
        complete(now, found.get(), extras, &mut locked)?;
        let (ended, _) = found.remove();
        lease_shard.record_end(now, id, ended.reserved_at);
        Ok(if ended.is_live(now) { EndedLease::Live } else { EndedLease::NotLive })
    }

    /// Does nothing if the limiter is poisoned.
    fn sweep(&self) -> Result<(), Unanswered> {
        for shard in self.groups.shards.each() {
            let mut has_more = true;
            while has_more {
                self.change(shard.lock(), |shard, now| {
                    has_more = shard.sweep(now, GROUPS_PER_LOCK);
                })?;
            }
        }
        for shard in self.leases.shards.each() {
            let mut lapsed = Vec::new();
            self.change(shard.lock(), |shard, now| lapsed = shard.lapsed(now))?;
            for some in lapsed.chunks(LEASES_PER_LOCK) {
                self.change(shard.lock(), |shard, now| {
                    some.iter().for_each(|id| shard.end_if_lapsed(now, *id));
                })?;
                // Callers may wait for this lock, or for this core.
                thread::yield_now();
            }
            let mut has_more = true;
            while has_more {
                self.change(shard.lock(), |shard, now| {
                    has_more = shard.past.forget_old(now, LEASES_PER_LOCK);
                })?;
            }
            self.change(shard.lock(), |shard, _| shard.shrink_to_fit())?;
        }
        Ok(())
    }

    /// Changes what is locked.
    fn change<T>(
        &self,
        mut locked: MutexGuard<'_, T>,
        change: impl FnOnce(&mut T, Timestamp),
    ) -> Result<(), Unanswered> {
        let now = self.clock.now();
        let _change = self.poison.begin_change()?;
        change(&mut locked, now);
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

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        self.renew_now(request)
    }
}

impl Backend for MemoryLimiter {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        Ok(self.define_all(vec![limit]).await?[0])
    }

    /// All or none. Limits are applied before templates, so that they take over what the templates would change. Other tasks run
    /// while the instances follow.
    async fn define_all(&self, limits: Vec<Limit>) -> Result<Vec<LimitStatus>, DefineError> {
        let (statuses, walk) = self.state.define_all(limits)?;
        self.state.walk(walk).await?;
        Ok(statuses)
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        if !key.is_template() {
            return self.delete_now(key);
        }
        let walk = self.state.delete_template(key)?;
        Ok(self.state.walk(walk).await?)
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        Ok(self.state.state(key)?)
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        self.states_where(page, |_| true)
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<open_lease::OpenLease>, LeasesError> {
        self.leases_now(page)
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.release_now(lease)
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        self.forgive_now(key)
    }
}

impl TurnBackend for MemoryLimiter {
    async fn reserve_in_turn(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        self.reserve_in_turn_now(request, turn)
    }

    async fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        self.complete_freeing_now(request)
    }

    async fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        self.renew_freeing_now(request)
    }
}
