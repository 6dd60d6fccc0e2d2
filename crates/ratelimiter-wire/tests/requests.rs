//! Requests round-trip, and malformed ones are rejected with the field.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::time::Duration;

use expect_test::{Expect, expect};
use ratelimiter::{
    Actuals, CompleteRequest, JobId, LeaseId, LimitKey, Requirements, ReserveRequest, Wait,
};
use ratelimiter_wire::{
    BatchBody, Body, CompleteBody, DefinitionBody, ErrorCode, ForgiveBody, ReserveBody, read,
    read_batch,
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
        wait: Some(Wait::new(Duration::from_millis(1_500), "acme").unwrap()),
    };
    let json = serde_json::to_string(&ReserveBody::from(&reserve)).unwrap();
    expect![[r#"{"lease_id":"01J9ZC3V9W8Q4N2M6T5R7Y1K0D","job_id":"nightly run 7","requirements":[{"key":"a","amount":1},{"key":"b:é","amount":18446744073709551615}],"wait_ms":1500,"queue":"acme"}"#]].assert_eq(&json);
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

/// OPS-02
#[test]
fn ops_02_a_malformed_forgive_is_refused_by_field() {
    check::<ForgiveBody>(
        &[
            "",
            "[]",
            r#"["k"]"#,
            "{}",
            r#"{"key":7}"#,
            r#"{"key":""}"#,
            r#"{"key":"a b"}"#,
            r#"{"key":"k","amount":1}"#,
        ],
        &expect![[r#"
            invalid_request:body: the body is not JSON: EOF while parsing a value at line 1 column 0
            invalid_request:body: invalid type: sequence, expected an object with key at line 1 column 0
            invalid_request:body: invalid type: sequence, expected an object with key at line 1 column 0
            invalid_request:key: missing field `key` at line 1 column 2
            invalid_request:key: invalid type: integer `7`, expected a string at line 1 column 8
            invalid_request:key: a key must not be empty: it has 1 to 256 bytes at line 1 column 9
            invalid_request:key: a key must not contain white space, this one has some at byte 1 at line 1 column 12
            invalid_request:amount: unknown field `amount`, expected `key` at line 1 column 19
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
            invalid_request:priority: unknown field `priority`, expected one of `lease_id`, `job_id`, `requirements`, `wait_ms`, `queue` at line 1 column 91
            invalid_request:two_words: unknown field `two words`, expected one of `lease_id`, `job_id`, `requirements`, `wait_ms`, `queue` at line 1 column 92
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
            invalid_request:kind: unknown variant `leaky`, expected one of `rolling`, `concurrency`, `calendar` at line 1 column 25
            invalid_request:window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 0
            invalid_request:window_seconds: a rolling limit's window is 1 to 2678400 seconds (31 days), not 2678401
            invalid_request:window_seconds: invalid value: integer `-1`, expected a whole number from 0 to 18446744073709551615 at line 1 column 60
            invalid_request:timeout_seconds: a rolling limit has no timeout_seconds; leave it out, or give 0 instead of 1
            invalid_request:timeout_seconds: a concurrency limit's timeout is 1 to 86400 seconds (1 day), not 86401
            invalid_request:window_seconds: a concurrency limit has no window_seconds; leave it out, or give 0 instead of 1
            invalid_request:capacity: a capacity is 0 to 9223372036854775807 (2^63-1), not 9223372036854775808 at line 1 column 58
            invalid_request:capacity: invalid value: integer `-1`, expected a whole number from 0 to 9223372036854775807 at line 1 column 41
            invalid_request:overage: unknown variant `forgive`, expected `debt` or `deny` at line 1 column 80
            invalid_request:used: unknown field `used`, expected one of `key`, `kind`, `capacity`, `window_seconds`, `timeout_seconds`, `period`, `time_zone`, `resets_at`, `weekday`, `day`, `unit`, `description`, `overage`, `mode` at line 1 column 67
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
        r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":1,"timeout_seconds":0,"unit":"","description":"","overage":"debt","mode":"shadow"}"#,
    ] {
        let limit = read::<DefinitionBody>(json.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&DefinitionBody::from(&limit)).unwrap(), json);
    }
}

/// CAL-01
#[test]
fn cal_01_a_calendar_definition_round_trips_with_its_defaults() {
    for (given, written) in [
        (r#""period":"hour""#, r#""period":"hour","resets_at":"00:00""#),
        (r#""period":"hour","resets_at":"13:05""#, r#""period":"hour","resets_at":"00:05""#),
        (r#""period":"day""#, r#""period":"day","time_zone":"UTC","resets_at":"00:00""#),
        (
            r#""period":"week","time_zone":"america/new_york""#,
            r#""period":"week","time_zone":"America/New_York","resets_at":"00:00","weekday":"monday""#,
        ),
        (
            r#""period":"week","weekday":"sunday","resets_at":"23:59""#,
            r#""period":"week","time_zone":"UTC","resets_at":"23:59","weekday":"sunday""#,
        ),
        (
            r#""period":"month","time_zone":"Europe/Sofia","resets_at":"06:00","day":28"#,
            r#""period":"month","time_zone":"Europe/Sofia","resets_at":"06:00","day":28"#,
        ),
        (
            r#""period":"month","window_seconds":0,"timeout_seconds":0,"weekday":null"#,
            r#""period":"month","time_zone":"UTC","resets_at":"00:00","day":1"#,
        ),
    ] {
        let json = format!(r#"{{"key":"k","kind":"calendar","capacity":1,{given}}}"#);
        let limit = read::<DefinitionBody>(json.as_bytes()).unwrap();
        let json = serde_json::to_string(&DefinitionBody::from(&limit)).unwrap();
        assert!(json.contains(&format!("{written},\"unit\"")), "{json}");
        assert_eq!(read::<DefinitionBody>(json.as_bytes()).unwrap(), limit);
    }
}

/// A calendar definition with these fields.
fn calendar(fields: &str) -> String {
    format!(r#"{{"key":"k","kind":"calendar","capacity":1,{fields}}}"#)
}

/// CAL-01, SHD-01
#[test]
fn cal_01_shd_01_a_value_that_no_calendar_or_mode_has_is_refused_with_its_field() {
    let bodies = [
        r#"{"key":"k","kind":"calendar","capacity":1}"#.to_owned(),
        calendar(r#""period":null"#),
        calendar(r#""period":"year""#),
        calendar(r#""period":"day","time_zone":"Europe/Atlantis""#),
        calendar(r#""period":"day","time_zone":"""#),
        calendar(r#""period":"day","time_zone":"+02:00""#),
        calendar(r#""period":"day","time_zone":7"#),
        calendar(r#""period":"day","resets_at":"25:00""#),
        calendar(r#""period":"day","resets_at":"24:00""#),
        calendar(r#""period":"day","resets_at":"6:00""#),
        calendar(r#""period":"day","resets_at":"06:60""#),
        calendar(r#""period":"day","resets_at":"+6:-0""#),
        calendar(r#""period":"hour","resets_at":"99:05""#),
        calendar(r#""period":"month","day":31"#),
        calendar(r#""period":"month","day":0"#),
        calendar(r#""period":"month","day":-1"#),
        calendar(r#""period":"month","day":"1""#),
        calendar(r#""period":"week","weekday":"Montag""#),
        calendar(r#""period":"day","mode":"dark""#),
        calendar(r#""period":"day","mode":true"#),
    ];
    check::<DefinitionBody>(
        &bodies.each_ref().map(String::as_str),
        &expect![[r#"
        invalid_request:period: a calendar limit needs a period: hour, day, week or month
        invalid_request:period: a calendar limit needs a period: hour, day, week or month
        invalid_request:period: unknown variant `year`, expected one of `hour`, `day`, `week`, `month` at line 1 column 57
        invalid_request:time_zone: "Europe/Atlantis" is no time zone of the IANA database; write it like Europe/Sofia, or UTC
        invalid_request:time_zone: "" is no time zone of the IANA database; write it like Europe/Sofia, or UTC
        invalid_request:time_zone: "+02:00" is no time zone of the IANA database; write it like Europe/Sofia, or UTC
        invalid_request:time_zone: invalid type: integer `7`, expected a string at line 1 column 70
        invalid_request:resets_at: a reset time is HH:MM from 00:00 to 23:59, not "25:00"
        invalid_request:resets_at: a reset time is HH:MM from 00:00 to 23:59, not "24:00"
        invalid_request:resets_at: a reset time is HH:MM from 00:00 to 23:59, not "6:00"
        invalid_request:resets_at: a reset time is HH:MM from 00:00 to 23:59, not "06:60"
        invalid_request:resets_at: a reset time is HH:MM from 00:00 to 23:59, not "+6:-0"
        invalid_request:resets_at: a reset time is HH:MM from 00:00 to 23:59, not "99:05"
        invalid_request:day: a monthly limit resets on day 1 to 28, which every month has, not 31
        invalid_request:day: a monthly limit resets on day 1 to 28, which every month has, not 0
        invalid_request:day: invalid value: integer `-1`, expected a whole number from 1 to 28 at line 1 column 67
        invalid_request:day: invalid type: string "1", expected a whole number from 1 to 28 at line 1 column 68
        invalid_request:weekday: unknown variant `Montag`, expected one of `monday`, `tuesday`, `wednesday`, `thursday`, `friday`, `saturday`, `sunday` at line 1 column 76
        invalid_request:mode: unknown variant `dark`, expected `enforce` or `shadow` at line 1 column 70
        invalid_request:mode: invalid type: boolean `true`, expected `enforce` or `shadow` at line 1 column 68
    "#]],
    );
}

/// DEF-02, CAL-01, SHD-01: only a string is a name.
#[test]
fn cal_01_shd_01_a_name_in_another_form_is_refused_with_the_allowed_ones() {
    let weekly = |field: &str| calendar(&format!(r#""period":"week",{field}"#));
    let bodies = [
        r#"{"key":"k","kind":{"rolling":null},"capacity":1,"window_seconds":60}"#.to_owned(),
        r#"{"key":"k","kind":null,"capacity":1,"window_seconds":60}"#.to_owned(),
        calendar(r#""period":{"day":null}"#),
        calendar(r#""period":["day"]"#),
        weekly(r#""weekday":{"monday":null}"#),
        weekly(r#""weekday":1"#),
        weekly(r#""mode":{"shadow":null}"#),
        weekly(r#""mode":null"#),
        weekly(r#""overage":{"deny":null}"#),
        weekly(r#""overage":1.5"#),
    ];
    check::<DefinitionBody>(
        &bodies.each_ref().map(String::as_str),
        &expect![[r#"
            invalid_request:kind: invalid type: map, expected one of `rolling`, `concurrency`, `calendar` at line 1 column 18
            invalid_request:kind: invalid type: null, expected one of `rolling`, `concurrency`, `calendar` at line 1 column 22
            invalid_request:period: invalid type: map, expected one of `hour`, `day`, `week`, `month` at line 1 column 51
            invalid_request:period: invalid type: sequence, expected one of `hour`, `day`, `week`, `month` at line 1 column 51
            invalid_request:weekday: invalid type: map, expected one of `monday`, `tuesday`, `wednesday`, `thursday`, `friday`, `saturday`, `sunday` at line 1 column 68
            invalid_request:weekday: invalid type: integer `1`, expected one of `monday`, `tuesday`, `wednesday`, `thursday`, `friday`, `saturday`, `sunday` at line 1 column 69
            invalid_request:mode: invalid type: map, expected `enforce` or `shadow` at line 1 column 65
            invalid_request:mode: invalid type: null, expected `enforce` or `shadow` at line 1 column 69
            invalid_request:overage: invalid type: map, expected `debt` or `deny` at line 1 column 68
            invalid_request:overage: invalid type: floating point `1.5`, expected `debt` or `deny` at line 1 column 71
        "#]],
    );
}

/// CAL-01
#[test]
fn cal_01_a_field_that_the_kind_or_period_does_not_have_is_refused() {
    let rolling = |field: &str| {
        format!(r#"{{"key":"k","kind":"rolling","capacity":1,"window_seconds":60,{field}}}"#)
    };
    let concurrency = |field: &str| {
        format!(r#"{{"key":"k","kind":"concurrency","capacity":1,"timeout_seconds":60,{field}}}"#)
    };
    let bodies = [
        calendar(r#""period":"month","weekday":"monday""#),
        calendar(r#""period":"week","day":1"#),
        calendar(r#""period":"day","day":1"#),
        calendar(r#""period":"day","weekday":"monday""#),
        calendar(r#""period":"hour","time_zone":"UTC""#),
        calendar(r#""period":"hour","weekday":"monday""#),
        calendar(r#""period":"hour","day":1"#),
        calendar(r#""period":"month","window_seconds":60"#),
        calendar(r#""period":"month","timeout_seconds":60"#),
        rolling(r#""period":"day""#),
        rolling(r#""time_zone":"UTC""#),
        rolling(r#""resets_at":"00:00""#),
        concurrency(r#""weekday":"monday""#),
        concurrency(r#""day":1"#),
    ];
    check::<DefinitionBody>(
        &bodies.each_ref().map(String::as_str),
        &expect![[r#"
        invalid_request:weekday: a monthly limit has no weekday; leave it out
        invalid_request:day: a weekly limit has no day; leave it out
        invalid_request:day: a daily limit has no day; leave it out
        invalid_request:weekday: a daily limit has no weekday; leave it out
        invalid_request:time_zone: an hourly limit, which resets in UTC, has no time_zone; leave it out
        invalid_request:weekday: an hourly limit, which resets in UTC, has no weekday; leave it out
        invalid_request:day: an hourly limit, which resets in UTC, has no day; leave it out
        invalid_request:window_seconds: a calendar limit has no window_seconds; leave it out, or give 0 instead of 60
        invalid_request:timeout_seconds: a calendar limit has no timeout_seconds; leave it out, or give 0 instead of 60
        invalid_request:period: a rolling limit has no period; leave it out
        invalid_request:time_zone: a rolling limit has no time_zone; leave it out
        invalid_request:resets_at: a rolling limit has no resets_at; leave it out
        invalid_request:weekday: a concurrency limit has no weekday; leave it out
        invalid_request:day: a concurrency limit has no day; leave it out
    "#]],
    );
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

/// TPL-01
#[test]
fn tpl_01_a_requirement_that_names_a_template_is_refused_with_its_field() {
    let reserve = |first: &str, second: &str| {
        format!(
            r#"{{"lease_id":"{LEASE}","requirements":[{{"key":"{first}","amount":1}},{{"key":"{second}","amount":1}}]}}"#
        )
    };
    let bodies = [reserve("tenant:*:rpm", "a"), reserve("a", "**"), reserve("a:**", "a:**")];
    check::<ReserveBody>(
        &bodies.each_ref().map(String::as_str),
        &expect![[r#"
            invalid_request:requirements[0].key: tenant:*:rpm is a template; a requirement names one of the keys that it stands for
            invalid_request:requirements[1].key: ** is a template; a requirement names one of the keys that it stands for
            duplicate_key:a:**: a:** is listed twice; list each key once, with the sum
        "#]],
    );
    assert!(read::<ReserveBody>(reserve("a*b", "a").as_bytes()).is_ok());
}
