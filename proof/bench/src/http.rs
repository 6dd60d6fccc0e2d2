//! Our server with its memory backend, beside a bare one and beside Redis.

pub(crate) mod bare;
mod redis;

use std::path::Path;
use std::time::Duration;

use ratelimiter::{LimitStatus, RegisteredLimit};
use tempfile::TempDir;

use self::redis::Redis;
use crate::bar::Bar;
use crate::child::{Role, Server};
use crate::load::reply::{ALLOWED, BATCH_ALLOWED, Replies};
use crate::load::request::Template;
use crate::load::{Target, Turn, closed};
use crate::progress::Progress;
use crate::report::chart::{Bars, Panel};
use crate::report::{NotRun, Section};
use crate::rounds::{Contest, Rounds};
use crate::scale::Scale;
use crate::spread::{Spread, count, figure};
use crate::table::Table;
use crate::workload::{LIMITS_PER_CALL, limits, models};

const OURS: &str = "ratelimiterd";
const BARE: &str = "bare axum";
const REDIS: &str = "Redis, one Lua script";
/// How many reserves a batch has.
const BATCH: usize = 32;
/// Which of the numbers of connections the bars are about.
const OF_BARS: usize = 2;

/// One or many reserves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Single,
    Batch,
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    models: usize,
    connections: [usize; 4],
    turn: Duration,
    rounds: usize,
}

/// What the bars are about.
#[derive(Debug)]
pub(crate) struct Figures {
    single_rate: Spread,
    single_p99: Spread,
    batch_beside_single: Spread,
}

pub(crate) fn bars(figures: Option<&Figures>) -> Vec<Bar> {
    let of = |figure: fn(&Figures) -> Spread| figures.map(figure);
    vec![
        Bar::at_least(
            "HTTP single reserve, 64 connections, memory, × the throughput of a bare axum server",
            0.9,
            of(|f| f.single_rate),
        ),
        Bar::at_most("the same, × its p99", 1.2, of(|f| f.single_p99)),
        Bar::at_least(
            "HTTP batch(32), × the single endpoint's reserves per second, 64 connections",
            8.0,
            of(|f| f.batch_beside_single),
        ),
    ]
}

impl Endpoint {
    const ALL: [Self; 2] = [Self::Single, Self::Batch];

    const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Batch => "batch(32)",
        }
    }

    const fn reserves_each(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Batch => BATCH,
        }
    }

    /// What is sent to an HTTP server.
    fn http_target(self, server: &Server, model_count: usize) -> Target {
        let models = models(model_count);
        let (templates, replies): (Vec<_>, _) = match self {
            Self::Single => (models.into_iter().map(Template::reserve).collect(), ALLOWED),
            Self::Batch => (batches(&models).map(Template::reserve_batch).collect(), BATCH_ALLOWED),
        };
        let (addr, reserves_each) = (server.addr, self.reserves_each());
        Target { addr, templates: templates.into(), replies, reserves_each }
    }

    /// The same calls for Redis.
    fn redis_target(self, redis: &Redis, model_count: usize) -> Target {
        let models = models(model_count);
        let templates: Vec<_> = match self {
            Self::Single => models.into_iter().map(|model| redis.check([model])).collect(),
            Self::Batch => batches(&models).map(|batch| redis.check(batch)).collect(),
        };
        let reserves_each = self.reserves_each();
        let replies = Replies::Redis { count: reserves_each };
        Target { addr: redis.server.addr, templates: templates.into(), replies, reserves_each }
    }
}

/// Batches that together have every model, and each of them as many as a batch has.
fn batches(models: &[usize]) -> impl Iterator<Item = impl Iterator<Item = usize>> {
    let starts = (0..models.len()).step_by(BATCH);
    starts.map(|start| models.iter().copied().cycle().skip(start).take(BATCH))
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Result<Section, NotRun> {
    let full = Sizes {
        models: 1_000,
        connections: [1, 16, 64, 256],
        turn: Duration::from_millis(500),
        rounds: 9,
    };
    let quick =
        Sizes { models: 10, connections: [1, 2, 3, 4], turn: Duration::from_millis(10), rounds: 1 };
    let sizes = scale.pick(full, quick);
    let folder = tempfile::tempdir().map_err(|error| NotRun(format!("no folder: {error}")))?;
    let ours = ratelimiterd(&folder, sizes.models);
    let bare = Server::start(Role::Bare.command(), folder.path());
    let redis = Redis::start(folder.path());
    let rounds = measure(sizes, &ours, &bare, redis.as_ref(), progress);
    let mut section = Section::default();
    section.text(describe(sizes, redis.is_some()));
    for endpoint in Endpoint::ALL {
        section.table(table(endpoint, sizes, &rounds));
        section.panels.push(chart(endpoint, sizes, &rounds));
    }
    let at_64 = |server, endpoint| name(server, endpoint, sizes.connections[OF_BARS]);
    let (single, single_bare) = (at_64(OURS, Endpoint::Single), at_64(BARE, Endpoint::Single));
    section.bars = bars(Some(&Figures {
        single_rate: rounds.ratio(&single, &single_bare, |turn| turn.rate),
        single_p99: rounds.ratio(&single, &single_bare, |turn| turn.p99),
        batch_beside_single: rounds.ratio(&at_64(OURS, Endpoint::Batch), &single, |t| t.rate),
    }));
    Ok(section)
}

/// Our server, with the limits of so many models.
fn ratelimiterd(folder: &TempDir, model_count: usize) -> Server {
    let file = folder.path().join("limits.json");
    write_limits(&file, model_count, 60);
    let mut command = Role::Ratelimiterd.command();
    command.args(["--listen", "127.0.0.1:0", "--limits"]).arg(&file);
    Server::start(command, folder.path())
}

/// A limits file for so many models, the shortest limits of which last so many seconds.
pub(crate) fn write_limits(file: &Path, model_count: usize, seconds_min: u64) {
    let limits = (0..model_count).flat_map(|model| limits(model, seconds_min));
    let registered = |limit| RegisteredLimit { limit, status: LimitStatus::Active };
    let registered: Vec<_> = limits.map(registered).collect();
    std::fs::write(file, ratelimiter_wire::write_limits_file(&registered))
        .expect("there is room for a limits file");
}

fn name(server: &str, endpoint: Endpoint, connections: usize) -> String {
    format!("{server}, {}, {connections} connections", endpoint.name())
}

fn measure(
    sizes: Sizes,
    ours: &Server,
    bare: &Server,
    redis: Option<&Redis>,
    progress: &Progress,
) -> Rounds<Turn> {
    let Sizes { models, turn, rounds, .. } = sizes;
    let mut contest = Contest::new();
    for endpoint in Endpoint::ALL {
        for connections in sizes.connections {
            let target = endpoint.http_target(ours, models);
            contest.add(name(OURS, endpoint, connections), move || {
                let driven = closed::drive(ours, &target, connections, turn);
                closed::complete(&target, &driven.leases);
                driven.turn
            });
            let target = endpoint.http_target(bare, models);
            contest.add(name(BARE, endpoint, connections), move || {
                closed::drive(bare, &target, connections, turn).turn
            });
            if let Some(redis) = redis {
                let target = endpoint.redis_target(redis, models);
                contest.add(name(REDIS, endpoint, connections), move || {
                    closed::drive(&redis.server, &target, connections, turn).turn
                });
            }
        }
    }
    contest.run(rounds, progress, "HTTP")
}

fn describe(sizes: Sizes, has_redis: bool) -> String {
    let Sizes { models, turn, rounds, .. } = sizes;
    let mut text = format!(
        "{rounds} rounds with {} ms for each server, endpoint and number of connections, HTTP/1.1 with keep-alive, each connection with one \
         request under way. Calls need four limits of {} models, {} keys. The servers are processes of their own on the same machine as \
         what drives them, which is one thread that sends prepared bytes and is the same for all. After each turn its leases are completed, \
         which is not measured, as calls end too. The bare axum server reads the same JSON with `serde_json`, decides nothing, and \
         answers the same bytes. Processor time is that of the server alone, so it does \
         not depend on who drives it.",
        turn.as_millis(),
        count(models),
        count(models * LIMITS_PER_CALL)
    );
    text += if has_redis {
        " Redis runs one Lua script for a call, which checks four counters of fixed windows and adds to them, all or none; for a batch, \
         32 calls of the script are sent together. It knows no leases, so there is less for it to do."
    } else {
        " **Redis did not take part**: there is no `redis-server` on the PATH."
    };
    text
}

fn table(endpoint: Endpoint, sizes: Sizes, rounds: &Rounds<Turn>) -> Table {
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
        "processor µs a request",
        "× bare axum",
    ];
    let mut table = Table::new(caption, header);
    for connections in sizes.connections {
        let bare = name(BARE, endpoint, connections);
        for who in [OURS, BARE, REDIS] {
            let name = name(who, endpoint, connections);
            if !rounds.names().any(|other| other == name) {
                continue;
            }
            table.row([
                connections.to_string(),
                who.to_owned(),
                figure(rounds.spread(&name, |turn| turn.rate).median),
                rounds.ratio(&name, &bare, |turn| turn.rate).to_string(),
                figure(rounds.spread(&name, |turn| turn.p50).median),
                rounds.spread(&name, |turn| turn.p99).to_string(),
                rounds.ratio(&name, &bare, |turn| turn.p99).to_string(),
                figure(rounds.spread(&name, |turn| turn.p999).median),
                figure(rounds.spread(&name, |turn| turn.server_micros).median),
                rounds.ratio(&name, &bare, |turn| turn.server_micros).to_string(),
            ]);
        }
    }
    table
}

fn chart(endpoint: Endpoint, sizes: Sizes, rounds: &Rounds<Turn>) -> Panel {
    let title = format!("HTTP, {}: thousand reserves per second (more is better)", endpoint.name());
    let mut bars = Bars::new(title);
    for connections in sizes.connections {
        let plural = if connections == 1 { "" } else { "s" };
        let servers = [OURS, BARE, REDIS].into_iter().filter_map(|who| {
            let name = name(who, endpoint, connections);
            rounds
                .names()
                .any(|other| other == name)
                .then(|| (who, rounds.spread(&name, |turn| turn.rate).median / 1_000.0))
        });
        bars.group(format!("{connections} connection{plural}"), servers);
    }
    Panel::Bars(bars)
}
