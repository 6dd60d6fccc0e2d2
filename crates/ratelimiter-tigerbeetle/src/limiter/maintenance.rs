//! Periodic maintenance, several times a second.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{LimitKey, Page, Unanswered};

use super::TigerBeetleLimiter;
use super::accounts::of_probe;
use super::capacity::Version;
use super::codes::TransferCode;
use super::expiry_probe::{PROBE_SECONDS, ProbeStep};
use super::observations::Observations;
use super::unanswered::{RETRY_AFTER, unanswered, unexpected_status};
use crate::ids;
use crate::ledger::{Ledger, Transfer, TransferStatus, WorkItem};
use crate::lock::lock;

/// The number of limits that one tick compares with their accounts; the ticks cycle through all.
const LIMITS_CHECKED_AT_ONCE: usize = 100;
/// How long a definition and its account may differ before it is reported: longer than a change
/// takes to reach every server.
const DRIFT_REPORTED_AFTER: Duration = Duration::from_secs(3);

/// Limits whose definition and account differ.
#[derive(Debug, Default)]
pub(super) struct DefinitionDrift {
    /// The last limit that was compared.
    last_checked: Option<LimitKey>,
    /// When the difference was first seen, and whether it was reported.
    differing: BTreeMap<LimitKey, (Timestamp, bool)>,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// Periodic maintenance, to be called several times a second: makes instances whose callers may
    /// not stay for it, applies decreases that have become possible, measures the expiry lag, compares
    /// definitions with accounts, and goes on with the walk over the instances. Work that the cluster
    /// does not answer is retried at the next tick.
    pub async fn tick(&self) {
        let made = self.check_due_instances().await;
        let applied = self.apply_decreases().await;
        let probed = self.probe_expiry().await;
        let compared = self.compare_with_accounts().await;
        let walked = self.walk_instances().await;
        for outcome in [made, applied, probed, compared, walked] {
            if let Err(Unanswered { reason, .. }) = outcome {
                tracing::debug!(%reason, "maintenance is waiting for the cluster");
            }
        }
    }

    /// The counters so far.
    pub fn observations(&self) -> Observations {
        Observations {
            leases_allowed: self.counters.leases_allowed.get(),
            lease_transfers: self.counters.lease_transfers.get(),
            cold_reads: self.counters.cold_reads.get(),
            leases_cached: self.cache.len() as u64,
            capacity_changes: self.counters.capacity_changes.get(),
            limits_decreasing: self.read_table().decreasing_count() as u64,
            limits_disagreeing: lock(&self.drift).reported() as u64,
            expiry_lag: self.expiry_lag(),
            reserves_rejected: self.counters.reserves_rejected.get(),
        }
    }

    fn expiry_lag(&self) -> Duration {
        Duration::from_millis(self.expiry_lag_ms.load(Ordering::Relaxed))
    }

    /// `TB-14`: TigerBeetle admits reservations faster than it can release them, and does not
    /// report it.
    pub(super) fn reject_when_expiry_lags(&self) -> Result<(), Unanswered> {
        let lag = self.expiry_lag();
        if lag <= self.options.expiry_lag_max {
            return Ok(());
        }
        self.counters.reserves_rejected.add(1);
        let reason =
            format!("TigerBeetle releases reservations {lag:?} late; the cluster is overloaded");
        Err(Unanswered { reason, retry_after: RETRY_AFTER })
    }

    async fn probe_expiry(&self) -> Result<(), Unanswered> {
        let leases = self.counters.leases_allowed.get();
        let step = lock(&self.probe).step(self.cluster_now(), leases);
        let account = ids::probe_account(self.number);
        match step {
            ProbeStep::Wait => {}
            ProbeStep::Send => {
                self.create_missing(of_probe(account)).await?;
                let probe = WorkItem::new().with(self.probe());
                let results = self.ledger.create_transfers(probe).await.map_err(unanswered)?;
                let result = results[0];
                if result.status != TransferStatus::Created {
                    return Err(unexpected_status("probe", result.status));
                }
                self.time.observe(&results, self.options.clock.now());
                lock(&self.probe).sent(result.timestamp, leases);
            }
            ProbeStep::Check => {
                let rows = self.ledger.lookup_accounts(vec![account]).await.map_err(unanswered)?;
                let held = rows.iter().any(|row| row.balances.debits_pending > 0);
                let mut probe = lock(&self.probe);
                probe.record_check(self.cluster_now(), held);
                let lag_ms = u64::try_from(probe.lag().as_millis()).unwrap_or(u64::MAX);
                self.expiry_lag_ms.store(lag_ms, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn probe(&self) -> Transfer {
        let attempt = self.new_attempt();
        let label = format!("xfer:probe:{:032x}", attempt.nonce);
        let account = ids::probe_account(self.number);
        let movement = TransferCode::Probe.movement(account, ids::operator_account(), 1);
        Transfer::pending(ids::transfer_at(attempt.unix_ms, &label), movement, PROBE_SECONDS)
    }

    /// Compares some of the definitions with their accounts. They differ briefly while another
    /// server's change is on its way; if they stay different, a server with other definitions works
    /// on the same cluster. We log it and do not overwrite the other server's definition.
    async fn compare_with_accounts(&self) -> Result<(), Unanswered> {
        let after = lock(&self.drift).last_checked.clone();
        let page = Page { after, count_max: Some(LIMITS_CHECKED_AT_ONCE), ..Page::default() };
        let limits = self.read_table().page(&page, |_| true);
        let rows = self.rows_of(limits.iter().map(|limit| limit.account.id).collect()).await?;
        let now = self.options.clock.now();
        let mut drift = lock(&self.drift);
        drift.last_checked = limits
            .last()
            .map(|limit| limit.key().clone())
            .filter(|_| limits.len() == LIMITS_CHECKED_AT_ONCE);
        // The account of a period that has ended follows no definition.
        let cluster_now = self.cluster_now();
        for limit in limits.into_iter().filter(|limit| !limit.account.has_ended(cluster_now)) {
            let version = rows.get(&limit.account.id).map(|row| Version::of(*row));
            if version.is_some_and(|version| version.agrees_with(&limit)) {
                drift.differing.remove(limit.key());
            } else if drift.record(limit.key(), now) {
                let cluster = version.map(|version| version.to_string());
                let (key, capacity) = (limit.key(), limit.registered.limit.ceiling());
                tracing::warn!(%key, %capacity, cluster, "a limit's definition and account disagree");
            }
        }
        Ok(())
    }
}

impl DefinitionDrift {
    /// Records a difference; returns whether it is due to be reported.
    fn record(&mut self, key: &LimitKey, now: Timestamp) -> bool {
        let (since, reported) = self.differing.entry(key.clone()).or_insert((now, false));
        let report = !*reported && now.since(*since) >= DRIFT_REPORTED_AFTER;
        *reported |= report;
        report
    }

    fn reported(&self) -> usize {
        self.differing.values().filter(|(_, reported)| *reported).count()
    }

    /// Forgets a deleted limit.
    pub(super) fn forget(&mut self, key: &LimitKey) {
        self.differing.remove(key);
    }
}
