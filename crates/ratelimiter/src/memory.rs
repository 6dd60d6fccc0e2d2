//! The backend in memory: one process, no I/O, time from a [`Clock`].
//!
//! The rules are plain data with `now` as an argument: `live_limit` for one limit, `reserve` and `complete` over
//! several. Limits and leases are kept in shards with a lock each; a request locks the shard of its lease, then the shards
//! of its limits in one order, reads the clock, and does all its work. So every limit sees time go forward, and threads
//! meet only where their keys do.
//!
//! A shard keeps the reservations of all its limits together, in one `timeline` for each lifetime, so that a request writes to a few
//! places only. A lease has one place in its shard's index from its reserve until it is forgotten.

mod complete;
mod lease_shard;
mod limit_shard;
mod live_limit;
mod locked_limits;
mod open_leases;
mod options;
mod past_leases;
mod place_index;
mod reserve;
mod share;
mod sums;
mod sweeper;
mod timeline;

use std::sync::Arc;

use self::lease_shard::Leases;
use self::live_limit::LiveLimit;
use self::locked_limits::Limits;
pub use self::options::MemoryOptions;
use self::sweeper::Sweeper;
use crate::clock::{Clock, Timestamp};
use crate::decision::Decision;
use crate::error::{CompleteError, DefineError, DeleteError, ReserveError, StateError};
use crate::hint::HintPolicy;
use crate::key::LimitKey;
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

#[derive(Debug)]
struct State {
    clock: Arc<dyn Clock>,
    hints: HintPolicy,
    limits: Limits,
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
        let state = Arc::new(State { clock, hints, limits: Limits::new(), leases });
        let sweeper = sweep_every.map(|every| Arc::new(Sweeper::start(&state, every)));
        Self { state, _sweeper: sweeper }
    }

    /// The limiter's present moment.
    pub fn now(&self) -> Timestamp {
        self.state.clock.now()
    }

    /// [`Limiter::reserve`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_now(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let State { clock, hints, limits, leases } = &*self.state;
        let shards = request.requirements.iter().map(|requirement| requirement.key.place().shard());
        let (id, mut lease_shard) = leases.lock(request.lease);
        let mut locked = limits.lock(shards);
        reserve::reserve(clock.now(), request, id, &mut lease_shard, &mut locked, hints)
    }

    /// [`Limiter::complete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn complete_now(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let State { clock, limits, leases, .. } = &*self.state;
        let (id, mut lease_shard) = leases.lock(request.lease);
        let Some(found) = lease_shard.find_open(id) else {
            return Ok(());
        };
        let lease = lease_shard.open(found);
        let shards = lease.reservations.iter().map(|held| held.limit.shard());
        let mut locked = limits.lock(shards);
        let now = clock.now();
        complete::complete(now, lease, &request.actuals, &mut locked)?;
        drop(locked);
        lease_shard.end(now, found);
        Ok(())
    }

    /// [`Backend::define`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn define_now(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        let State { clock, limits, .. } = &*self.state;
        let mut shard = limits.lock_for(&limit.key);
        shard.define(clock.now(), limit)
    }

    /// Puts a limit back as it was registered, in the place of whatever has its key. What is live of a limit of the same kind
    /// stays; where nothing is live, a decrease that was under way ends at once.
    pub fn restore(&self, registered: RegisteredLimit) -> LimitStatus {
        let State { clock, limits, .. } = &*self.state;
        let mut shard = limits.lock_for(&registered.limit.key);
        shard.restore(clock.now(), registered)
    }

    /// [`Backend::delete`] without a future.
    ///
    /// # Errors
    /// As there.
    pub fn delete_now(&self, key: &LimitKey) -> Result<(), DeleteError> {
        if self.state.limits.lock_for(key).remove(key) {
            Ok(())
        } else {
            Err(DeleteError::UnknownKey { key: key.clone() })
        }
    }

    /// [`Backend::state`] without a future.
    pub fn state_now(&self, key: &LimitKey) -> Option<LimitState> {
        let State { clock, limits, .. } = &*self.state;
        let mut shard = limits.lock_for(key);
        shard.expire(clock.now());
        shard.find(key).map(|(_, limit)| limit.state())
    }

    /// [`Backend::states`] without a future.
    pub fn states_now(&self, page: &Page) -> Vec<LimitState> {
        let State { clock, limits, .. } = &*self.state;
        let mut states = Vec::new();
        for mut shard in limits.each() {
            shard.expire(clock.now());
            let limits = shard.limits().filter(|limit| page.has(limit.key()));
            states.extend(limits.map(LiveLimit::state));
        }
        states.sort_unstable_by(|a, b| a.limit.key.cmp(&b.limit.key));
        states.truncate(page.count_max.unwrap_or(usize::MAX));
        states
    }

    /// Returns what has expired, applies decreases that have become possible, forgets what may be forgotten.
    pub fn sweep(&self) {
        self.state.sweep();
    }

    /// How many leases are open: allowed, not completed, and not yet swept away.
    pub fn open_leases(&self) -> usize {
        self.state.leases.each().map(|shard| shard.open_count()).sum()
    }

    /// How many ended or denied leases are remembered.
    pub fn past_leases(&self) -> usize {
        self.state.leases.each().map(|shard| shard.past_count()).sum()
    }
}

impl State {
    fn sweep(&self) {
        for mut shard in self.limits.each() {
            shard.sweep(self.clock.now());
        }
        for mut shard in self.leases.each() {
            shard.sweep(self.clock.now());
        }
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
        Ok(self.state_now(key))
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        Ok(self.states_now(page))
    }
}
