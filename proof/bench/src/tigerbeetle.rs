//! ratelimiterd on TigerBeetle, compared with the same chains sent through the client crate alone.

mod direct;
pub(crate) mod limiter;
mod servers;

use std::time::Duration;

use testkit::tigerbeetle::{BINARY_VARIABLE, Mode, TestCluster, find_binary};

use self::direct::Direct;
use self::servers::Servers;
use crate::chart::Panel;
use crate::load::{Measurement, Target, closed, open};
use crate::progress::Progress;
use crate::report::{Section, SkipReason};
use crate::rounds::{Comparison, Rounds, itself};
use crate::scale::Scale;
use crate::summary::{count, number};
use crate::table::Table;
use crate::threshold::Threshold;

const DIRECT: &str = "client crate alone";
const DIRECT_AT_50: &str = "client crate alone, the same chains per request and per second";
/// Reserves per request of the batch endpoint, and connections.
const BATCHES: [(usize, usize); 2] = [(32, 64), (256, 16)];
/// Many different batches, although one of them has all models.
const BATCH_STEP: usize = 8;
/// Percent of the measured maximum.
const LOADS: [u32; 4] = [25, 50, 75, 90];

pub(crate) const THRESHOLDS: [Threshold; 3] = [
    Threshold::at_least(
        "TigerBeetle behind HTTP, batch endpoint, best setting, × the chains per second of the client crate alone",
        0.8,
    ),
    Threshold::at_most(
        "TigerBeetle, single reserve at 50 % load, p99, × that of a direct request of the same batch size",
        3.0,
    ),
    Threshold::at_least(
        "TigerBeetle, batching on, × the throughput with batching off, 256 connections",
        5.0,
    ),
];

#[derive(Debug, Clone, Copy)]
struct Sizes {
    mode: Mode,
    /// Sessions of each server, which has one more to read. All of them, and that of the client crate alone, are
    /// connections to one cluster.
    sessions: &'static [u32],
    models: usize,
    /// To the single endpoint.
    connections: usize,
    closed_duration: Duration,
    open_duration: Duration,
    rounds: usize,
}

struct Measured {
    /// Leases per second.
    closed: Rounds,
    /// Most single reserves per second.
    single_max: f64,
    /// Chains per request to the cluster at half of that.
    chains_at_50: usize,
    open: Rounds<Measurement>,
}

/// The reason to skip a section, if there is no server.
fn skip_without_server() -> Result<(), SkipReason> {
    let reason = || format!("no server; set {BINARY_VARIABLE} or put `tigerbeetle` on the PATH");
    find_binary().map(drop).ok_or_else(|| SkipReason(reason()))
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Result<Section, SkipReason> {
    skip_without_server()?;
    let full = Sizes {
        mode: Mode::Production,
        sessions: &[1, 2, 4, 8],
        models: 250,
        connections: 256,
        closed_duration: Duration::from_millis(1_500),
        open_duration: Duration::from_secs(2),
        rounds: 5,
    };
    let quick = Sizes {
        // A development server accepts 8 connections.
        mode: Mode::Development,
        sessions: &[1, 2],
        models: 2,
        connections: 8,
        closed_duration: Duration::from_millis(20),
        open_duration: Duration::from_millis(100),
        rounds: 1,
    };
    let sizes = scale.pick(full, quick);
    progress.step("TigerBeetle: starting");
    let cluster = TestCluster::start(sizes.mode);
    let servers = Servers::start(&cluster, sizes.models, sizes.sessions)?;
    let direct = Direct::open(&cluster, sizes.mode, sizes.models);
    let measured = measure(sizes, &servers, &direct, progress);
    Ok(section(sizes, &measured))
}

fn measure(sizes: Sizes, servers: &Servers, direct: &Direct, progress: &Progress) -> Measured {
    let closed = closed_loops(sizes, servers, direct, progress);
    let single_max = closed.summary(&single_name(sizes, 1), itself).median;
    let at = |percent: u32| single_max * f64::from(percent) / 100.0;
    let (server, duration) = (servers.with_sessions(1), sizes.open_duration);
    let connections = sizes.connections;
    let target = Target::single(server.addr, sizes.models);
    progress.step("TigerBeetle: chains per request at 50 %");
    let before = servers::batches_sent(server);
    open::measure(server, &target, connections, at(50), duration);
    let chains_at_50 = servers::batches_sent(server).chains_each_since(before);
    let mut comparison = Comparison::new();
    for percent in LOADS {
        let (target, rate) = (target.clone(), at(percent));
        comparison.add(load_name(percent), move || {
            open::measure(server, &target, connections, rate, duration)
        });
    }
    comparison.add(DIRECT_AT_50, || direct.paced(chains_at_50, at(50), duration));
    let open = comparison.run(sizes.rounds, progress, "TigerBeetle, open loop");
    Measured { closed, single_max, chains_at_50, open }
}

fn closed_loops(sizes: Sizes, servers: &Servers, direct: &Direct, progress: &Progress) -> Rounds {
    let Sizes { models, closed_duration, rounds, connections, .. } = sizes;
    let mut comparison = Comparison::new();
    comparison.add(DIRECT, || direct.flat_out(closed_duration));
    let mut add = |name, server, target, connections| {
        comparison.add(name, move || {
            closed::measure(server, &target, connections, closed_duration).0.rate
        });
    };
    for &sessions in sizes.sessions {
        let server = servers.with_sessions(sessions);
        for (reserves, connections) in BATCHES {
            let target = Target::batch(server.addr, models, reserves, BATCH_STEP);
            add(batch_name(sessions, reserves, connections), server, target, connections);
        }
        let target = Target::single(server.addr, models);
        add(single_name(sizes, sessions), server, target, connections);
    }
    let server = servers.unbatched();
    add(unbatched_name(sizes), server, Target::single(server.addr, models), connections);
    comparison.run(rounds, progress, "TigerBeetle")
}

fn batch_name(sessions: u32, reserves: usize, connections: usize) -> String {
    format!("batch({reserves}), {connections} connections, {}", sessions_name(sessions))
}

fn single_name(sizes: Sizes, sessions: u32) -> String {
    format!("single, {} connections, {}", sizes.connections, sessions_name(sessions))
}

fn unbatched_name(sizes: Sizes) -> String {
    format!("single, {} connections, 1 session, batching off", sizes.connections)
}

fn sessions_name(sessions: u32) -> String {
    format!("{sessions} session{}", if sessions == 1 { "" } else { "s" })
}

fn load_name(percent: u32) -> String {
    format!("ratelimiterd, {percent} %")
}

/// The fastest setting of the batch endpoint.
fn best_batch(sizes: Sizes, closed: &Rounds) -> String {
    let names = sizes.sessions.iter().flat_map(|&sessions| {
        BATCHES.map(|(reserves, connections)| batch_name(sessions, reserves, connections))
    });
    let rate = |name: &String| closed.summary(name, itself).median;
    names.max_by(|a, b| rate(a).total_cmp(&rate(b))).expect("there are settings")
}

fn section(sizes: Sizes, measured: &Measured) -> Section {
    let Measured { closed, single_max, chains_at_50, open } = measured;
    let best = best_batch(sizes, closed);
    let mut section = Section::default();
    section.text(format!(
        "One replica, `ratelimiterd` and the load generator on the same machine; {} rounds of {} ms for each row. A lease is a chain of four \
         pending transfers on the limits of one of {} models. The client crate alone sends 2 000 prepared chains per request, one request after \
         the other. `ratelimiterd` receives reserves over HTTP/1.1, parses them, decides, derives the IDs of the transfers and \
         answers. With batching off it sends one chain per request.",
        sizes.rounds,
        sizes.closed_duration.as_millis(),
        count(sizes.models)
    ));
    section.table(&closed.table(&format!("Best setting: {best}."), "leases/s", DIRECT));
    section.table(&open_table(*single_max, *chains_at_50, sizes, open));
    section.panels.push(chart_of_rates(sizes, closed, &best));
    section.panels.push(chart_of_loads(open));
    let measured = [
        closed.ratio(&best, DIRECT, itself),
        open.ratio(&load_name(50), DIRECT_AT_50, |measured| measured.p99),
        closed.ratio(&single_name(sizes, 1), &unbatched_name(sizes), itself),
    ];
    section.thresholds = Threshold::measured(THRESHOLDS, measured);
    section
}

fn open_table(
    single_max: f64,
    chains_at_50: usize,
    sizes: Sizes,
    open: &Rounds<Measurement>,
) -> Table {
    let caption = format!(
        "Single reserves in an open loop, 1 session, {} rounds of {} s: requests are sent at a constant rate, in percent of the {} per second of the \
         closed loop, and latency counts from the scheduled time. At 50 % a request to TigerBeetle had {chains_at_50} chains \
         on average, so the client crate alone sends {chains_at_50} chains per request, and as many chains per second:",
        sizes.rounds,
        sizes.open_duration.as_secs_f64(),
        number(single_max)
    );
    let header =
        ["load", "leases/s", "p50 µs", "p99 µs", "p99, × the client crate alone", "p99.9 µs"];
    let mut table = Table::new(caption, header);
    for name in open.names() {
        table.row([
            name.to_owned(),
            number(open.summary(name, |measured| measured.rate).median),
            open.summary(name, |measured| measured.p50).to_string(),
            open.summary(name, |measured| measured.p99).to_string(),
            open.ratio(name, DIRECT_AT_50, |measured| measured.p99).to_string(),
            open.summary(name, |measured| measured.p999).to_string(),
        ]);
    }
    table
}

fn chart_of_rates(sizes: Sizes, closed: &Rounds, best: &str) -> Panel {
    let mut panel = Panel::new("TigerBeetle: thousand leases of four per second (more is better)");
    let rows = [
        ("no server", DIRECT.to_owned(), DIRECT),
        ("batch endpoint", best.to_owned(), "ratelimiterd"),
        ("single reserves", single_name(sizes, 1), "ratelimiterd"),
        ("single reserves", unbatched_name(sizes), "ratelimiterd, batching off"),
    ];
    for (label, name, series) in rows {
        panel.group(label, [(series, closed.summary(&name, itself).median / 1_000.0)]);
    }
    panel
}

fn chart_of_loads(open: &Rounds<Measurement>) -> Panel {
    let mut panel = Panel::new(
        "TigerBeetle: latency of a single reserve in µs, by percent of the maximum load (less is better)",
    );
    for percent in LOADS {
        let name = load_name(percent);
        let median = |value: fn(&Measurement) -> f64| open.summary(&name, value).median;
        let bars = [
            ("ratelimiterd, p50", median(|measured| measured.p50)),
            ("ratelimiterd, p99", median(|measured| measured.p99)),
            ("ratelimiterd, p99.9", median(|measured| measured.p999)),
        ];
        panel.group(format!("{percent} %"), bars);
    }
    panel
}
