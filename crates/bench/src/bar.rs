//! What a figure should be, and whether it is.

/// A measured figure beside what it should be.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    work: &'static str,
    measured: f64,
    bar: f64,
    is_upper: bool,
}

impl Bar {
    /// A figure that should be no more than `bar`.
    pub const fn at_most(work: &'static str, measured: f64, bar: f64) -> Self {
        Self { work, measured, bar, is_upper: true }
    }

    /// A figure that should be no less than `bar`.
    pub const fn at_least(work: &'static str, measured: f64, bar: f64) -> Self {
        Self { work, measured, bar, is_upper: false }
    }

    /// True if the figure is what it should be.
    pub fn holds(&self) -> bool {
        if self.is_upper { self.measured <= self.bar } else { self.measured >= self.bar }
    }

    /// The bars as a Markdown table.
    pub fn table(bars: &[Self]) -> String {
        let mut table =
            String::from("| figure | measured | bar | holds |\n| --- | --- | --- | --- |\n");
        for bar in bars {
            let Self { work, measured, bar: limit, is_upper } = bar;
            let sign = if *is_upper { "≤" } else { "≥" };
            let holds = if bar.holds() { "yes" } else { "no" };
            table.push_str(&format!("| {work} | {measured:.2} | {sign} {limit:.1} | {holds} |\n"));
        }
        table
    }
}
