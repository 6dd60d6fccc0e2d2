//! What a provider says in headers about its own limits (`GW-07`), in all their formats.

use std::time::Duration;

use hyper::HeaderMap;
use ratelimiter::clock::Timestamp;

const MINUTE: Duration = Duration::from_secs(60);

/// What a limit of a provider counts, and the names of the headers that tell the limit, what remains of it, and when it resets.
type Header = (Counted, [&'static str; 3]);

/// Of OpenAI, of Mistral in its newer and older form, and of Anthropic.
#[rustfmt::skip]
const HEADERS: [Header; 9] = [
    (Counted::Requests, ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"]),
    (Counted::Tokens, ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"]),
    (Counted::Requests, ["x-ratelimit-limit-req-minute", "x-ratelimit-remaining-req-minute", "x-ratelimit-reset-req-minute"]),
    (Counted::Tokens, ["x-ratelimit-limit-tokens-minute", "x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"]),
    (Counted::Tokens, ["x-ratelimitbysize-limit-minute", "x-ratelimitbysize-remaining-minute", "x-ratelimitbysize-reset-minute"]),
    (Counted::Requests, ["anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"]),
    (Counted::Tokens, ["anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"]),
    (Counted::InputTokens, ["anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"]),
    (Counted::OutputTokens, ["anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"]),
];

/// What a limit of a provider counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Requests,
    Tokens,
    InputTokens,
    OutputTokens,
}

impl Counted {
    /// All that providers limit.
    pub(crate) const ALL: [Self; 4] =
        [Self::Requests, Self::Tokens, Self::InputTokens, Self::OutputTokens];
}

/// One limit of a provider, as an answer tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateFigure {
    pub(crate) counted: Counted,
    /// Over which time it counts, where the provider says so.
    pub(crate) window: Option<Duration>,
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: u64,
    /// How long until nothing of it is in use any more.
    pub(crate) resets_after: Option<Duration>,
}

/// What `x-ratelimit-*` and `anthropic-ratelimit-*` say.
pub(crate) fn rate_figures(headers: &HeaderMap, now: Timestamp) -> Vec<RateFigure> {
    // One pass over the headers costs less than hashing each name that they may have.
    let mut texts = [[None; 3]; HEADERS.len()];
    for (name, value) in headers {
        if let Some((limit, field)) = position(name.as_str()) {
            let text = &mut texts[limit][field];
            *text = text.or_else(|| value.to_str().ok().map(str::trim));
        }
    }
    let figure = |((counted, names), [limit, remaining, reset]): (Header, [Option<&str>; 3])| {
        let [_, remaining_name, _] = names;
        Some(RateFigure {
            counted,
            // Groq has OpenAI's names for its requests of a day.
            window: remaining_name.ends_with("-minute").then_some(MINUTE),
            limit: limit.and_then(|text| text.parse().ok()),
            // Azure writes -1 where it does not know.
            remaining: remaining?.parse().ok()?,
            resets_after: reset.and_then(|text| resets_after(text, now)),
        })
    };
    HEADERS.into_iter().zip(texts).filter_map(figure).collect()
}

/// Which limit a header is about, and what it says of it.
fn position(name: &str) -> Option<(usize, usize)> {
    HEADERS.iter().enumerate().find_map(|(limit, (_, names))| {
        Some((limit, names.iter().position(|field| *field == name)?))
    })
}

/// A time from now: `6m0s` and `12ms` (OpenAI, Groq), whole seconds (Azure) or a moment (Anthropic).
fn resets_after(text: &str, now: Timestamp) -> Option<Duration> {
    let seconds = || Duration::try_from_secs_f64(text.parse().ok()?).ok();
    let duration = || Duration::try_from(text.parse::<jiff::SignedDuration>().ok()?).ok();
    let until = || {
        let at: jiff::Timestamp = text.parse().ok()?;
        let now = jiff::Timestamp::from_millisecond(now.unix_ms().cast_signed()).ok()?;
        Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
    };
    seconds().or_else(duration).or_else(until)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    /// 2026-11-30T22:00:00Z
    const NOW: Timestamp = Timestamp::from_unix_ms(1_796_076_000_000);

    fn figures(list: &[(&'static str, &'static str)]) -> Vec<String> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let shown = |figure: RateFigure| {
            let RateFigure { counted, window, limit, remaining, resets_after } = figure;
            let window = window.map(|window| window.as_secs());
            let reset = resets_after.map(|after| after.as_millis());
            format!("{counted:?} {window:?} {remaining} of {limit:?} until {reset:?}")
        };
        rate_figures(&list.iter().map(pair).collect(), NOW).into_iter().map(shown).collect()
    }

    /// GW-07
    #[test]
    fn gw_07_openai_says_what_remains_of_requests_and_tokens() {
        assert_eq!(
            figures(&[
                ("x-ratelimit-limit-requests", "10000"),
                ("x-ratelimit-remaining-requests", "9999"),
                ("x-ratelimit-reset-requests", "8.64s"),
                ("x-ratelimit-limit-tokens", "200000"),
                ("x-ratelimit-remaining-tokens", "199000"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ]),
            [
                "Requests None 9999 of Some(10000) until Some(8640)",
                "Tokens None 199000 of Some(200000) until Some(360000)",
            ]
        );
    }

    /// GW-07
    #[test]
    fn gw_07_azure_counts_in_seconds_and_may_know_nothing() {
        assert_eq!(
            figures(&[
                ("x-ratelimit-limit-requests", "-1"),
                ("x-ratelimit-remaining-requests", "-1"),
                ("x-ratelimit-reset-requests", "0"),
                ("x-ratelimit-remaining-tokens", "80"),
                ("x-ratelimit-reset-tokens", "31"),
            ]),
            ["Tokens None 80 of None until Some(31000)"]
        );
    }

    /// GW-07
    #[test]
    fn gw_07_mistral_names_the_minute_and_no_reset() {
        assert_eq!(
            figures(&[
                ("x-ratelimit-limit-req-minute", "720"),
                ("x-ratelimit-remaining-req-minute", "717"),
                ("x-ratelimit-remaining-tokens-minute", "4999911"),
                ("x-ratelimitbysize-limit-minute", "500000"),
                ("x-ratelimitbysize-remaining-minute", "499000"),
                ("x-ratelimit-tokens-query-cost", "52"),
            ]),
            [
                "Requests Some(60) 717 of Some(720) until None",
                "Tokens Some(60) 4999911 of None until None",
                "Tokens Some(60) 499000 of Some(500000) until None",
            ]
        );
    }

    /// GW-07
    #[test]
    fn gw_07_anthropic_names_the_moment() {
        assert_eq!(
            figures(&[
                ("anthropic-ratelimit-requests-limit", "50"),
                ("anthropic-ratelimit-requests-remaining", "49"),
                ("anthropic-ratelimit-requests-reset", "2026-11-30T22:00:01Z"),
                ("anthropic-ratelimit-tokens-remaining", "9000"),
                ("anthropic-ratelimit-input-tokens-remaining", "8000"),
                ("anthropic-ratelimit-input-tokens-reset", "2026-11-30T21:59:59Z"),
                ("anthropic-ratelimit-output-tokens-remaining", "7000"),
            ]),
            [
                "Requests None 49 of Some(50) until Some(1000)",
                "Tokens None 9000 of None until None",
                "InputTokens None 8000 of None until Some(0)",
                "OutputTokens None 7000 of None until None",
            ]
        );
    }

    /// GW-07
    #[test]
    fn gw_07_a_reset_is_read_in_every_form() {
        for (text, expected) in [
            ("12ms", Some(12)),
            ("1s", Some(1_000)),
            ("1m30.951s", Some(90_951)),
            ("1h2m3s", Some(3_723_000)),
            ("2m59.56s", Some(179_560)),
            ("31", Some(31_000)),
            ("0.5", Some(500)),
            ("2026-11-30T22:01:00.500Z", Some(60_500)),
            ("2026-11-30T23:00:30+01:00", Some(30_000)),
            ("0s", Some(0)),
            ("0", Some(0)),
            ("2026-11-30T21:59:59Z", Some(0)),
            ("-1", None),
            ("-5s", None),
            ("NaN", None),
            ("1e300", None),
            ("soon", None),
            ("", None),
        ] {
            let after = resets_after(text, NOW).map(|after| after.as_millis());
            assert_eq!(after, expected, "{text:?}");
        }
    }

    /// GW-07
    #[test]
    fn gw_07_figures_that_make_no_sense_are_left_out() {
        for text in ["", "many", "-1", "1.5", "18446744073709551616"] {
            let headers = [("x-ratelimit-remaining-requests", text)];
            assert_eq!(figures(&headers), Vec::<String>::new(), "{text:?}");
        }
    }
}
