//! ratelimiterd with the memory backend, compared with a bare axum server and Redis.

pub(crate) mod bare;

use std::path::Path;
use std::time::Duration;

use ratelimiter::{Limit, LimitStatus, RegisteredLimit};
use tempfile::TempDir;
use testkit::redis::{Persistence, TestRedis, find_binary};

use crate::chart::Panel;
use crate::child::{Role, Server};
use crate::load::{Measurement, Target, closed};
use crate::progress::Progress;
use crate::redis::bare_script;
use crate::report::{Section, SkipReason};
use crate::rounds::{Comparison, Rounds};
use crate::scale::Scale;
use crate::summary::{count, number};
use crate::table::Table;
use crate::threshold::Threshold;
use crate::workload::{LIMITS_PER_CALL, limits_lasting, usual_limits};

const OURS: &str = "ratelimiterd";
const LAPSING: &str = "ratelimiterd, every lease lapses";
const BARE: &str = "bare axum";
const REDIS: &str = "Redis, one Lua script";
/// Reserves per batch.
const BATCH: usize = 32;
/// Index of the number of connections that the thresholds are about.
const FOR_THRESHOLDS: usize = 2;
/// Windows and timeouts of the server on which every lease lapses.
const LAPSE_SECONDS: u64 = 2;

pub(crate) const THRESHOLDS: [Threshold; 4] = [
    Threshold::at_least(
        "HTTP single reserve, 64 connections, memory, × the throughput of a bare axum server",
        0.9,
    ),
    Threshold::at_most("the same, × its p99", 1.2),
    Threshold::at_least(
        "the same while every lease lapses uncompleted, × the throughput of a bare axum server",
        0.9,
    ),
    Threshold::at_least(
        "HTTP batch(32), 64 connections, memory, × the throughput of a bare axum server",
        0.6,
    ),
];

/// One reserve per request, or many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Single,
    Batch,
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    models: usize,
    connections: [usize; 4],
    duration: Duration,
    /// Load before each measurement of lapsing leases: twice their lifetime, so that as many lapse as are made.
    lapse_warm_up: Duration,
    rounds: usize,
}

/// The servers of the comparison.
struct Servers {
    ours: Server,
    lapsing: Server,
    bare: Server,
    redis: Option<TestRedis>,
}

impl Endpoint {
    const ALL: [Self; 2] = [Self::Single, Self::Batch];

    const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Batch => "batch(32)",
        }
    }

    const fn reserves_per_request(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Batch => BATCH,
        }
    }

    fn http_target(self, server: &Server, model_count: usize) -> Target {
        match self {
            Self::Single => Target::single(server.addr, model_count),
            Self::Batch => Target::batch(server.addr, model_count, BATCH, BATCH),
        }
    }
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Result<Section, SkipReason> {
    let full = Sizes {
        models: 1_000,
        connections: [1, 16, 64, 256],
        duration: Duration::from_millis(500),
        lapse_warm_up: Duration::from_secs(2 * LAPSE_SECONDS),
        rounds: 9,
    };
    let quick = Sizes {
        models: 10,
        connections: [1, 2, 3, 4],
        duration: Duration::from_millis(10),
        lapse_warm_up: Duration::from_millis(10),
        rounds: 1,
    };
    let sizes = scale.pick(full, quick);
    let folder =
        tempfile::tempdir().map_err(|error| SkipReason(format!("no temporary folder: {error}")))?;
    let (models, lapsing) = (0..sizes.models, limits_lasting(LAPSE_SECONDS));
    let servers = Servers {
        ours: ratelimiterd(&folder, "limits.json", models.clone().flat_map(usual_limits())),
        lapsing: ratelimiterd(&folder, "lapsing.json", models.flat_map(lapsing)),
        bare: Server::start(Role::Bare.command(), folder.path()),
        redis: find_binary().map(|_| TestRedis::start(Persistence::None)),
    };
    let rounds = measure(sizes, &servers, progress);
    let mut section = Section::default();
    section.text(describe(sizes, servers.redis.is_some()));
    for endpoint in Endpoint::ALL {
        section.table(&table(endpoint, sizes, &rounds));
        section.panels.push(chart(endpoint, sizes, &rounds));
    }
    let at_64 = |server, endpoint| name(server, endpoint, sizes.connections[FOR_THRESHOLDS]);
    let (single, single_bare) = (at_64(OURS, Endpoint::Single), at_64(BARE, Endpoint::Single));
    let measured = [
        rounds.ratio(&single, &single_bare, |measured| measured.rate),
        rounds.ratio(&single, &single_bare, |measured| measured.p99),
        rounds.ratio(&at_64(LAPSING, Endpoint::Single), &single_bare, |measured| measured.rate),
        rounds.ratio(&at_64(OURS, Endpoint::Batch), &at_64(BARE, Endpoint::Batch), |measured| {
            measured.rate
        }),
    ];
    section.thresholds = Threshold::measured(THRESHOLDS, measured);
    Ok(section)
}

fn ratelimiterd(folder: &TempDir, file: &str, limits: impl Iterator<Item = Limit>) -> Server {
    let file = folder.path().join(file);
    write_limits(&file, limits);
    let mut command = Role::Ratelimiterd.command();
    command.args(["--listen", "127.0.0.1:0", "--limits"]).arg(&file);
    Server::start(command, folder.path())
}

/// Writes a limits file.
pub(crate) fn write_limits(file: &Path, limits: impl Iterator<Item = Limit>) {
    let registered = |limit| RegisteredLimit { limit, status: LimitStatus::Active };
    let registered: Vec<_> = limits.map(registered).collect();
    std::fs::write(file, ratelimiter_wire::write_limits_file(&registered))
        .expect("the limits file is written");
}

fn name(server: &str, endpoint: Endpoint, connections: usize) -> String {
    format!("{server}, {}, {connections} connections", endpoint.name())
}

fn measure(sizes: Sizes, servers: &Servers, progress: &Progress) -> Rounds<Measurement> {
    let Servers { ours, lapsing, bare, redis } = servers;
    let Sizes { models, duration, rounds, .. } = sizes;
    let mut comparison = Comparison::new();
    for endpoint in Endpoint::ALL {
        for connections in sizes.connections {
            let target = endpoint.http_target(ours, models);
            comparison.add(name(OURS, endpoint, connections), move || {
                let (measurement, leases) = closed::measure(ours, &target, connections, duration);
                closed::complete(&target, &leases);
                measurement
            });
            if endpoint == Endpoint::Single && connections == sizes.connections[FOR_THRESHOLDS] {
                let target = endpoint.http_target(lapsing, models);
                comparison.add(name(LAPSING, endpoint, connections), move || {
                    closed::measure(lapsing, &target, connections, sizes.lapse_warm_up);
                    closed::measure(lapsing, &target, connections, duration).0
                });
            }
            let target = endpoint.http_target(bare, models);
            comparison.add(name(BARE, endpoint, connections), move || {
                closed::measure(bare, &target, connections, duration).0
            });
            if let Some(redis) = redis {
                let reserves = endpoint.reserves_per_request();
                let target = bare_script::target(redis, models, reserves);
                comparison.add(name(REDIS, endpoint, connections), move || {
                    closed::measure(redis.process(), &target, connections, duration).0
                });
            }
        }
    }
    comparison.run(rounds, progress, "HTTP")
}

fn describe(sizes: Sizes, has_redis: bool) -> String {
    let Sizes { models, duration, rounds, .. } = sizes;
    let mut text = format!(
        "{rounds} rounds of {} ms for each server, endpoint and number of connections; HTTP/1.1 with keep-alive, one request at a time per \
         connection. Each call needs four limits of one of {} models ({} keys). The servers run in their own processes on the same machine as the \
         load generator, which is one thread that sends prepared requests, the same for all servers. The leases of each measurement are \
         completed after it, except where every lease lapses: on that server all windows and timeouts are {LAPSE_SECONDS} s, no lease is completed, \
         and each measurement follows {} s of the same load, so that as many leases lapse as are made. The bare axum server parses the same JSON with `serde_json`, decides nothing and \
         answers with the same bytes. Processor time is that of the server alone.",
        duration.as_millis(),
        count(models),
        count(models * LIMITS_PER_CALL),
        number(sizes.lapse_warm_up.as_secs_f64())
    );
    text += if has_redis {
        " Redis runs one Lua script per call, which checks four fixed-window counters and increments all of them or none; a batch is a \
         pipeline of 32 scripts. It has no leases, so it does less."
    } else {
        " **Redis was not measured**: there is no `redis-server` on the PATH."
    };
    text
}

type Value = fn(&Measurement) -> f64;

fn table(endpoint: Endpoint, sizes: Sizes, rounds: &Rounds<Measurement>) -> Table {
    let caption = format!("{}:", endpoint.name());
    let header = [
        "connections",
        "server",
        "reserves/s",
        "× bare axum",
        "p50 µs",
        "p99 µs",
        "p99, × bare axum",
        "p99.9 µs",
        "processor µs per request",
        "× bare axum",
    ];
    let mut table = Table::new(caption, header);
    let rate: Value = |measured| measured.rate;
    let p99: Value = |measured| measured.p99;
    let server_micros: Value = |measured| measured.server_micros;
    for connections in sizes.connections {
        let bare = name(BARE, endpoint, connections);
        for who in [OURS, LAPSING, BARE, REDIS] {
            let name = name(who, endpoint, connections);
            if !rounds.has(&name) {
                continue;
            }
            let median = |value| number(rounds.summary(&name, value).median);
            let ratio = |value| rounds.ratio(&name, &bare, value).to_string();
            table.row([
                connections.to_string(),
                who.to_owned(),
                median(rate),
                ratio(rate),
                median(|measured| measured.p50),
                rounds.summary(&name, p99).to_string(),
                ratio(p99),
                median(|measured| measured.p999),
                median(server_micros),
                ratio(server_micros),
            ]);
        }
    }
    table
}

fn chart(endpoint: Endpoint, sizes: Sizes, rounds: &Rounds<Measurement>) -> Panel {
    let title = format!("HTTP, {}: thousand reserves per second (more is better)", endpoint.name());
    let mut panel = Panel::new(title);
    for connections in sizes.connections {
        let plural = if connections == 1 { "" } else { "s" };
        let servers = [OURS, BARE, REDIS].map(|who| (who, name(who, endpoint, connections)));
        let servers = servers.into_iter().filter(|(_, name)| rounds.has(name));
        let rate = |name: &str| rounds.summary(name, |measured| measured.rate).median / 1_000.0;
        let bars = servers.map(|(who, name)| (who, rate(&name)));
        panel.group(format!("{connections} connection{plural}"), bars);
    }
    panel
}
