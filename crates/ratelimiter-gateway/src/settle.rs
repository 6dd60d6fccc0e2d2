//! What a call is settled with, by how it ended (`GW-05`).

use ratelimiter::{Actual, LimitKey};

use crate::dimension::Dimension;
use crate::estimate::Estimate;
use crate::price::Price;
use crate::settings::RateCounts;
use crate::usage::Usage;

/// How an attempt at a provider ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The provider did not get it: a connect error, or the caller left before.
    NeverSent,
    /// Sent, and no answer came; nobody knows what became of it.
    NoAnswer,
    /// The provider answered with an error status.
    Refused,
    /// The provider answered to the end.
    Answered {
        /// What the provider says; without that, what was counted counts.
        usage: Option<Usage>,
        counted: Usage,
    },
    /// The caller went away during a stream, or it was cut, timed out or ended with an error.
    Cut {
        /// What the provider said before, with the output so far.
        counted: Usage,
        /// Output was under way that cannot be seen.
        is_reasoning: bool,
    },
    /// A plain answer did not come whole: it was cut, or its caller went away and it was cancelled.
    PlainAnswerCut,
}

/// What an attempt used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settlement {
    pub(crate) requests: u64,
    /// `None` if what was reserved stays.
    pub(crate) usage: Option<Usage>,
    /// The provider has begun with it, so one that counts up front has counted it.
    pub(crate) is_counted: bool,
}

/// What an attempt has of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) key: LimitKey,
    pub(crate) dimension: Dimension,
    /// Holds end with their lease: nothing is reported of them.
    pub(crate) is_hold: bool,
}

/// The table of `GW-05`.
pub(crate) fn settle(end: AttemptEnd, estimate: &Estimate) -> Settlement {
    let (requests, usage) = match end {
        AttemptEnd::NeverSent => (0, Some(Usage::default())),
        AttemptEnd::NoAnswer | AttemptEnd::PlainAnswerCut => (1, None),
        AttemptEnd::Refused => (1, Some(Usage::default())),
        AttemptEnd::Answered { usage, counted } => (1, Some(usage.unwrap_or(counted))),
        AttemptEnd::Cut { counted, is_reasoning: false } => (1, Some(counted)),
        AttemptEnd::Cut { counted, is_reasoning: true } => {
            let output = estimate.output.max(counted.output);
            (1, Some(Usage { output, ..counted }))
        }
    };
    let is_counted = !matches!(end, AttemptEnd::NeverSent | AttemptEnd::Refused);
    Settlement { requests, usage, is_counted }
}

/// The actuals of a settlement. A provider that counts up front what a call may use gives nothing back of its rate limits.
pub(crate) fn actuals(
    settlement: &Settlement,
    reserved: &[Reserved],
    price: Option<&Price>,
    rate_counts: RateCounts,
) -> Vec<Actual> {
    let stays = |dimension: Dimension| {
        settlement.is_counted && rate_counts == RateCounts::Reserved && dimension.is_token_rate()
    };
    let actual = |Reserved { key, dimension, is_hold }: &Reserved| {
        let usage = match settlement.usage {
            Some(usage) => usage,
            None if dimension.counts_tokens() => return None,
            None => Usage::default(),
        };
        let is_reported = !is_hold && !stays(*dimension);
        is_reported.then(|| Actual {
            key: key.clone(),
            amount: dimension.used(settlement.requests, &usage, price),
        })
    };
    reserved.iter().filter_map(actual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::ListPrice;

    const ESTIMATE: Estimate = Estimate { input: 100, output: 1_000, bytes: 0 };
    const USED: Usage = Usage {
        input: 10,
        cache_read: 20,
        cache_write: 30,
        cache_write_1h: 0,
        output: 40,
        server_tool_calls: 0,
    };
    const COUNTED: Usage = Usage { input: 50, output: 7, ..NOTHING };
    const NOTHING: Usage = Usage {
        input: 0,
        cache_read: 0,
        cache_write: 0,
        cache_write_1h: 0,
        output: 0,
        server_tool_calls: 0,
    };

    /// GW-05
    #[test]
    fn gw_05_each_end_of_an_attempt_has_its_settlement() {
        let all_of_it = Usage { output: 1_000, ..COUNTED };
        for (end, requests, usage) in [
            (AttemptEnd::Answered { usage: Some(USED), counted: COUNTED }, 1, Some(USED)),
            (AttemptEnd::Answered { usage: None, counted: COUNTED }, 1, Some(COUNTED)),
            (AttemptEnd::Refused, 1, Some(NOTHING)),
            (AttemptEnd::Cut { counted: COUNTED, is_reasoning: false }, 1, Some(COUNTED)),
            (AttemptEnd::Cut { counted: COUNTED, is_reasoning: true }, 1, Some(all_of_it)),
            (AttemptEnd::PlainAnswerCut, 1, None),
            (AttemptEnd::NoAnswer, 1, None),
            (AttemptEnd::NeverSent, 0, Some(NOTHING)),
        ] {
            let is_counted = !matches!(end, AttemptEnd::Refused | AttemptEnd::NeverSent);
            assert_eq!(
                settle(end, &ESTIMATE),
                Settlement { requests, usage, is_counted },
                "{end:?}"
            );
        }
    }

    fn amounts(settlement: Settlement, rate_counts: RateCounts) -> String {
        let list = ListPrice { input: 1.0, output: 2.0, ..ListPrice::default() };
        let price = Price::new(list, [], 0.0).unwrap();
        let reserved = |name: &str| {
            let (_, dimension) = Dimension::ALL.into_iter().find(|(own, _)| *own == name).unwrap();
            let key = LimitKey::new(name).unwrap();
            Reserved { key, dimension, is_hold: name == "concurrency" }
        };
        let reserved =
            ["rpm", "tpm", "tpd", "itpm", "otpm", "concurrency", "daily_cost"].map(reserved);
        let actuals = actuals(&settlement, &reserved, Some(&price), rate_counts);
        let shown = actuals.iter().map(|Actual { key, amount }| format!("{key}={amount}"));
        shown.collect::<Vec<_>>().join(" ")
    }

    /// GW-02, GW-05
    #[test]
    fn gw_02_each_dimension_counts_its_part_of_the_usage() {
        let used = Settlement { requests: 1, usage: Some(USED), is_counted: true };
        assert_eq!(
            amounts(used, RateCounts::Actual),
            "rpm=1 tpm=100 tpd=100 itpm=40 otpm=40 daily_cost=140"
        );
        let unknown = Settlement { requests: 1, usage: None, is_counted: true };
        assert_eq!(amounts(unknown, RateCounts::Actual), "rpm=1", "what was reserved stays");
    }

    /// GW-05: what was never sent or refused was counted by nobody, not even by a provider that counts up front.
    #[test]
    fn gw_05_a_provider_that_counts_up_front_gives_nothing_back_of_its_rates() {
        let used = Settlement { requests: 1, usage: Some(USED), is_counted: true };
        assert_eq!(amounts(used, RateCounts::Reserved), "rpm=1 tpd=100 daily_cost=140");
        let refused = settle(AttemptEnd::Refused, &ESTIMATE);
        assert_eq!(
            amounts(refused, RateCounts::Reserved),
            "rpm=1 tpm=0 tpd=0 itpm=0 otpm=0 daily_cost=0"
        );
        let never_sent = settle(AttemptEnd::NeverSent, &ESTIMATE);
        assert_eq!(
            amounts(never_sent, RateCounts::Reserved),
            "rpm=0 tpm=0 tpd=0 itpm=0 otpm=0 daily_cost=0"
        );
    }
}
