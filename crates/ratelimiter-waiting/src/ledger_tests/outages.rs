//! Waiting while the cluster does not answer, or answers late.

use super::*;
use crate::unread::given_up;

/// A lease that waits at the first of two servers when an attempt of it is lost in this way.
async fn lost_attempt(lost: Lost, wait: Duration) -> (Cluster, Arc<Server>, JoinHandle<Answered>) {
    let cluster = Cluster::new();
    let limits = [("slots", 1), ("extra", 9)];
    let (first, second) = (cluster.server(&limits).await, cluster.server(&limits).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1), ("extra", 1)], Some(wait));
    let asked = first.ask(&request);
    pass(20 * ROUND_TRIP).await;
    assert_eq!(first.waiting.count(), 1);
    let completed = cluster.begin_to_complete(&second, held).await;
    cluster.lose(lost);
    completed.await.unwrap();
    pass(SECOND / 2).await;
    (cluster, first, asked)
}

/// WAIT-04, TB-17: an attempt arrives after its caller has gone away, or was told that there is no answer.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_late_attempt_leaves_nothing_behind() {
    for goes_away in [false, true] {
        let (cluster, server, asked) = lost_attempt(Lost::LateWrite, 3 * SECOND).await;
        assert!(cluster.ledger.late.lock().unwrap().is_some());
        if goes_away {
            asked.abort();
            pass(8 * SECOND).await;
        } else {
            let told = asked.await.unwrap();
            assert!(matches!(told, Err(ReserveError::Unanswered(_))), "{told:?}");
        }
        assert_eq!(server.waiting.count(), 0);
        cluster.heal().await;
        assert_eq!(server.used("slots").await, 1, "it is admitted for nobody");
        pass(30 * SECOND).await;
        assert_eq!(server.used("slots").await, 0, "goes away: {goes_away}");
        assert!(!server.waiting.waiters.any());
    }
}

/// WAIT-04, TB-17: giving up is tried until there is an answer, and so is returning a lease, whichever of
/// the two the cluster does not answer.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_lease_for_nobody_is_returned_when_the_cluster_answers_again() {
    for is_answered in [false, true] {
        let cluster = Cluster::new();
        let limits = [("slots", 1)];
        let (first, second) = (cluster.server(&limits).await, cluster.server(&limits).await);
        let held = cluster.take(&second, "slots", 1).await;
        let request = cluster.request(&limits, Some(60 * SECOND));
        let asked = first.wait(&request).await;
        let attempted = cluster.ledger.attempted.notified();
        let completed = cluster.begin_to_complete(&second, held).await;
        cluster.lose(if is_answered { Lost::None } else { Lost::Writes });
        attempted.await;
        asked.abort();
        cluster.lose(Lost::LateWrite);
        completed.await.unwrap();
        pass(20 * SECOND).await;
        assert_eq!(first.used("slots").await, 1);
        let repeat = first.waiting.reserve(&request).await;
        assert_eq!(repeat, Err(given_up().into()));
        cluster.lose(Lost::None);
        cluster.ledger.late.lock().unwrap().take();
        pass(10 * SECOND).await;
        assert_eq!(first.used("slots").await, 0, "answered: {is_answered}");
        assert!(!first.waiting.waiters.any());
    }
}

/// WAIT-01, TB-17: a limit is deleted while an attempt has no answer. If it was executed, the caller has
/// its lease; otherwise it is refused, and the attempt comes too late.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_a_refusal_closes_the_gate_behind_an_attempt_without_an_answer() {
    for lost in [Lost::Writes, Lost::LateWrite] {
        let (cluster, server, asked) = lost_attempt(lost, 20 * SECOND).await;
        server.limiter.delete(&key("extra")).await.unwrap();
        pass(2 * SECOND).await;
        cluster.lose(Lost::None);
        let answer = asked.await.unwrap();
        if lost == Lost::Writes {
            assert!(answer.unwrap().0.is_allowed());
        } else {
            assert_eq!(answer, Err(ReserveError::UnknownKey { key: key("extra") }));
        }
        cluster.heal().await;
        pass(30 * SECOND).await;
        assert_eq!(server.used("slots").await, u64::from(lost == Lost::Writes));
    }
}

/// WAIT-01, TB-10, TB-17: the time of two callers is over while the cluster does not answer, or only reads.
/// Each is told so by the time that one request may take, and is not denied for what was the case before.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_whose_time_is_over_in_an_outage_is_told_so() {
    for lost in [Lost::All, Lost::LateWrite] {
        for wait_ms in (3_000..6_000).step_by(100) {
            end_two_waits(lost, Duration::from_millis(wait_ms)).await;
        }
    }
}

async fn end_two_waits(lost: Lost, shorter: Duration) {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let longer = shorter + 3 * SECOND;
    let long = cluster.request(&[("slots", 1)], Some(longer));
    let short = ReserveRequest { wait: Some(Wait::new(shorter, "").unwrap()), ..long.clone() };
    let started_at = cluster.clock.now();
    let (long, short) = (first.ask(&long), first.ask(&short));
    pass(20 * ROUND_TRIP).await;
    let completed = cluster.begin_to_complete(&second, held).await;
    cluster.lose(lost);
    completed.await.unwrap();
    for (asked, wait) in [(short, shorter), (long, longer)] {
        let answer = asked.await.unwrap();
        assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{wait:?}: {answer:?}");
        let waited = cluster.clock.now().since(started_at);
        let waited_max = wait + NO_ANSWER_AFTER + 5 * ROUND_TRIP;
        assert!(waited >= wait && waited <= waited_max, "{wait:?}: {waited:?}");
    }
    cluster.heal().await;
    pass(30 * SECOND).await;
    assert_eq!(first.used("slots").await, 0, "{shorter:?}");
}

/// WAIT-04, TB-17: the driver panics while an attempt has no answer.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_driver_that_panicked_leaves_no_lease_behind() {
    let (cluster, server, asked) = lost_attempt(Lost::Writes, 60 * SECOND).await;
    // The driver panics when it gets the answer for a waiter that it does not know.
    server.waiting.waiters.abandon_all();
    assert_eq!(asked.await.unwrap(), Err(interrupted().into()));
    assert_eq!(server.used("slots").await, 1, "it was admitted for nobody");
    cluster.lose(Lost::None);
    pass(30 * SECOND).await;
    assert_eq!(server.used("slots").await, 0);
    assert!(!server.waiting.waiters.any());
}

/// WAIT-01: the time counts from the request, however long its first attempt takes.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_the_first_attempt_counts_as_waiting() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 1)]).await;
    cluster.take(&server, "slots", 1).await;
    *cluster.ledger.round_trip.lock().unwrap() = SECOND / 2;
    let request = cluster.request(&[("slots", 1)], Some(SECOND));
    let (decision, waited) = server.waiting.reserve(&request).await.unwrap();
    assert!(!decision.is_allowed());
    // The first attempt, a look, and giving up.
    assert!(waited.unwrap() <= SECOND * 3 / 2 + 5 * ROUND_TRIP, "{waited:?}");
}

/// WAIT-05, TB-10: in an outage one waiter at a time asks.
#[tokio::test(start_paused = true)]
async fn wait_05_tb_17_waiters_do_not_ask_all_at_once_in_an_outage() {
    let cluster = Cluster::new();
    let names: Vec<String> = (0..20).map(|number| format!("slots:{number}")).collect();
    let limits: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let server = cluster.server(&limits).await;
    let mut held = Vec::new();
    for name in &names {
        held.push(cluster.take(&server, name, 1).await);
    }
    let mut asked = Vec::new();
    for name in &names {
        let request = cluster.request(&[(name, 1)], Some(60 * SECOND));
        asked.push(server.wait(&request).await);
    }
    cluster.lose(Lost::All);
    let changed = Arc::clone(&server.waiting.waiters.limits_changed);
    changed.notify_one();
    pass(2 * SECOND).await;
    let before = cluster.ledger.looks.load(Ordering::SeqCst);
    pass(10 * SECOND).await;
    let looks = cluster.ledger.looks.load(Ordering::SeqCst) - before;
    assert!(looks <= 30, "{looks} looks in ten seconds");
    assert!(asked.iter().all(|asked| !asked.is_finished()));
    cluster.lose(Lost::None);
    for held in held {
        server.complete(held).await;
    }
    for asked in asked {
        assert!(asked.await.unwrap().0.is_allowed());
    }
}

/// TB-17: only an attempt that was sent may be admitted.
#[tokio::test(start_paused = true)]
async fn tb_17_an_attempt_that_was_not_sent_leaves_no_mark() {
    for (lost, may_be_admitted) in [(Lost::NotSent, false), (Lost::Writes, true)] {
        let cluster = Cluster::new();
        let server = cluster.server(&[("slots", 1)]).await;
        let held = cluster.take(&server, "slots", 1).await;
        let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
        let first = Turn { attempt: Some(0), ..Turn::default() };
        let denied = server.limiter.reserve_in_turn(&request, first).await.unwrap();
        assert!(denied.ask_again_after.is_some());
        server.complete(held).await;
        cluster.lose(lost);
        let again = Turn { attempt: Some(1), ..Turn::default() };
        assert!(server.limiter.reserve_in_turn(&request, again).await.is_err());
        assert_eq!(server.limiter.may_be_admitted(request.lease), may_be_admitted);
    }
}

/// WAIT-01, TB-17: on a cluster where no limit ever was, only a template that is paused.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_a_paused_template_on_a_new_cluster_is_waited_for() {
    let cluster = Cluster::new();
    let server = cluster.server(&[]).await;
    let kind = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(600).unwrap() };
    server.limiter.define(limit("tenant:*:slots", kind, 0)).await.unwrap();
    let request = cluster.request(&[("tenant:a:slots", 1)], Some(SECOND));
    for _ in 0..2 {
        let Decision::Denied(denial) = server.reserve(&request).await else {
            panic!("it has room")
        };
        assert_eq!(denial.keys(), [key("tenant:a:slots")]);
    }
}

/// WAIT-04, TB-17: a part of a lease that was admitted without an answer expires in the outage.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_what_is_left_of_a_lease_for_nobody_is_returned() {
    let cluster = Cluster::new();
    let servers = [cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await];
    let rolling = LimitKind::Rolling { window: Window::from_seconds(2).unwrap() };
    for server in &servers {
        server.limiter.define(limit("short", rolling, 5)).await.unwrap();
    }
    let [first, second] = servers;
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1), ("short", 1)], Some(60 * SECOND));
    let asked = first.ask(&request);
    pass(20 * ROUND_TRIP).await;
    let completed = cluster.begin_to_complete(&second, held).await;
    cluster.lose(Lost::Writes);
    completed.await.unwrap();
    pass(SECOND / 2).await;
    cluster.lose(Lost::All);
    pass(5 * SECOND).await;
    assert_eq!(cluster.ledger.pending("slots").await, 1, "it was admitted");
    cluster.lose(Lost::None);
    assert_eq!(asked.await.unwrap(), Err(ReserveError::LeaseEnded));
    pass(SECOND).await;
    assert_eq!(first.used("slots").await, 0);
}

/// WAIT-01, TB-17: an outage in which others waited says nothing about a request that comes after it.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_who_comes_after_an_outage_is_denied() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 1)]).await;
    cluster.take(&server, "slots", 1).await;
    let asked = server.wait(&cluster.request(&[("slots", 1)], Some(60 * SECOND))).await;
    cluster.lose(Lost::All);
    pass(3 * SECOND).await;
    asked.abort();
    pass(2 * SECOND).await;
    cluster.lose(Lost::None);
    pass(10 * SECOND).await;
    let short = cluster.request(&[("slots", 1)], Some(ROUND_TRIP));
    assert!(!server.reserve(&short).await.is_allowed());
}
