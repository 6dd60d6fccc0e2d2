//! When to ask a provider again (`GW-09`).

use std::time::{Duration, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;
use ratelimiter::clock::Timestamp;

/// The most times that a provider is asked again for one call.
pub(crate) const RETRIES_MAX: u32 = 8;
/// The longest pause before a retry if the provider names none.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// The first of pauses that grow.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// Whether a call may be repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry {
    /// How often it was repeated.
    pub(crate) retries: u32,
    /// The wait that is left.
    pub(crate) left: Duration,
}

/// How long to wait before a call is repeated: the time that the provider has `named`, or a growing one. `None` if that does not fit into
/// the wait that is left.
pub(crate) fn pause_before_retry(
    Retry { retries, left }: Retry,
    named: Option<Duration>,
) -> Option<Duration> {
    let pause = named.unwrap_or_else(|| growing_pause(retries, PAUSE_MAX));
    (pause <= left).then_some(pause)
}

/// A pause after so many `earlier` ones in a row: it doubles from half a second to `longest`, of which chance takes up to a quarter.
pub(crate) fn growing_pause(earlier: u32, longest: Duration) -> Duration {
    let pause = PAUSE_FIRST.saturating_mul(2_u32.saturating_pow(earlier));
    pause.min(longest).mul_f64(1.0 - 0.25 * fastrand::f64())
}

/// Whether the provider says that it does not help to repeat the call.
pub(crate) fn is_in_vain(headers: &HeaderMap) -> bool {
    headers.get("x-should-retry").is_some_and(|value| value == "false")
}

/// What the message of an error says about when to come back, where no header does: Gemini's `Please retry in 46s`,
/// `Please try again in 1.2s` of OpenAI and Groq, and Azure's `Please retry after 2 seconds`.
pub(crate) fn retry_after_in_message(body: &[u8]) -> Option<Duration> {
    let body = String::from_utf8_lossy(body);
    let text_after = |words: &str| body.split_once(words).map(|(_, text)| text);
    if let Some((number, _)) =
        text_after("retry after ").and_then(|text| text.split_once(" second"))
    {
        return seconds(number, 1.0);
    }
    let text = ["retry in ", "try again in "].into_iter().find_map(text_after)?;
    let time = text.split(|after: char| !after.is_ascii_alphanumeric() && after != '.').next()?;
    Duration::try_from(time.trim_end_matches('.').parse::<jiff::SignedDuration>().ok()?).ok()
}

/// What a provider says about when to come back, in any of its forms.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let ms = text("retry-after-ms").and_then(|text| seconds(text, 1e-3));
    ms.or_else(|| {
        let text = text(RETRY_AFTER.as_str())?;
        seconds(text, 1.0).or_else(|| {
            let at = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(at.saturating_sub(Duration::from_millis(now.unix_ms())))
        })
    })
}

fn seconds(text: &str, unit: f64) -> Option<Duration> {
    let number: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_796_076_000_000);

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn every_form_of_retry_after_is_read() {
        for (list, expected) in [
            (&[("retry-after", "2")][..], Some(2_000)),
            (&[("retry-after", "0.25")], Some(250)),
            (&[("retry-after-ms", "120"), ("retry-after", "9")], Some(120)),
            (&[("retry-after-ms", "x"), ("retry-after", "9")], Some(9_000)),
            (&[("retry-after", "Mon, 30 Nov 2026 22:00:10 GMT")], Some(10_000)),
            (&[("retry-after", "Mon, 30 Nov 2026 21:00:00 GMT")], Some(0)),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "soon")], None),
            (&[], None),
        ] {
            let after = retry_after(&headers(list), NOW).map(|after| after.as_millis());
            assert_eq!(after, expected, "{list:?}");
        }
    }

    /// GW-07
    #[test]
    fn gw_07_messages_that_name_a_time_are_read() {
        for (message, expected) in [
            ("Quota exceeded. Please retry in 46s.", Some(46_000)),
            ("Please retry in 46.377215s.\",", Some(46_377)),
            ("Please try again in 120ms. Visit https://", Some(120)),
            ("Please try again in 7m12.096s.", Some(432_096)),
            ("Please retry after 2 seconds. To increase", Some(2_000)),
            ("Please retry after 1 second.", Some(1_000)),
            ("Please retry after lunch", None),
            ("Please retry in a while", None),
            ("Please retry in ", None),
            ("Rate limit reached", None),
        ] {
            let body = json!({"error": {"message": message}}).to_string();
            let after = retry_after_in_message(body.as_bytes()).map(|after| after.as_millis());
            assert_eq!(after, expected, "{message}");
        }
        assert_eq!(retry_after_in_message(b"retry in \xff"), None);
    }

    /// GW-09
    #[test]
    fn gw_09_a_retry_fits_into_the_wait_that_is_left() {
        let pause = |retries, named: Option<u64>, left| {
            let retry = Retry { retries, left: Duration::from_secs(left) };
            pause_before_retry(retry, named.map(Duration::from_secs))
        };
        assert_eq!(pause(0, Some(2), 2), Some(Duration::from_secs(2)));
        assert_eq!(pause(0, Some(2), 1), None);
        let unnamed = pause(0, None, 1).unwrap();
        assert!((Duration::from_millis(375)..=Duration::from_millis(500)).contains(&unnamed));
        assert_eq!(pause(0, None, 0), None);
        let late = pause(7, None, 60).unwrap();
        assert!(late <= PAUSE_MAX && late >= Duration::from_secs(6));
    }
}
