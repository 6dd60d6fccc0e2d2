//! The metrics' names, labels and bounds.

use expect_test::expect;
use ratelimiter::{Capacity, Limit, LimitKind, LimitStatus, Overage, Usage, Window};

use super::*;

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
    expect![[r#""#]].assert_eq(&counted);
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    expect![[r#""#]].assert_eq(&names.join("\n"));
}
