//! `TB-23`: queries are sent in waves, separately from writes.

use std::num::NonZeroU128;
use std::sync::Arc;

use futures::future::join_all;
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterConfig, WAVE_QUERIES_MAX};
use ratelimiter_tigerbeetle::ledger::{
    AccountId, Ledger, LedgerError, Transfer, TransferQuery, TransferRow, UserData, WorkItem,
};
use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use testkit::within;
use tokio::task::JoinSet;

use crate::setup::{NEVER, config, limits, open, pending, run};
use crate::tally::Tally;

pub const LEASES: usize = 1_000;

pub type Reads = JoinSet<Result<Vec<TransferRow>, LedgerError>>;

/// Without keep-alives, behind which a query to a stopped server would queue.
fn without_keep_alives(cluster: &TestCluster) -> ClusterConfig {
    config(&cluster.settings()).with_keep_alive_interval(NEVER)
}

/// Transfers with unique user data.
pub async fn leases(ledger: &impl Ledger) -> Vec<NonZeroU128> {
    let (operator, accounts) = limits(ledger, 1, u128::from(u64::MAX)).await;
    let leases: Vec<_> =
        (0..LEASES).map(|_| NonZeroU128::new(fastrand::u128(1..)).unwrap()).collect();
    let items = leases.iter().map(|&lease| reservation(lease, accounts[0], operator));
    for results in join_all(items.map(|item| ledger.create_transfers(item))).await {
        results.unwrap();
    }
    leases
}

fn reservation(lease: NonZeroU128, limit: AccountId, operator: AccountId) -> WorkItem {
    let user_data = UserData { data_128: lease.get(), ..UserData::default() };
    WorkItem::new().with(Transfer { user_data, ..pending(limit, operator, 1, 0) })
}

/// Queries all of them at once.
pub fn read_all(ledger: &Arc<impl Ledger>, leases: &[NonZeroU128]) -> Reads {
    let mut reads = Reads::new();
    for &lease in leases {
        let ledger = Arc::clone(ledger);
        let query = TransferQuery::new(lease).rows_max(2);
        reads.spawn(async move { ledger.query_transfers(query).await });
    }
    reads
}

/// Every lease was found, each by its own query.
pub async fn are_found(mut reads: Reads, leases: &[NonZeroU128]) {
    let mut found = Vec::new();
    while let Some(rows) = within("the rows", reads.join_next()).await {
        let rows = rows.unwrap().unwrap();
        assert_eq!(rows.len(), 1, "one transfer carries it");
        found.push(rows[0].user_data.data_128);
    }
    let mut wanted: Vec<_> = leases.iter().map(|lease| lease.get()).collect();
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted);
}

/// The server is stopped in the meantime, so that all but the first query wait together.
pub fn tb_23_a_thousand_queries_at_once_take_few_waves(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let tally = Tally::default();
        let ledger = Arc::new(open(without_keep_alives(&cluster), tally.clone()).await);
        let leases = leases(&*ledger).await;
        let (first, others) = leases.split_at(1);
        let before = tally.counts().waves;
        cluster.pause(0);
        let first_read = read_all(&ledger, first);
        within("the first wave", tally.until(|counts| counts.waves > before)).await;
        let read = |&lease: &NonZeroU128| {
            Box::pin(ledger.query_transfers(TransferQuery::new(lease).rows_max(2)))
        };
        let mut reads: Vec<_> = others.iter().map(read).collect();
        for read in &mut reads {
            tokio::select! {
                biased;
                _ = read => panic!("a stopped server does not answer"),
                () = std::future::ready(()) => {}
            }
        }
        cluster.resume(0);
        are_found(first_read, first).await;
        for (rows, lease) in within("the rows", join_all(reads)).await.into_iter().zip(others) {
            let rows = rows.unwrap();
            assert_eq!((rows.len(), rows[0].user_data.data_128), (1, lease.get()));
        }
        // After a pause on a busy machine, a query is sent alone before the next wave.
        let waves = tally.counts().waves - before;
        let waves_max = 2 * (1 + others.len().div_ceil(WAVE_QUERIES_MAX));
        assert!(waves <= waves_max, "{waves} waves of {WAVE_QUERIES_MAX} for {LEASES} queries");
        ledger.close().await;
    });
}

pub fn tb_23_writes_do_not_queue_behind_reads(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let tally = Tally::default();
        let ledger = Arc::new(open(without_keep_alives(&cluster), tally.clone()).await);
        let leases = leases(&*ledger).await;
        let (operator, accounts) = limits(&*ledger, 1, 10).await;
        let before = tally.counts();
        cluster.pause(0);
        let reads = read_all(&ledger, &leases);
        within("a wave", tally.until(|counts| counts.waves > before.waves)).await;
        let writer = Arc::clone(&ledger);
        let item = WorkItem::new().with(pending(accounts[0], operator, 1, 0));
        let write = tokio::spawn(async move { writer.create_transfers(item).await });
        within("the write", tally.until(|counts| counts.requests > before.requests)).await;
        assert_eq!(tally.counts().waves_answered, before.waves_answered, "the wave is in flight");
        cluster.resume(0);
        write.await.unwrap().unwrap();
        are_found(reads, &leases).await;
        ledger.close().await;
    });
}

/// TB-09, TB-23
pub fn tb_23_a_full_queue_of_reads_answers_at_once(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let tally = Tally::default();
        let config = without_keep_alives(&cluster).with_queue_reads_max(2);
        let ledger = Arc::new(open(config, tally.clone()).await);
        let lease = NonZeroU128::MIN;
        let before = tally.counts().waves;
        cluster.pause(0);
        let in_flight = read_all(&ledger, &[lease]);
        within("the wave", tally.until(|counts| counts.waves > before)).await;
        let mut queued =
            [(); 2].map(|()| Box::pin(ledger.query_transfers(TransferQuery::new(lease))));
        for read in &mut queued {
            tokio::select! {
                biased;
                _ = read => panic!("a stopped server does not answer"),
                () = std::future::ready(()) => {}
            }
        }
        let full = LedgerError::QueueFull { queued_events: 2, queue_events_max: 2 };
        let refused = within("a refusal", ledger.query_transfers(TransferQuery::new(lease))).await;
        assert_eq!(refused, Err(full));
        cluster.resume(0);
        for rows in in_flight.join_all().await.into_iter().chain(join_all(queued).await) {
            assert_eq!(rows, Ok(Vec::new()));
        }
        ledger.close().await;
    });
}
