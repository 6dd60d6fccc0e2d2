//! Real faults under load: two servers on one Redis, 64 clients, and one kind of fault at a time. Over-admissions, leaks and answers that were
//! lost must be 0. `RATELIMITER_FAULTS=long` runs the long form, and prints what the tables in docs/reliability.md have.

use std::time::Duration;

use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::{eventually, pass, run};

use crate::deployment::Deployment;
use crate::load::{Limits, Load, Report, is_long, short_or_long};
use crate::processes::ServerProcess;

/// There are fewer slots than clients, and rate and tokens are reached.
pub const LIMITS: Limits = Limits {
    slots: 40,
    slot_timeout_seconds: 3_600,
    rate: 400,
    rate_window_seconds: 2,
    tokens: 250_000,
    tokens_window_seconds: 2,
    brief_timeout_seconds: 2,
};
/// So many leases are through when the service is back.
pub const BACK: u64 = 50;
/// Soon, so that a fault is noticed; clients repeat what had no answer.
pub const SOON_MS: u64 = 500;
/// So many of the last leases are asked for again.
const LOOK_BACK: usize = 400;
/// So much room is left before `maxmemory` is reached.
const ROOM_BYTES: u64 = 50_000;
/// Keys without a TTL.
const KEPT: [&str; 3] = ["meta", "registry", "debts"];

/// What is done to Redis or a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// `kill -9` of Redis at any moment, and a restart.
    KillRedis,
    /// `kill -9` of Redis between an answer and the next one, when it has written what it answered, and a restart.
    KillRedisThatHasWritten,
    FlushScripts,
    PauseAll,
    PauseWrites,
    Sleep,
    FillMemory,
    /// `kill -9` of each server in turn, and another one in its place.
    KillServers,
}

/// Two servers, a Redis and 64 clients.
struct Trial {
    redis: TestRedis,
    on: Deployment,
    servers: [ServerProcess; 2],
    load: Load,
    injected: usize,
}

/// RDS-07, RDS-05: whatever the moment, and with requests under way.
pub fn rds_07_a_redis_that_syncs_each_answer_is_killed_under_load(_: &Fixture) {
    inject(Persistence::AofAlways, SOON_MS, &[Fault::KillRedis], short_or_long(2, 60));
}

/// RDS-07, RDS-05: with requests under way.
pub fn rds_07_a_redis_that_syncs_every_second_is_killed_under_load(_: &Fixture) {
    let faults = [Fault::KillRedisThatHasWritten];
    inject(Persistence::AofEverySecond, SOON_MS, &faults, short_or_long(2, 60));
    if is_long() {
        run(async {
            let mut trial = Trial::start(Persistence::AofEverySecond, SOON_MS).await;
            for _ in 0..60 {
                trial.inject(Fault::KillRedis).await;
            }
            let report = trial.stop("at any moment, which may lose what was not written").await;
            eprintln!("{report}");
        });
    }
}

/// RDS-06: without an error to any caller.
pub fn rds_06_the_script_cache_is_flushed_under_load(_: &Fixture) {
    let report =
        inject(Persistence::None, 60_000, &[Fault::FlushScripts], short_or_long(40, 2_000));
    assert_eq!(report.unanswered, 0, "{report}");
}

/// RDS-05
pub fn rds_05_a_redis_that_pauses_its_clients_under_load(_: &Fixture) {
    let faults = [Fault::PauseAll, Fault::PauseWrites];
    inject(Persistence::None, SOON_MS, &faults, short_or_long(1, 20));
}

/// RDS-05
pub fn rds_05_a_redis_that_hangs_under_load(_: &Fixture) {
    inject(Persistence::None, SOON_MS, &[Fault::Sleep], short_or_long(2, 40));
}

/// RDS-06
pub fn rds_06_a_redis_without_memory_under_load(_: &Fixture) {
    inject(Persistence::None, SOON_MS, &[Fault::FillMemory], short_or_long(2, 40));
}

/// RDS-01, COM-07: leases of a killed server are completed at the other.
pub fn rds_01_servers_are_killed_in_turn_under_load(_: &Fixture) {
    inject(Persistence::None, SOON_MS, &[Fault::KillServers], short_or_long(2, 50));
}

/// RDS-05, RDS-06, RDS-07: one after another, on one Redis.
pub fn rds_05_rds_06_rds_07_faults_of_all_kinds_under_load(_: &Fixture) {
    let faults = [
        Fault::KillRedis,
        Fault::FlushScripts,
        Fault::PauseWrites,
        Fault::KillServers,
        Fault::Sleep,
        Fault::FillMemory,
        Fault::PauseAll,
    ];
    inject(Persistence::AofAlways, SOON_MS, &faults, short_or_long(1, 30));
}

fn inject(
    persistence: Persistence,
    request_timeout_ms: u64,
    faults: &[Fault],
    rounds: usize,
) -> Report {
    run(async {
        let mut trial = Trial::start(persistence, request_timeout_ms).await;
        for fault in (0..rounds).flat_map(|_| faults) {
            trial.inject(*fault).await;
        }
        trial.finish(&format!("{faults:?}")).await
    })
}

impl Trial {
    async fn start(persistence: Persistence, request_timeout_ms: u64) -> Self {
        let redis = TestRedis::start(persistence);
        let on = Deployment::on(&redis).with_request_timeout(request_timeout_ms);
        let servers = on.two_servers().await;
        let load = Load::start(&on, LIMITS, &servers).await;
        Self { redis, on, servers, load, injected: 0 }
    }

    /// Injects a fault while leases go through, and waits until they do again.
    async fn inject(&mut self, fault: Fault) {
        self.load.progress(if fault == Fault::FlushScripts { 5 } else { BACK }).await;
        self.injected += 1;
        match fault {
            Fault::KillRedis => self.kill_redis().await,
            Fault::KillRedisThatHasWritten => {
                self.expect_ok(&["CLIENT", "PAUSE", "60000", "WRITE"]);
                let persistence = || self.redis.command(&["INFO", "persistence"]);
                let has_written = async || persistence().contains("aof_buffer_length:0\r\n");
                eventually("it has written what it answered", has_written).await;
                self.kill_redis().await;
            }
            Fault::FlushScripts => self.expect_ok(&["SCRIPT", "FLUSH", "SYNC"]),
            Fault::PauseAll => self.pause("ALL").await,
            Fault::PauseWrites => self.pause("WRITE").await,
            Fault::Sleep => tokio::task::block_in_place(|| {
                self.expect_ok(&["DEBUG", "SLEEP", "1.5"]);
            }),
            Fault::FillMemory => self.fill_memory().await,
            Fault::KillServers => {
                let at = self.injected % 2;
                let killed = std::mem::replace(&mut self.servers[at], self.on.listening());
                killed.kill();
                self.load.replace(at, &self.servers[at]);
            }
        }
    }

    /// What was answered before the kill is answered again after it.
    async fn kill_redis(&mut self) {
        self.redis.kill();
        let still = self.load.hold_still().await;
        self.redis.restart();
        self.load.ask_again(&still, LOOK_BACK).await;
    }

    /// Longer than a request waits.
    async fn pause(&self, which: &str) {
        self.expect_ok(&["CLIENT", "PAUSE", "1500", which]);
        pass(Duration::from_millis(1_500)).await;
    }

    /// The clients use the rest.
    async fn fill_memory(&self) {
        let memory = self.redis.command(&["INFO", "memory"]);
        let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        let used: u64 = used.trim().parse().unwrap();
        let before = self.load.unanswered_for("maxmemory is reached");
        self.expect_ok(&["CONFIG", "SET", "maxmemory", &(used + ROOM_BYTES).to_string()]);
        eventually("the reason is told", async || {
            self.load.unanswered_for("maxmemory is reached") > before
        })
        .await;
        self.expect_ok(&["CONFIG", "SET", "maxmemory", "0"]);
    }

    fn expect_ok(&self, words: &[&str]) {
        assert_eq!(self.redis.command(words), "OK", "{words:?}");
    }

    async fn stop(self, what: &str) -> Report {
        self.load.progress(BACK).await;
        let what = format!("{} faults, {what}", self.injected);
        self.load.stop(&self.servers[0], &what).await
    }

    /// Nothing was admitted twice, lost or left behind.
    async fn finish(self, what: &str) -> Report {
        self.load.progress(BACK).await;
        let what = format!("{} faults, {what}", self.injected);
        let report = self.load.finish(&self.servers[0], &what).await;
        report.expect_known_reasons();
        let prefix = self.on.prefix();
        let kept = KEPT.map(|name| format!("{{{prefix}}}:{name}"));
        let left = "local left = {} for _, name in ipairs(redis.call('KEYS', ARGV[1])) do \
                    if redis.call('PTTL', name) < 0 then left[#left + 1] = name end end return left";
        let left = self.redis.command(&["EVAL", left, "0", &format!("{{{prefix}}}:*")]);
        for name in left.lines() {
            assert!(kept.iter().any(|kept| kept == name), "{name} has no TTL");
        }
        report
    }
}
