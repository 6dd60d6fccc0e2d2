//! Rate limits as the headers of the two APIs tell them.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use crate::api::Api;
use crate::limits::{Level, Levels};

/// Adds the headers of each limit that there is.
pub(crate) fn insert(headers: &mut HeaderMap, api: Api, levels: &Levels) {
    match api {
        Api::OpenAi => {
            for (dimension, level) in [("requests", levels.requests), ("tokens", levels.tokens)] {
                let Some(level) = level else { continue };
                let name = |word| format!("x-ratelimit-{word}-{dimension}");
                insert_level(headers, name, level, openai_duration(level.full_after));
            }
        }
        Api::Anthropic => {
            for (dimension, level) in [
                ("requests", levels.requests),
                ("tokens", levels.tokens),
                ("input-tokens", levels.tokens),
                ("output-tokens", levels.tokens),
            ] {
                let Some(level) = level else { continue };
                let name = |word| format!("anthropic-ratelimit-{dimension}-{word}");
                // In whole seconds, rounded up: by then, the limit is full.
                let rounding = Duration::from_nanos(999_999_999);
                let full_at = levels.at.after(level.full_after.saturating_add(rounding));
                insert_level(headers, name, level, full_at.to_string());
            }
        }
    }
}

fn insert_level(
    headers: &mut HeaderMap,
    name: impl Fn(&'static str) -> String,
    level: Level,
    reset: String,
) {
    for (word, value) in [
        ("limit", level.limit.to_string()),
        ("remaining", level.remaining.to_string()),
        ("reset", reset),
    ] {
        let name = HeaderName::try_from(name(word)).expect("letters and dashes");
        headers.insert(name, HeaderValue::try_from(value).expect("printable ASCII"));
    }
}

/// As OpenAI writes it: `0s`, `12ms`, `1s`, `8.64s`, `6m0s`, `1h2m3s`. Rounded up to a millisecond.
fn openai_duration(duration: Duration) -> String {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    let (hours, minutes, seconds, ms) =
        (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000);
    if (hours, minutes, seconds) == (0, 0, 0) && ms > 0 {
        return format!("{ms}ms");
    }
    let fraction = format!(".{ms:03}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        (_, _) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use ratelimiter::clock::Timestamp;

    use super::*;

    fn levels() -> Levels {
        let level = Level { limit: 60, remaining: 59, full_after: Duration::from_millis(1) };
        let at = Timestamp::from_unix_ms(1_736_660_000_000);
        Levels { at, requests: Some(level), tokens: None }
    }

    fn text(api: Api) -> Vec<String> {
        let mut headers = HeaderMap::new();
        insert(&mut headers, api, &levels());
        let line = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {value:?}");
        let mut lines = headers.iter().map(line).collect::<Vec<_>>();
        lines.sort();
        lines
    }

    /// GW-14
    #[test]
    fn durations_are_written_as_openai_does() {
        for (ms, text) in [
            (0, "0s"),
            (12, "12ms"),
            (1_000, "1s"),
            (8_640, "8.64s"),
            (60_000, "1m0s"),
            (90_951, "1m30.951s"),
            (360_000, "6m0s"),
            (3_723_000, "1h2m3s"),
        ] {
            assert_eq!(openai_duration(Duration::from_millis(ms)), text);
        }
        assert_eq!(openai_duration(Duration::from_nanos(1)), "1ms");
    }

    /// GW-14
    #[test]
    fn each_api_has_its_names_and_formats() {
        assert_eq!(
            text(Api::OpenAi),
            [
                r#"x-ratelimit-limit-requests: "60""#,
                r#"x-ratelimit-remaining-requests: "59""#,
                r#"x-ratelimit-reset-requests: "1ms""#,
            ]
        );
        assert_eq!(
            text(Api::Anthropic),
            [
                r#"anthropic-ratelimit-requests-limit: "60""#,
                r#"anthropic-ratelimit-requests-remaining: "59""#,
                r#"anthropic-ratelimit-requests-reset: "2025-01-12T05:33:21Z""#,
            ]
        );
    }
}
