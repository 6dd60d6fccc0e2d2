//! What a provider can still take by its own figures (`GW-07`). Plain arithmetic over a given time.

use std::time::Duration;

use tokio::time::Instant;

use crate::estimate::Estimate;
use crate::rate_figures::{Counted, RateFigure};
use crate::usage::Usage;

/// While no call is under way, one asks again after this time, whatever the provider has said.
const ASKED_AFTER: Duration = Duration::from_secs(10);
/// When a limit resets of which the provider does not say so.
const DEFAULT_RESET: Duration = Duration::from_mins(1);

/// What a call may use, or has used, of all that providers limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amounts([u64; Counted::ALL.len()]);

/// What a provider can still take.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credit {
    known: [Option<Known>; Counted::ALL.len()],
    /// What calls may use that have not ended.
    in_flight: Amounts,
    /// What calls have used that ended after the provider's last figures.
    spent: Amounts,
}

/// A figure of the provider, and when it came.
#[derive(Debug, Clone, Copy)]
struct Known {
    figure: RateFigure,
    at: Instant,
}

impl Amounts {
    /// The most that a call uses.
    pub(crate) const fn at_most(estimate: &Estimate) -> Self {
        let Estimate { input, output, .. } = *estimate;
        Self([1, input.saturating_add(output), input, output])
    }

    /// What it has used.
    pub(crate) fn used(requests: u64, usage: &Usage) -> Self {
        Self([requests, usage.all(), usage.uncached_input(), usage.output])
    }

    /// The part that a provider does not know before the answer has ended.
    pub(crate) const fn output(self) -> Self {
        let [_, _, _, output] = self.0;
        Self([0, output, 0, output])
    }

    fn of(self, counted: Counted) -> u64 {
        let [requests, tokens, input, output] = self.0;
        match counted {
            Counted::Requests => requests,
            Counted::Tokens => tokens,
            Counted::InputTokens => input,
            Counted::OutputTokens => output,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_add(other.0[at])))
    }

    fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(other.0[at])))
    }
}

impl Credit {
    /// Notes the figures of an answer.
    pub(crate) fn learn(&mut self, figures: &[RateFigure], now: Instant) {
        for (at, counted) in Counted::ALL.into_iter().enumerate() {
            let of_this = figures.iter().filter(|figure| figure.counted == counted);
            if let Some(figure) = of_this.min_by_key(|figure| figure.remaining) {
                self.known[at] = Some(Known { figure: *figure, at: now });
                self.spent.0[at] = 0;
            }
        }
    }

    /// A call is about to be sent.
    pub(crate) fn begin(&mut self, at_most: Amounts) {
        self.in_flight = self.in_flight.plus(at_most);
    }

    /// A call has ended that was begun with this amount.
    pub(crate) fn end(&mut self, at_most: Amounts, used: Amounts) {
        self.in_flight = self.in_flight.minus(at_most);
        self.spent = self.spent.plus(used);
    }

    /// How long until the provider can take a call, as far as is known. Zero is now.
    pub(crate) fn room_after(&self, at_most: Amounts, now: Instant) -> Duration {
        let needed = self.in_flight.plus(self.spent).plus(at_most);
        let is_idle = self.in_flight == Amounts::default();
        let after = |known: &Known| {
            let after = known.reaches(needed.of(known.figure.counted), now);
            let asked_after = (known.at + ASKED_AFTER).saturating_duration_since(now);
            if is_idle { after.min(asked_after) } else { after }
        };
        self.known.iter().flatten().map(after).max().unwrap_or_default()
    }
}

impl Known {
    /// How long until this amount is there. Of what comes back until the reset, others may use the half.
    fn reaches(&self, amount: u64, now: Instant) -> Duration {
        let RateFigure { remaining, limit, .. } = self.figure;
        let Some(missing) = amount.checked_sub(remaining).filter(|missing| *missing > 0) else {
            return Duration::ZERO;
        };
        let all_after = self.figure.resets_after.unwrap_or(DEFAULT_RESET);
        let comes_back = limit.unwrap_or(amount).saturating_sub(remaining) / 2;
        let after = match missing < comes_back {
            true => all_after.mul_f64(ratio(missing, comes_back)),
            false => all_after,
        };
        (self.at + after).saturating_duration_since(now)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a part of a time need not be exact")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(counted: Counted, remaining: u64, seconds: Option<u64>) -> RateFigure {
        let resets_after = seconds.map(Duration::from_secs);
        RateFigure { counted, window: None, limit: Some(1_000), remaining, resets_after }
    }

    fn call(input: u64, output: u64) -> Amounts {
        Amounts::at_most(&Estimate { input, output, bytes: 0 })
    }

    /// GW-07
    #[test]
    fn gw_07_calls_in_flight_count_against_what_remains() {
        let now = Instant::now();
        let mut credit = Credit::default();
        assert_eq!(credit.room_after(call(1_000_000, 0), now), Duration::ZERO, "nothing is known");
        credit.learn(&[figure(Counted::Tokens, 300, Some(60))], now);
        assert_eq!(credit.room_after(call(100, 200), now), Duration::ZERO);
        credit.begin(call(100, 100));
        assert_eq!(credit.room_after(call(50, 50), now), Duration::ZERO);
        assert!(credit.room_after(call(50, 51), now) > Duration::ZERO);
        credit.end(call(100, 100), Amounts::used(1, &Usage { output: 20, ..Usage::default() }));
        assert_eq!(credit.room_after(call(100, 180), now), Duration::ZERO);
        assert!(credit.room_after(call(100, 181), now) > Duration::ZERO);
        credit.learn(&[figure(Counted::Tokens, 300, Some(60))], now);
        assert_eq!(credit.room_after(call(100, 200), now), Duration::ZERO, "it is counted there");
    }

    /// GW-07
    #[test]
    fn gw_07_half_of_what_comes_back_is_expected() {
        let now = Instant::now();
        let mut credit = Credit::default();
        credit.learn(&[figure(Counted::Tokens, 200, Some(60))], now);
        credit.begin(call(0, 0));
        for (needed, seconds) in [(200, 0), (300, 15), (400, 30), (599, 60), (601, 60), (5_000, 60)]
        {
            let after = credit.room_after(call(needed, 0), now);
            assert_eq!((after + Duration::from_millis(500)).as_secs(), seconds, "{needed}");
        }
        let later = now + Duration::from_secs(15);
        assert_eq!(credit.room_after(call(300, 0), later), Duration::ZERO);
        assert_eq!(credit.room_after(call(5_000, 0), now + Duration::from_mins(1)), Duration::ZERO);
    }

    /// GW-07
    #[test]
    fn gw_07_figures_stop_calls_for_a_short_time_only() {
        let now = Instant::now();
        let mut credit = Credit::default();
        credit.learn(&[figure(Counted::Tokens, 0, Some(86_400))], now);
        assert_eq!(credit.room_after(call(100, 0), now), ASKED_AFTER);
        assert_eq!(credit.room_after(call(100, 0), now + ASKED_AFTER), Duration::ZERO);
        credit.begin(call(100, 0));
        assert!(credit.room_after(call(100, 0), now + ASKED_AFTER) > ASKED_AFTER, "one asks");
        credit.learn(&[figure(Counted::Tokens, 0, Some(0))], now);
        assert_eq!(credit.room_after(call(5_000, 0), now), Duration::ZERO, "it resets now");
    }

    /// GW-07
    #[test]
    fn gw_07_the_scarcest_figure_decides() {
        let now = Instant::now();
        let mut credit = Credit::default();
        credit.learn(
            &[
                figure(Counted::Requests, 0, Some(10)),
                figure(Counted::Tokens, 900, Some(6)),
                figure(Counted::Tokens, 20, None),
            ],
            now,
        );
        assert_eq!(credit.room_after(call(20, 0), now), Duration::from_millis(20));
        assert!(
            credit.room_after(call(20, 1), now) > Duration::from_millis(20),
            "of the other figure"
        );
    }
}
