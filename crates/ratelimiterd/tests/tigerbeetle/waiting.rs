//! `TB-17`: reserves that wait, at servers that share a real cluster.

use std::time::Duration;

use ratelimiter::{Backend, LeaseId, Limiter};
use testkit::tigerbeetle::Fixture;
use testkit::{eventually, run};

use crate::processes::{ServerProcess, new_lease, waits};
use crate::servers::Deployment;

const NEEDS: [(&str, u64); 2] = [("slots", 1), ("tokens", 10)];

/// Two servers with one slot, which a lease has.
async fn full(on: &Deployment) -> ([ServerProcess; 2], LeaseId) {
    let servers = [on.server().await, on.server().await];
    let (first, second) = (servers[0].limiter(), servers[1].limiter());
    first.define(on.concurrency("slots", 3_600, 1)).await.unwrap();
    first.define(on.rolling("tokens", 3_600, 100)).await.unwrap();
    for name in ["slots", "tokens"] {
        let is_known = async || on.state(&second, name).await.is_some();
        eventually("the limits are known", is_known).await;
    }
    let holder = new_lease();
    assert!(first.reserve(&on.reserve(holder, &NEEDS[..1])).await.unwrap().is_allowed());
    (servers, holder)
}

/// TB-17, WAIT-01, WAIT-06: the room comes from this server, or from another one.
pub fn tb_17_a_complete_at_any_server_admits_who_waits(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let (servers, mut holder) = full(&on).await;
        for completes_at in [0, 1] {
            let request = waits(on.reserve(new_lease(), &NEEDS), Duration::from_secs(60));
            let answer = servers[0].wait(&request).await;
            let completes_at = servers[completes_at].limiter();
            completes_at.complete(&on.complete(holder, &[])).await.unwrap();
            let decision = answer.await.unwrap();
            assert!(decision.is_allowed(), "{decision:?}");
            assert_eq!(servers[1].limiter().reserve(&request).await, Ok(decision), "RES-04");
            holder = request.lease;
        }
        let second = servers[1].limiter();
        assert_eq!(on.state(&second, "tokens").await.unwrap().usage.used, 20);
        second.complete(&on.complete(holder, &[("tokens", 1)])).await.unwrap();
        assert_eq!(on.state(&second, "tokens").await.unwrap().usage.used, 11);
        assert_eq!(on.state(&second, "slots").await.unwrap().usage.used, 0);
    });
}

/// TB-17, WAIT-01, WAIT-04, RES-05: who waited in vain, or went away, is not admitted later.
pub fn tb_17_who_gives_up_is_denied_for_good(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let (servers, holder) = full(&on).await;
        let in_vain = waits(on.reserve(new_lease(), &NEEDS), Duration::from_millis(300));
        assert!(!servers[0].limiter().reserve(&in_vain).await.unwrap().is_allowed());
        let gone = waits(on.reserve(new_lease(), &NEEDS), Duration::from_secs(60));
        let answer = servers[0].wait(&gone).await;
        answer.abort();
        let is_gone = async || servers[0].waiters().await == 0;
        eventually("the caller is forgotten", is_gone).await;
        let second = servers[1].limiter();
        second.complete(&on.complete(holder, &[])).await.unwrap();
        for request in [&in_vain, &gone] {
            for server in &servers {
                assert!(!server.limiter().reserve(request).await.unwrap().is_allowed());
            }
        }
        assert_eq!(on.state(&second, "slots").await.unwrap().usage.used, 0);
    });
}

/// TB-17, WAIT-04, TB-04: a server that is killed takes its waiters along, and a repeat elsewhere is
/// answered.
pub fn tb_17_a_waiter_of_a_killed_server_is_answered_elsewhere(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let ([first, second], holder) = full(&on).await;
        let request = waits(on.reserve(new_lease(), &NEEDS), Duration::from_secs(60));
        let (limiter, sent) = (first.limiter(), request.clone());
        let answer = tokio::spawn(async move { limiter.reserve(&sent).await });
        let is_waiting = async || first.waiters().await == 1;
        eventually("it waits", is_waiting).await;
        first.kill();
        assert!(answer.await.unwrap().is_err());
        let second = second.limiter();
        second.complete(&on.complete(holder, &[])).await.unwrap();
        assert!(
            !second.reserve(&request).await.unwrap().is_allowed(),
            "its first attempt was denied"
        );
        assert_eq!(on.state(&second, "slots").await.unwrap().usage.used, 0);
        assert!(second.reserve(&on.reserve(new_lease(), &NEEDS)).await.unwrap().is_allowed());
    });
}
