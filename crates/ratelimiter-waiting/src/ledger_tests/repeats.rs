//! Repeats of leases whose callers have gone away, and leases with other requirements.

use super::*;
use crate::unread::given_up;

/// Two servers with one slot, and a lease whose attempt at the first was admitted and not answered, and
/// whose only caller has gone away.
async fn admitted_for_nobody() -> (Cluster, [Arc<Server>; 2], ReserveRequest) {
    let cluster = Cluster::new();
    let servers = [cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await];
    let held = cluster.take(&servers[1], "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = servers[0].wait(&request).await;
    let attempted = cluster.ledger.attempted.notified();
    let completed = cluster.begin_to_complete(&servers[1], held).await;
    cluster.lose(Lost::Writes);
    attempted.await;
    cluster.lose(Lost::None);
    asked.abort();
    assert!(asked.await.is_err());
    completed.await.unwrap();
    (cluster, servers, request)
}

/// The times after an admission at which a request is repeated: before the server learns of it, while it
/// returns the lease, and after that.
fn delays() -> impl Iterator<Item = Duration> {
    [0, 1, 500].into_iter().chain(990..1_012).map(Duration::from_millis)
}

/// WAIT-04, TB-17: whoever was told that a lease is allowed has it.
async fn check_repeats(at: usize) -> Vec<Answered> {
    let mut answers = Vec::new();
    for delay in delays() {
        for wait in [false, true] {
            let (cluster, servers, request) = admitted_for_nobody().await;
            pass(delay).await;
            let wait = request.wait.clone().filter(|_| wait);
            let repeat = ReserveRequest { wait, ..request };
            let answer = servers[at].waiting.reserve(&repeat).await;
            pass(30 * SECOND).await;
            let is_allowed = answer.as_ref().is_ok_and(|(decision, _)| decision.is_allowed());
            let used = servers[0].used("slots").await;
            assert_eq!(used, u64::from(is_allowed), "after {delay:?}: {answer:?}");
            let another = cluster.request(&[("slots", 1)], None);
            assert_eq!(servers[1].reserve(&another).await.is_allowed(), !is_allowed);
            assert!(servers.iter().all(|server| !server.waiting.waiters.any()));
            answers.push(answer);
        }
    }
    answers
}

/// WAIT-04, TB-17
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_lease_that_a_repeat_elsewhere_was_told_of_is_not_returned() {
    let answers = check_repeats(1).await;
    let is_allowed =
        |answer: &&Answered| answer.as_ref().is_ok_and(|(decision, _)| decision.is_allowed());
    assert!(answers.iter().any(|answer| is_allowed(&answer)), "{answers:?}");
    assert!(answers.contains(&Err(ReserveError::LeaseEnded)), "{answers:?}");
}

/// WAIT-04, TB-17
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_lease_that_a_repeat_here_was_told_of_is_not_returned() {
    let answers = check_repeats(0).await;
    let is_given_up = |answer: &Answered| matches!(answer, Err(ReserveError::Unanswered(_)));
    assert!(answers.iter().any(is_given_up), "{answers:?}");
    assert!(answers.contains(&Err(ReserveError::LeaseEnded)), "{answers:?}");
}

/// WAIT-04, TB-17, TB-18: whoever was told that a lease is renewed has it.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_18_a_lease_that_somebody_renews_is_not_returned() {
    for at in [0, 1] {
        let mut answers = Vec::new();
        for delay in delays() {
            let (cluster, servers, request) = admitted_for_nobody().await;
            pass(delay).await;
            let renewed = servers[at].renew(request.lease, 1, &[]).await;
            pass(30 * SECOND).await;
            let is_renewed = renewed.as_ref().is_ok_and(Renewal::is_renewed);
            let used = servers[0].used("slots").await;
            assert_eq!(used, u64::from(is_renewed), "after {delay:?}: {renewed:?}");
            let another = cluster.request(&[("slots", 1)], None);
            assert_eq!(servers[1].reserve(&another).await.is_allowed(), !is_renewed);
            assert!(servers.iter().all(|server| !server.waiting.waiters.any()));
            answers.push(renewed);
        }
        assert!(answers.iter().any(Result::is_ok), "{answers:?}");
        assert!(answers.contains(&Err(RenewError::LeaseEnded)), "{answers:?}");
        let is_given_up = answers.contains(&Err(given_up().into()));
        assert_eq!(is_given_up, at == 0, "at the server that returns it: {answers:?}");
    }
}

/// WAIT-04, TB-17: the driver gives up for a lease of which an attempt was admitted, and the client
/// repeats its request meanwhile.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_no_repeat_is_answered_while_a_lease_is_given_up() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 1)]).await;
    cluster.take(&server, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = server.wait(&request).await;
    let gate_created = cluster.ledger.gate_created.notified();
    asked.abort();
    gate_created.await;
    let repeat = server.waiting.reserve(&request).await;
    assert_eq!(repeat, Err(given_up().into()));
    pass(5 * ROUND_TRIP).await;
    assert!(!server.reserve(&request).await.is_allowed(), "RES-05");
    assert!(!server.waiting.waiters.any());
}

/// How somebody else than the caller of a batch shows that it was told of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Nobody,
    /// Repeats the request.
    Repeats,
    /// Renews the lease, at this server.
    Renews(usize),
}

/// WAIT-04, TB-17, TB-18: a batch goes away whose first item was admitted, whatever the clocks say, and unless
/// a repeat or renew of that item was answered.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_batch_that_goes_away_returns_what_it_got_and_nobody_else_has() {
    for (skew_ms, told) in [
        (0, Told::Nobody),
        (5, Told::Nobody),
        (0, Told::Repeats),
        (0, Told::Renews(0)),
        (0, Told::Renews(1)),
    ] {
        let cluster = Cluster::new();
        let second = cluster.server(&[("slots", 1), ("free", 1)]).await;
        cluster.take(&second, "slots", 1).await;
        let ahead = cluster.with_clock_ahead_by(Duration::from_millis(skew_ms));
        let first = ahead.server(&[("slots", 1), ("free", 1)]).await;
        let batch = [
            ahead.request(&[("free", 1)], None),
            ahead.request(&[("slots", 1)], Some(60 * SECOND)),
        ];
        let (server, sent) = (Arc::clone(&first), batch.clone());
        let asked = tokio::spawn(async move { server.waiting.reserve_batch(&sent).await.len() });
        pass(SECOND).await;
        assert_eq!(first.used("free").await, 1);
        match told {
            Told::Nobody => {}
            Told::Repeats => assert!(second.reserve(&batch[0]).await.is_allowed()),
            Told::Renews(at) => {
                let renewed = [&first, &second][at].renew(batch[0].lease, 1, &[]).await;
                assert!(renewed.unwrap().is_renewed());
            }
        }
        asked.abort();
        pass(SECOND).await;
        let is_kept = told != Told::Nobody;
        assert_eq!(first.used("free").await, u64::from(is_kept), "{skew_ms} ms, {told:?}");
    }
}

/// WAIT-04, TB-17: a repeat that comes while the first request is asked for the first time joins its wait.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_repeat_during_the_first_attempt_joins_the_wait() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 1)]).await;
    let held = cluster.take(&server, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let (first, second) = (server.ask(&request), server.ask(&request));
    let without = ReserveRequest { wait: None, ..request.clone() };
    tokio::task::yield_now().await;
    assert!(!server.reserve(&without).await.is_allowed());
    pass(SECOND).await;
    assert!(!first.is_finished() && !second.is_finished());
    assert_eq!(server.waiting.count(), 1);
    server.complete(held).await;
    let (first, second) = (first.await.unwrap().unwrap().0, second.await.unwrap().unwrap().0);
    assert!(first.is_allowed() && first == second, "{first:?} {second:?}");
    assert_eq!(server.used("slots").await, 1);
}

/// RES-04, TB-17: another server has admitted the lease with other requirements.
#[tokio::test(start_paused = true)]
async fn res_04_tb_17_a_lease_that_waits_is_not_admitted_beside_another_with_its_id() {
    let cluster = Cluster::new();
    let limits = [("slots", 1), ("other", 1)];
    let (first, second) = (cluster.server(&limits).await, cluster.server(&limits).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.ask(&request);
    pass(20 * ROUND_TRIP).await;
    let needs = Requirements::of([(key("other"), 1)]).unwrap();
    let other = ReserveRequest::new(request.lease, needs);
    let decision = second.reserve(&other).await;
    assert!(decision.is_allowed());
    second.complete(held).await;
    assert_eq!(asked.await.unwrap(), Err(ReserveError::LeaseConflict));
    assert_eq!((first.used("slots").await, first.used("other").await), (0, 1));
    assert_eq!(second.reserve(&other).await, decision, "RES-04");
    let third = cluster.server(&limits).await;
    third.complete(request.lease).await;
    assert_eq!((first.used("slots").await, first.used("other").await), (0, 0));
}

/// RES-09, TB-17: another server has admitted the lease with other requirements, and completed it.
#[tokio::test(start_paused = true)]
async fn res_09_tb_17_a_lease_that_waits_is_not_admitted_after_another_with_its_id_has_ended() {
    let cluster = Cluster::new();
    let limits = [("slots", 1), ("other", 1)];
    let (first, second) = (cluster.server(&limits).await, cluster.server(&limits).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.ask(&request);
    pass(20 * ROUND_TRIP).await;
    let needs = Requirements::of([(key("other"), 1)]).unwrap();
    assert!(second.reserve(&ReserveRequest::new(request.lease, needs)).await.is_allowed());
    second.complete(request.lease).await;
    second.complete(held).await;
    assert_eq!(asked.await.unwrap(), Err(ReserveError::LeaseEnded));
    assert_eq!((first.used("slots").await, first.used("other").await), (0, 0));
}
