//! Names, labels and bounds of the metrics.

use std::time::Duration;

use expect_test::expect;
use ratelimiter::{Capacity, Limit, LimitKey, LimitKind, LimitStatus, Overage, Usage, Window};

use super::*;

/// HTTP-14
#[test]
fn every_metric_has_its_stable_name() {
    let metrics = Metrics::new(10);
    let key = LimitKey::new("odd\"key\\").unwrap();
    metrics.count_reserve(&ReserveAnswer { allowed: true, ..ReserveAnswer::default() });
    metrics.count_reserve(&ReserveAnswer {
        denied_keys: vec![key.clone()],
        ..ReserveAnswer::default()
    });
    metrics.count_complete(&CompleteAnswer { ok: true, ..CompleteAnswer::default() });
    let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
    let mut limit = Limit::new(key, kind, Capacity::new(5).unwrap());
    limit.overage = Overage::Deny;
    let usage = Usage { used: 3, available: 2, debt: 0, uncovered: 7 };
    let state = LimitState { limit, status: LimitStatus::Active, usage };
    let text = metrics.render(&[state], Some(4));
    let counted: String = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.ends_with(" 0") && !line.ends_with(" 0.0"))
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        ratelimiter_complete_total{outcome="ok"} 1
        ratelimiter_denied_total{key="odd\"key\\"} 1
        ratelimiter_reserve_total{outcome="allowed"} 1
        ratelimiter_reserve_total{outcome="denied"} 1
        ratelimiter_limit_capacity{key="odd\"key\\"} 5
        ratelimiter_limit_used{key="odd\"key\\"} 3
        ratelimiter_open_leases 4
        ratelimiter_overage_units_total{key="odd\"key\\",policy="deny"} 7
    "#]]
    .assert_eq(&counted);
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    expect![[r#"
        ratelimiter_complete_total counter
        ratelimiter_denied_total counter
        ratelimiter_request_seconds histogram
        ratelimiter_reserve_total counter
        ratelimiter_limit_capacity gauge
        ratelimiter_limit_used gauge
        ratelimiter_open_leases gauge
        ratelimiter_overage_units_total counter"#]]
    .assert_eq(&names.join("\n"));
}

#[test]
fn a_duration_counts_in_its_bucket_and_all_above() {
    let registry = Registry::new();
    let histogram = timings(&registry, "seconds", "Durations.", "of").with_label_values(&["it"]);
    for micros in [50, 51, 5_000_000, 5_000_001] {
        histogram.observe(Duration::from_micros(micros).as_secs_f64());
    }
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for (bound, count) in [("0.00005", 1), ("0.0001", 2), ("1", 2), ("5", 3), ("+Inf", 4)] {
        let line = format!("seconds_bucket{{of=\"it\",le=\"{bound}\"}} {count}");
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

#[test]
fn keys_beyond_the_bound_are_counted_together() {
    let metrics = Metrics::new(2);
    for key in ["b", "a", "b", "c", "d", "a"] {
        metrics.denied.count(&LimitKey::new(key).unwrap());
    }
    let text = metrics.render(&[], None);
    let counts: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("ratelimiter_denied_total")).collect();
    assert_eq!(counts, [r#"{key=""} 2"#, r#"{key="a"} 2"#, r#"{key="b"} 2"#]);
}
