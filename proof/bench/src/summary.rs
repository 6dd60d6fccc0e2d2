//! Median, minimum and maximum of several rounds.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of at least one round.
    pub(crate) fn of(rounds: &[f64]) -> Self {
        assert!(!rounds.is_empty(), "at least one round was measured");
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Self { median, min: sorted[0], max: sorted[last] }
    }

    /// Ratios round by round: what slows one round down slows down both values of it.
    pub(crate) fn ratio(values: &[f64], others: &[f64]) -> Self {
        assert_eq!(values.len(), others.len(), "both were measured in every round");
        let ratios: Vec<_> =
            values.iter().zip(others).map(|(value, other)| value / other).collect();
        Self::of(&ratios)
    }
}

impl fmt::Display for Summary {
    /// `1.03 (0.98–1.10)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, min, max } = *self;
        write!(f, "{} ({}–{})", number(median), number(min), number(max))
    }
}

/// Formats a number with two or three significant digits, or as a whole: `0.012`, `1.03`, `12.5`, `45 210`.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 100.0 {
        return grouped(&format!("{value:.0}"));
    }
    let decimals = match magnitude {
        m if m >= 10.0 => 1,
        m if m >= 0.1 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Formats a count with thousands separated: `400 000`.
pub(crate) fn count(value: usize) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(summary, Summary { median: 2.5, min: 1.0, max: 4.0 });
        let summary = Summary::of(&[7.0, 9.0, 1.0]);
        assert_eq!(summary, Summary { median: 7.0, min: 1.0, max: 9.0 });
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // A machine that is ten times slower in the last round changes nothing.
        let ratio = Summary::ratio(&[2.0, 2.0, 20.0], &[1.0, 1.0, 10.0]);
        assert_eq!(ratio, Summary { median: 2.0, min: 2.0, max: 2.0 });
    }

    #[test]
    fn numbers_have_their_significant_digits_only() {
        let cases = [
            (0.0123, "0.012"),
            (1.034, "1.03"),
            (12.54, "12.5"),
            (456.7, "457"),
            (45_210.4, "45 210"),
            (1_234_567.0, "1 234 567"),
            (-1_234.0, "-1 234"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(count(400_000), "400 000");
        assert_eq!(Summary::of(&[1.0, 200.0, 3.0]).to_string(), "3.00 (1.00–200)");
    }
}
