//! OPS-03: lists of definitions, and the answers to them.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::time::Duration;

use expect_test::expect;
use ratelimiter::{
    Capacity, DefineError, HoldTimeout, KEY_BYTES_MAX, Limit, LimitKey, LimitKind, LimitStatus,
    NOTE_BYTES_MAX, Refused, Unanswered, Window,
};
use ratelimiter_wire::{
    DEFINITIONS_BYTES_MAX, DEFINITIONS_MAX, DefineAnswer, DefineRequest, DefinitionsBody, Refusal,
    read_define,
};

fn limit(key: &str) -> Limit {
    let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
    Limit::new(LimitKey::new(key).unwrap(), kind, Capacity::new(10).unwrap())
}

fn list_of(count: usize) -> Vec<u8> {
    let limits: Vec<_> = (0..count).map(|number| limit(&number.to_string())).collect();
    serde_json::to_vec(&limits.iter().collect::<DefinitionsBody>()).unwrap()
}

/// OPS-03, HTTP-08
#[test]
fn ops_03_one_definition_and_a_list_are_told_apart() {
    let one = r#"{"key":"a","kind":"rolling","capacity":10,"window_seconds":60}"#;
    let read = |json: &str| read_define(json.as_bytes()).unwrap();
    assert_eq!(read(one), DefineRequest::One(Box::new(limit("a"))));
    let two = one.replace("\"a\"", "\"b\"");
    assert_eq!(
        read(&format!(r#"{{"limits":[{two},{one}]}}"#)),
        DefineRequest::Many(vec![limit("b"), limit("a")]),
        "in the order of the request"
    );
    assert_eq!(
        read(&format!(r#"{{"limits":[{one}]}}"#)),
        DefineRequest::Many(vec![limit("a")]),
        "a list of one is a list"
    );
}

/// OPS-03, HTTP-03
#[test]
fn ops_03_a_malformed_list_is_refused_with_its_entry_and_field() {
    let good = r#"{"key":"a","kind":"rolling","capacity":10,"window_seconds":60}"#;
    let bodies = [
        r#"{"limits":[]}"#.to_owned(),
        r#"{"limits":{}}"#.to_owned(),
        r#"{"limits":[7]}"#.to_owned(),
        format!(r#"{{"limits":[{good},{{}}]}}"#),
        format!(r#"{{"limits":[{good},{{"key":"b","kind":"rolling","capacity":-1}}]}}"#),
        format!(r#"{{"limits":[{good},{{"key":"b","kind":"rolling","capacity":1}}]}}"#),
        format!(r#"{{"limits":[{good},{{"key":"b c","kind":"rolling","capacity":1}}]}}"#),
        format!(r#"{{"limits":[{good},{{"key":"b","used":1}}]}}"#),
        format!(r#"{{"limits":[{good},{{"key":"b","kind":"calendar","capacity":1}}]}}"#),
        format!(r#"{{"limits":[{good},{good}]}}"#),
        format!(r#"{{"limits":[{good}],"more":1}}"#),
        format!(r#"{{"limits":[{good}],"limits":[{good}]}}"#),
        format!(r#"{{"key":"a","limits":[{good}]}}"#),
        format!(r#"{{"limits":[{good}"#),
        format!("[{good}]"),
    ];
    let refusal = |body: &String| read_define(body.as_bytes()).unwrap_err().to_string() + "\n";
    expect![[r#"
        invalid_request:limits: invalid length 0, expected a list of 1 to 10000 definitions at line 1 column 12
        invalid_request:limits: invalid type: map, expected a list of 1 to 10000 definitions at line 1 column 10
        invalid_request:limits[0]: invalid type: integer `7`, expected an object with key, kind and capacity at line 1 column 12
        invalid_request:limits[1].key: missing field `key` at line 1 column 76
        invalid_request:limits[1].capacity: invalid value: integer `-1`, expected a whole number from 0 to 9223372036854775807 at line 1 column 115
        invalid_request:limits[1].window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 0
        invalid_request:limits[1].key: a key must not contain white space, this one has some at byte 1 at line 1 column 86
        invalid_request:limits[1].used: unknown field `used`, expected one of `key`, `kind`, `capacity`, `window_seconds`, `timeout_seconds`, `period`, `time_zone`, `resets_at`, `weekday`, `day`, `unit`, `description`, `overage`, `mode` at line 1 column 91
        invalid_request:limits[1].period: a calendar limit needs a period: hour, day, week or month
        duplicate_key:a: a is defined twice in this list; define it once
        invalid_request:more: unknown field `more`, expected `limits` at line 1 column 81
        invalid_request:limits: duplicate field `limits` at line 1 column 83
        invalid_request:key: unknown field `key`, expected `limits` at line 1 column 6
        invalid_request:body: the body is not JSON: EOF while parsing a list at line 1 column 73
        invalid_request:body: invalid type: sequence, expected an object with key, kind and capacity at line 1 column 0
    "#]]
    .assert_eq(&bodies.iter().map(refusal).collect::<String>());
}

/// OPS-03
#[test]
fn ops_03_a_list_has_1_to_10_000_definitions() {
    let read = |count: usize| match read_define(&list_of(count)) {
        Ok(DefineRequest::Many(limits)) => Ok(limits.len()),
        Ok(DefineRequest::One(_)) => Ok(0),
        Err(refusal) => Err(refusal.to_string()),
    };
    assert_eq!((read(1), read(DEFINITIONS_MAX)), (Ok(1), Ok(DEFINITIONS_MAX)));
    let refusal = read(DEFINITIONS_MAX + 1).unwrap_err();
    let expected =
        "invalid_request:limits: invalid length 10001, expected a list of 1 to 10000 definitions";
    assert!(refusal.starts_with(expected), "{refusal}");
}

/// OPS-03: as many definitions as allowed fit, with long texts too.
#[test]
fn ops_03_the_longest_list_of_plain_text_fits_into_a_body() {
    let body = list_of(DEFINITIONS_MAX);
    let texts_bytes_max = KEY_BYTES_MAX + 2 * NOTE_BYTES_MAX;
    assert!(body.len() + DEFINITIONS_MAX * texts_bytes_max <= DEFINITIONS_BYTES_MAX);
}

/// OPS-03
#[test]
fn ops_03_the_answer_to_a_list_round_trips() {
    let timeout = HoldTimeout::from_seconds(60).unwrap();
    let slots = Limit { kind: LimitKind::Concurrency { timeout }, ..limit("c") };
    let asked = [limit("b"), limit("a"), slots];
    let to = limit("a").capacity;
    let reason = "timed out".to_owned();
    let unanswered = Unanswered { reason: reason.clone(), retry_after: Duration::ZERO };
    let results: [Result<Vec<LimitStatus>, DefineError>; 5] = [
        Ok(vec![LimitStatus::Active, LimitStatus::Decreasing { to }, LimitStatus::Paused]),
        Err(DefineError::KindConflict { key: asked[1].key.clone(), is: "concurrency" }),
        Err(DefineError::KindConflict { key: asked[2].key.clone(), is: "rolling" }),
        Err(unanswered.into()),
        Err(Refused { reason }.into()),
    ];
    let mut lines = String::new();
    for result in results {
        let keys = asked.iter().map(|limit| limit.key.clone()).collect();
        let answer = DefineAnswer::of_all(keys, result.clone());
        let json = serde_json::to_string(&answer).unwrap();
        lines += &format!("{} {json}\n", answer.http_status());
        let answer: DefineAnswer = serde_json::from_str(&json).unwrap();
        match (answer.into_results(&asked), result) {
            (Err(DefineError::Unanswered(_)), Err(DefineError::Unanswered(_)))
            | (Err(DefineError::Refused(_)), Err(DefineError::Refused(_))) => {}
            (told, result) => assert_eq!(told, result),
        }
    }
    expect![[r#"
        200 {"ok":true,"statuses":[{"key":"b","status":"active"},{"key":"a","status":"decreasing"},{"key":"c","status":"paused"}]}
        409 {"ok":false,"error":"kind_conflict:a","message":"a is a concurrency limit and cannot become another kind; delete it first, or take another key"}
        409 {"ok":false,"error":"kind_conflict:c","message":"c is a rolling limit and cannot become another kind; delete it first, or take another key"}
        503 {"ok":false,"error":"backend_error","message":"no answer: timed out"}
        500 {"ok":false,"error":"backend_refused","message":"refused: timed out"}
    "#]]
    .assert_eq(&lines);
}

/// OPS-03: what is no answer to this list is not mistaken for one.
#[test]
fn ops_03_an_answer_about_other_limits_is_refused() {
    let asked = [limit("a"), limit("b")];
    for json in [
        "{}",
        r#"{"ok":true,"status":"active"}"#,
        r#"{"ok":true,"statuses":[{"key":"a","status":"active"}]}"#,
        r#"{"ok":true,"statuses":[{"key":"b","status":"active"},{"key":"a","status":"active"}]}"#,
    ] {
        let answer: DefineAnswer = serde_json::from_str(json).unwrap();
        let result = answer.into_results(&asked);
        assert!(matches!(result, Err(DefineError::Refused(_))), "{json}: {result:?}");
    }
}

/// OPS-03: how a client recognises a server that does not know lists.
#[test]
fn ops_03_a_server_of_single_definitions_is_recognised() {
    let answer = |json: &str| serde_json::from_str::<DefineAnswer>(json).unwrap();
    for json in [
        r#"{"ok":false,"error":"invalid_request:limits","message":"unknown field `limits`"}"#,
        r#"{"ok":false,"error":"body_too_large","message":"a body has at most 1048576 bytes"}"#,
    ] {
        assert!(answer(json).is_list_unsupported(), "{json}");
    }
    let refusal = Refusal::of_field("limits[3].capacity", "too much");
    assert!(!DefineAnswer::from(refusal).is_list_unsupported());
    assert!(!answer(r#"{"ok":true}"#).is_list_unsupported());
}
