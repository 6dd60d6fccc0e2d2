//! `TB-13`: the server's request size is learned, chains stay whole.

use std::sync::Arc;

use ratelimiter_tigerbeetle::ledger::cluster::MAX_BATCH_EVENTS_MAX;
use ratelimiter_tigerbeetle::ledger::{
    AccountId, ItemTooLarge, Ledger, LedgerError, TransferStatus, WorkItem,
};
use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use tokio::task::JoinSet;

use crate::load::CHAIN;
use crate::setup::{config, limits, open, pending, run};
use crate::tally::Tally;

/// Request size of a development server.
const EVENTS_MAX: usize = 253;

pub fn tb_13_the_limit_of_the_server_is_learned_and_no_chain_is_split(fixture: &Fixture) {
    run(async {
        let tally = Tally::default();
        let settings = fixture.development().settings();
        let ledger = Arc::new(open(config(&settings), tally.clone()).await);
        let (operator, accounts) = limits(&*ledger, CHAIN, 1_000_000).await;

        for _ in 0..3 {
            let mut callers = JoinSet::new();
            for _ in 0..2_000 {
                let (ledger, accounts) = (Arc::clone(&ledger), accounts.clone());
                callers.spawn(async move {
                    let chain = accounts.iter().map(|&limit| pending(limit, operator, 1, 0));
                    let item = WorkItem::new().with_chain(chain);
                    let results = ledger.create_transfers(item).await.unwrap();
                    for result in results {
                        assert_eq!(result.status, TransferStatus::Created);
                    }
                });
            }
            while let Some(caller) = callers.join_next().await {
                caller.unwrap();
            }
        }

        let counts = tally.counts();
        assert!(counts.refused_batches > 0, "8 000 events were tried");
        assert!(counts.refused_batches < 20, "the limit is learned: {counts:?}");
        let whole_chains = EVENTS_MAX / CHAIN * CHAIN;
        assert_eq!(counts.answered_events_max, whole_chains);
        ledger.close().await;
    });
}

pub fn tb_13_an_item_that_fits_no_request_is_refused_and_its_neighbours_are_not(fixture: &Fixture) {
    run(async {
        let settings = fixture.development().settings();
        let ledger = open(config(&settings), Tally::default()).await;
        let (operator, accounts) = limits(&ledger, 1, 1_000_000).await;
        let chain = |events: usize| chain(accounts[0], operator, events);

        let (too_large, exact, small) = tokio::join!(
            ledger.create_transfers(chain(EVENTS_MAX + 1)),
            ledger.create_transfers(chain(EVENTS_MAX)),
            ledger.create_transfers(chain(1)),
        );
        let refused = ItemTooLarge { events: EVENTS_MAX + 1, refused_events: EVENTS_MAX + 1 };
        assert_eq!(too_large, Err(LedgerError::ItemTooLarge(refused)));
        assert_eq!(exact.unwrap().len(), EVENTS_MAX);
        assert_eq!(small.unwrap().len(), 1);

        let beyond_the_setting = ledger.create_transfers(chain(8_001)).await;
        let refused = ItemTooLarge { events: 8_001, refused_events: 8_001 };
        assert_eq!(beyond_the_setting, Err(LedgerError::ItemTooLarge(refused)));
        let row = ledger.lookup_accounts(accounts.clone()).await.unwrap()[0];
        assert_eq!(row.balances.debits_pending, EVENTS_MAX as u128 + 1);
        ledger.close().await;
    });
}

pub fn tb_13_a_production_server_takes_8189_events(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Production);
        let mut settings = cluster.settings();
        settings.max_batch_events = MAX_BATCH_EVENTS_MAX;
        let tally = Tally::default();
        let ledger = open(config(&settings), tally.clone()).await;
        let (operator, accounts) = limits(&ledger, 1, 1_000_000).await;
        let events = MAX_BATCH_EVENTS_MAX as usize;
        let results = ledger.create_transfers(chain(accounts[0], operator, events)).await.unwrap();
        assert!(results.iter().all(|result| result.status == TransferStatus::Created));
        assert_eq!(tally.counts().answered_events_max, events);
        assert_eq!(tally.counts().refused_batches, 0);
        ledger.close().await;
    });
}

fn chain(limit: AccountId, operator: AccountId, events: usize) -> WorkItem {
    WorkItem::new().with_chain((0..events).map(|_| pending(limit, operator, 1, 0)))
}
