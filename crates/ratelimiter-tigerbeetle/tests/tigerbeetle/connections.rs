//! `TB-12`: session problems are reported, and sessions recover.

use ratelimiter_tigerbeetle::ledger::cluster::{ClusterLedger, NoObserver};
use ratelimiter_tigerbeetle::ledger::{AccountId, Ledger, LedgerError, SessionProblem};
use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use testkit::within;
use tigerbeetle as tb;

use crate::setup::{config, open, run};

/// Connection limit of a development server.
const CONNECTIONS_MAX: usize = 8;

fn some_account() -> Vec<AccountId> {
    vec![AccountId::nearest(1)]
}

pub fn tb_12_a_host_name_is_resolved(fixture: &Fixture) {
    run(async {
        let mut settings = fixture.development().settings();
        let address = settings.addresses[0].replace("127.0.0.1", "localhost");
        settings.addresses = vec![address];
        let ledger = open(config(&settings), NoObserver).await;
        ledger.lookup_accounts(some_account()).await.unwrap();
        ledger.close().await;
    });
}

pub fn tb_12_a_wrong_cluster_id_is_reported_within_the_timeout(fixture: &Fixture) {
    run(async {
        let mut settings = fixture.development().settings();
        settings.cluster_id += 1;
        settings.request_timeout_ms = 2_000;
        let ledger = ClusterLedger::open(config(&settings), NoObserver).unwrap();
        let report = async {
            loop {
                match ledger.lookup_accounts(some_account()).await {
                    // A busy machine takes longer to find out why.
                    Err(LedgerError::NoSession(SessionProblem::Opening)) => {}
                    Err(LedgerError::NoSession(problem)) => return problem,
                    other => panic!("{other:?}"),
                }
            }
        };
        let is_reported = |problem: SessionProblem| {
            assert!(problem.to_string().contains("the cluster ID is wrong"), "{problem}");
        };
        is_reported(within("a report", report).await);
        is_reported(ledger.warm_up().await.unwrap_err());
        is_reported(ledger.health().unwrap_err());
        within("the close", ledger.close()).await;
    });
}

pub fn tb_12_too_many_connections_are_reported(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let mut others = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let client = tb::Client::new(cluster.cluster_id(), &cluster.addresses()[0]).unwrap();
            within("a connection", client.lookup_accounts(&[1])).await.unwrap();
            others.push(client);
        }

        let ledger = ClusterLedger::open(config(&cluster.settings()), NoObserver).unwrap();
        let problem = within("a report", ledger.warm_up()).await.unwrap_err();
        assert!(matches!(problem, SessionProblem::NotRegistered { .. }), "{problem}");
        assert!(problem.to_string().contains("no connection free"), "{problem}");

        // One for writes, and one for queries.
        for _ in 0..2 {
            others.pop().unwrap().close().await.unwrap();
        }
        within("the sessions", ledger.ready()).await;
        ledger.lookup_accounts(some_account()).await.unwrap();
        ledger.close().await;
    });
}

pub fn tb_12_a_cluster_that_comes_later_is_found(_: &Fixture) {
    run(async {
        let mut cluster = TestCluster::start(Mode::Development);
        cluster.kill(0);
        let ledger = ClusterLedger::open(config(&cluster.settings()), NoObserver).unwrap();
        let problem = within("a report", ledger.warm_up()).await.unwrap_err();
        assert!(problem.to_string().contains("the server is down"), "{problem}");

        cluster.restart(0);
        within("the session", ledger.ready()).await;
        assert_eq!(ledger.warm_up().await, Ok(()));
        ledger.lookup_accounts(some_account()).await.unwrap();
        ledger.close().await;
    });
}
