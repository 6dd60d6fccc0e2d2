//! Thresholds, and whether the measurements meet them.

use crate::summary::{Summary, number};
use crate::table::Table;

/// A measured value and its bound.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Threshold {
    work: &'static str,
    bound: Bound,
    /// `None` if the section did not run.
    measured: Option<Summary>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Threshold {
    pub(crate) const fn at_most(work: &'static str, max: f64) -> Self {
        Self { work, bound: Bound::AtMost(max), measured: None }
    }

    pub(crate) const fn at_least(work: &'static str, min: f64) -> Self {
        Self { work, bound: Bound::AtLeast(min), measured: None }
    }

    pub(crate) fn measured<const N: usize>(
        thresholds: [Self; N],
        measured: [Summary; N],
    ) -> Vec<Self> {
        Self::measured_where(thresholds, measured.map(Some))
    }

    /// `None` is what a missing peer leaves out.
    pub(crate) fn measured_where<const N: usize>(
        thresholds: [Self; N],
        measured: [Option<Summary>; N],
    ) -> Vec<Self> {
        let pairs = thresholds.into_iter().zip(measured);
        pairs.map(|(threshold, measured)| Self { measured, ..threshold }).collect()
    }

    /// The median decides.
    fn is_met(&self) -> Option<bool> {
        let median = self.measured?.median;
        Some(match self.bound {
            Bound::AtMost(max) => median <= max,
            Bound::AtLeast(min) => median >= min,
        })
    }

    /// The work, the measured value, the threshold, and whether it is met.
    pub(crate) fn cells(&self) -> [String; 4] {
        let measured = self.measured.map(|summary| summary.to_string());
        let bound = match self.bound {
            Bound::AtMost(max) => format!("≤ {}", number(max)),
            Bound::AtLeast(min) => format!("≥ {}", number(min)),
        };
        let met = match self.is_met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "—",
        };
        let measured = measured.unwrap_or_else(|| "not measured".to_owned());
        [self.work.to_owned(), measured, bound, met.to_owned()]
    }

    pub(crate) fn table<'a>(thresholds: impl IntoIterator<Item = &'a Self>) -> Table {
        let mut table = Table::new("", ["work", "measured", "threshold", "met"]);
        thresholds.into_iter().for_each(|threshold| table.row(threshold.cells()));
        table
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_threshold_is_met_at_its_value_and_not_measured_if_nothing_ran() {
        let measured = |threshold, median| {
            Threshold::measured([threshold], [Summary { median, min: 0.5, max: 2.0 }]).remove(0)
        };
        let thresholds = [
            measured(Threshold::at_most("cost", 1.0), 1.0),
            measured(Threshold::at_most("cost", 1.0), 1.01),
            measured(Threshold::at_least("speed", 8.0), 8.0),
            measured(Threshold::at_least("speed", 8.0), 7.9),
            Threshold::at_least("speed", 8.0),
        ];
        expect![[r"
            | work | measured | threshold | met |
            | --- | --- | --- | --- |
            | cost | 1.00 (0.50–2.00) | ≤ 1.00 | yes |
            | cost | 1.01 (0.50–2.00) | ≤ 1.00 | **no** |
            | speed | 8.00 (0.50–2.00) | ≥ 8.00 | yes |
            | speed | 7.90 (0.50–2.00) | ≥ 8.00 | **no** |
            | speed | not measured | ≥ 8.00 | — |
        "]]
        .assert_eq(&Threshold::table(&thresholds).to_string());
    }
}
