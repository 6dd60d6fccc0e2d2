use expect_test::{Expect, expect};
use ratelimiter::{Capacity, HoldTimeout, Window};

use super::*;
use crate::price::ListPrice;

const ESTIMATE: Estimate = Estimate { input: 300, output: 1_000, bytes: 0 };

fn scope(tenant: Option<&str>) -> Scope {
    Scope { provider: "openai".into(), model: "gpt-4o".into(), tenant: tenant.map(Into::into) }
}

fn limit(key: &LimitKey, capacity: u64) -> Limit {
    let kind = match key.as_str().ends_with("concurrency") {
        true => LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(60).unwrap() },
        false => LimitKind::Rolling { window: Window::from_seconds(60).unwrap() },
    };
    Limit::new(key.clone(), kind, Capacity::new(capacity).unwrap())
}

/// The needs of a call for which the limits with these keys and capacities are defined.
fn needs_of(
    scope: &Scope,
    defined: &[(&str, u64)],
    change: impl FnOnce(&mut Use<'_>),
) -> Result<Option<Needs>, NeedsError> {
    let list = ListPrice { input: 1.0, output: 2.0, ..ListPrice::default() };
    let price = Price::new(list, [], 0.0).unwrap();
    let keys = ScopeKeys::of(scope).unwrap();
    let find = |key: &LimitKey| {
        let found = defined.iter().find(|(name, _)| *name == key.as_str());
        found.map(|(_, capacity)| limit(key, *capacity))
    };
    let limits: Vec<_> = keys.keys.iter().map(find).collect();
    let certain = Certain { input: 10, output: 1_000 };
    let mut using = Use { estimate: ESTIMATE, certain, price: Some(&price), is_background: false };
    change(&mut using);
    needs(&keys, &limits, using)
}

#[expect(clippy::needless_pass_by_value, reason = "an expectation is written where it is used")]
fn check(scope: &Scope, defined: &[(&str, u64)], expected: Expect) {
    let needs = needs_of(scope, defined, |_| {}).unwrap();
    let needs = needs.iter().flat_map(|needs| needs.requirements.iter());
    let lines = needs.map(|need| format!("{} {}\n", need.key, need.amount));
    expected.assert_eq(&lines.collect::<String>());
}

/// GW-02
#[test]
fn gw_02_a_call_needs_every_limit_that_exists_and_no_other() {
    let model = "global:llm:openai:gpt-4o";
    let of_model = Dimension::ALL.map(|(name, _)| format!("{model}:{name}"));
    let mut defined: Vec<_> = of_model.iter().map(|key| (key.as_str(), 10_000)).collect();
    defined.extend([
        ("tenant:acme:llm:daily_tokens", 10_000),
        ("tenant:acme:llm:openai:gpt-4o:tpm", 10_000),
        ("tenant:other:llm:daily_tokens", 10_000),
        ("global:llm:openai:gpt-4o-mini:tpm", 10_000),
    ]);
    check(
        &scope(Some("acme")),
        &defined,
        expect![[r"
            global:llm:openai:gpt-4o:rps 1
            global:llm:openai:gpt-4o:rpm 1
            global:llm:openai:gpt-4o:rph 1
            global:llm:openai:gpt-4o:rpd 1
            global:llm:openai:gpt-4o:tpm 1300
            global:llm:openai:gpt-4o:tph 1300
            global:llm:openai:gpt-4o:tpd 1300
            global:llm:openai:gpt-4o:daily_tokens 1300
            global:llm:openai:gpt-4o:monthly_tokens 1300
            global:llm:openai:gpt-4o:itpm 300
            global:llm:openai:gpt-4o:itpd 300
            global:llm:openai:gpt-4o:otpm 1000
            global:llm:openai:gpt-4o:otpd 1000
            global:llm:openai:gpt-4o:concurrency 1
            global:llm:openai:gpt-4o:daily_cost 2300
            global:llm:openai:gpt-4o:monthly_cost 2300
            tenant:acme:llm:daily_tokens 1300
            tenant:acme:llm:openai:gpt-4o:tpm 1300
        "]],
    );
    check(&scope(None), &defined[16..], expect![""]);
}

/// GW-02
#[test]
fn gw_02_a_cost_limit_needs_a_price_and_32_limits_are_the_most() {
    let cost = [("global:llm:openai:gpt-4o:daily_cost", 10_000)];
    let unpriced = needs_of(&scope(None), &cost, |using| using.price = None);
    assert_eq!(unpriced.unwrap_err(), NeedsError::NoPrice);
    let scope = scope(Some("acme"));
    let keys = ScopeKeys::of(&scope).unwrap();
    let all: Vec<_> = keys.keys.iter().map(|key| (key.as_str(), 10_000)).collect();
    let error = needs_of(&scope, &all, |_| {}).unwrap_err();
    assert_eq!(error, NeedsError::TooMany { count: 48 });
    let most = needs_of(&scope, &all[..32], |_| {}).unwrap().unwrap();
    assert_eq!(most.requirements.len(), 32);
    assert_eq!(most.hold_timeout, Some(Duration::from_mins(1)));
}

/// GW-03: what can never fit is told at once; a bound that nobody stated is cut.
#[test]
fn gw_03_what_the_caller_did_not_state_is_cut_to_the_capacity() {
    let tpm = |capacity| [("global:llm:openai:gpt-4o:tpm", capacity)];
    check(
        &scope(None),
        &tpm(1_200),
        expect![[r"
        global:llm:openai:gpt-4o:tpm 1200
    "]],
    );
    let error = needs_of(&scope(None), &tpm(1_009), |_| {}).unwrap_err();
    let key = LimitKey::new("global:llm:openai:gpt-4o:tpm").unwrap();
    assert_eq!(error, NeedsError::NeverFits { key, amount: 1_010, capacity: 1_009 });
    check(
        &scope(None),
        &tpm(0),
        expect![[r"
        global:llm:openai:gpt-4o:tpm 1300
    "]],
    );
    let unstated = needs_of(&scope(None), &tpm(500), |using| using.certain.output = 0);
    assert_eq!(unstated.unwrap().unwrap().requirements[0].amount.get(), 500);
}

#[test]
fn a_call_that_goes_on_after_its_answer_needs_no_limit_of_tokens() {
    let background = |name: &str| {
        let key = format!("global:llm:openai:gpt-4o:{name}");
        needs_of(&scope(None), &[(&key, 10_000)], |using| using.is_background = true)
    };
    for name in ["tpm", "itpm", "otpd", "monthly_cost"] {
        assert!(matches!(background(name), Err(NeedsError::Background { .. })), "{name}");
    }
    for name in ["rpm", "concurrency"] {
        assert!(background(name).unwrap().is_some(), "{name}");
    }
}

#[test]
fn names_that_make_no_key_are_refused() {
    let of = |model: &str| ScopeKeys::of(&Scope { model: model.into(), ..scope(None) }).is_some();
    assert!(of("meta/llama-3.1@fp8:free"));
    assert!(!of("two words"));
    assert!(!of(&"m".repeat(250)));
    assert!(!of("a:*"), "a template");
}
