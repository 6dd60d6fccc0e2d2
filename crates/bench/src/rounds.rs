//! Contestants that take turns, and the medians of their rounds.

use std::time::{Duration, Instant};

/// Something to measure: a round prepares what it needs, and tells how long the work itself took.
pub struct Contestant<'a> {
    name: &'static str,
    round: Box<dyn FnMut() -> Figure + 'a>,
}

/// How long so many operations took.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    elapsed: Duration,
    count: u32,
}

/// The medians of several contestants, in their order.
#[derive(Debug)]
pub struct Rounds {
    rows: Vec<(&'static str, Vec<f64>)>,
}

impl std::fmt::Debug for Contestant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contestant").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'a> Contestant<'a> {
    /// A contestant with this name and this way to do a round.
    pub fn new(name: &'static str, round: impl FnMut() -> Figure + 'a) -> Self {
        Self { name, round: Box::new(round) }
    }
}

impl Figure {
    /// Measures `count` operations.
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the machine's time")]
    pub fn of(count: u32, mut operation: impl FnMut(usize)) -> Self {
        let started = Instant::now();
        for n in 0..count as usize {
            operation(n);
        }
        Self { elapsed: started.elapsed(), count }
    }

    /// Measures one piece of work that does `count` operations.
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the machine's time")]
    pub fn of_all(count: u32, work: impl FnOnce()) -> Self {
        let started = Instant::now();
        work();
        Self { elapsed: started.elapsed(), count }
    }

    fn nanos(self) -> f64 {
        self.elapsed.as_secs_f64() * 1e9 / f64::from(self.count)
    }
}

impl Rounds {
    /// Lets the contestants take turns. The first turn of each warms up and does not count.
    pub fn run(rounds: usize, contestants: &mut [Contestant<'_>]) -> Self {
        let mut rows: Vec<_> = contestants.iter().map(|c| (c.name, Vec::new())).collect();
        for round in 0..=rounds {
            for (contestant, (_, nanos)) in contestants.iter_mut().zip(&mut rows) {
                let figure = (contestant.round)();
                if round > 0 {
                    nanos.push(figure.nanos());
                }
            }
        }
        for (_, nanos) in &mut rows {
            nanos.sort_by(f64::total_cmp);
        }
        Self { rows }
    }

    /// The median of a contestant, in nanoseconds an operation.
    ///
    /// # Panics
    /// When nobody has that name.
    pub fn median(&self, name: &str) -> f64 {
        let row = self.rows.iter().find(|(other, _)| *other == name);
        let nanos = &row.expect("a contestant of this run").1;
        nanos[nanos.len() / 2]
    }

    /// How many times as long as `other` a contestant takes.
    pub fn ratio(&self, name: &str, other: &str) -> f64 {
        self.median(name) / self.median(other)
    }

    /// The medians as the rows of a Markdown table, each beside `other`, with the fastest and the slowest round.
    pub fn table(&self, other: &str) -> String {
        let mut table = format!(
            "| work | ns | fastest to slowest round | × {other} |\n| --- | --- | --- | --- |\n"
        );
        for (name, nanos) in &self.rows {
            let (fastest, slowest) = (nanos[0], nanos[nanos.len() - 1]);
            let (median, ratio) = (self.median(name), self.ratio(name, other));
            let row =
                format!("| {name} | {median:.0} | {fastest:.0} to {slowest:.0} | {ratio:.2} |\n");
            table.push_str(&row);
        }
        table
    }
}
