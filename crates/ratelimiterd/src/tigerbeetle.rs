//! The TigerBeetle backend of a server.

mod metrics;

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use ratelimiter::{
    DefineError, HintPolicy, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus,
    OpenLease, Page, RegisteredLimit, StateError, Unanswered,
};
use ratelimiter_tigerbeetle::ledger::cluster::{
    ClusterConfig, ClusterLedger, ClusterSettings, ConfigError,
};
use ratelimiter_tigerbeetle::ledger::{Ledger, SessionProblem};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, Observations, TigerBeetleLimiter};
use ratelimiter_waiting::Runtime;

pub use self::metrics::ClusterMetrics;
use crate::config::{Config, TigerBeetleConfig};
use crate::hosted::{HostedBackend, NotReady};
use crate::metrics::Text;
use crate::server::as_usize;

/// The limiter on a cluster, with metrics.
pub type HostedTigerBeetle = TigerBeetleLimiter<ClusterLedger<ClusterMetrics>>;

/// A ledger whose limiter a server can host.
pub trait HostedLedger: Ledger {
    /// Whether the ledger answers, as far as is known.
    ///
    /// # Errors
    /// The probable cause.
    fn health(&self) -> Result<(), SessionProblem> {
        Ok(())
    }

    /// Adds the ledger's own metrics in Prometheus' text format.
    fn write_metrics(&self, _text: &mut String) {}
}

/// Opens sessions with the cluster, which keep trying until it answers, and a limiter on them.
///
/// # Errors
/// The operating system starts no more threads.
///
/// # Panics
/// The settings are invalid; those of a [`Config`] that was read never are.
pub fn open(config: &Config, hints: HintPolicy) -> io::Result<HostedTigerBeetle> {
    let Config { tigerbeetle, registry, .. } = config;
    let cluster = checked(tigerbeetle).expect("a config that exists is valid");
    let options = LimiterOptions {
        hints,
        leases_cached_max: as_usize(tigerbeetle.leases_cached_max),
        expiry_lag_max: Duration::from_millis(tigerbeetle.expiry_lag_max_ms),
        instances_max: as_usize(registry.instances_max),
        new_instances_per_second_max: as_usize(registry.new_instances_per_second_max),
        ..LimiterOptions::default()
    };
    let ledger = ClusterLedger::open(cluster, ClusterMetrics::default())?;
    Ok(TigerBeetleLimiter::new(ledger, options))
}

/// Validates the settings of the cluster.
pub(crate) fn checked(config: &TigerBeetleConfig) -> Result<ClusterConfig, ConfigError> {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    ClusterConfig::new(&ClusterSettings {
        cluster_id: config.cluster_id,
        addresses: config.addresses.clone(),
        sessions: small(config.sessions),
        max_batch_events: small(config.max_batch_events),
        flush_interval_micros: config.flush_interval_micros,
        request_timeout_ms: config.request_timeout_ms,
    })
}

impl HostedLedger for ClusterLedger<ClusterMetrics> {
    fn health(&self) -> Result<(), SessionProblem> {
        Self::health(self)
    }

    fn write_metrics(&self, text: &mut String) {
        let mut own = Text::default();
        self.observer().write(&mut own);
        text.push_str(&own.into_string());
    }
}

impl<L: HostedLedger> HostedBackend for TigerBeetleLimiter<L> {
    async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        Self::restore(self, registered).await
    }

    async fn restore_all(
        &self,
        limits: Vec<RegisteredLimit>,
        unconfirmed: &BTreeSet<LimitKey>,
    ) -> Result<Vec<LimitStatus>, DefineError> {
        Self::restore_all(self, limits, unconfirmed).await
    }

    async fn visible_states(
        &self,
        page: &Page,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        self.states_where(page, is_visible).await
    }

    async fn visible_leases(
        &self,
        page: &LeasePage,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        self.leases_where(page, is_visible).await
    }

    /// Known without a request to the cluster.
    async fn waits(&self, key: &LimitKey) -> Result<Option<bool>, StateError> {
        Ok(self.is_decreasing(key))
    }

    async fn governing(&self, keys: &[LimitKey]) -> Result<Vec<Option<Limit>>, Unanswered> {
        Ok(keys.iter().map(|key| TigerBeetleLimiter::governing(self, key)).collect())
    }

    async fn ready(&self) -> Result<(), NotReady> {
        self.ledger().health().map_err(|problem| NotReady { reason: problem.to_string() })
    }

    async fn tick(&self, _: &dyn Runtime) {
        Self::tick(self).await;
    }

    fn open_leases(&self) -> Option<u64> {
        None
    }

    fn metrics_key(&self, key: &LimitKey) -> Option<LimitKey> {
        Self::metrics_key(self, key)
    }

    fn instances(&self) -> Vec<(LimitKey, usize)> {
        self.instances_by_template()
    }

    fn write_metrics(&self, text: &mut String) {
        self.ledger().write_metrics(text);
        let mut own = Text::default();
        write_observations(&self.observations(), &mut own);
        text.push_str(&own.into_string());
    }
}

fn write_observations(seen: &Observations, text: &mut Text) {
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        text.family(name, kind, help);
        text.sample(name, &[], value);
    };
    #[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
    let number = |count: u64| count as f64;
    let mut counter = |name: &str, help: &str, count| one(name, "counter", help, number(count));
    counter("ratelimiter_tb_leases_total", "Leases allowed here.", seen.leases_allowed);
    counter(
        "ratelimiter_tb_lease_transfers_total",
        "Transfers that these leases made, which stay in the cluster for ever.",
        seen.lease_transfers,
    );
    counter(
        "ratelimiter_tb_cold_reads_total",
        "Leases read back from the cluster.",
        seen.cold_reads,
    );
    counter(
        "ratelimiter_tb_capacity_changes_total",
        "Capacities changed by this server.",
        seen.capacity_changes,
    );
    counter(
        "ratelimiter_tb_turned_away_total",
        "Reserves rejected because expiry lags.",
        seen.reserves_rejected,
    );
    let mut gauge = |name: &str, help: &str, value| one(name, "gauge", help, value);
    let lag = seen.expiry_lag.as_secs_f64();
    gauge(
        "ratelimiter_tb_expiry_lag_seconds",
        "How late reservations expire, as last measured.",
        lag,
    );
    gauge("ratelimiter_tb_leases_cached", "Open leases in memory.", number(seen.leases_cached));
    gauge(
        "ratelimiter_tb_limits_decreasing",
        "Limits with a pending decrease.",
        number(seen.limits_decreasing),
    );
    gauge(
        "ratelimiter_tb_limits_disagreeing",
        "Limits whose definition here and capacity in the cluster disagree.",
        number(seen.limits_disagreeing),
    );
}
