//! Definitions at several servers: a change at one reaches the others, and interrupted changes are resolved.

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{Backend, DefineError, LimitState, LimitStatus, Limiter, Refused};
use ratelimiter_client::HttpLimiter;
use ratelimiter_wire::read_limits_file;
use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use testkit::{eventually, run};

use crate::load::insist_on_define;
use crate::processes::{ServerProcess, new_lease};
use crate::servers::Deployment;

async fn capacity(on: &Deployment, at: &HttpLimiter, name: &str) -> Option<u64> {
    on.state(at, name).await.map(|state| state.limit.capacity.get())
}

pub fn a_put_at_one_server_reaches_the_others(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let servers = [on.server().await, on.server().await, on.server().await];
        let limiters = servers.each_ref().map(ServerProcess::limiter);
        let clock = MonotonicClock::new();
        for (turn, units) in [10, 20, 5, 0, 7, 7].into_iter().enumerate() {
            let put_at = &limiters[turn % limiters.len()];
            put_at.define(on.rolling("rate", 60, units)).await.unwrap();
            let answered_at = clock.now();
            for limiter in &limiters {
                eventually("the change is here", async || {
                    capacity(&on, limiter, "rate").await == Some(units)
                })
                .await;
            }
            let took = clock.now().since(answered_at);
            eprintln!("{units} units were everywhere {took:?} after the answer");
        }
        let request = on.reserve(new_lease(), &[("rate", 7)]);
        assert!(limiters[0].reserve(&request).await.unwrap().is_allowed());
        for limiter in &limiters {
            let state = on.state(limiter, "rate").await.unwrap();
            assert_eq!((state.usage.used, state.usage.available), (7, 0));
        }
    });
}

pub fn a_delete_at_one_server_reaches_the_others(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let (first, second) = (on.server().await, on.server().await);
        let (first, second) = (first.limiter(), second.limiter());
        first.define(on.rolling("rate", 60, 5)).await.unwrap();
        eventually("it is there", async || on.state(&second, "rate").await.is_some()).await;
        second.delete(&on.key("rate")).await.unwrap();
        eventually("it is gone", async || on.state(&first, "rate").await.is_none()).await;
        first.define(on.rolling("rate", 60, 6)).await.unwrap();
        let is_back = async || capacity(&on, &second, "rate").await == Some(6);
        eventually("it is back", is_back).await;
    });
}

/// DEF-07, TB-07
pub fn def_07_a_decrease_holds_at_every_server_and_ends_at_all(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let servers = [on.server().await, on.server().await];
        let [first, second] = servers.each_ref().map(ServerProcess::limiter);
        first.define(on.concurrency("slots", 60, 10)).await.unwrap();
        let is_there = async || on.state(&second, "slots").await.is_some();
        eventually("it is there", is_there).await;
        let lease = new_lease();
        let request = on.reserve(lease, &[("slots", 8)]);
        assert!(second.reserve(&request).await.unwrap().is_allowed());
        let lower = on.concurrency("slots", 60, 5);
        let to = lower.capacity;
        assert_eq!(first.define(lower).await, Ok(LimitStatus::Decreasing { to }));
        let request = on.reserve(new_lease(), &[("slots", 1)]);
        assert!(!second.reserve(&request).await.unwrap().is_allowed(), "at once, everywhere");
        second.complete(&on.complete(lease, &[])).await.unwrap();
        for limiter in [&first, &second] {
            eventually("the decrease has ended", async || {
                let LimitState { limit, status, .. } = on.state(limiter, "slots").await.unwrap();
                limit.capacity == to && status == LimitStatus::Active
            })
            .await;
        }
        eventually("the file says so", async || {
            let file = std::fs::read_to_string(on.limits_path()).unwrap();
            file.contains("\"capacity\": 5") && !file.contains("\"decreasing\"")
        })
        .await;
    });
}

/// TB-21: a template that was put at one server governs the limits of all; they make one limit together, follow a change,
/// and count what is reserved after a restart.
pub fn tb_21_servers_share_a_template_and_its_limits(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let mut servers = vec![on.server().await, on.server().await];
        let limiters: Vec<_> = servers.iter().map(ServerProcess::limiter).collect();
        limiters[0].define(on.concurrency("t:*:slots", 600, 6)).await.unwrap();
        let is_there = async || on.state(&limiters[1], "t:a:slots").await.is_some();
        eventually("the template is there", is_there).await;
        let requests = [0, 1].map(|_| on.reserve(new_lease(), &[("t:a:slots", 3)]));
        let (first, second) =
            tokio::join!(limiters[0].reserve(&requests[0]), limiters[1].reserve(&requests[1]));
        assert!(first.unwrap().is_allowed() && second.unwrap().is_allowed());
        for (server, limiter) in servers.iter().zip(&limiters) {
            let request = on.reserve(new_lease(), &[("t:a:slots", 1)]);
            assert!(!limiter.reserve(&request).await.unwrap().is_allowed(), "it was funded once");
            let template = on.key("t:*:slots");
            let line = format!("ratelimiter_template_instances{{key=\"{template}\"}} 1\n");
            let (_, metrics) = server.get("/metrics").await;
            assert!(metrics.contains(&line), "{metrics}");
        }
        limiters[1].define(on.concurrency("t:*:slots", 600, 9)).await.unwrap();
        for limiter in &limiters {
            let is_nine = async || capacity(&on, limiter, "t:a:slots").await == Some(9);
            eventually("the change is here", is_nine).await;
        }
        servers.drain(..).for_each(ServerProcess::kill);
        let server = on.server().await;
        let limiter = server.limiter();
        let state = on.state(&limiter, "t:a:slots").await.unwrap();
        assert_eq!((state.usage.used, state.usage.available), (6, 3));
        let request = on.reserve(new_lease(), &[("t:a:slots", 4)]);
        assert!(!limiter.reserve(&request).await.unwrap().is_allowed());
        limiter.complete(&on.complete(requests[0].lease, &[])).await.unwrap();
        let request = on.reserve(new_lease(), &[("t:a:slots", 6)]);
        assert!(limiter.reserve(&request).await.unwrap().is_allowed());
    });
}

/// TB-07
pub fn concurrent_puts_end_with_one_of_them_at_every_server(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let servers = [on.server().await, on.server().await];
        let limiters = servers.each_ref().map(ServerProcess::limiter);
        for round in 1..=8 {
            let puts = [0, 1].map(|n| {
                let limit = on.rolling("rate", 60, 10 * round + n);
                limiters[usize::try_from(n).unwrap()].define(limit)
            });
            let [first, second] = puts;
            let (first, second) = tokio::join!(first, second);
            assert_eq!((first, second), (Ok(LimitStatus::Active), Ok(LimitStatus::Active)));
        }
        eventually("both say the same", async || {
            let first = capacity(&on, &limiters[0], "rate").await.unwrap();
            let second = capacity(&on, &limiters[1], "rate").await.unwrap();
            let free = on.state(&limiters[0], "rate").await.unwrap().usage.available;
            first == second && first == free && [80, 81].contains(&first)
        })
        .await;
    });
}

pub fn a_file_edited_by_hand_is_applied_and_one_with_errors_is_not(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let servers = [on.server().await, on.server().await];
        let limiters = servers.each_ref().map(ServerProcess::limiter);
        limiters[0].define(on.rolling("rate", 60, 5)).await.unwrap();
        let path = on.limits_path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"capacity\": 5", "\"capacity\": 6")).unwrap();
        for limiter in &limiters {
            let is_six = async || capacity(&on, limiter, "rate").await == Some(6);
            eventually("the edit is in force", is_six).await;
        }
        assert_eq!(on.state(&limiters[0], "rate").await.unwrap().usage.available, 6);
        std::fs::write(&path, "[ { \"key\":").unwrap();
        let refused = limiters[1].define(on.rolling("rate", 60, 7)).await;
        assert!(refused.is_err(), "nobody's work is overwritten: {refused:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[ { \"key\":");
        assert_eq!(capacity(&on, &limiters[0], "rate").await, Some(6), "the limits stay");
        std::fs::write(&path, text).unwrap();
        let is_five = async || capacity(&on, &limiters[1], "rate").await == Some(5);
        eventually("the good file is followed again", is_five).await;
        limiters[1].define(on.rolling("rate", 60, 7)).await.unwrap();
    });
}

/// TB-08, DEF-08: a server that was killed at a random point of many PUTs has the definitions of the file after its
/// start, and so does the cluster.
pub fn tb_08_a_server_killed_during_a_put_recovers_at_its_start(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let mut random = fastrand::Rng::new();
        let mut units = 0;
        for _ in 0..6 {
            let server = on.server().await;
            let limiter = server.limiter();
            let puts = async {
                loop {
                    units = (units + 7) % 50;
                    drop(limiter.define(on.rolling("rate", 60, units)).await);
                }
            };
            // Not a wait for something: the random instant is the point.
            let after = std::time::Duration::from_millis(random.u64(5..200));
            let cut: Result<(), _> = tokio::time::timeout(after, puts).await;
            assert!(cut.is_err());
            server.kill();
            let server = on.server().await;
            let state = on.state(&server.limiter(), "rate").await;
            if let Some(LimitState { limit, usage, .. }) = state {
                let file = std::fs::read(on.limits_path()).unwrap();
                let registry = read_limits_file(&file).unwrap();
                // A decrease may be applied already and still be pending in the file.
                let requested = registry.get(&limit.key).unwrap().target();
                assert_eq!(requested, limit.capacity, "{}", String::from_utf8_lossy(&file));
                assert_eq!(usage.available, limit.capacity.get());
            }
        }
    });
}

/// Without write access, as with a mounted `ConfigMap`, every server serves the limits of the file, and a PUT is answered
/// with the reason.
pub fn a_read_only_limits_file_is_served_and_a_put_reports_why_it_cannot_be_changed(
    fixture: &Fixture,
) {
    run(async {
        let on = Deployment::on(fixture.development());
        let limits = [on.rolling("rate", 60, 5), on.concurrency("slots", 60, 3)];
        let on = on.with_read_only_limits(&limits);
        let servers = [on.server().await, on.server().await];
        let limiters = servers.each_ref().map(ServerProcess::limiter);
        for limiter in &limiters {
            let request = on.reserve(new_lease(), &[("rate", 1), ("slots", 1)]);
            assert!(limiter.reserve(&request).await.unwrap().is_allowed());
            let refused = limiter.define(on.rolling("rate", 60, 6)).await;
            let Err(DefineError::Refused(Refused { reason })) = refused else {
                panic!("it must not be repeated: {refused:?}");
            };
            assert!(reason.contains("limits_read_only"), "{reason}");
            assert!(reason.contains("Permission denied"), "{reason}");
        }
        let usage = on.state(&limiters[0], "rate").await.unwrap().usage;
        assert_eq!((usage.used, usage.available), (2, 3));
        on.make_writable();
    });
}

/// TB-08: a PUT that the cluster did not answer is withdrawn, by the server that took it or by the one in its place.
pub fn tb_08_a_put_without_an_answer_does_not_take_effect_later(_: &Fixture) {
    run(async {
        for is_killed in [false, true] {
            let cluster = TestCluster::start(Mode::Development);
            let on = Deployment::on(&cluster).with_brief_timeouts();
            let mut server = on.server().await;
            insist_on_define(&server.limiter(), on.rolling("rate", 60, 5)).await;
            cluster.pause(0);
            let answer = server.limiter().define(on.rolling("rate", 60, 50)).await;
            assert!(matches!(answer, Err(DefineError::Unanswered(_))), "{answer:?}");
            if is_killed {
                server.kill();
                server = on.listening();
            }
            cluster.resume(0);
            eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
            let limiter = server.limiter();
            insist_on_define(&limiter, on.rolling("another", 60, 1)).await;
            eventually("the change is taken back", async || {
                let state = on.state(&limiter, "rate").await.unwrap();
                (state.limit.capacity.get(), state.usage.available) == (5, 5)
            })
            .await;
            assert_eq!(staged_count(&on), 0, "nothing is unconfirmed any more");
        }
    });
}

/// TB-08: if the server that accepted the PUT is not replaced, the others roll it back.
pub fn tb_08_a_put_of_a_server_that_died_is_rolled_back_by_the_others(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let on = Deployment::on(&cluster).with_brief_timeouts();
        let (dies, stays) = (on.server().await, on.server().await);
        insist_on_define(&dies.limiter(), on.rolling("rate", 60, 5)).await;
        let limiter = stays.limiter();
        eventually("it is there", async || capacity(&on, &limiter, "rate").await == Some(5)).await;
        cluster.pause(0);
        let answer = dies.limiter().define(on.rolling("rate", 60, 50)).await;
        assert!(matches!(answer, Err(DefineError::Unanswered(_))), "{answer:?}");
        assert_eq!(staged_count(&on), 1);
        dies.kill();
        cluster.resume(0);
        eventually("it is ready", async || stays.get("/readyz").await.0 == 200).await;
        eventually("the change is shut out", async || staged_count(&on) == 0).await;
        let state = on.state(&limiter, "rate").await.unwrap();
        assert_eq!((state.limit.capacity.get(), state.usage.available), (5, 5));
    });
}

/// OPS-03
pub fn ops_03_a_list_of_ten_thousand_limits_reaches_every_server(fixture: &Fixture) {
    const COUNT: usize = 10_000;
    run(async {
        let on = Deployment::on(fixture.development());
        let servers = [on.server().await, on.server().await];
        let limiters = servers.each_ref().map(ServerProcess::limiter);
        let list = |units: u64| {
            let limit = |number| on.rolling(&format!("many:{number:05}"), 60, units);
            (0..COUNT).map(limit).collect::<Vec<_>>()
        };
        let clock = MonotonicClock::new();
        for (limiter, units) in limiters.iter().zip([10, 5]) {
            let asked_at = clock.now();
            let statuses = limiter.define_all(list(units)).await;
            assert_eq!(statuses, Ok(vec![LimitStatus::Active; COUNT]));
            eprintln!("{COUNT} limits were defined in {:?}", clock.now().since(asked_at));
            for limiter in &limiters {
                eventually("the last one is here", async || {
                    capacity(&on, limiter, "many:09999").await == Some(units)
                })
                .await;
                let request = on.reserve(new_lease(), &[("many:00000", 1), ("many:09999", 1)]);
                assert!(limiter.reserve(&request).await.unwrap().is_allowed());
            }
        }
        let text = std::fs::read(on.limits_path()).unwrap();
        assert_eq!(read_limits_file(&text).unwrap().len(), COUNT);
    });
}

/// OPS-03, TB-08: as for a single PUT; what is new in the list is not defined either.
pub fn ops_03_a_list_without_an_answer_does_not_take_effect_later(_: &Fixture) {
    run(async {
        for is_killed in [false, true] {
            let cluster = TestCluster::start(Mode::Development);
            let on = Deployment::on(&cluster).with_brief_timeouts();
            let mut server = on.server().await;
            insist_on_define(&server.limiter(), on.rolling("rate", 60, 5)).await;
            let list = [("new", 7), ("rate", 50)].map(|(name, units)| on.rolling(name, 60, units));
            cluster.pause(0);
            let answer = server.limiter().define_all(list.to_vec()).await;
            assert!(matches!(answer, Err(DefineError::Unanswered(_))), "{answer:?}");
            if is_killed {
                server.kill();
                server = on.listening();
            }
            cluster.resume(0);
            eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
            eventually("nothing is unconfirmed", async || staged_count(&on) == 0).await;
            let limiter = server.limiter();
            let state = on.state(&limiter, "rate").await.unwrap();
            assert_eq!((state.limit.capacity.get(), state.usage.available), (5, 5));
            assert_eq!(on.state(&limiter, "new").await, None);
            let statuses = limiter.define_all(list.to_vec()).await;
            assert_eq!(statuses, Ok(vec![LimitStatus::Active; 2]), "it may be repeated");
        }
    });
}

fn staged_count(on: &Deployment) -> usize {
    let names = std::fs::read_dir(on.limits_path().parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".tmp")).count()
}
