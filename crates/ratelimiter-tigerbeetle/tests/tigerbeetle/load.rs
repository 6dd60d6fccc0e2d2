//! Concurrent callers that retry, and a check that each request counted once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratelimiter_tigerbeetle::ledger::{AccountId, Ledger, TransferStatus, WorkItem};
use tokio::task::JoinSet;

use crate::setup::{answered, limits, pending};

/// The request timeout of any test, with a margin for a loaded machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The transfers of one lease.
pub const CHAIN: usize = 4;

/// Callers that reserve without a pause until they are stopped.
pub struct Load {
    accounts: Vec<AccountId>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    callers: JoinSet<()>,
}

impl Load {
    /// Starts the callers on limits with room for all.
    pub async fn start<L: Ledger>(ledger: &Arc<L>, callers: usize) -> Self {
        let (operator, accounts) = limits(&**ledger, CHAIN, u128::MAX >> 64).await;
        let (stop, done) = (Arc::default(), Arc::default());
        let mut load = Self { accounts, stop, done, callers: JoinSet::new() };
        for _ in 0..callers {
            let (ledger, accounts) = (Arc::clone(ledger), load.accounts.clone());
            let (stop, done) = (Arc::clone(&load.stop), Arc::clone(&load.done));
            load.callers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let chain = accounts.iter().map(|&limit| pending(limit, operator, 1, 0));
                    insist(&*ledger, WorkItem::new().with_chain(chain)).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        load
    }

    /// Waits for `count` more leases.
    pub async fn progress(&self, count: usize) {
        let target = self.done.load(Ordering::Relaxed) + count;
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        while self.done.load(Ordering::Relaxed) < target {
            tick.tick().await;
        }
    }

    /// Stops the callers and compares the balances with their counts: nothing lost, nothing applied
    /// twice.
    pub async fn finish(mut self, ledger: &impl Ledger) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(caller) = self.callers.join_next().await {
            caller.unwrap();
        }
        let done = self.done.load(Ordering::Relaxed);
        for row in answered(|| ledger.lookup_accounts(self.accounts.clone())).await {
            assert_eq!(row.balances.debits_pending, done as u128, "each lease counts once");
        }
        done
    }
}

/// Repeats one item with the same IDs until its outcome is known. Each call is answered in time.
async fn insist(ledger: &impl Ledger, item: WorkItem) {
    loop {
        let call = ledger.create_transfers(item.clone());
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, call).await;
        if let Ok(results) = answer.expect("a call is answered, whatever the server does") {
            let created = results.iter().all(|result| result.status == TransferStatus::Created);
            let existed = results[0].status == TransferStatus::Exists;
            assert!(created || existed, "{results:?}");
            return;
        }
    }
}
