//! Requests round-trip, and malformed ones are rejected with the field.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use expect_test::{Expect, expect};
use ratelimiter::{
    Actuals, CompleteRequest, JobId, LeaseId, LimitKey, Requirements, ReserveRequest,
};
use ratelimiter_wire::{
    BatchBody, Body, CompleteBody, DefinitionBody, ErrorCode, ReserveBody, read, read_batch,
};

const LEASE: &str = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D";

fn key(text: &str) -> LimitKey {
    LimitKey::new(text).unwrap()
}

fn refusal<B: Body<Request: std::fmt::Debug>>(json: &str) -> String {
    read::<B>(json.as_bytes()).unwrap_err().to_string()
}

fn check<B: Body<Request: std::fmt::Debug>>(bodies: &[&str], expected: &Expect) {
    let lines: String = bodies.iter().map(|body| refusal::<B>(body) + "\n").collect();
    expected.assert_eq(&lines);
}

#[test]
fn a_request_round_trips() {
    let reserve = ReserveRequest {
        lease: LEASE.parse().unwrap(),
        job: Some(JobId::new("nightly run 7").unwrap()),
        requirements: Requirements::of([(key("a"), 1), (key("b:é"), u64::MAX)]).unwrap(),
    };
    let json = serde_json::to_string(&ReserveBody::from(&reserve)).unwrap();
    expect![[r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","job_id":"nightly run 7","requirements":[{"key":"a","amount":1},{"key":"b:é","amount":18446744073709551615}]}"#]].assert_eq(&json);
    assert_eq!(read::<ReserveBody>(json.as_bytes()).unwrap(), reserve);

    let complete = CompleteRequest {
        lease: LEASE.parse().unwrap(),
        job: None,
        actuals: Actuals::of([(key("a"), 0), (key("b"), u64::MAX)]).unwrap(),
    };
    let json = serde_json::to_string(&CompleteBody::from(&complete)).unwrap();
    expect![[r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","actuals":[{"key":"a","actual_amount":0},{"key":"b","actual_amount":18446744073709551615}]}"#]].assert_eq(&json);
    assert_eq!(read::<CompleteBody>(json.as_bytes()).unwrap(), complete);
}

#[test]
fn a_complete_may_leave_out_its_actuals() {
    let json = format!(r#"{{"lease_id":"{LEASE}"}}"#);
    let request = read::<CompleteBody>(json.as_bytes()).unwrap();
    assert_eq!(request, CompleteRequest::new(LEASE.parse().unwrap(), Actuals::none()));
}

#[test]
fn a_lease_id_is_read_in_any_case_and_written_in_upper_case() {
    let json = format!(r#"{{"lease_id":"{}"}}"#, LEASE.to_lowercase());
    let request = read::<CompleteBody>(json.as_bytes()).unwrap();
    assert!(serde_json::to_string(&CompleteBody::from(&request)).unwrap().contains(LEASE));
}

/// RES-07: an amount outside the range is rejected cleanly.
#[test]
fn res_07_an_amount_is_a_whole_number_from_1_to_2_to_the_64_minus_1() {
    let bodies = [
        "0",
        "-1",
        "1.5",
        "1.0",
        "1e3",
        "18446744073709551616",
        "1e400",
        "\"1\"",
        "null",
        "[1]",
        "true",
    ]
    .map(|amount| {
        format!(r#"{{"lease_id":"{LEASE}","requirements":[{{"key":"k","amount":{amount}}}]}}"#)
    });
    check::<ReserveBody>(
        &bodies.each_ref().map(String::as_str),
        &expect![[r#"
            invalid_request:requirements[0].amount: an amount is 1 or more; leave out a key of which nothing is needed at line 1 column 79
            invalid_request:requirements[0].amount: invalid value: integer `-1`, expected a whole number from 1 to 18446744073709551615 at line 1 column 79
            invalid_request:requirements[0].amount: invalid type: floating point `1.5`, expected a whole number from 1 to 18446744073709551615 at line 1 column 80
            invalid_request:requirements[0].amount: invalid type: floating point `1.0`, expected a whole number from 1 to 18446744073709551615 at line 1 column 80
            invalid_request:requirements[0].amount: invalid type: floating point `1000.0`, expected a whole number from 1 to 18446744073709551615 at line 1 column 80
            invalid_request:requirements[0].amount: invalid type: floating point `1.8446744073709552e+19`, expected a whole number from 1 to 18446744073709551615 at line 1 column 97
            invalid_request:requirements[0].amount: number out of range at line 1 column 82
            invalid_request:requirements[0].amount: invalid type: string "1", expected a whole number from 1 to 18446744073709551615 at line 1 column 80
            invalid_request:requirements[0].amount: invalid type: null, expected a whole number from 1 to 18446744073709551615 at line 1 column 81
            invalid_request:requirements[0].amount: invalid type: sequence, expected a whole number from 1 to 18446744073709551615 at line 1 column 77
            invalid_request:requirements[0].amount: invalid type: boolean `true`, expected a whole number from 1 to 18446744073709551615 at line 1 column 81
        "#]],
    );
}

/// HTTP-03
#[test]
fn a_malformed_reserve_is_refused_by_field() {
    check::<ReserveBody>(
        &[
            "",
            "nonsense",
            r#"{"lease_id":"#,
            "[]",
            "7",
            r#"["01J9ZC3V9W8Q4N2M6T5R7Y1K0D",null,[{"key":"k","amount":1}]]"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[["k",1]]}"#,
            "{}",
            r#"{"lease_id":7}"#,
            r#"{"lease_id":"short","requirements":[]}"#,
            r#"{"lease_id":"81J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0U","requirements":[]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D"}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":{}}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"k"}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"k","amount":1},{"amount":1}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"","amount":1}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"a b","amount":1}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"k","amount":1,"cost":2}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"k","amount":1}],"priority":1}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"k","amount":1}],"two words":1}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","job_id":"","requirements":[{"key":"k","amount":1}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"k","amount":1},{"key":"k","amount":1}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","requirements":[{"key":"k","amount":1}]} trailing"#,
        ],
        &expect![[r#"
            invalid_request:body: the body is not JSON: EOF while parsing a value at line 1 column 0
            invalid_request:body: the body is not JSON: expected ident at line 1 column 2
            invalid_request:body: the body is not JSON: EOF while parsing a value at line 1 column 12
            invalid_request:body: invalid type: sequence, expected an object with lease_id and requirements at line 1 column 0
            invalid_request:body: invalid type: integer `7`, expected an object with lease_id and requirements at line 1 column 1
            invalid_request:body: invalid type: sequence, expected an object with lease_id and requirements at line 1 column 0
            invalid_request:requirements[0]: invalid type: sequence, expected an object with key and amount at line 1 column 57
            invalid_request:lease_id: missing field `lease_id` at line 1 column 2
            invalid_request:lease_id: invalid type: integer `7`, expected a string at line 1 column 13
            invalid_request:lease_id: a lease ID is a ULID of 26 characters, this text has 5 bytes at line 1 column 19
            invalid_request:lease_id: a lease ID is a ULID: its first character is 0 to 7, or the value does not fit 128 bits at line 1 column 40
            invalid_request:lease_id: a lease ID is a ULID: digits and letters without I, L, O and U at line 1 column 40
            invalid_request:requirements: missing field `requirements` at line 1 column 41
            invalid_request:requirements: invalid type: map, expected a sequence at line 1 column 56
            invalid_request:requirements: a reserve has 1 to 32 requirements, not 0
            invalid_request:requirements[0].amount: missing field `amount` at line 1 column 68
            invalid_request:requirements[1].key: missing field `key` at line 1 column 92
            invalid_request:requirements[0].key: a key must not be empty: it has 1 to 256 bytes at line 1 column 66
            invalid_request:requirements[0].key: a key must not contain white space, this one has some at byte 1 at line 1 column 69
            invalid_request:requirements[0].cost: unknown field `cost`, expected `key` or `amount` at line 1 column 85
            invalid_request:priority: unknown field `priority`, expected one of `lease_id`, `job_id`, `requirements` at line 1 column 91
            invalid_request:two_words: unknown field `two words`, expected one of `lease_id`, `job_id`, `requirements` at line 1 column 92
            invalid_request:lease_id: duplicate field `lease_id` at line 1 column 51
            invalid_request:job_id: a job ID has 1 to 256 bytes and no control characters
            duplicate_key:k: k is listed twice; list each key once, with the sum
            invalid_request:body: the body is not JSON: trailing characters at line 1 column 83
        "#]],
    );
}

/// HTTP-03
#[test]
fn a_reserve_has_1_to_32_requirements() {
    let body = |count: usize| {
        let list: Vec<_> = (0..count).map(|n| format!(r#"{{"key":"k{n}","amount":1}}"#)).collect();
        format!(r#"{{"lease_id":"{LEASE}","requirements":[{}]}}"#, list.join(","))
    };
    assert_eq!(read::<ReserveBody>(body(32).as_bytes()).unwrap().requirements.len(), 32);
    check::<ReserveBody>(
        &[&body(33)],
        &expect![[r#"
        invalid_request:requirements: a reserve has 1 to 32 requirements, not 33
    "#]],
    );
}

/// COM-06
#[test]
fn com_06_a_malformed_complete_is_refused_by_field() {
    check::<CompleteBody>(
        &[
            "{}",
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","actuals":[{"key":"k","actual_amount":-1}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","actuals":[{"key":"k","amount":1}]}"#,
            r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","actuals":[{"key":"k","actual_amount":1},{"key":"k","actual_amount":1}]}"#,
        ],
        &expect![[r#"
            invalid_request:lease_id: missing field `lease_id` at line 1 column 2
            invalid_request:actuals[0].actual_amount: invalid value: integer `-1`, expected a whole number from 0 to 18446744073709551615 at line 1 column 81
            invalid_request:actuals[0].amount: unknown field `amount`, expected `key` or `actual_amount` at line 1 column 71
            duplicate_key:k: k is listed twice; list each key once, with the sum
        "#]],
    );
}

/// HTTP-03
#[test]
fn a_long_field_name_is_truncated_in_the_refusal() {
    let json = format!(r#"{{"{}":1}}"#, "é".repeat(1_000));
    let refusal = read::<ReserveBody>(json.as_bytes()).unwrap_err();
    assert_eq!(refusal.error, ErrorCode::InvalidRequest { field: "é".repeat(100) });
}

/// DEF-02, DEF-03
#[test]
fn def_02_def_03_a_definition_is_refused_with_its_field_and_the_allowed_range() {
    check::<DefinitionBody>(
        &[
            "{}",
            r#"{"key":"k","kind":"leaky","capacity":1}"#,
            r#"{"key":"k","kind":"rolling","capacity":1}"#,
            r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":2678401}"#,
            r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":-1}"#,
            r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":60,"timeout_seconds":1}"#,
            r#"{"key":"k","kind":"concurrency","capacity":1,"timeout_seconds":86401}"#,
            r#"{"key":"k","kind":"concurrency","capacity":1,"timeout_seconds":1,"window_seconds":1}"#,
            r#"{"key":"k","kind":"rolling","capacity":9223372036854775808,"window_seconds":60}"#,
            r#"{"key":"k","kind":"rolling","capacity":-1,"window_seconds":60}"#,
            r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":60,"overage":"forgive"}"#,
            r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":60,"used":3}"#,
        ],
        &expect![[r#"
            invalid_request:key: missing field `key` at line 1 column 2
            invalid_request:kind: unknown variant `leaky`, expected `rolling` or `concurrency` at line 1 column 25
            invalid_request:window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 0
            invalid_request:window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 2678401
            invalid_request:window_seconds: invalid value: integer `-1`, expected a whole number from 0 to 18446744073709551615 at line 1 column 60
            invalid_request:timeout_seconds: a rolling limit has no timeout_seconds; leave it out, or give 0 instead of 1
            invalid_request:timeout_seconds: a concurrency limit's timeout is 1 to 86400 seconds (1 day), not 86401
            invalid_request:window_seconds: a concurrency limit has no window_seconds; leave it out, or give 0 instead of 1
            invalid_request:capacity: a capacity is 0 to 9223372036854775807 (2^63-1), not 9223372036854775808 at line 1 column 58
            invalid_request:capacity: invalid value: integer `-1`, expected a whole number from 0 to 9223372036854775807 at line 1 column 41
            invalid_request:overage: unknown variant `forgive`, expected `debt` or `deny` at line 1 column 80
            invalid_request:used: unknown field `used`, expected one of `key`, `kind`, `capacity`, `window_seconds`, `timeout_seconds`, `unit`, `description`, `overage` at line 1 column 67
        "#]],
    );
    let long = "x".repeat(1_025);
    for field in ["unit", "description"] {
        let json = format!(
            r#"{{"key":"k","kind":"rolling","capacity":1,"window_seconds":60,"{field}":"{long}"}}"#
        );
        let refusal = refusal::<DefinitionBody>(&json);
        assert!(refusal.starts_with(&format!("invalid_request:{field}: ")), "{refusal}");
    }
}

/// DEF-02, DEF-03
#[test]
fn def_02_def_03_a_definition_round_trips() {
    for json in [
        r#"{"key":"k","kind":"rolling","capacity":0,"window_seconds":1,"timeout_seconds":0,"unit":"tokens","description":"d","overage":"deny"}"#,
        r#"{"key":"k","kind":"concurrency","capacity":9223372036854775807,"window_seconds":0,"timeout_seconds":86400,"unit":"","description":"","overage":"debt"}"#,
    ] {
        let limit = read::<DefinitionBody>(json.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&DefinitionBody::from(&limit)).unwrap(), json);
    }
}

/// HTTP-07
#[test]
fn a_malformed_batch_item_is_refused_alone() {
    let good = format!(r#"{{"lease_id":"{LEASE}","requirements":[{{"key":"k","amount":1}}]}}"#);
    let json = format!(r#"{{"requests":[{good},{{"lease_id":"no"}},7,{good}]}}"#);
    let items = read_batch::<ReserveBody>(json.as_bytes()).unwrap();
    let lines: String = items
        .iter()
        .map(|item| match item {
            Ok(request) => format!("{}\n", request.lease),
            Err(refusal) => format!("{refusal}\n"),
        })
        .collect();
    expect![[r#"
        01J9ZC3V9W8Q4N2M6T5R7Y1K0D
        invalid_request:lease_id: a lease ID is a ULID of 26 characters, this text has 2 bytes at line 1 column 16
        invalid_request:body: invalid type: integer `7`, expected an object with lease_id and requirements at line 1 column 1
        01J9ZC3V9W8Q4N2M6T5R7Y1K0D
    "#]].assert_eq(&lines);
}

/// HTTP-07
#[test]
fn a_batch_has_1_to_256_requests() {
    let batch = |count: u128| {
        let body =
            |n| CompleteBody::from(&CompleteRequest::new(LeaseId::from_u128(n), Actuals::none()));
        let requests = (0..count).map(body).collect();
        serde_json::to_vec(&BatchBody { requests }).unwrap()
    };
    assert_eq!(read_batch::<CompleteBody>(&batch(256)).unwrap().len(), 256);
    let refusal = |bytes: &[u8]| read_batch::<CompleteBody>(bytes).unwrap_err().to_string();
    let lines = [
        refusal(&batch(0)),
        refusal(&batch(257)),
        refusal(b"{}"),
        refusal(b"[[{}]]"),
        refusal(b"{\"requests\":[{}"),
        refusal(b"{\"requests\":[],\"more\":1}"),
    ];
    expect![[r#"
        invalid_request:requests: a batch has 1 to 256 requests, not 0
        invalid_request:requests: a batch has 1 to 256 requests, not 257
        invalid_request:requests: missing field `requests` at line 1 column 2
        invalid_request:body: invalid type: sequence, expected an object with requests at line 1 column 0
        invalid_request:body: the body is not JSON: EOF while parsing a list at line 1 column 15
        invalid_request:more: unknown field `more`, expected `requests` at line 1 column 21"#]]
    .assert_eq(&lines.join("\n"));
}
