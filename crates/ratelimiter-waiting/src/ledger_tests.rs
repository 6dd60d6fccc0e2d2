//! Waiting in virtual time, at several servers on one model of TigerBeetle.

mod cluster;
mod outages;
mod repeats;

use ratelimiter::{
    Backend, HoldTimeout, LimitKind, MemoryLimiter, Requirements, ResetSchedule, ResetTime, Wait,
    Window,
};
use testkit::pass;
use tokio::task::JoinHandle;

use self::cluster::*;
use super::*;

/// WAIT-01, WAIT-06, TB-17
#[tokio::test(start_paused = true)]
async fn wait_06_a_complete_at_the_same_server_admits_who_waits_at_once() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 1)]).await;
    let held = cluster.take(&server, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = server.wait(&request).await;
    pass(SECOND).await;
    let before = cluster.clock.now();
    server.complete(held).await;
    let (decision, waited) = asked.await.unwrap();
    assert!(decision.is_allowed() && waited.unwrap() > SECOND, "{decision:?}");
    assert!(cluster.clock.now().since(before) <= 5 * ROUND_TRIP);
    assert_eq!((server.used("slots").await, server.waiting.count()), (1, 0));
    server.complete(request.lease).await;
    assert_eq!(server.used("slots").await, 0);
}

/// WAIT-06, REN-01, TB-18: what a renew gives back, and only that.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_18_a_renew_at_the_same_server_admits_who_waits_at_once() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 3)]).await;
    let held = cluster.take(&server, "slots", 3).await;
    let request = cluster.request(&[("slots", 2)], Some(60 * SECOND));
    let asked = server.wait(&request).await;
    for (number, amount) in [(1, 3), (2, 2)] {
        assert!(server.renew(held, number, &[("slots", amount)]).await.unwrap().is_renewed());
        pass(SECOND).await;
        assert!(!asked.is_finished(), "there is not enough room");
    }
    let before = cluster.clock.now();
    assert!(server.renew(held, 3, &[("slots", 1)]).await.unwrap().is_renewed());
    assert!(asked.await.unwrap().0.is_allowed());
    assert!(cluster.clock.now().since(before) <= 5 * ROUND_TRIP);
    assert_eq!((server.used("slots").await, server.waiting.count()), (3, 0));
}

/// WAIT-06, TB-17: whenever another server completes, between two looks.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_17_room_that_another_server_freed_is_found_within_250_ms() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let mut held = cluster.take(&second, "slots", 1).await;
    let mut found_after = Vec::new();
    for round in 0..200 {
        let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
        let asked = first.wait(&request).await;
        pass(Duration::from_millis(round * 7 % 331)).await;
        second.complete(held).await;
        let freed_at = cluster.clock.now();
        assert!(asked.await.unwrap().0.is_allowed());
        found_after.push(cluster.clock.now().since(freed_at));
        held = request.lease;
    }
    found_after.sort_unstable();
    let p99 = found_after[found_after.len() * 99 / 100];
    assert!(p99 <= Duration::from_millis(250), "{found_after:?}");
}

/// WAIT-06, TB-17: a look finds room of all limits that a waiter lacks.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_17_room_of_four_limits_is_found_within_250_ms() {
    let cluster = Cluster::new();
    let needs = [("a", 1), ("b", 1), ("c", 1), ("d", 1)];
    let (first, second) = (cluster.server(&needs).await, cluster.server(&needs).await);
    let holder = cluster.request(&needs, None);
    assert!(second.reserve(&holder).await.is_allowed());
    let mut held = holder.lease;
    for round in 0..100 {
        let request = cluster.request(&needs, Some(60 * SECOND));
        let asked = first.wait(&request).await;
        pass(Duration::from_millis(round * 7 % 331)).await;
        second.complete(held).await;
        let freed_at = cluster.clock.now();
        assert!(asked.await.unwrap().0.is_allowed());
        let found_after = cluster.clock.now().since(freed_at);
        assert!(found_after <= Duration::from_millis(250), "{found_after:?}");
        held = request.lease;
    }
}

/// WAIT-06, CAL-03, TB-17: what lapses is found by a look, and a reset at its moment.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_17_what_lapses_or_resets_admits_who_waits() {
    let cluster = Cluster::new();
    let server = cluster.server(&[]).await;
    let started_at = cluster.clock.now();
    let rolling = LimitKind::Rolling { window: Window::from_seconds(10).unwrap() };
    server.limiter.define(limit("rpm", rolling, 1)).await.unwrap();
    let minute = "00:00".parse::<ResetTime>().unwrap().minute();
    let hourly = LimitKind::Calendar { resets: ResetSchedule::Hourly { minute } };
    server.limiter.define(limit("budget", hourly, 1)).await.unwrap();
    for (name, after) in [("rpm", 10 * SECOND), ("budget", 30 * SECOND)] {
        cluster.take(&server, name, 1).await;
        let request = cluster.request(&[(name, 1)], Some(60 * SECOND));
        assert!(server.wait(&request).await.await.unwrap().0.is_allowed());
        let admitted_after = cluster.clock.now().since(started_at);
        assert!(admitted_after >= after, "{name}: {admitted_after:?}");
        assert!(admitted_after <= after + SECOND / 4, "{name}: {admitted_after:?}");
    }
}

/// WAIT-05, WAIT-06: one look for all limits, however many wait.
#[tokio::test(start_paused = true)]
async fn wait_06_tb_17_one_look_in_100_ms_serves_all_limits_and_waiters() {
    let cluster = Cluster::new();
    let names: Vec<String> = (0..20).map(|number| format!("slots:{number}")).collect();
    let limits: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let server = cluster.server(&limits).await;
    for name in &names {
        cluster.take(&server, name, 1).await;
    }
    let mut asked = Vec::new();
    for name in names.iter().cycle().take(100) {
        let request = cluster.request(&[(name, 1)], Some(60 * SECOND));
        asked.push(server.wait(&request).await);
    }
    pass(SECOND).await;
    let before = cluster.ledger.looks.load(Ordering::SeqCst);
    pass(SECOND).await;
    let looks = cluster.ledger.looks.load(Ordering::SeqCst) - before;
    assert!((8..=11).contains(&looks), "{looks} looks");
    assert!(asked.iter().all(|asked| !asked.is_finished()));
}

/// WAIT-05
#[tokio::test(start_paused = true)]
async fn wait_05_tb_17_a_caller_takes_no_more_memory_than_on_the_memory_backend() {
    let cluster = Cluster::new();
    let server = cluster.server(&[]).await;
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
    let (memory, changed) = (Arc::new(MemoryLimiter::new()), Arc::new(Notify::new()));
    let in_memory = Waiting::new(memory, cluster.clock.clone(), &runtime, 1, changed);
    let request = cluster.request(&[("slots", 1)], Some(SECOND));
    let (here, there) = (server.waiting.reserve(&request), in_memory.reserve(&request));
    assert!(size_of_val(&here) <= size_of_val(&there), "{} bytes", size_of_val(&here));
}

/// WAIT-02, TB-17
#[tokio::test(start_paused = true)]
async fn wait_02_queues_take_turns_on_tigerbeetle() {
    let cluster = Cluster::new();
    let server = cluster.server(&[("slots", 1)]).await;
    let mut held = cluster.take(&server, "slots", 1).await;
    let mut asked = Vec::new();
    for (queue, name) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")] {
        let wait = Some(Wait::new(60 * SECOND, queue).unwrap());
        let request = ReserveRequest { wait, ..cluster.request(&[("slots", 1)], None) };
        asked.push((name, request.lease, server.wait(&request).await));
    }
    let without = cluster.request(&[("slots", 1)], None);
    assert!(!server.reserve(&without).await.is_allowed());
    let mut order = Vec::new();
    while !asked.is_empty() {
        server.complete(held).await;
        pass(20 * ROUND_TRIP).await;
        let at = asked.iter().position(|(_, _, asked)| asked.is_finished()).unwrap();
        let (name, lease, next) = asked.remove(at);
        assert!(next.await.unwrap().0.is_allowed());
        order.push(name);
        held = lease;
    }
    assert_eq!(order, ["a1", "b1", "c1", "a2"]);
}

/// WAIT-01, RES-05, TB-17
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_who_waited_in_vain_is_denied_for_good() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(5 * SECOND));
    let (decision, waited) = first.wait(&request).await.await.unwrap();
    let Decision::Denied(denial) = decision else { panic!("{decision:?}") };
    assert_eq!(denial.reason, DenialReason::NoRoom { keys: vec![key("slots")] });
    let waited = waited.unwrap();
    assert!(waited >= 5 * SECOND && waited <= 5 * SECOND + 5 * ROUND_TRIP, "{waited:?}");
    second.complete(held).await;
    for server in [&first, &second] {
        assert!(!server.reserve(&request).await.is_allowed());
        let without = ReserveRequest { wait: None, ..request.clone() };
        assert!(!server.reserve(&without).await.is_allowed());
    }
    assert_eq!(first.used("slots").await, 0);
}

/// WAIT-04, TB-17
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_caller_that_goes_away_is_never_admitted() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.wait(&request).await;
    asked.abort();
    assert!(asked.await.is_err());
    pass(5 * ROUND_TRIP).await;
    assert_eq!(first.waiting.count(), 0);
    second.complete(held).await;
    pass(SECOND).await;
    assert_eq!(first.used("slots").await, 0);
    assert!(!second.reserve(&request).await.is_allowed(), "RES-05");
    cluster.take(&first, "slots", 1).await;
}

/// WAIT-04, TB-17: a lease is completed while the server asks for it.
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_lease_that_is_completed_while_it_asks_holds_what_its_caller_was_told() {
    let mut answers = Vec::new();
    for delay in (0..24).map(|part| part * ROUND_TRIP / 4) {
        let cluster = Cluster::new();
        let server = cluster.server(&[("slots", 1)]).await;
        let rolling = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
        server.limiter.define(limit("rpm", rolling, 1)).await.unwrap();
        let held = cluster.take(&server, "slots", 1).await;
        let request = cluster.request(&[("slots", 1), ("rpm", 1)], Some(30 * SECOND));
        let asked = server.wait(&request).await;
        let completed = cluster.begin_to_complete(&server, held).await;
        pass(delay).await;
        server.complete(request.lease).await;
        completed.await.unwrap();
        let (decision, _) = asked.await.unwrap();
        pass(SECOND).await;
        let is_allowed = decision.is_allowed();
        assert_eq!(server.used("rpm").await, u64::from(is_allowed), "{delay:?}: {decision:?}");
        assert_eq!(server.used("slots").await, 0, "{delay:?}: {decision:?}");
        assert!(!server.waiting.waiters.any());
        answers.push(is_allowed);
    }
    assert!(answers.contains(&true) && answers.contains(&false), "{answers:?}");
}

/// WAIT-04, TB-17
#[tokio::test(start_paused = true)]
async fn wait_04_tb_17_a_shutdown_denies_who_waits_for_good() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.wait(&request).await;
    first.waiting.shut_down();
    let (decision, _) = asked.await.unwrap();
    assert!(!decision.is_allowed());
    second.complete(held).await;
    assert!(!second.reserve(&request).await.is_allowed());
    let next = cluster.request(&[("slots", 2)], Some(60 * SECOND));
    assert!(first.waiting.reserve(&next).await.is_err(), "too much, and nobody waits");
}

/// WAIT-01, TB-10, TB-17: a lease that was admitted without an answer is read back, though a look finds no room any more.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_an_attempt_without_an_answer_is_found() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.wait(&request).await;
    let completed = cluster.begin_to_complete(&second, held).await;
    cluster.lose(Lost::Writes);
    // The next look finds room, and the attempt gets no answer.
    pass(NO_ANSWER_AFTER + SECOND / 4).await;
    assert!(!asked.is_finished());
    cluster.lose(Lost::None);
    completed.await.unwrap();
    assert_eq!(first.used("slots").await, 1);
    let (decision, waited) = asked.await.unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
    assert!(waited.unwrap() <= 3 * SECOND, "{waited:?}");
    assert_eq!(second.reserve(&request).await, decision, "RES-04");
    assert_eq!(first.used("slots").await, 1);
}

/// WAIT-01, TB-10, TB-17: waiters outlast a cluster that does not answer.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_waiting_goes_on_while_the_cluster_does_not_answer() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(60 * SECOND));
    let asked = first.wait(&request).await;
    let completed = cluster.begin_to_complete(&second, held).await;
    cluster.lose(Lost::All);
    pass(7 * SECOND).await;
    assert!(!asked.is_finished());
    cluster.lose(Lost::None);
    completed.await.unwrap();
    let healed_at = cluster.clock.now();
    assert!(asked.await.unwrap().0.is_allowed());
    assert!(cluster.clock.now().since(healed_at) <= 2 * NO_ANSWER_AFTER);
    assert_eq!(first.used("slots").await, 1);
}

/// WAIT-01, TB-10, TB-17: the time is over while the cluster does not answer: the caller is told so, and a
/// repeat gets what became of it.
#[tokio::test(start_paused = true)]
async fn wait_01_tb_17_a_wait_that_ends_without_an_answer_is_settled_by_a_repeat() {
    let cluster = Cluster::new();
    let (first, second) =
        (cluster.server(&[("slots", 1)]).await, cluster.server(&[("slots", 1)]).await);
    let held = cluster.take(&second, "slots", 1).await;
    let request = cluster.request(&[("slots", 1)], Some(5 * SECOND));
    let asked = tokio::spawn({
        let (first, request) = (Arc::clone(&first), request.clone());
        async move { first.waiting.reserve(&request).await }
    });
    pass(SECOND).await;
    cluster.lose(Lost::All);
    let answer = asked.await.unwrap();
    assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{answer:?}");
    cluster.lose(Lost::None);
    second.complete(held).await;
    // The gate was closed, though nobody was told.
    assert!(!second.reserve(&request).await.is_allowed());
    assert_eq!(second.used("slots").await, 0);
}
