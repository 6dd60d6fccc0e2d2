//! The checks of the load can fail: each of these makes one of them.

use ratelimiter::Limiter;
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::{eventually, run};

use crate::deployment::Deployment;
use crate::faults::{BACK, LIMITS, SOON_MS};
use crate::load::{Limits, Load, insist_on_define};
use crate::processes::new_lease;

/// So few that both servers always give out all of them, however slow the machine is.
const FEW_SLOTS: Limits = Limits { slots: 2, ..LIMITS };

/// RDS-01: servers with different prefixes give out everything twice.
pub fn the_checks_fail_if_servers_do_not_share_their_limits(fixture: &Fixture) {
    run(async {
        let on = [(); 2].map(|()| Deployment::on(fixture.shared()));
        let servers = [on[0].server().await, on[1].server().await];
        for limit in FEW_SLOTS.of(&on[0]) {
            insist_on_define(&servers[1].limiter(), limit).await;
        }
        let load = Load::start(&on[0], FEW_SLOTS, &servers).await;
        let is_found = async || load.violations().over_admissions > 0;
        eventually("an over-admission is found", is_found).await;
    });
}

/// RDS-07: a Redis without a file has lost every lease when it is killed.
pub fn the_checks_fail_if_redis_forgets_what_it_answered(_: &Fixture) {
    run(async {
        let mut redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis).with_request_timeout(SOON_MS);
        let servers = on.two_servers().await;
        let load = Load::start(&on, LIMITS, &servers).await;
        load.progress(BACK).await;
        redis.kill();
        let still = load.hold_still().await;
        redis.restart();
        for limit in LIMITS.of(&on) {
            insist_on_define(&servers[0].limiter(), limit).await;
        }
        assert!(load.violations().changed.is_empty());
        load.ask_again(&still, 20).await;
        assert!(!load.violations().changed.is_empty());
    });
}

/// RDS-05: a hold that no client knows is left.
pub fn the_checks_fail_if_a_hold_is_left(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared());
        let servers = on.two_servers().await;
        let load = Load::start(&on, LIMITS, &servers).await;
        let mut is_held = false;
        eventually("there is room for one", async || {
            let request = on.reserve(new_lease(), &[("slots", 1)]);
            is_held = servers[0].limiter().reserve(&request).await.unwrap().is_allowed();
            is_held
        })
        .await;
        let report = load.stop(&servers[0], "a hold is left").await;
        assert_eq!(report.leaked, 1, "{report}");
    });
}
