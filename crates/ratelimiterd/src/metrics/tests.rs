//! Names, labels and bounds of the metrics.

use expect_test::expect;
use ratelimiter::{Capacity, Limit, LimitKind, LimitStatus, Overage, Usage, Window};

use super::*;

fn gauges<'a>(
    states: &'a [LimitState],
    instances: &'a [(LimitKey, usize)],
    open_leases: Option<u64>,
) -> Gauges<'a> {
    Gauges { states, instances, open_leases, waiters: 3 }
}

/// HTTP-14
#[test]
fn every_metric_has_its_stable_name() {
    let metrics = Metrics::new(10);
    let calls = OutcomeCounters::default();
    let view = MetricsView { callers: vec![("ops", &calls)], shows_key: &|_| true };
    let key = LimitKey::new("odd\"key\\").unwrap();
    let shadow_denied_keys = vec![LimitKey::new("shadow").unwrap()];
    let allowed = ReserveAnswer { allowed: true, shadow_denied_keys, ..ReserveAnswer::default() };
    let same_key = |key: &LimitKey| Some(key.clone());
    metrics.count_reserve(Some(&calls), &allowed, same_key);
    let denied = ReserveAnswer { denied_keys: vec![key.clone()], ..ReserveAnswer::default() };
    metrics.count_reserve(None, &denied, same_key);
    metrics.count_complete(Some(&calls), &CompleteAnswer { ok: true, ..CompleteAnswer::default() });
    let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
    let mut limit = Limit::new(key, kind, Capacity::new(5).unwrap());
    limit.overage = Overage::Deny;
    let usage = Usage { used: 3, available: 2, debt: 0, uncovered: 7 };
    let state = LimitState { limit, status: LimitStatus::Active, usage, resets_at: None };
    let text = metrics.render(&view, &gauges(&[state], &[], Some(4)));
    let counted: String = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.ends_with(" 0") && !line.ends_with(" 0.0"))
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        ratelimiter_reserve_total{outcome="allowed"} 1
        ratelimiter_reserve_total{outcome="denied"} 1
        ratelimiter_complete_total{outcome="ok"} 1
        ratelimiter_calls_total{caller="ops",outcome="allowed"} 1
        ratelimiter_calls_total{caller="ops",outcome="ok"} 1
        ratelimiter_denied_total{key="odd\"key\\"} 1
        ratelimiter_shadow_denied_total{key="shadow"} 1
        ratelimiter_limit_capacity{key="odd\"key\\"} 5
        ratelimiter_limit_used{key="odd\"key\\"} 3
        ratelimiter_overage_units_total{key="odd\"key\\",policy="deny"} 7
        ratelimiter_open_leases 4
        ratelimiter_waiters 3
    "#]]
    .assert_eq(&counted);
    assert_eq!(text.matches("ratelimiter_reserve_total{").count(), 16);
    assert_eq!(text.matches("ratelimiter_complete_total{").count(), 7);
    let without_the_limit = metrics.render(&view, &gauges(&[], &[], None));
    assert!(!without_the_limit.contains("ratelimiter_limit_capacity{"), "{without_the_limit}");
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    expect![[r#"
        ratelimiter_reserve_total counter
        ratelimiter_complete_total counter
        ratelimiter_calls_total counter
        ratelimiter_denied_total counter
        ratelimiter_shadow_denied_total counter
        ratelimiter_limit_capacity gauge
        ratelimiter_limit_used gauge
        ratelimiter_overage_units_total counter
        ratelimiter_template_instances gauge
        ratelimiter_open_leases gauge
        ratelimiter_waiters gauge
        ratelimiter_request_seconds histogram"#]]
    .assert_eq(&names.join("\n"));
}

/// TPL-06: what concerns a limit that was made from a template is counted for the template.
#[test]
fn tpl_06_metrics_are_kept_per_template() {
    let metrics = Metrics::new(10);
    let key = |text: &str| LimitKey::new(text).unwrap();
    let key_of = |of: &LimitKey| match of.as_str() {
        "gone" => None,
        text if text.starts_with("t:") => Some(key("t:*")),
        _ => Some(of.clone()),
    };
    let shown = |of: &LimitKey| of.as_str() != "hidden:*";
    let view = MetricsView { callers: Vec::new(), shows_key: &shown };
    let denied = |keys: &[&str]| ReserveAnswer {
        denied_keys: keys.iter().map(|text| key(text)).collect(),
        ..ReserveAnswer::default()
    };
    let failed = |error| ReserveAnswer { error: Some(error), ..ReserveAnswer::default() };
    let shadow_denied_keys = vec![key("t:c"), key("other")];
    for answer in [
        denied(&["t:a", "t:b", "other", "gone"]),
        failed(ErrorCode::LimitPaused { key: key("t:a") }),
        failed(ErrorCode::LimitDecreasing { key: key("t:b") }),
        failed(ErrorCode::TooManyInstances { template: key("t:*") }),
        ReserveAnswer { allowed: true, shadow_denied_keys, ..ReserveAnswer::default() },
    ] {
        metrics.count_reserve(None, &answer, key_of);
    }
    let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
    let state = LimitState {
        limit: Limit::new(key("t:*"), kind, Capacity::new(5).unwrap()),
        status: LimitStatus::Active,
        usage: Usage { uncovered: 7, ..Usage::default() },
        resets_at: None,
    };
    let instances = [(key("hidden:*"), 3), (key("t:*"), 2)];
    let text = metrics.render(&view, &gauges(&[state], &instances, None));
    let samples: String = text
        .lines()
        .filter(|line| line.contains("key=") && !line.ends_with(" 0"))
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        ratelimiter_denied_total{key="other"} 1
        ratelimiter_denied_total{key="t:*"} 5
        ratelimiter_denied_total{key=""} 1
        ratelimiter_shadow_denied_total{key="other"} 1
        ratelimiter_shadow_denied_total{key="t:*"} 1
        ratelimiter_limit_capacity{key="t:*"} 5
        ratelimiter_overage_units_total{key="t:*",policy="debt"} 7
        ratelimiter_template_instances{key="t:*"} 2
    "#]]
    .assert_eq(&samples);
    assert!(text.contains("ratelimiter_reserve_total{outcome=\"too_many_limits\"} 1"), "{text}");
    assert!(!text.contains("ratelimiter_limit_used{"), "a template is not used itself: {text}");
}
