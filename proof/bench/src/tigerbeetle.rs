//! Our server on a real TigerBeetle, beside the same chains sent straight through the client crate.

mod direct;
mod servers;

use std::time::Duration;

use testkit::tigerbeetle::{BINARY_VARIABLE, Mode, TestCluster, find_binary};

use self::direct::Direct;
use self::servers::{Servers, batch_target, single_target};
use crate::bar::Bar;
use crate::load::{Turn, closed, open};
use crate::progress::Progress;
use crate::report::chart::{Bars, Lines, Panel};
use crate::report::{NotRun, Section};
use crate::rounds::{Contest, Rounds, itself};
use crate::scale::Scale;
use crate::spread::{Spread, count, figure};
use crate::table::Table;

const DIRECT: &str = "client crate alone";
const DIRECT_AT_50: &str = "client crate alone, as many chains a request and as many a second";
/// How many reserves a request of the batch endpoint has, and over how many connections.
const BATCHES: [(usize, usize); 2] = [(32, 64), (256, 16)];
/// Parts of the measured maximum, in percent.
const LOADS: [u32; 4] = [25, 50, 75, 90];

#[derive(Debug, Clone, Copy)]
struct Sizes {
    mode: Mode,
    /// How many sessions our servers have, besides the one that reads. All of them together, and one more, are
    /// connections of one cluster.
    sessions: &'static [u32],
    models: usize,
    /// Of the single endpoint.
    connections: usize,
    /// Of one turn in a closed loop, and in an open one.
    turn: Duration,
    open_turn: Duration,
    rounds: usize,
}

/// What the bars are about.
#[derive(Debug)]
pub(crate) struct Figures {
    batch_beside_direct: Spread,
    p99_beside_direct: Spread,
    batching: Spread,
}

/// What was measured in closed loops, and then at parts of the maximum.
struct Measured {
    closed: Rounds,
    /// Single reserves per second, at the most.
    single_max: f64,
    /// How many chains a request to the cluster has at half of that.
    chains_at_50: usize,
    open: Rounds<Turn>,
}

pub(crate) fn bars(figures: Option<&Figures>) -> Vec<Bar> {
    let of = |figure: fn(&Figures) -> Spread| figures.map(figure);
    vec![
        Bar::at_least(
            "TigerBeetle behind HTTP, batch endpoint, best setting, × the chains per second of the client crate alone",
            0.8,
            of(|f| f.batch_beside_direct),
        ),
        Bar::at_most(
            "TigerBeetle, single reserve at 50 % load, p99, × that of a direct request of the same batch size",
            3.0,
            of(|f| f.p99_beside_direct),
        ),
        Bar::at_least(
            "TigerBeetle, batching on, × the throughput with batching off, 256 connections",
            5.0,
            of(|f| f.batching),
        ),
    ]
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Result<Section, NotRun> {
    if find_binary().is_none() {
        let reason = format!("no server; set {BINARY_VARIABLE} or put `tigerbeetle` on the PATH");
        return Err(NotRun(reason));
    }
    let full = Sizes {
        mode: Mode::Production,
        sessions: &[1, 2, 4, 8],
        models: 250,
        connections: 256,
        turn: Duration::from_millis(1_500),
        open_turn: Duration::from_secs(2),
        rounds: 5,
    };
    let quick = Sizes {
        // A development server takes 8 connections.
        mode: Mode::Development,
        sessions: &[1, 2],
        models: 2,
        connections: 8,
        turn: Duration::from_millis(20),
        open_turn: Duration::from_millis(100),
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
    let single_max = closed.spread(&single_name(sizes, 1), itself).median;
    let at = |percent: u32| single_max * f64::from(percent) / 100.0;
    let (server, turn) = (servers.with_sessions(1), sizes.open_turn);
    let connections = sizes.connections;
    let target = single_target(server, sizes.models);
    progress.step("TigerBeetle: how many chains a request has at 50 %");
    let before = servers::batches_sent(server);
    open::drive(server, &target, connections, at(50), turn);
    let chains_at_50 = servers::batches_sent(server).chains_each_since(before);
    let mut contest = Contest::new();
    for percent in LOADS {
        let (target, rate) = (target.clone(), at(percent));
        contest
            .add(load_name(percent), move || open::drive(server, &target, connections, rate, turn));
    }
    contest.add(DIRECT_AT_50, || direct.paced(chains_at_50, at(50), turn));
    let open = contest.run(sizes.rounds, progress, "TigerBeetle, open loop");
    Measured { closed, single_max, chains_at_50, open }
}

/// Leases per second.
fn closed_loops(sizes: Sizes, servers: &Servers, direct: &Direct, progress: &Progress) -> Rounds {
    let Sizes { models, turn, rounds, connections, .. } = sizes;
    let mut contest = Contest::new();
    contest.add(DIRECT, || direct.flat_out(turn));
    for &sessions in sizes.sessions {
        let server = servers.with_sessions(sessions);
        for (reserves, connections) in BATCHES {
            let target = batch_target(server, models, reserves);
            contest.add(batch_name(sessions, reserves, connections), move || {
                closed::drive(server, &target, connections, turn).turn.rate
            });
        }
        let target = single_target(server, models);
        contest.add(single_name(sizes, sessions), move || {
            closed::drive(server, &target, connections, turn).turn.rate
        });
    }
    let server = servers.unbatched();
    let target = single_target(server, models);
    contest.add(unbatched_name(sizes), move || {
        closed::drive(server, &target, connections, turn).turn.rate
    });
    contest.run(rounds, progress, "TigerBeetle")
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

/// The setting of the batch endpoint that was fastest.
fn best_batch(sizes: Sizes, closed: &Rounds) -> String {
    let names = sizes.sessions.iter().flat_map(|&sessions| {
        BATCHES.map(|(reserves, connections)| batch_name(sessions, reserves, connections))
    });
    let rate = |name: &String| closed.spread(name, itself).median;
    names.max_by(|a, b| rate(a).total_cmp(&rate(b))).expect("there are settings")
}

fn section(sizes: Sizes, measured: &Measured) -> Section {
    let Measured { closed, single_max, chains_at_50, open } = measured;
    let best = best_batch(sizes, closed);
    let mut section = Section::default();
    section.text(format!(
        "One replica, `ratelimiterd` and what drives them on the same machine; {} rounds with {} ms for each row. A lease is a chain of four \
         pending transfers on the limits of one of {} models. The client crate alone sends 2 000 chains a request, made before the clock \
         starts, one request after the other. `ratelimiterd` gets them over HTTP/1.1 and reads, decides, derives the transfers' IDs, and \
         answers. With batching off it sends one chain a request.",
        sizes.rounds,
        sizes.turn.as_millis(),
        count(sizes.models)
    ));
    let mut table = Table::new("", ["what", "leases/s", "× the client crate alone"]);
    for name in closed.names() {
        let mark = if name == best { " (best setting)" } else { "" };
        table.row([
            format!("{name}{mark}"),
            closed.spread(name, itself).to_string(),
            closed.ratio(name, DIRECT, itself).to_string(),
        ]);
    }
    section.table(table);
    section.table(open_table(*single_max, *chains_at_50, sizes, open));
    section.panels.push(chart_of_rates(sizes, closed, &best));
    section.panels.push(chart_of_loads(open));
    section.bars = bars(Some(&Figures {
        batch_beside_direct: closed.ratio(&best, DIRECT, itself),
        p99_beside_direct: open.ratio(&load_name(50), DIRECT_AT_50, |turn| turn.p99),
        batching: closed.ratio(&single_name(sizes, 1), &unbatched_name(sizes), itself),
    }));
    section
}

fn open_table(single_max: f64, chains_at_50: usize, sizes: Sizes, open: &Rounds<Turn>) -> Table {
    let caption = format!(
        "Single reserves in an open loop, 1 session, {} rounds of {} s: requests are due evenly, at a part of the {} a second that a closed loop \
         reached, and a latency counts from the moment when its request was due. At 50 % a request to TigerBeetle had {} chains \
         on average, so the client crate alone sends requests of {} chains, as many chains a second:",
        sizes.rounds,
        sizes.open_turn.as_secs_f64(),
        figure(single_max),
        chains_at_50,
        chains_at_50
    );
    let header =
        ["load", "leases/s", "p50 µs", "p99 µs", "p99, × the client crate alone", "p99.9 µs"];
    let mut table = Table::new(caption, header);
    for name in open.names() {
        table.row([
            name.to_owned(),
            figure(open.spread(name, |turn| turn.rate).median),
            open.spread(name, |turn| turn.p50).to_string(),
            open.spread(name, |turn| turn.p99).to_string(),
            open.ratio(name, DIRECT_AT_50, |turn| turn.p99).to_string(),
            open.spread(name, |turn| turn.p999).to_string(),
        ]);
    }
    table
}

fn chart_of_rates(sizes: Sizes, closed: &Rounds, best: &str) -> Panel {
    let mut bars = Bars::new("TigerBeetle: thousand leases of four per second (more is better)");
    let thousands = |name: &str| closed.spread(name, itself).median / 1_000.0;
    let rows = [
        ("no server", DIRECT.to_owned(), DIRECT),
        ("batch endpoint", best.to_owned(), "ratelimiterd"),
        ("single reserves", single_name(sizes, 1), "ratelimiterd"),
        ("single reserves", unbatched_name(sizes), "ratelimiterd, batching off"),
    ];
    for (label, name, series) in rows {
        bars.group(label, [(series, thousands(&name))]);
    }
    Panel::Bars(bars)
}

type Quantile = fn(&Turn) -> f64;

fn chart_of_loads(open: &Rounds<Turn>) -> Panel {
    let title = "TigerBeetle: latency of a single reserve in µs by load (less is better)";
    let mut lines = Lines::new(title, "% of the most that a closed loop reached");
    let quantiles: [(&str, Quantile); 3] =
        [("p99.9", |turn| turn.p999), ("p99", |turn| turn.p99), ("p50", |turn| turn.p50)];
    for (name, quantile) in quantiles {
        let at = |percent| open.spread(&load_name(percent), quantile).median;
        lines.line(
            format!("ratelimiterd, {name}"),
            LOADS.map(|percent| (f64::from(percent), at(percent))),
        );
    }
    Panel::Lines(lines)
}
