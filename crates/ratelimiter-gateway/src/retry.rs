//! When to ask a provider again (`GW-09`).

use std::time::{Duration, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;
use ratelimiter::clock::Timestamp;

/// The most times that a provider is asked again for one call.
pub(crate) const RETRIES_MAX: u32 = 8;
/// The pause before the first retry if the provider names none; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// How long to wait before a call is repeated; `None` if that does not fit into the wait that is `left`, or the provider says that it does
/// not help.
pub(crate) fn pause_before_retry(
    headers: Option<&HeaderMap>,
    now: Timestamp,
    retries: u32,
    left: Duration,
) -> Option<Duration> {
    if headers.is_some_and(|headers| headers.get("x-should-retry").is_some_and(|v| v == "false")) {
        return None;
    }
    let named = headers.and_then(|headers| retry_after(headers, now));
    let pause = named.unwrap_or_else(|| {
        let pause = (PAUSE_FIRST * 2_u32.pow(retries.min(RETRIES_MAX))).min(PAUSE_MAX);
        pause.mul_f64(1.0 - 0.25 * fastrand::f64())
    });
    (pause <= left).then_some(pause)
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

    /// GW-09
    #[test]
    fn gw_09_a_retry_fits_into_the_wait_that_is_left() {
        let named = headers(&[("retry-after", "2")]);
        let pause = |headers, left| pause_before_retry(headers, NOW, 0, Duration::from_secs(left));
        assert_eq!(pause(Some(&named), 2), Some(Duration::from_secs(2)));
        assert_eq!(pause(Some(&named), 1), None);
        let useless = headers(&[("x-should-retry", "false")]);
        assert_eq!(pause(Some(&useless), 60), None);
        let unnamed = pause(None, 1).unwrap();
        assert!((Duration::from_millis(375)..=Duration::from_millis(500)).contains(&unnamed));
        assert_eq!(pause(None, 0), None);
        let late = pause_before_retry(None, NOW, 7, Duration::from_mins(1)).unwrap();
        assert!(late <= PAUSE_MAX && late >= Duration::from_secs(6));
    }
}
