//! `TB-09`: batches without needless waiting. `TB-04`: any session finds a lease.

use std::num::NonZeroU128;
use std::sync::Arc;

use ratelimiter_tigerbeetle::ledger::cluster::{FLUSH_INTERVAL_MICROS_MAX, NoObserver};
use ratelimiter_tigerbeetle::ledger::{
    Ledger, Transfer, TransferQuery, TransferStatus, UserData, WorkItem,
};
use testkit::tigerbeetle::Fixture;
use testkit::within;
use tokio::task::JoinSet;

use crate::load::CHAIN;
use crate::setup::{config, limits, open, pending, run};
use crate::tally::Tally;

pub fn tb_04_another_session_finds_a_lease_that_it_did_not_make(fixture: &Fixture) {
    run(async {
        let settings = fixture.development().settings();
        let maker = open(config(&settings), NoObserver).await;
        let (operator, accounts) = limits(&maker, CHAIN, 10).await;
        let lease = NonZeroU128::new(fastrand::u128(1..)).unwrap();
        let user_data = UserData { data_128: lease.get(), ..UserData::default() };
        let of_lease = |transfer| Transfer { user_data, ..transfer };
        let chain = accounts.iter().map(|&limit| of_lease(pending(limit, operator, 3, 60)));
        let results = maker.create_transfers(WorkItem::new().with_chain(chain)).await.unwrap();
        maker.close().await;

        let finder = open(config(&settings), NoObserver).await;
        let rows = finder.query_transfers(TransferQuery::new(lease)).await.unwrap();
        let found: Vec<_> = rows.iter().map(|row| (row.debit, row.amount, row.timestamp)).collect();
        let made: Vec<_> = accounts
            .iter()
            .zip(&results)
            .map(|(&limit, result)| (limit, 3, result.timestamp))
            .collect();
        assert_eq!(found, made);
        finder.close().await;
    });
}

pub fn tb_09_batches_grow_by_themselves_while_the_session_is_busy(fixture: &Fixture) {
    const CALLERS: usize = 256;
    const LEASES_EACH: usize = 10;
    run(async {
        let tally = Tally::default();
        let settings = fixture.development().settings();
        let ledger = Arc::new(open(config(&settings), tally.clone()).await);
        let (operator, accounts) = limits(&*ledger, CHAIN, 1_000_000).await;
        let before = tally.counts();

        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (ledger, accounts) = (Arc::clone(&ledger), accounts.clone());
            callers.spawn(async move {
                for _ in 0..LEASES_EACH {
                    let chain = accounts.iter().map(|&limit| pending(limit, operator, 1, 0));
                    let item = WorkItem::new().with_chain(chain);
                    let results = ledger.create_transfers(item).await.unwrap();
                    let first = results[0].timestamp.unix_nanos();
                    for (result, at) in results.iter().zip(first..) {
                        assert_eq!(result.status, TransferStatus::Created);
                        assert_eq!(result.timestamp.unix_nanos(), at, "one request, in order");
                    }
                }
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }

        let after = tally.counts();
        let (items, requests) = (after.items - before.items, after.requests - before.requests);
        assert!(items >= CALLERS * LEASES_EACH);
        // A development server accepts 63 chains of four in a request.
        assert!(items >= 16 * requests, "{items} items in {requests} requests");
        assert_eq!(after.sessions_busy_max, 1, "one call in flight");
        ledger.close().await;
    });
}

pub fn tb_09_a_lonely_caller_is_not_kept_waiting(fixture: &Fixture) {
    run(async {
        let mut settings = fixture.development().settings();
        // It would be a second per request if any caller lingered.
        settings.flush_interval_micros = FLUSH_INTERVAL_MICROS_MAX;
        let ledger = open(config(&settings), NoObserver).await;
        let (operator, accounts) = limits(&ledger, 1, 1_000_000).await;
        within("three hundred requests of one caller", async {
            for _ in 0..300 {
                let item = WorkItem::new().with(pending(accounts[0], operator, 1, 0));
                ledger.create_transfers(item).await.unwrap();
            }
        })
        .await;
        ledger.close().await;
    });
}
