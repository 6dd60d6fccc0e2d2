//! RDS-07: what a failover loses. Replication is asynchronous, so it may lose what was answered; how much is counted and printed. Whatever is lost,
//! nothing else is: without the lost leases there is no over-admission, and everything returns.

use std::net::SocketAddr;
use std::time::Duration;

use ratelimiter::LeaseId;
use ratelimiter::clock::Timestamp;
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::{Proxy, pass, run};

use crate::deployment::Deployment;
use crate::faults::{BACK, LIMITS, SOON_MS};
use crate::load::{Limits, Load, short_or_long};
use crate::processes::ServerProcess;

/// A complete may be lost, too: its hold returns by its timeout.
const LAPSING: Limits = Limits { slot_timeout_seconds: 5, ..LIMITS };
/// So many leases are looked up at a time.
const CHUNK: usize = 500;

/// How a primary and its replica are set up, and how the primary is lost.
#[derive(Debug, Clone, Copy)]
struct Setup {
    /// The primary takes no writes while its replica is away, or has not acknowledged anything for two seconds. It does so once a second.
    needs_replica: bool,
    /// How long nothing has reached the replica when the primary is killed.
    cut_for: Option<Duration>,
}

/// Servers that reach the primary through a proxy, as through a name that is changed in a failover.
struct Trial {
    setup: Setup,
    primary: TestRedis,
    replica: TestRedis,
    /// Between both.
    replication: Proxy,
    to_primary: Proxy,
    on: Deployment,
    servers: [ServerProcess; 2],
    load: Load,
    /// The last failover.
    since: Timestamp,
    /// How many leases were answered before a failover, and how many of them were lost in each.
    answered: usize,
    lost: Vec<usize>,
}

/// RDS-07: of a primary whose replica is in sync.
pub fn rds_07_a_replica_is_promoted_under_load(_: &Fixture) {
    for needs_replica in [false, true] {
        fail_over(Setup { needs_replica, cut_for: None }, short_or_long(2, 30));
    }
}

/// RDS-07: of a primary whose replica gets nothing any more, and does not know.
pub fn rds_07_a_replica_that_was_cut_off_is_promoted_under_load(_: &Fixture) {
    let cut_for = Some(short_or_long(Duration::from_secs(1), Duration::from_secs(5)));
    for needs_replica in [false, true] {
        fail_over(Setup { needs_replica, cut_for }, short_or_long(1, 10));
    }
}

fn fail_over(setup: Setup, rounds: usize) {
    run(async {
        let mut trial = Trial::start(setup).await;
        for _ in 0..rounds {
            trial.fail_over().await;
        }
        trial.finish().await;
    });
}

impl Trial {
    async fn start(setup: Setup) -> Self {
        let primary = TestRedis::start(Persistence::None);
        let (addr, to_primary) = Proxy::tcp(primary.addr());
        let (replica, replication) = replica_of(&primary, setup).await;
        let on = Deployment::at(format!("redis://{addr}")).with_request_timeout(SOON_MS);
        let servers = on.two_servers().await;
        let load = Load::start(&on, LAPSING, &servers).await;
        Self {
            setup,
            primary,
            replica,
            replication,
            to_primary,
            on,
            servers,
            since: Timestamp::from_unix_ms(0),
            load,
            answered: 0,
            lost: Vec::new(),
        }
    }

    /// Kills the primary and promotes its replica, and counts the leases that this one does not know.
    async fn fail_over(&mut self) {
        self.load.progress(BACK).await;
        if let Some(cut_for) = self.setup.cut_for {
            self.replication.stall(true);
            pass(cut_for).await;
        }
        self.primary.kill();
        let still = self.load.hold_still().await;
        self.replica.promote();
        let leases = self.load.allowed_since(self.since);
        let lost = unknown_leases(&self.replica, self.on.prefix(), &leases);
        self.load.note_lost(&lost);
        self.answered += leases.len();
        self.lost.push(lost.len());
        let (next, replication) = replica_of(&self.replica, self.setup).await;
        self.primary = std::mem::replace(&mut self.replica, next);
        self.replication = replication;
        self.to_primary.redirect(self.primary.addr());
        self.since = self.load.now();
        drop(still);
        self.load.progress(BACK).await;
        let known = self.load.allowed_since(self.since);
        assert!(!known.is_empty());
        assert_eq!(unknown_leases(&self.primary, self.on.prefix(), &known), []);
    }

    async fn finish(self) {
        let Self { setup, answered, lost, .. } = &self;
        let (count, sum) = (lost.len(), lost.iter().sum::<usize>());
        let what =
            format!("{setup:?}: {count} failovers lost {sum} of {answered} leases: {lost:?}");
        let report = self.load.stop(&self.servers[0], &what).await;
        eprintln!("{report}");
        report.expect_known_reasons();
        assert!(report.violations_of_kept.is_empty(), "{:?}", report.violations_of_kept);
        assert_eq!(report.leaked, 0, "{report}");
    }
}

/// A replica that is in sync, through a proxy. The primary is set up as it is to be.
async fn replica_of(primary: &TestRedis, setup: Setup) -> (TestRedis, Proxy) {
    let replica = TestRedis::start(Persistence::None);
    let (addr, proxy): (SocketAddr, _) = Proxy::tcp(primary.addr());
    replica.replicate(addr);
    replica.catch_up(primary).await;
    if setup.needs_replica {
        let settings = ["CONFIG", "SET", "min-replicas-to-write", "1", "min-replicas-max-lag", "2"];
        assert_eq!(primary.command(&settings), "OK");
    }
    (replica, proxy)
}

/// Those of the leases that a Redis does not know.
fn unknown_leases(redis: &TestRedis, prefix: &str, leases: &[LeaseId]) -> Vec<LeaseId> {
    let look = "local unknown = {} for index, id in ipairs(ARGV) do \
                if redis.call('EXISTS', KEYS[1] .. id) == 0 then unknown[#unknown + 1] = index end end \
                return unknown";
    let names = format!("{{{prefix}}}:lease:");
    let mut unknown = Vec::new();
    for chunk in leases.chunks(CHUNK) {
        let ids: Vec<_> = chunk.iter().map(ToString::to_string).collect();
        let words = ["EVAL", look, "1", &names].into_iter().chain(ids.iter().map(String::as_str));
        let reply = redis.command(&words.collect::<Vec<_>>());
        unknown.extend(reply.lines().map(|index| chunk[index.parse::<usize>().unwrap() - 1]));
    }
    unknown
}
