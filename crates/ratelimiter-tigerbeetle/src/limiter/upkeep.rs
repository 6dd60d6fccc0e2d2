//! What a limiter does by itself, several times a second.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
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
use super::unanswered::{RETRY_AFTER, not_foreseen, unanswered};
use crate::ids;
use crate::ledger::{Action, Ledger, Movement, Transfer, TransferStatus, UserData, WorkItem};

/// How many limits are held against their accounts at a time; all get their turn.
const LIMITS_CHECKED_AT_ONCE: usize = 100;
/// For how long a definition and its account may differ before it is said: longer than a change
/// takes to reach every server.
const DISAGREEMENT_AFTER: Duration = Duration::from_secs(3);

/// Which limits' definitions and accounts differ.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// The last limit that was looked at.
    looked_at: Option<LimitKey>,
    /// Since when, and whether it was said.
    differing: BTreeMap<LimitKey, (Timestamp, bool)>,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// The regular work, to be called several times a second: ends decreases that have become
    /// possible, watches how late reservations lapse, and holds definitions against accounts. What
    /// the cluster does not answer is tried again next time.
    pub async fn tick(&self) {
        let settled = self.settle_decreases().await;
        let probed = self.probe_expiry().await;
        let compared = self.compare_with_accounts().await;
        for outcome in [settled, probed, compared] {
            if let Err(Unanswered { reason, .. }) = outcome {
                tracing::debug!(%reason, "upkeep waits for the cluster");
            }
        }
    }

    /// What the limiter has seen so far.
    pub fn observations(&self) -> Observations {
        Observations {
            leases_allowed: self.counters.leases_allowed.get(),
            lease_transfers: self.counters.lease_transfers.get(),
            cold_reads: self.counters.cold_reads.get(),
            leases_cached: self.cache.len() as u64,
            capacity_changes: self.counters.capacity_changes.get(),
            limits_decreasing: self.read_table().decreasing_count() as u64,
            limits_disagreeing: self.lock_agreement().said() as u64,
            expiry_lag: self.expiry_lag(),
            turned_away: self.counters.turned_away.get(),
        }
    }

    fn expiry_lag(&self) -> Duration {
        Duration::from_millis(self.expiry_lag_ms.load(Ordering::Relaxed))
    }

    /// `TB-14`: TigerBeetle takes reservations faster than it can release them, and does not say so.
    pub(super) fn turn_away_when_expiry_lags(&self) -> Result<(), Unanswered> {
        let lag = self.expiry_lag();
        if lag <= self.options.expiry_lag_max {
            return Ok(());
        }
        self.counters.turned_away.add(1);
        let reason =
            format!("TigerBeetle releases reservations {lag:?} late; too much is asked of it");
        Err(Unanswered { reason, retry_after: RETRY_AFTER })
    }

    async fn probe_expiry(&self) -> Result<(), Unanswered> {
        let leases = self.counters.leases_allowed.get();
        let step = self.lock_probe().step(self.cluster_now(), leases);
        let account = ids::probe_account(self.probe_number);
        match step {
            ProbeStep::Wait => {}
            ProbeStep::Send => {
                self.make_missing(of_probe(account)).await?;
                let probe = WorkItem::new().with(self.probe());
                let results = self.ledger.create_transfers(probe).await.map_err(unanswered)?;
                let result = results[0];
                if result.status != TransferStatus::Created {
                    return Err(not_foreseen("probe", result.status));
                }
                self.time.observe(&results, self.options.clock.now());
                self.lock_probe().sent(result.timestamp, leases);
            }
            ProbeStep::Look => {
                let rows = self.ledger.lookup_accounts(vec![account]).await.map_err(unanswered)?;
                let held = rows.iter().any(|row| row.balances.debits_pending > 0);
                let mut probe = self.lock_probe();
                probe.looked(self.cluster_now(), held);
                let lag_ms = u64::try_from(probe.lag().as_millis()).unwrap_or(u64::MAX);
                self.expiry_lag_ms.store(lag_ms, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn probe(&self) -> Transfer {
        let attempt = self.new_attempt();
        let label = format!("xfer:probe:{:032x}", attempt.nonce);
        let movement = Movement {
            debit: ids::probe_account(self.probe_number),
            credit: ids::operator_account(),
            amount: 1,
            code: TransferCode::Probe.number(),
        };
        let action = Action::Pending {
            movement,
            timeout_seconds: NonZeroU32::new(PROBE_SECONDS),
            closes_debit_account: false,
        };
        let id = ids::transfer_at(attempt.unix_ms, &label);
        Transfer { id, action, user_data: UserData::default() }
    }

    /// Holds some of the definitions against their accounts. They differ for a moment while a change
    /// is on its way from another server; if they go on differing, a server with other definitions
    /// works on the same cluster. That is said, and not fought over.
    async fn compare_with_accounts(&self) -> Result<(), Unanswered> {
        let after = self.lock_agreement().looked_at.clone();
        let page = Page { after, count_max: Some(LIMITS_CHECKED_AT_ONCE), ..Page::default() };
        let limits = self.read_table().page(&page);
        let rows = self.rows_of(limits.iter().map(|limit| limit.account).collect()).await?;
        let now = self.options.clock.now();
        let mut agreement = self.lock_agreement();
        agreement.looked_at = limits
            .last()
            .map(|limit| limit.key().clone())
            .filter(|_| limits.len() == LIMITS_CHECKED_AT_ONCE);
        for limit in limits {
            let version = rows.get(&limit.account).map(|row| Version::of(*row));
            let capacity = u128::from(limit.registered.limit.capacity.get());
            let agrees = version.is_some_and(|version| {
                version.capacity() == capacity && version.is_closed() == limit.is_decreasing()
            });
            if agrees {
                agreement.differing.remove(limit.key());
            } else if agreement.differs_since(limit.key(), now) {
                let cluster = version.map(|version| version.to_string());
                let key = limit.key();
                tracing::warn!(%key, capacity, cluster, "a limit's definition and account disagree");
            }
        }
        Ok(())
    }
}

impl Agreement {
    /// Notes a difference; true when it has lasted long enough and was not said yet.
    fn differs_since(&mut self, key: &LimitKey, now: Timestamp) -> bool {
        let (since, said) = self.differing.entry(key.clone()).or_insert((now, false));
        let say = !*said && now.since(*since) >= DISAGREEMENT_AFTER;
        *said |= say;
        say
    }

    fn said(&self) -> usize {
        self.differing.values().filter(|(_, said)| *said).count()
    }

    /// A limit that is gone disagrees with nobody.
    pub(super) fn forget(&mut self, key: &LimitKey) {
        self.differing.remove(key);
    }
}
