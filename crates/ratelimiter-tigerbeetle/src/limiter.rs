//! The limiter on a [`Ledger`].
//!
//! It implements the rules of all backends with pending transfers. Decisions, requests and the
//! interpretation of replies are pure functions: the chain of a lease (`reserve::chain`), the end
//! of a lease (`complete::plan`), a renew of one (`renew::plan`), a capacity change (`capacity::plan`), a lease read from its
//! transfers (`lease`). A thin shell around them sends and waits. It holds no lock while it waits,
//! except that changes of limits are serialised.

mod accounts;
mod capacity;
mod cluster_time;
mod codes;
mod complete;
mod due_instances;
mod expiry_probe;
mod instances;
mod lease;
mod lease_cache;
mod maintenance;
mod observations;
mod operate;
mod options;
mod periods;
mod renew;
mod renewed_lease;
mod reservation;
mod reserve;
mod table;
mod templates;
mod unanswered;

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU128;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures::future::join_all;
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, ForgiveError,
    InstanceBounds, LeaseId, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus,
    Limiter, OpenLease, Page, ReleaseError, RenewError, RenewRequest, Renewal, ReserveError,
    ReserveRequest, StateError, Unanswered,
};

use self::capacity::{AdminState, Attempt};
use self::cluster_time::{ClusterTime, time_query};
use self::codes::lease_data;
use self::due_instances::DueInstances;
use self::expiry_probe::ExpiryProbe;
use self::lease::{FEW_LEASE_ROWS_MAX, LEASE_ROWS_MAX, Lease, LeaseLookup};
use self::lease_cache::LeaseCache;
use self::maintenance::DefinitionDrift;
use self::observations::Counters;
pub use self::observations::Observations;
pub use self::options::LimiterOptions;
use self::reserve::{PartSize, UnansweredAttempts};
use self::table::LimitTable;
use self::unanswered::unanswered;
use crate::ledger::{Ledger, QUERY_ROWS_MAX, TransferQuery, TransferRow};
use crate::lock::lock;

/// The limiter that stores reservations as pending transfers of a ledger. Any number of them may
/// share one cluster, in one process or in many: a lease that one allows can be completed at
/// another.
///
/// Limits are [restored](TigerBeetleLimiter::restore) or defined at each of them. Call
/// [`tick`](TigerBeetleLimiter::tick) several times a second.
pub struct TigerBeetleLimiter<L> {
    ledger: L,
    options: LimiterOptions,
    table: RwLock<LimitTable>,
    cache: LeaseCache,
    part_size: PartSize,
    unanswered_attempts: UnansweredAttempts,
    time: ClusterTime,
    random: Mutex<fastrand::Rng>,
    /// Serialises changes of limits.
    admin: tokio::sync::Mutex<AdminState>,
    /// Calendar limits whose next period is needed by reserves that wait for `admin`.
    due_periods: Mutex<BTreeSet<LimitKey>>,
    /// Instances that reserves need which wait for `checking`.
    due_instances: Mutex<DueInstances>,
    /// Held by the reserve that checks instances.
    checking: tokio::sync::Mutex<()>,
    instance_bounds: InstanceBounds,
    /// Held by whoever reopens the closed account of a limit that is not known here.
    unknown_reopen_lock: Arc<tokio::sync::Mutex<()>>,
    /// The last instance that a tick looked at; `None` if it was the last of all.
    last_walked: Mutex<Option<LimitKey>>,
    drift: Mutex<DefinitionDrift>,
    probe: Mutex<ExpiryProbe>,
    /// The probe's [`ExpiryProbe::lag`]: read by every reserve, written only by the tick.
    expiry_lag_ms: AtomicU64,
    /// Tells this server's probes and gates from those of others.
    number: u128,
    /// The accounts of gates and markers exist.
    has_marker_accounts: AtomicBool,
    counters: Counters,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// A limiter without limits.
    pub fn new(ledger: L, options: LimiterOptions) -> Self {
        let mut random = fastrand::Rng::with_seed(options.seed);
        let number = random.u128(..);
        Self {
            ledger,
            table: RwLock::default(),
            cache: LeaseCache::new(options.leases_cached_max),
            part_size: PartSize::default(),
            unanswered_attempts: UnansweredAttempts::default(),
            time: ClusterTime::default(),
            random: Mutex::new(random),
            admin: tokio::sync::Mutex::default(),
            due_periods: Mutex::default(),
            due_instances: Mutex::default(),
            checking: tokio::sync::Mutex::default(),
            instance_bounds: InstanceBounds::new(
                options.instances_max,
                options.new_instances_per_second_max,
            ),
            unknown_reopen_lock: Arc::default(),
            last_walked: Mutex::default(),
            drift: Mutex::default(),
            probe: Mutex::new(ExpiryProbe::new(options.probe_every)),
            expiry_lag_ms: AtomicU64::new(0),
            number,
            has_marker_accounts: AtomicBool::new(false),
            counters: Counters::default(),
            options,
        }
    }

    /// The underlying ledger.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// A page of the limits that are listed. Of a template, the instances that this server knows.
    ///
    /// # Errors
    /// As for [`Backend::states`].
    pub async fn states_where(
        &self,
        page: &Page,
        is_listed: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        if page.template.is_some() {
            return Ok(self.instance_states(page, is_listed).await?);
        }
        let (limits, templates) = {
            let (now, table) = (self.cluster_now(), self.read_table());
            let is_on_page =
                |template: &&Limit| page.has(&template.key) && is_listed(&template.key);
            let templates = table.templates.all().iter().filter(is_on_page);
            let templates: Vec<_> =
                templates.map(|template| table.templates.counted().state(now, template)).collect();
            (table.page(page, &is_listed), templates)
        };
        let mut states = self.states_of(&limits).await?;
        states.extend(templates);
        states.sort_unstable_by(|a, b| a.limit.key.cmp(&b.limit.key));
        states.truncate(page.count_max.unwrap_or(usize::MAX));
        Ok(states)
    }

    /// Reads a lease from its transfers, so that any server can complete it (`TB-04`).
    async fn look_up_lease(&self, lease: LeaseId) -> Result<LeaseLookup, Unanswered> {
        self.counters.cold_reads.add(1);
        // Another server's lease may be the first contact with the cluster. The cluster's clock
        // decides whether it has expired, however wrong the local clock is.
        if !self.time.is_known() {
            self.read_cluster_time().await?;
        }
        let mut lookup = match self.read_later_rows(lease).await? {
            Some(lease) => LeaseLookup::Open(Box::new(lease)),
            None => {
                let rows = self.rows_of_lease(lease, None).await?;
                LeaseLookup::from_rows(lease, &rows)
            }
        };
        if let LeaseLookup::Open(open) = &mut lookup
            && let Some(renewed) = &mut open.renewed
        {
            renewed.join_lapsed(self.cluster_now());
        }
        Ok(lookup)
    }

    /// A renewed lease that is known here, with what others have done since (`TB-18`); `None` if it must be
    /// read as a whole.
    async fn read_later_rows(&self, lease: LeaseId) -> Result<Option<Lease>, Unanswered> {
        let Some(known) = self.cache.get(lease) else { return Ok(None) };
        let Some(known_to) = known.renewed.as_ref().map(|renewed| renewed.known_to) else {
            return Ok(None);
        };
        let rows = self.rows_of_lease(lease, Some(known_to)).await?;
        Ok(known.after(&rows))
    }

    /// The transfers of a lease, or those after `known_to`, oldest first.
    async fn rows_of_lease(
        &self,
        lease: LeaseId,
        known_to: Option<Timestamp>,
    ) -> Result<Vec<TransferRow>, Unanswered> {
        let (mut rows, mut page_max) = (Vec::<TransferRow>::new(), FEW_LEASE_ROWS_MAX);
        loop {
            let last = rows.last().map(|row| row.timestamp).or(known_to);
            let since = last.map_or(0, |last| last.unix_nanos() + 1);
            let rows_max = u32::try_from(page_max).expect("a small number");
            let query = TransferQuery::new(lease_data(lease)).rows_max(rows_max);
            let query = query.since(Timestamp::from_unix_nanos(since));
            let page = self.ledger.query_transfers(query).await.map_err(unanswered)?;
            let is_last = page.len() < page_max;
            rows.extend(page);
            if is_last {
                return Ok(rows);
            }
            page_max = match page_max {
                FEW_LEASE_ROWS_MAX => LEASE_ROWS_MAX,
                _ => QUERY_ROWS_MAX as usize,
            };
        }
    }

    /// The time at which the cluster executed a request of this call; never ahead of its clock.
    async fn read_cluster_time(&self) -> Result<Timestamp, Unanswered> {
        let results = self.ledger.create_transfers(time_query()).await.map_err(unanswered)?;
        self.time.observe(&results, self.options.clock.now());
        Ok(results[0].timestamp)
    }

    fn cluster_now(&self) -> Timestamp {
        self.time.at(self.options.clock.now())
    }

    fn new_attempt(&self) -> Attempt {
        let nonce = NonZeroU128::new(lock(&self.random).u128(1..)).expect("it is at least 1");
        Attempt { unix_ms: self.options.clock.now().unix_ms(), nonce }
    }

    fn random_f64(&self) -> f64 {
        lock(&self.random).f64()
    }
}

// Every change under this lock is complete before anything that can panic.
impl<L> TigerBeetleLimiter<L> {
    fn read_table(&self) -> RwLockReadGuard<'_, LimitTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_table(&self) -> RwLockWriteGuard<'_, LimitTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Ledger> Limiter for TigerBeetleLimiter<L> {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let answer = self.reserve_one(request).await;
        self.remember_job(request, answer.as_ref().ok());
        answer
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.complete_one(request).await
    }

    /// At any server: the lease comes from the cache, or else from the ledger.
    async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        self.renew_freeing(request).await.map(|(renewal, _)| renewal)
    }

    /// All at once: they share one request to the cluster, in order.
    async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        let answers = self.reserve_many(requests).await;
        for (request, answer) in requests.iter().zip(&answers) {
            self.remember_job(request, answer.as_ref().ok());
        }
        answers
    }

    /// All at once: they share one request to the cluster, in order.
    async fn complete_batch(&self, requests: &[CompleteRequest]) -> Vec<Result<(), CompleteError>> {
        join_all(requests.iter().map(|request| self.complete_one(request))).await
    }
}

impl<L: Ledger> Backend for TigerBeetleLimiter<L> {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        Ok(self.define_limits(vec![limit]).await?[0])
    }

    /// In few requests to the cluster. After an error nothing is changed here, and the next ticks
    /// take back what has reached the cluster.
    async fn define_all(&self, limits: Vec<Limit>) -> Result<Vec<LimitStatus>, DefineError> {
        self.define_limits(limits).await
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        self.delete_limit(key).await?;
        lock(&self.drift).forget(key);
        Ok(())
    }

    /// A key that only a template matches has the state of its instance, or of a new one.
    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        let limit = {
            let table = self.read_table();
            if let Some(template) = table.templates.all().get(key) {
                return Ok(Some(table.templates.counted().state(self.cluster_now(), template)));
            }
            table.resolve(key)
        };
        match limit {
            Some(limit) => Ok(self.states_of(&[limit]).await?.pop()),
            None => Ok(None),
        }
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        self.states_where(page, |_| true).await
    }

    /// Those in this server's cache.
    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        self.leases_where(page, |_| true).await
    }

    /// At any server: the lease comes from the cache, or else from the ledger.
    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.release_lease(lease).await
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        self.forgive_debt(key).await
    }
}

impl<L> fmt::Debug for TigerBeetleLimiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TigerBeetleLimiter").field("options", &self.options).finish_non_exhaustive()
    }
}
