//! Bad cases of the memory backend, each beside its good case in the same rounds.

pub(crate) mod days;
mod denial;
pub(crate) mod idle;
mod stalls;
mod waiting;

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};

use self::denial::Denial;
use self::stalls::{Others, Schedule};
use self::waiting::WakeUp;
use crate::probe::{MODELS, Probe};
use crate::progress::Progress;
use crate::report::Section;
use crate::rounds::{Comparison, Rounds, float, itself, nanos_each};
use crate::scale::Scale;
use crate::summary::{Summary, count, number};
use crate::table::Table;
use crate::threshold::Threshold;
use crate::workload::{LIMITS_PER_CALL, PreparedLimiter};

pub(crate) const THRESHOLDS: [Threshold; 15] = [
    Threshold::at_most(
        "reserve(4) + complete, 1 million leases remembered, IDs in no order, × growing IDs",
        1.5,
    ),
    Threshold::at_most(
        "longest stall of a caller in every second while 50 000 leases a second lapse, ms",
        2.0,
    ),
    Threshold::at_most("first denial, 500 000 reservations of completed leases, ms", 0.2),
    Threshold::at_most("the same, of open leases, ms", 0.2),
    Threshold::at_most("the same, of completed leases, needs half of the capacity, ms", 0.2),
    Threshold::at_most("background sweep of 100 000 idle limits, % of a core", 0.3),
    Threshold::at_most("the same, each model used once before, % of a core", 0.3),
    Threshold::at_most("3 million calls in a day, MiB for windows of a day", 60.0),
    Threshold::at_most("the same, 6 million calls, MiB", 60.0),
    Threshold::at_most("peak memory of a second burst of a million leases, × the first", 1.1),
    Threshold::at_most("reserve(4) + complete on limits made from templates, × defined ones", 1.2),
    Threshold::at_most(
        "reserve(4) + complete at a server's layer where nobody waits, × the backend itself",
        1.05,
    ),
    Threshold::at_most("wake-up of one of 10 000 waiters, µs", 20.0),
    Threshold::at_most("the same, each in a queue of its own, µs", 20.0),
    Threshold::at_most("the same, of two limits that have room in turn, µs", 20.0),
];

const UNORDERED: &str = "IDs in no order";
const GROWING: &str = "growing IDs";
const FROM_TEMPLATES: &str = "limits made from templates";
const DEFINED: &str = "defined limits";
const LAYER: &str = "where requests may wait";
const BACKEND: &str = "the backend itself";
const LAPSE: &str = "leases lapse";
const COMPLETE: &str = "leases are completed";
const CONTROL: &str = "without a limiter";
const BYTES_PER_MIB: f64 = 1_048_576.0;

#[derive(Debug, Clone, Copy)]
struct Sizes {
    rounds: usize,
    /// Rounds of what takes little time, and differs by little.
    many_rounds: usize,
    /// Rounds of what takes long, and varies little.
    long_rounds: usize,
    remembered: usize,
    operations: usize,
    stalls: Schedule,
    reservations: usize,
    idle_limits: usize,
    idle_for: Duration,
    calls_in_a_day: [usize; 2],
    burst: usize,
    waiters: usize,
    wake_ups: usize,
}

/// One row: a bad case, its good case, and the value that the threshold is about.
struct Case {
    bad: String,
    good: String,
    measured: Summary,
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Section {
    let sizes = sizes(scale);
    let lease_ids = lease_ids(sizes, progress);
    let stalls = stalls(sizes, progress);
    let [completed, open, half] = denials(sizes, progress);
    let [unused, used] = idle_limits(sizes, progress);
    let [day, busy_day] = day_windows(sizes, progress);
    let (second_burst, after_burst) = bursts(sizes, progress);
    let templates = templates(sizes, progress);
    let layer = layer(sizes, progress);
    let [one_queue, many_queues, two_limits] = wake_ups(sizes, progress);
    let cases = [
        lease_ids,
        stalls,
        completed,
        open,
        half,
        unused,
        used,
        day,
        busy_day,
        second_burst,
        templates,
        layer,
        one_queue,
        many_queues,
        two_limits,
    ];
    let mut section = Section::default();
    section.text(describe(sizes));
    section.thresholds = Threshold::measured(THRESHOLDS, cases.each_ref().map(|c| c.measured));
    let header = ["case", "bad case", "good case", "measured", "threshold", "met"];
    let mut table = Table::new("", header);
    for (threshold, Case { bad, good, .. }) in section.thresholds.iter().zip(cases) {
        let [case, measured, bound, met] = threshold.cells();
        table.row([case, bad, good, measured, bound, met]);
    }
    section.table(&table);
    section.text(after_burst);
    section
}

fn sizes(scale: Scale) -> Sizes {
    let full = Sizes {
        rounds: 7,
        many_rounds: 31,
        long_rounds: 3,
        remembered: 1_000_000,
        operations: 25_000,
        stalls: Schedule {
            warm_up: Duration::from_secs(3),
            part: Duration::from_secs(1),
            part_count: 4,
        },
        reservations: 500_000,
        idle_limits: 100_000,
        idle_for: Duration::from_secs(5),
        calls_in_a_day: [3_000_000, 6_000_000],
        burst: 1_000_000,
        waiters: 10_000,
        wake_ups: 1_000,
    };
    let quick = Sizes {
        rounds: 1,
        many_rounds: 1,
        long_rounds: 1,
        remembered: 100,
        operations: 100,
        stalls: Schedule {
            warm_up: Duration::from_millis(10),
            part: Duration::from_millis(10),
            part_count: 2,
        },
        reservations: 100,
        idle_limits: 40,
        idle_for: Duration::from_millis(10),
        calls_in_a_day: [1_000, 2_000],
        burst: 1_000,
        waiters: 100,
        wake_ups: 10,
    };
    scale.pick(full, quick)
}

fn describe(sizes: Sizes) -> String {
    let Sizes { stalls: Schedule { warm_up, part, part_count }, idle_for, .. } = sizes;
    let [warm_up, part, idle_for] = [warm_up, part, idle_for].map(|time| time.as_secs_f64());
    format!(
        "Each bad case is measured beside its good case in the same rounds:\n\n\
         - Lease IDs: calls to {} models, by a limiter that remembers as many leases as it may.\n\
         - Stalls: one thread makes 50 000 leases a second on one model, whose windows and timeouts are 2 s; another thread makes a call to the \
         same model every 100 µs. The leases lapse, or are completed at once. After {warm_up} s to warm up, each round measures the longest call in each \
         of {part_count} parts of {part} s, and takes the smallest: the background sweep runs every 500 ms, so that a stall that it causes is in every \
         part, but a hiccup of the machine only in some. The longest call of all rounds and p99.9 are shown as well. “{CONTROL}” is a thread that only \
         reads the clock, on the same schedule.\n\
         - First denial: of a rolling limit of 60 s that has one unit left.\n\
         - Idle limits: processor time of a process that does nothing else for {idle_for} s.\n\
         - Windows of a day: resident memory after completed calls to a model with three rolling limits and a concurrency limit. The same calls on \
         windows of a second show what the remembered leases take; the difference is measured.\n\
         - Bursts: resident memory. The second burst begins when the leases of the first are completed and forgotten.\n\
         - Templates: calls to {} models, whose limits exist already.\n\
         - The layer where requests may wait: the calls of a server to its backend, without HTTP. The backend is the same one, with and without the layer.\n\
         - Wake-ups: a complete, and all that the server does for its waiters until the next one is admitted. Where the limits have room in turn, \
         nobody is, because each waiter needs both.",
        count(MODELS),
        count(MODELS)
    )
}

fn lease_ids(sizes: Sizes, progress: &Progress) -> Case {
    let Sizes { remembered, operations, rounds, .. } = sizes;
    let models = MODELS.min(remembered);
    let mut comparison = Comparison::new();
    let limiters = [
        (UNORDERED, PreparedLimiter::new(models).with_unordered_leases()),
        (GROWING, PreparedLimiter::new(models)),
    ];
    for (name, mut limiter) in limiters {
        progress.step(format_args!("{} leases, {name}", count(remembered)));
        (0..remembered).for_each(|n| limiter.reserve_and_complete(n));
        comparison.add(name, move || nanos_each(operations, |n| limiter.reserve_and_complete(n)));
    }
    let rounds = comparison.run(rounds, progress, "lease IDs");
    let nanos = |name| format!("{} ns", rounds.summary(name, itself));
    let measured = rounds.ratio(UNORDERED, GROWING, itself);
    Case { bad: nanos(UNORDERED), good: nanos(GROWING), measured }
}

fn templates(sizes: Sizes, progress: &Progress) -> Case {
    let Sizes { remembered, operations, many_rounds, .. } = sizes;
    let models = MODELS.min(remembered);
    let mut comparison = Comparison::new();
    let limiters = [
        (FROM_TEMPLATES, PreparedLimiter::from_templates(models)),
        (DEFINED, PreparedLimiter::new(models)),
    ];
    for (name, mut limiter) in limiters {
        (0..models).for_each(|n| limiter.reserve_and_complete(n));
        comparison.add(name, move || nanos_each(operations, |n| limiter.reserve_and_complete(n)));
    }
    let rounds = comparison.run(many_rounds, progress, "templates");
    let nanos = |name| format!("{} ns", rounds.summary(name, itself));
    let measured = rounds.ratio(FROM_TEMPLATES, DEFINED, itself);
    Case { bad: nanos(FROM_TEMPLATES), good: nanos(DEFINED), measured }
}

fn layer(sizes: Sizes, progress: &Progress) -> Case {
    let Sizes { remembered, operations, many_rounds, .. } = sizes;
    let models = MODELS.min(remembered);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let prepared = PreparedLimiter::new(models);
    let limiter = prepared.limiter.clone();
    let layer = runtime.block_on(async { waiting::layer(&limiter) });
    // The lease IDs of both are one growing sequence: an ID that is older than the last one costs more.
    let calls = RefCell::new(prepared);
    let mut comparison = Comparison::new();
    comparison.add(LAYER, || {
        let mut calls = calls.borrow_mut();
        nanos_each(operations, |n| waiting::reserve_and_complete(&layer, calls.next_call(n)))
    });
    comparison.add(BACKEND, || {
        let mut calls = calls.borrow_mut();
        nanos_each(operations, |n| waiting::reserve_and_complete_at(&limiter, calls.next_call(n)))
    });
    let rounds = comparison.run(many_rounds, progress, "the layer where requests may wait");
    let nanos = |name| format!("{} ns", rounds.summary(name, itself));
    let measured = rounds.ratio(LAYER, BACKEND, itself);
    Case { bad: nanos(LAYER), good: nanos(BACKEND), measured }
}

fn wake_ups(sizes: Sizes, progress: &Progress) -> [Case; 3] {
    const FEW: usize = 20;
    let Sizes { waiters, wake_ups, rounds, .. } = sizes;
    let name = |case: WakeUp, waiters| format!("{case:?}, {} waiters", count(waiters));
    let mut comparison = Comparison::new();
    for case in WakeUp::ALL {
        comparison.add(name(case, waiters), move || case.microseconds(waiters, wake_ups));
        let few = move || case.microseconds(FEW, wake_ups.min(FEW / 2));
        comparison.add(name(case, FEW), few);
    }
    let rounds = comparison.run(rounds, progress, "wake-ups");
    WakeUp::ALL.map(|case| {
        let measured = rounds.summary(&name(case, waiters), itself);
        let few = rounds.summary(&name(case, FEW), itself);
        Case { bad: format!("{measured} µs"), good: format!("{few} µs with {FEW}"), measured }
    })
}

fn stalls(sizes: Sizes, progress: &Progress) -> Case {
    let Sizes { stalls: schedule, long_rounds, .. } = sizes;
    let mut comparison = Comparison::new();
    comparison.add(LAPSE, || stalls::with_others(schedule, Others::Lapse));
    comparison.add(COMPLETE, || stalls::with_others(schedule, Others::Complete));
    comparison.add(CONTROL, || stalls::without_limiter(schedule));
    let rounds = comparison.run(long_rounds, progress, "stalls");
    let in_every_part = |name| rounds.summary(name, |stalls| stalls.in_every_part);
    let cell = |name| {
        let longest = rounds.summary(name, |stalls| stalls.longest).max;
        let p999 = rounds.summary(name, |stalls| stalls.p999).median;
        let (longest, p999) = (number(longest), number(p999));
        format!("{} ms, longest {longest} ms, p99.9 {p999} ms", in_every_part(name))
    };
    let good = format!("{}; {CONTROL}: {}", cell(COMPLETE), cell(CONTROL));
    Case { bad: cell(LAPSE), good, measured: in_every_part(LAPSE) }
}

fn denials(sizes: Sizes, progress: &Progress) -> [Case; 3] {
    const FEW: usize = 10;
    let Sizes { reservations, rounds, .. } = sizes;
    let name = |denial: Denial, live| format!("{denial:?}, {} reservations", count(live));
    let mut comparison = Comparison::new();
    for denial in Denial::ALL {
        for live in [reservations, FEW] {
            comparison.add(name(denial, live), move || denial.milliseconds(live));
        }
    }
    let rounds = comparison.run(rounds, progress, "first denial");
    Denial::ALL.map(|denial| {
        let measured = rounds.summary(&name(denial, reservations), itself);
        let few = rounds.summary(&name(denial, FEW), itself);
        Case { bad: format!("{measured} ms"), good: format!("{few} ms with {FEW}"), measured }
    })
}

fn idle_limits(sizes: Sizes, progress: &Progress) -> [Case; 2] {
    const PROBES: [Probe; 2] = [Probe::IdleLimits, Probe::UsedLimits];
    let Sizes { idle_limits, idle_for, long_rounds, .. } = sizes;
    let name = |probe: Probe, limits| format!("{} {}", count(limits), probe.name());
    let mut comparison = Comparison::new();
    for probe in PROBES {
        for limits in [idle_limits, LIMITS_PER_CALL] {
            comparison.add(name(probe, limits), move || probe.measure_for(limits, idle_for));
        }
    }
    let rounds = comparison.run(long_rounds, progress, "idle limits");
    PROBES.map(|probe| {
        let measured = rounds.summary(&name(probe, idle_limits), itself);
        let few = rounds.summary(&name(probe, LIMITS_PER_CALL), itself);
        Case {
            bad: format!("{measured} %"),
            good: format!("{few} % with {LIMITS_PER_CALL}"),
            measured,
        }
    })
}

fn day_windows(sizes: Sizes, progress: &Progress) -> [Case; 2] {
    let Sizes { calls_in_a_day, long_rounds, .. } = sizes;
    let name = |probe: Probe, calls| format!("{} × {}", count(calls), probe.name());
    let mut comparison = Comparison::new();
    for calls in calls_in_a_day {
        for probe in [Probe::DayWindow, Probe::SecondWindow] {
            let mib = move || probe.measure(calls) * float(calls) / BYTES_PER_MIB;
            comparison.add(name(probe, calls), mib);
        }
    }
    let rounds = comparison.run(long_rounds, progress, "windows of a day");
    let [calls, more] = calls_in_a_day;
    let cost = |calls| {
        let values = |probe| rounds.values(&name(probe, calls), itself);
        let pairs = values(Probe::DayWindow).into_iter().zip(values(Probe::SecondWindow));
        pairs.map(|(day, second)| day - second).collect::<Vec<_>>()
    };
    let growth = Summary::ratio(&cost(more), &cost(calls));
    let case = |calls, remark: &str| {
        let mib = |probe| format!("{} MiB", rounds.summary(&name(probe, calls), itself));
        let bad = format!("{}{remark}", mib(Probe::DayWindow));
        Case { bad, good: mib(Probe::SecondWindow), measured: Summary::of(&cost(calls)) }
    };
    [
        case(calls, ""),
        case(more, &format!("; the difference is {growth} × that with half the calls")),
    ]
}

/// Also says what stays when a burst is over.
fn bursts(sizes: Sizes, progress: &Progress) -> (Case, String) {
    const PROBES: [Probe; 3] = [Probe::SecondBurst, Probe::FirstBurst, Probe::EndedLeases];
    let Sizes { burst, long_rounds, .. } = sizes;
    let mut comparison = Comparison::new();
    for probe in PROBES {
        comparison.add(probe.name(), move || probe.measure(burst));
    }
    let rounds: Rounds = comparison.run(long_rounds, progress, "bursts");
    let [second, first, ended] =
        PROBES.map(|probe| format!("{} bytes per lease", rounds.summary(probe.name(), itself)));
    let measured = rounds.ratio(Probe::SecondBurst.name(), Probe::FirstBurst.name(), itself);
    let after = format!(
        "A minute after a burst of {} leases is forgotten, {ended} are still resident, of {first} at its peak.",
        count(burst)
    );
    (Case { bad: second, good: first, measured }, after)
}

/// Waits without using the processor.
fn wait_until(clock: &MonotonicClock, until: Timestamp) {
    loop {
        let left = until.since(clock.now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}
