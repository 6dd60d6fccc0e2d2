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
    /// What others have lately used of the same limits.
    of_others: [OfOthers; Counted::ALL.len()],
    /// What calls may use that have not ended.
    in_flight: Amounts,
    /// What all calls have used that have ended.
    spent: Amounts,
}

/// When a call was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// What all calls had used that had ended.
    spent: Amounts,
}

/// A figure of the provider, and when the call was sent that it answers.
#[derive(Debug, Clone, Copy)]
struct Known {
    figure: RateFigure,
    sent: Sent,
}

/// What others have used in a time.
#[derive(Debug, Clone, Copy, Default)]
struct OfOthers {
    amount: u64,
    time: Duration,
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
    /// Notes the figures of an answer to a call. They are as of when the provider got it, so those of a later call stay.
    pub(crate) fn learn(&mut self, figures: &[RateFigure], sent: Sent) {
        for (known, counted) in self.known.iter_mut().zip(Counted::ALL) {
            let of_this = figures.iter().filter(|figure| figure.counted == counted);
            let is_later = known.is_none_or(|known| known.sent.at <= sent.at);
            if let Some(figure) = of_this.min_by_key(|figure| figure.remaining).filter(|_| is_later)
            {
                *known = Some(Known { figure: *figure, sent });
            }
        }
    }

    /// Others have used so much in the last so long.
    pub(crate) fn others_used(&mut self, counted: Counted, amount: u64, time: Duration) {
        let all = self.of_others.iter_mut().zip(Counted::ALL);
        all.filter(|(_, of)| *of == counted).for_each(|(of, _)| *of = OfOthers { amount, time });
    }

    /// A call is sent.
    pub(crate) fn send(&mut self, at_most: Amounts, now: Instant) -> Sent {
        self.begin(at_most);
        Sent { at: now, spent: self.spent }
    }

    /// A call may use this.
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
        let after = |(known, of_others): (&Option<Known>, &OfOthers)| {
            let known = (*known)?;
            let counted = known.figure.counted;
            let needed = needed.minus(known.sent.spent).of(counted);
            let age = now.saturating_duration_since(known.sent.at);
            let after = known.reaches(needed.saturating_add(of_others.within(age)), now);
            let asked_after = ASKED_AFTER.saturating_sub(age);
            Some(if is_idle { after.min(asked_after) } else { after })
        };
        self.known.iter().zip(&self.of_others).filter_map(after).max().unwrap_or_default()
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
        (self.sent.at + after).saturating_duration_since(now)
    }
}

impl OfOthers {
    /// What others may use in a time, if they go on.
    fn within(self, time: Duration) -> u64 {
        if self.time.is_zero() {
            return 0;
        }
        let amount = u128::from(self.amount) * time.min(self.time).as_micros();
        u64::try_from(amount / self.time.as_micros()).expect("at most the amount")
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

    /// Notes the figures of an answer to a call that is sent now.
    fn learn(credit: &mut Credit, figures: &[RateFigure], now: Instant) {
        let sent = credit.send(Amounts::default(), now);
        credit.learn(figures, sent);
    }

    /// GW-07
    #[test]
    fn gw_07_calls_in_flight_count_against_what_remains() {
        let now = Instant::now();
        let mut credit = Credit::default();
        assert_eq!(credit.room_after(call(1_000_000, 0), now), Duration::ZERO, "nothing is known");
        learn(&mut credit, &[figure(Counted::Tokens, 300, Some(60))], now);
        assert_eq!(credit.room_after(call(100, 200), now), Duration::ZERO);
        credit.begin(call(100, 100));
        assert_eq!(credit.room_after(call(50, 50), now), Duration::ZERO);
        assert!(credit.room_after(call(50, 51), now) > Duration::ZERO);
        credit.end(call(100, 100), Amounts::used(1, &Usage { output: 20, ..Usage::default() }));
        assert_eq!(credit.room_after(call(100, 180), now), Duration::ZERO);
        assert!(credit.room_after(call(100, 181), now) > Duration::ZERO);
        learn(&mut credit, &[figure(Counted::Tokens, 300, Some(60))], now);
        assert_eq!(credit.room_after(call(100, 200), now), Duration::ZERO, "it is counted there");
    }

    /// GW-07
    #[test]
    fn gw_07_figures_are_as_of_when_their_call_was_sent() {
        let now = Instant::now();
        let mut credit = Credit::default();
        let earlier = credit.send(call(100, 0), now);
        credit.end(call(100, 0), Amounts::used(1, &Usage { input: 100, ..Usage::default() }));
        let later = credit.send(call(100, 0), now + Duration::from_secs(1));
        credit.learn(&[figure(Counted::Tokens, 500, None)], earlier);
        let is_room = |credit: &Credit, tokens| {
            credit.room_after(call(tokens, 0), now + Duration::from_secs(1)).is_zero()
        };
        assert!(is_room(&credit, 304) && !is_room(&credit, 305), "4 have come back");
        credit.learn(&[figure(Counted::Tokens, 500, None)], later);
        assert!(is_room(&credit, 400) && !is_room(&credit, 401), "the first was counted");
        credit.learn(&[figure(Counted::Tokens, 900, None)], earlier);
        assert!(!is_room(&credit, 401), "it is out of date");
    }

    /// GW-07
    #[test]
    fn gw_07_others_are_expected_to_go_on() {
        let now = Instant::now();
        let mut credit = Credit::default();
        learn(&mut credit, &[figure(Counted::Tokens, 1_000, None)], now);
        credit.others_used(Counted::Tokens, 600, Duration::from_mins(1));
        let is_room = |tokens, seconds| {
            let later = now + Duration::from_secs(seconds);
            credit.room_after(call(tokens, 0), later).is_zero()
        };
        assert!(is_room(1_000, 0));
        assert!(is_room(990, 1) && !is_room(991, 1));
        assert!(is_room(400, 60) && is_room(400, 600), "no more than that");
    }

    /// GW-07
    #[test]
    fn gw_07_half_of_what_comes_back_is_expected() {
        let now = Instant::now();
        let mut credit = Credit::default();
        learn(&mut credit, &[figure(Counted::Tokens, 200, Some(60))], now);
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
        learn(&mut credit, &[figure(Counted::Tokens, 0, Some(86_400))], now);
        assert_eq!(credit.room_after(call(100, 0), now), ASKED_AFTER);
        assert_eq!(credit.room_after(call(100, 0), now + ASKED_AFTER), Duration::ZERO);
        credit.begin(call(100, 0));
        assert!(credit.room_after(call(100, 0), now + ASKED_AFTER) > ASKED_AFTER, "one asks");
        learn(&mut credit, &[figure(Counted::Tokens, 0, Some(0))], now);
        assert_eq!(credit.room_after(call(5_000, 0), now), Duration::ZERO, "it resets now");
    }

    /// GW-07
    #[test]
    fn gw_07_the_scarcest_figure_decides() {
        let now = Instant::now();
        let mut credit = Credit::default();
        learn(
            &mut credit,
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
