//! `TB-10`: deadlines are enforced; unanswered requests count at most once.

use std::sync::Arc;

use ratelimiter_tigerbeetle::ledger::{Ledger, LedgerError, SessionProblem, WorkItem};
use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use testkit::within;

use crate::load::Load;
use crate::setup::{NEVER, config, limits, open, pending, run};
use crate::tally::{Counts, Tally};

const CALLERS: usize = 64;
const REQUEST_TIMEOUT_MS: u64 = 400;

pub fn tb_10_a_stopped_server_under_load_fails_callers_in_time_and_counts_once(_: &Fixture) {
    outage_under_load(|cluster| cluster.pause(0), |cluster| cluster.resume(0));
}

pub fn tb_10_a_killed_server_under_load_fails_callers_in_time_and_counts_once(_: &Fixture) {
    outage_under_load(|cluster| cluster.kill(0), |cluster| cluster.restart(0));
}

fn outage_under_load(begin: fn(&mut TestCluster), end: fn(&mut TestCluster)) {
    run(async {
        let mut cluster = TestCluster::start(Mode::Development);
        let mut settings = cluster.settings();
        settings.request_timeout_ms = REQUEST_TIMEOUT_MS;
        let tally = Tally::default();
        let ledger = Arc::new(open(config(&settings), tally.clone()).await);
        let load = Load::start(&ledger, CALLERS).await;
        within("progress", load.progress(2_000)).await;

        begin(&mut cluster);
        let every_caller = |c: &Counts| c.failures.values().sum::<usize>() >= CALLERS;
        within("the errors", tally.until(every_caller)).await;
        let no_answer = |c: &Counts| c.failures.contains_key("no_answer");
        within("an unknown outcome", tally.until(no_answer)).await;
        let is_reported =
            |_: &Counts| matches!(ledger.health(), Err(SessionProblem::NoAnswer { .. }));
        within("the session's report", tally.until(is_reported)).await;

        end(&mut cluster);
        within("the session", ledger.ready()).await;
        within("progress", load.progress(2_000)).await;
        let done = load.finish(&*ledger).await;
        eprintln!("{done} leases, {:?}", tally.counts().failures);
        ledger.close().await;
    });
}

pub fn tb_10_a_dropped_caller_does_not_cancel(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let tally = Tally::default();
        let ledger =
            open(config(&cluster.settings()).with_keep_alive_interval(NEVER), tally.clone()).await;
        let (operator, accounts) = limits(&ledger, 1, 10).await;
        let sent_before = tally.counts().requests;
        cluster.pause(0);
        let in_flight = pending(accounts[0], operator, 1, 0);
        let queued = pending(accounts[0], operator, 2, 0);
        {
            let mut first =
                std::pin::pin!(ledger.create_transfers(WorkItem::new().with(in_flight)));
            let mut second = std::pin::pin!(ledger.create_transfers(WorkItem::new().with(queued)));
            tokio::select! {
                biased;
                _ = &mut first => panic!("a stopped server does not answer"),
                () = within("the request", tally.until(|c| c.requests > sent_before)) => {}
            }
            tokio::select! {
                biased;
                _ = &mut second => panic!("a stopped server does not answer"),
                () = std::future::ready(()) => {}
            }
        }
        cluster.resume(0);
        within("both", tally.until(|counts| counts.requests > sent_before + 1)).await;
        let rows = ledger.lookup_transfers(vec![in_flight.id, queued.id]).await.unwrap();
        assert_eq!(rows.len(), 2, "no caller waited for them");
        ledger.close().await;
    });
}

pub fn tb_09_a_full_queue_answers_at_once(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let mut settings = cluster.settings();
        settings.max_batch_events = 2;
        settings.request_timeout_ms = 30_000;
        let tally = Tally::default();
        let config = config(&settings).with_queue_events_max(4).with_keep_alive_interval(NEVER);
        let ledger = Arc::new(open(config, tally.clone()).await);
        let (operator, accounts) = limits(&*ledger, 1, 100).await;
        let sent_before = tally.counts().requests;
        let limit = accounts[0];
        let call = || {
            let ledger = Arc::clone(&ledger);
            let pair = [pending(limit, operator, 1, 0), pending(limit, operator, 1, 0)];
            async move { ledger.create_transfers(WorkItem::new().with_chain(pair)).await }
        };
        cluster.pause(0);
        let in_flight = tokio::spawn(call());
        within("the request", tally.until(|counts| counts.requests > sent_before)).await;
        let mut queued = [Box::pin(call()), Box::pin(call())];
        for call in &mut queued {
            tokio::select! {
                biased;
                _ = call => panic!("a stopped server does not answer"),
                () = std::future::ready(()) => {}
            }
        }
        let full = LedgerError::QueueFull { queued_events: 4, queue_events_max: 4 };
        assert_eq!(within("a refusal", call()).await, Err(full));
        cluster.resume(0);
        assert_eq!(in_flight.await.unwrap().unwrap().len(), 2);
        for call in queued {
            assert_eq!(call.await.unwrap().len(), 2);
        }
        ledger.close().await;
    });
}
