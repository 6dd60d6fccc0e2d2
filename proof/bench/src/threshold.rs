//! What a figure should be, and whether it is.

use crate::spread::{Spread, figure};
use crate::table::Table;

/// A figure beside what it should be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    work: &'static str,
    side: Side,
    bar: f64,
    /// Nothing if what it needs was not there.
    measured: Option<Spread>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    AtMost,
    AtLeast,
}

impl Bar {
    /// A figure that should be no more than `bar`.
    pub(crate) const fn at_most(work: &'static str, bar: f64, measured: Option<Spread>) -> Self {
        Self { work, side: Side::AtMost, bar, measured }
    }

    /// A figure that should be no less than `bar`.
    pub(crate) const fn at_least(work: &'static str, bar: f64, measured: Option<Spread>) -> Self {
        Self { work, side: Side::AtLeast, bar, measured }
    }

    /// Whether the median is what it should be, if it was measured.
    fn holds(&self) -> Option<bool> {
        let median = self.measured?.median;
        Some(match self.side {
            Side::AtMost => median <= self.bar,
            Side::AtLeast => median >= self.bar,
        })
    }

    /// The bars as a table.
    pub(crate) fn table<'a>(bars: impl IntoIterator<Item = &'a Self>) -> Table {
        let mut table = Table::new("", ["work", "measured", "bar", "holds"]);
        for bar in bars {
            let sign = match bar.side {
                Side::AtMost => "≤",
                Side::AtLeast => "≥",
            };
            let measured = bar.measured.map_or("not measured".to_owned(), |m| m.to_string());
            let holds = match bar.holds() {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "—",
            };
            table.row([
                bar.work.to_owned(),
                measured,
                format!("{sign} {}", figure(bar.bar)),
                holds.to_owned(),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_bar_holds_at_its_value_and_says_when_nothing_was_measured() {
        let spread = |median| Some(Spread { median, least: 0.5, most: 2.0 });
        let bars = [
            Bar::at_most("cost", 1.0, spread(1.0)),
            Bar::at_most("cost", 1.0, spread(1.01)),
            Bar::at_least("speed", 8.0, spread(8.0)),
            Bar::at_least("speed", 8.0, spread(7.9)),
            Bar::at_least("speed", 8.0, None),
        ];
        expect![[r"
            | work | measured | bar | holds |
            | --- | --- | --- | --- |
            | cost | 1.00 (0.50–2.00) | ≤ 1.00 | yes |
            | cost | 1.01 (0.50–2.00) | ≤ 1.00 | **no** |
            | speed | 8.00 (0.50–2.00) | ≥ 8.00 | yes |
            | speed | 7.90 (0.50–2.00) | ≥ 8.00 | **no** |
            | speed | not measured | ≥ 8.00 | — |
        "]]
        .assert_eq(&Bar::table(&bars).to_string());
    }
}
