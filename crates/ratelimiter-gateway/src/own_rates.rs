//! Limits of ours that a provider may have too, to be compared with its figures (`GW-07`).

use std::time::Duration;

use ratelimiter::{LimitKey, LimitKind, LimitMode, LimitState, LimitStatus};

use crate::rate_figures::{Counted, RateFigure};
use crate::settle::Reserved;

/// Limits for all calls of a model begin with this; those of a tenant are no provider's.
const OF_ALL_CALLS: &str = "global:";
/// Providers round the time of a reset up.
const RESET_ROUNDING: Duration = Duration::from_secs(1);

/// A limit of ours that a provider may have too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnRate {
    pub(crate) key: LimitKey,
    pub(crate) counted: Counted,
    pub(crate) capacity: u64,
    pub(crate) window: Duration,
    /// With what is held back of it.
    pub(crate) room: u64,
}

/// The keys of limits that a provider may have too.
pub(crate) fn rate_keys(reserved: &[Reserved]) -> Vec<(LimitKey, Counted)> {
    let of_all = reserved.iter().filter(|own| own.key.as_str().starts_with(OF_ALL_CALLS));
    of_all.filter_map(|own| Some((own.key.clone(), own.dimension.counted()?))).collect()
}

impl OwnRate {
    pub(crate) fn new(
        key: LimitKey,
        counted: Counted,
        state: &LimitState,
        held_back: u64,
    ) -> Option<Self> {
        let LimitKind::Rolling { window } = state.limit.kind else { return None };
        let is_enforced =
            state.status == LimitStatus::Active && state.limit.mode == LimitMode::Enforce;
        is_enforced.then(|| Self {
            key,
            counted,
            capacity: state.limit.capacity.get(),
            window: Duration::from_secs(window.seconds().into()),
            room: state.usage.available.saturating_add(held_back),
        })
    }

    /// How far its capacity is from the provider's, as a factor.
    fn distance(&self, limit: u64) -> u128 {
        let (smaller, larger) = (self.capacity.min(limit), self.capacity.max(limit));
        u128::from(larger) * 1_000_000 / u128::from(smaller.max(1))
    }
}

impl RateFigure {
    /// The limit of ours that counts the same. Providers seldom say over which time they count: it is the one with the nearest capacity,
    /// and none whose window is over before theirs resets.
    pub(crate) fn own<'a>(&self, rates: &'a [OwnRate]) -> Option<&'a OwnRate> {
        let is_possible = |rate: &&OwnRate| {
            let resets_after = self.resets_after.unwrap_or_default();
            rate.counted == self.counted
                && self.window.is_none_or(|window| window == rate.window)
                && resets_after <= rate.window + RESET_ROUNDING
        };
        let limit = self.limit.unwrap_or(self.remaining);
        rates.iter().filter(is_possible).min_by_key(|rate| rate.distance(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(name: &str, counted: Counted, capacity: u64, seconds: u64) -> OwnRate {
        let key = LimitKey::new(format!("global:llm:p:m:{name}")).unwrap();
        OwnRate { key, counted, capacity, window: Duration::from_secs(seconds), room: 0 }
    }

    fn own(figure: RateFigure) -> String {
        let rates = [
            rate("rpm", Counted::Requests, 30, 60),
            rate("rpd", Counted::Requests, 14_400, 86_400),
            rate("tpm", Counted::Tokens, 6_000, 60),
            rate("tpd", Counted::Tokens, 500_000, 86_400),
        ];
        figure.own(&rates).map_or("none".to_owned(), |own| own.key.as_str().to_owned())
    }

    /// GW-07
    #[test]
    fn gw_07_a_figure_belongs_to_the_limit_of_ours_that_counts_the_same() {
        let figure = |counted, limit, reset: u64| RateFigure {
            counted,
            window: None,
            limit: Some(limit),
            remaining: 1,
            resets_after: Some(Duration::from_secs(reset)),
        };
        let per_minute = Some(Duration::from_secs(60));
        for (figure, expected) in [
            (figure(Counted::Requests, 40, 2), "global:llm:p:m:rpm"),
            // Groq's requests are those of a day.
            (figure(Counted::Requests, 14_400, 6), "global:llm:p:m:rpd"),
            (figure(Counted::Requests, 30, 86_400), "global:llm:p:m:rpd"),
            (figure(Counted::Tokens, 6_000, 61), "global:llm:p:m:tpm"),
            (figure(Counted::Tokens, 6_000, 86_500), "none"),
            (figure(Counted::InputTokens, 6_000, 1), "none"),
            (
                RateFigure { window: per_minute, ..figure(Counted::Requests, 14_400, 6) },
                "global:llm:p:m:rpm",
            ),
            (RateFigure { limit: None, ..figure(Counted::Requests, 0, 6) }, "global:llm:p:m:rpm"),
        ] {
            assert_eq!(own(figure), expected, "{figure:?}");
        }
    }
}
