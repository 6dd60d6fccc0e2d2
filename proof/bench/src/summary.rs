//! The median of several rounds, and how far they lie apart.

use std::fmt;

/// What several rounds measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// The spread of at least one round.
    pub(crate) fn of(rounds: &[f64]) -> Self {
        assert!(!rounds.is_empty(), "something was measured");
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Self { median, least: sorted[0], most: sorted[last] }
    }

    /// The quotient of two figures, round by round: what slows one round down slows down both of them.
    pub(crate) fn ratio(figures: &[f64], others: &[f64]) -> Self {
        assert_eq!(figures.len(), others.len(), "both took part in every round");
        let quotients: Vec<_> =
            figures.iter().zip(others).map(|(figure, other)| figure / other).collect();
        Self::of(&quotients)
    }
}

impl fmt::Display for Spread {
    /// `1.03 (0.98–1.10)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = *self;
        write!(f, "{} ({}–{})", figure(median), figure(least), figure(most))
    }
}

/// A number with as many digits as mean something: `0.012`, `1.03`, `12.5`, `45 210`.
pub(crate) fn figure(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude >= 100.0 {
        return grouped(&format!("{number:.0}"));
    }
    let decimals = match magnitude {
        m if m >= 10.0 => 1,
        m if m >= 0.1 => 2,
        _ => 3,
    };
    format!("{number:.decimals$}")
}

/// A count with its thousands apart: `400 000`.
pub(crate) fn count(number: usize) -> String {
    grouped(&number.to_string())
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
    fn the_median_lies_between_the_two_in_the_middle() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread, Spread { median: 2.5, least: 1.0, most: 4.0 });
        let spread = Spread::of(&[7.0, 9.0, 1.0]);
        assert_eq!(spread, Spread { median: 7.0, least: 1.0, most: 9.0 });
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // A machine that is ten times slower in the last round changes nothing.
        let ratio = Spread::ratio(&[2.0, 2.0, 20.0], &[1.0, 1.0, 10.0]);
        assert_eq!(ratio, Spread { median: 2.0, least: 2.0, most: 2.0 });
    }

    #[test]
    fn figures_have_the_digits_that_mean_something() {
        let cases = [
            (0.0123, "0.012"),
            (1.034, "1.03"),
            (12.54, "12.5"),
            (456.7, "457"),
            (45_210.4, "45 210"),
            (1_234_567.0, "1 234 567"),
            (-1_234.0, "-1 234"),
        ];
        for (number, text) in cases {
            assert_eq!(figure(number), text);
        }
        assert_eq!(count(400_000), "400 000");
        assert_eq!(Spread::of(&[1.0, 200.0, 3.0]).to_string(), "3.00 (1.00–200)");
    }
}
