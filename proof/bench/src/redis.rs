//! ratelimiterd on Redis, compared with the same script and a bare one sent directly, and with limitador on Redis.

pub(crate) mod bare_script;
mod direct;
mod lapses;
mod limitador;
mod live;

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{Backend, Capacity, Limit};
use ratelimiter_redis::{CAPACITY_MAX, RedisConfig, RedisLimiter, RedisOptions, RedisSettings};
use ratelimiterd::load::{Caller, ClosedLoop, LimiterCaller, Workload};
use tempfile::TempDir;
use testkit::redis::{BINARY_VARIABLE, Persistence, TestRedis, find_binary};
use tokio::runtime::Runtime;

use crate::chart::Panel;
use crate::child::{Role, Server};
use crate::load::{Measurement, Target, closed};
use crate::progress::Progress;
use crate::report::{Section, SkipReason};
use crate::rounds::{Comparison, Rounds, itself};
use crate::scale::Scale;
use crate::summary::{Summary, count, number};
use crate::table::Table;
use crate::threshold::Threshold;
use crate::workload::{LIMITS_PER_CALL, workload};

const OURS: &str = "ratelimiterd";
const SAME: &str = "the same script, sent directly";
const BARE: &str = "a bare script of four counters, sent directly";
const RESERVE: &str = "ratelimiter, reserve";
const CALL: &str = "ratelimiter, reserve and complete";
/// Windows and timeouts are longer than a run: expiry is work that the scripts alone would not have.
const SECONDS_MIN: u64 = 3_600;

pub(crate) const THRESHOLDS: [Threshold; 8] = [
    Threshold::at_least(
        "Redis behind HTTP, single reserve, 64 connections, × the throughput of the same script sent directly",
        0.8,
    ),
    Threshold::at_least("the same, × a bare script of four counters sent directly", 0.8),
    Threshold::at_least(
        "Redis behind HTTP, batch(32), 64 connections, × the throughput of the same script pipelined",
        0.8,
    ),
    Threshold::at_least("the same, × a bare script of four counters pipelined", 0.8),
    Threshold::at_least(
        "Redis without HTTP, reserve and complete, 64 callers, × reserve and commit of four counters by limitador with its Redis storage",
        2.0,
    ),
    Threshold::at_least(
        "the same, reserve alone, × check and update by limitador, which holds nothing and is not atomic",
        2.0,
    ),
    Threshold::at_most(
        "Redis, processor time of a reserve and a complete with 1 000 000 live leases, × that with 1 000",
        1.3,
    ),
    Threshold::at_most("Redis, memory that lapsed leases leave behind, × what they took", 0.02),
];

#[derive(Debug, Clone, Copy)]
struct Sizes {
    models: usize,
    connections: usize,
    /// Reserves of a batch.
    batch: usize,
    duration: Duration,
    rounds: usize,
    live: live::Sizes,
    lapses: lapses::Sizes,
}

/// A Redis with the limits of all models, and a server on it.
struct Servers {
    runtime: Runtime,
    redis: TestRedis,
    limiter: Arc<RedisLimiter>,
    server: Server,
    _folder: TempDir,
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Result<Section, SkipReason> {
    let reason = || format!("no server; set {BINARY_VARIABLE} or put `redis-server` on the PATH");
    find_binary().ok_or_else(|| SkipReason(reason()))?;
    let full = Sizes {
        models: 1_000,
        connections: 64,
        batch: 32,
        duration: Duration::from_secs(1),
        rounds: 9,
        live: live::Sizes {
            leases: [1_000, 1_000_000],
            models: 100,
            pairs: 4_000,
            rounds: 15,
            completed: 100_000,
        },
        lapses: lapses::Sizes { leases: 100_000, models: 100, seconds: 30, waits_for_limits: true },
    };
    let quick = Sizes {
        models: 10,
        connections: 4,
        batch: 4,
        duration: Duration::from_millis(20),
        rounds: 1,
        live: live::Sizes { leases: [10, 100], models: 2, pairs: 40, rounds: 1, completed: 10 },
        lapses: lapses::Sizes { leases: 100, models: 2, seconds: 1, waits_for_limits: false },
    };
    let sizes = scale.pick(full, quick);
    progress.step("Redis: starting");
    let servers = Servers::start(sizes.models)?;
    let rounds = measure(sizes, &servers, progress);
    let peers = without_http(sizes, &servers, progress);
    drop(servers);
    let live = live::measure(sizes.live, progress);
    let lapses = lapses::measure(sizes.lapses, progress);
    Ok(section(sizes, &rounds, &peers, &live, &lapses))
}

/// The calls of the other sections, with the largest capacity that Redis takes.
fn redis_workload(seconds_min: u64) -> Workload {
    let capacity = Capacity::new(CAPACITY_MAX).expect("in range");
    Workload { capacity, hold_seconds: seconds_min, ..workload(seconds_min) }
}

/// A limiter on a Redis, where these limits are defined.
async fn limiter_with(
    redis: &TestRedis,
    options: RedisOptions,
    limits: Vec<Limit>,
) -> Arc<RedisLimiter> {
    let settings = RedisSettings { request_timeout_ms: 60_000, ..RedisSettings::new(redis.url()) };
    let config = RedisConfig::new(&settings).expect("valid settings");
    let limiter = RedisLimiter::new(config, options);
    limiter.define_all(limits).await.expect("new keys");
    Arc::new(limiter)
}

fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts")
}

impl Servers {
    fn start(model_count: usize) -> Result<Self, SkipReason> {
        let folder = tempfile::tempdir()
            .map_err(|error| SkipReason(format!("no temporary folder: {error}")))?;
        let (runtime, redis) = (runtime(), TestRedis::start(Persistence::None));
        let workload = redis_workload(SECONDS_MIN);
        let limits = (0..model_count).flat_map(|model| workload.limits(model)).collect();
        let limiter = runtime.block_on(limiter_with(&redis, RedisOptions::default(), limits));
        let mut command = Role::Ratelimiterd.command();
        command.args(["--listen", "127.0.0.1:0", "--backend", "redis"]);
        command.env("RATELIMITER_REDIS__URL", redis.url());
        command.env("RATELIMITER_REDIS__REQUEST_TIMEOUT_MS", "60000");
        let server = Server::start(command, folder.path());
        Ok(Self { runtime, redis, limiter, server, _folder: folder })
    }

    /// Leases per second of callers in this process that reserve, and complete or not.
    fn leases(&self, sizes: Sizes, completes: bool) -> f64 {
        let calls = redis_workload(SECONDS_MIN).calls(sizes.models);
        let caller = |number| {
            let caller = LimiterCaller::new(Arc::clone(&self.limiter), &calls, number);
            if completes { caller } else { caller.reserve_only() }
        };
        let callers = (0..sizes.connections).map(caller).collect();
        self.runtime.block_on(per_second(callers, sizes.duration))
    }
}

/// Calls per second of a closed loop.
async fn per_second<C: Caller>(callers: Vec<C>, duration: Duration) -> f64 {
    let clock = MonotonicClock::new();
    let started_at = clock.now();
    let mut running = ClosedLoop::start(callers, &clock, started_at.after(duration));
    running.join().await.expect("a caller does not panic");
    let results = running.results();
    assert_eq!(results.first_failure, None, "Redis answers");
    #[expect(clippy::cast_precision_loss, reason = "printed with three digits")]
    let answered = results.reserves.count() as f64;
    answered / clock.now().since(started_at).as_secs_f64()
}

fn name(who: &str, reserves: usize) -> String {
    match reserves {
        1 => format!("{who}, single"),
        _ => format!("{who}, batch({reserves})"),
    }
}

fn measure(sizes: Sizes, servers: &Servers, progress: &Progress) -> Rounds<Measurement> {
    let Servers { runtime, redis, limiter, server, .. } = servers;
    let Sizes { models, connections, duration, .. } = sizes;
    let mut comparison = Comparison::new();
    for reserves in [1, sizes.batch] {
        let http = match reserves {
            1 => Target::single(server.addr, models),
            _ => Target::batch(server.addr, models, reserves, reserves),
        };
        let same = runtime.block_on(direct::target(redis, limiter, models, reserves));
        let bare = bare_script::target(redis, models, reserves);
        let complete = http.clone();
        comparison.add(name(OURS, reserves), move || {
            let (measured, leases) = closed::measure(server, &http, connections, duration);
            closed::complete(&http, &leases);
            measured
        });
        comparison.add(name(SAME, reserves), move || {
            let process = redis.process();
            let (measured, leases) = closed::measure(process, &same, connections, duration);
            closed::complete(&complete, &leases);
            measured
        });
        comparison.add(name(BARE, reserves), move || {
            closed::measure(redis.process(), &bare, connections, duration).0
        });
    }
    comparison.run(sizes.rounds, progress, "Redis")
}

fn without_http(sizes: Sizes, servers: &Servers, progress: &Progress) -> Rounds {
    let mut comparison = Comparison::new();
    comparison.add(RESERVE, || servers.leases(sizes, false));
    comparison.add(CALL, || servers.leases(sizes, true));
    if let Some(peer) = limitador::Peer::find(sizes) {
        for mode in limitador::Mode::ALL {
            let (peer, redis) = (peer.clone(), &servers.redis);
            comparison.add(mode.name(), move || peer.rate(mode, redis));
        }
    }
    comparison.run(sizes.rounds, progress, "Redis without HTTP")
}

fn section(
    sizes: Sizes,
    rounds: &Rounds<Measurement>,
    peers: &Rounds,
    live: &live::Measured,
    lapses: &lapses::Measured,
) -> Section {
    let mut section = Section::default();
    section.text(describe(sizes));
    section.table(&table(sizes, rounds));
    section.table(&peers_table(sizes, peers));
    section.text(live.describe());
    section.text(lapses.describe());
    section.panels.push(chart(sizes, rounds));
    let rate = |who, other, reserves| {
        rounds.ratio(&name(who, reserves), &name(other, reserves), |measured| measured.rate)
    };
    let measured = [
        Some(rate(OURS, SAME, 1)),
        Some(rate(OURS, BARE, 1)),
        Some(rate(OURS, SAME, sizes.batch)),
        Some(rate(OURS, BARE, sizes.batch)),
        ratio_to(peers, limitador::Mode::Reserve),
        ratio_to(peers, limitador::Mode::Check),
        Some(live.ratio),
        Some(lapses.left),
    ];
    section.thresholds = Threshold::measured_where(THRESHOLDS, measured);
    section
}

/// Ours divided by limitador's, if that was measured.
fn ratio_to(peers: &Rounds, mode: limitador::Mode) -> Option<Summary> {
    let ours = match mode {
        limitador::Mode::Check => RESERVE,
        limitador::Mode::Reserve => CALL,
    };
    peers.has(mode.name()).then(|| peers.ratio(ours, mode.name(), itself))
}

fn describe(sizes: Sizes) -> String {
    format!(
        "One Redis without persistence, `ratelimiterd` and the load generator on the same machine; {} rounds of {} ms for each row, {} connections, one request at a \
         time per connection. Each call needs four limits of one of {} models ({} keys). *{SAME}*: the bytes that `ratelimiterd` sends for the same reserve, by the same load generator. \
         *{BARE}*: it checks four fixed-window counters and increments all of them or none; it has no leases, so it does less. A batch is a pipeline of {} scripts. The leases of \
         each measurement are completed after it. Processor time is that of `ratelimiterd`, or of Redis, alone.",
        sizes.rounds,
        sizes.duration.as_millis(),
        sizes.connections,
        count(sizes.models),
        count(sizes.models * LIMITS_PER_CALL),
        sizes.batch,
    )
}

fn table(sizes: Sizes, rounds: &Rounds<Measurement>) -> Table {
    let header = [
        "what",
        "reserves/s",
        "× the same script",
        "× a bare script",
        "p50 µs",
        "p99 µs",
        "processor µs per request",
    ];
    let mut table = Table::new("", header);
    for reserves in [1, sizes.batch] {
        for who in [OURS, SAME, BARE] {
            let own = name(who, reserves);
            let median =
                |value: fn(&Measurement) -> f64| number(rounds.summary(&own, value).median);
            let to = |other| {
                rounds.ratio(&own, &name(other, reserves), |measured| measured.rate).to_string()
            };
            table.row([
                own.clone(),
                median(|measured| measured.rate),
                to(SAME),
                to(BARE),
                median(|measured| measured.p50),
                rounds.summary(&own, |measured| measured.p99).to_string(),
                median(|measured| measured.server_micros),
            ]);
        }
    }
    table
}

fn peers_table(sizes: Sizes, peers: &Rounds) -> Table {
    let caption = format!(
        "Without HTTP, {} callers in one process; `limitador` {}:",
        sizes.connections,
        match peers.has(limitador::Mode::Check.name()) {
            true => "in a process of its own, with its Redis storage",
            false => "**was not measured**: see `docs/performance/redis.md`",
        }
    );
    let mut table = Table::new(caption, ["what", "calls/s"]);
    for name in peers.names() {
        table.row([name.to_owned(), peers.summary(name, itself).to_string()]);
    }
    table
}

fn chart(sizes: Sizes, rounds: &Rounds<Measurement>) -> Panel {
    let mut panel = Panel::new("Redis: thousand reserves of four per second (more is better)");
    for reserves in [1, sizes.batch] {
        let label = if reserves == 1 { "single".to_owned() } else { format!("batch({reserves})") };
        let bars = [OURS, SAME, BARE].map(|who| {
            let rate = rounds.summary(&name(who, reserves), |measured| measured.rate).median;
            (who, rate / 1_000.0)
        });
        panel.group(label, bars);
    }
    panel
}
