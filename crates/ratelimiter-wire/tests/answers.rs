//! The form of answers (`docs/reference/http-api.md`), and parsing by a client.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::time::Duration;

use expect_test::expect;
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Capacity, CompleteError, Decision, DefineError, DeleteError, Denial, DenialReason,
    ForgiveError, HeldAmount, JobId, LeaseId, LeasesError, Limit, LimitKey, LimitKind, LimitMode,
    LimitState, LimitStatus, OpenLease, Refused, ReleaseError, RenewError, Renewal, ReserveError,
    ResetSchedule, ResetTime, StateError, TimeZone, Unanswered, Usage, Window,
};
use ratelimiter_wire::{
    CompleteAnswer, DefineAnswer, DeleteAnswer, ErrorBody, ErrorCode, ForgiveAnswer, OpenLeaseBody,
    Refusal, ReleaseAnswer, RenewAnswer, ReserveAnswer, StateBody,
};

fn key(text: &str) -> LimitKey {
    LimitKey::new(text).unwrap()
}

fn unanswered() -> Unanswered {
    Unanswered { reason: "timed out".into(), retry_after: Duration::from_millis(50) }
}

fn refused() -> Refused {
    Refused { reason: "unknown server".into() }
}

fn limit() -> Limit {
    let window = Window::from_seconds(60).unwrap();
    Limit::new(key("k"), LimitKind::Rolling { window }, Capacity::new(10).unwrap())
}

/// Each outcome of a reserve, in the order of the table in `docs/reference/http-api.md`.
fn reserve_results() -> Vec<Result<Decision, ReserveError>> {
    let denied = |reason, ms| {
        Ok(Decision::Denied(Denial { reason, retry_after: Duration::from_millis(ms) }))
    };
    vec![
        Ok(Decision::allowed_at(Timestamp::from_unix_ms(1_736_660_000_000))),
        Ok(Decision::Allowed {
            reserved_at: Timestamp::from_unix_ms(1_736_660_000_000),
            shadow_denied: vec![key("a"), key("b")],
        }),
        denied(DenialReason::NoRoom { keys: vec![key("a"), key("b")] }, 120),
        denied(DenialReason::Paused { key: key("a") }, 10_000),
        denied(DenialReason::Decreasing { key: key("a") }, 10_000),
        denied(DenialReason::TooManyInstances { template: key("a:*") }, 10_000),
        Err(ReserveError::UnknownKey { key: key("a:b") }),
        Err(ReserveError::AmountExceedsCapacity { key: key("a") }),
        Err(ReserveError::LeaseConflict),
        Err(ReserveError::LeaseEnded),
        Err(unanswered().into()),
        Err(refused().into()),
    ]
}

/// HTTP-05, SHD-01, TPL-07
#[test]
fn an_answer_to_a_reserve_has_its_status_and_form() {
    let lines: String = reserve_results()
        .into_iter()
        .map(|result| {
            let answer = ReserveAnswer::of(result);
            format!("{} {}\n", answer.http_status(), serde_json::to_string(&answer).unwrap())
        })
        .collect();
    expect![[r#"
        200 {"allowed":true,"retry_after_ms":0,"reserved_at_unix_ms":1736660000000}
        200 {"allowed":true,"retry_after_ms":0,"reserved_at_unix_ms":1736660000000,"shadow_denied_keys":["a","b"]}
        200 {"allowed":false,"retry_after_ms":120,"reserved_at_unix_ms":0,"denied_keys":["a","b"]}
        200 {"allowed":false,"retry_after_ms":10000,"reserved_at_unix_ms":0,"error":"limit_paused:a","message":"a is paused (capacity 0); nothing is admitted until it is raised"}
        200 {"allowed":false,"retry_after_ms":10000,"reserved_at_unix_ms":0,"error":"limit_decreasing:a","message":"the capacity of a is being lowered; nothing is admitted until it applies"}
        200 {"allowed":false,"retry_after_ms":10000,"reserved_at_unix_ms":0,"error":"too_many_limits:a:*","message":"too many limits are made from templates, such as a:*; see registry.instances_max and registry.new_instances_per_second_max"}
        404 {"allowed":false,"retry_after_ms":0,"error":"unknown_limit_key:a:b","message":"no limit is defined for a:b"}
        422 {"allowed":false,"retry_after_ms":0,"error":"amount_exceeds_capacity:a","message":"more is asked of a than its whole capacity; waiting cannot help"}
        409 {"allowed":false,"retry_after_ms":0,"error":"lease_conflict","message":"this lease ID was used before with other requirements; take a new one"}
        409 {"allowed":false,"retry_after_ms":0,"error":"lease_ended","message":"this lease has ended; take a new lease ID"}
        503 {"allowed":false,"retry_after_ms":50,"error":"backend_error","message":"no answer: timed out"}
        500 {"allowed":false,"retry_after_ms":0,"error":"backend_refused","message":"refused: unknown server"}
    "#]].assert_eq(&lines);
}

/// The reason that a client gets begins with the error code; the rest is equal.
fn same_outcome<T: PartialEq + std::fmt::Debug, E: std::fmt::Display>(
    sent: &Result<T, E>,
    got: &Result<T, E>,
) {
    match (sent, got) {
        (Ok(sent), Ok(got)) => assert_eq!(sent, got),
        (Err(sent), Err(got)) => {
            assert!(got.to_string().ends_with(&sent.to_string()), "{sent} / {got}");
        }
        (sent, got) => panic!("{:?} / {:?}", sent.is_ok(), got.is_ok()),
    }
}

/// HTTP-05, SHD-01
#[test]
fn a_reserve_response_round_trips() {
    for result in reserve_results() {
        let json = serde_json::to_vec(&ReserveAnswer::of(result.clone())).unwrap();
        let answer: ReserveAnswer = serde_json::from_slice(&json).unwrap();
        let got = answer.into_result();
        same_outcome(&result, &got);
        if let (Err(sent), Err(got)) = (&result, &got) {
            assert_eq!(std::mem::discriminant(sent), std::mem::discriminant(got));
        }
    }
}

#[test]
fn a_hint_survives_an_unanswered_reserve() {
    let answer = ReserveAnswer::of(Err(unanswered().into()));
    let Err(ReserveError::Unanswered(got)) = answer.into_result() else {
        panic!("it was unanswered");
    };
    assert_eq!(got.retry_after, Duration::from_millis(50));
}

#[test]
fn an_invalid_request_is_not_a_refusal() {
    for json in [
        r#"{"error":"invalid_request:requirements[0].amount","message":"must be positive"}"#,
        r#"{"error":"duplicate_key:k"}"#,
    ] {
        let answer: ReserveAnswer = serde_json::from_str(json).unwrap();
        let got = answer.into_result();
        assert!(matches!(got, Err(ReserveError::InvalidRequest { .. })), "{json}: {got:?}");
    }
}

#[test]
fn an_answer_of_another_protocol_is_refused_and_never_allowed() {
    for json in [
        "{}",
        r#"{"allowed":true}"#,
        r#"{"allowed":true,"reserved_at_unix_ms":18446744073709551615}"#,
        r#"{"allowed":true,"reserved_at_unix_ms":1,"error":"tomorrow"}"#,
        r#"{"error":"unauthorized","message":"a token is needed"}"#,
        r#"{"error":"forbidden_key:k","message":"the token does not permit the key"}"#,
        r#"{"status":"up"}"#,
    ] {
        let answer: ReserveAnswer = serde_json::from_str(json).unwrap();
        let got = answer.into_result();
        assert!(matches!(got, Err(ReserveError::Refused(_))), "{json}: {got:?}");
        if let Ok(answer) = serde_json::from_str::<CompleteAnswer>(json) {
            let got = answer.into_result();
            assert!(matches!(got, Err(CompleteError::Refused(_))), "{json}: {got:?}");
        }
    }
}

/// HTTP-06
#[test]
fn a_complete_response_round_trips() {
    let results: [(Result<(), CompleteError>, _); 4] = [
        (Ok(()), r#"200 {"ok":true}"#),
        (
            Err(CompleteError::InvalidActual { key: key("a") }),
            r#"400 {"ok":false,"error":"invalid_actual:a""#,
        ),
        (
            Err(unanswered().into()),
            r#"503 {"ok":false,"retry_after_ms":50,"error":"backend_error""#,
        ),
        (Err(refused().into()), r#"500 {"ok":false,"error":"backend_refused""#),
    ];
    for (result, expected) in results {
        let answer = CompleteAnswer::of(result.clone());
        let json = serde_json::to_string(&answer).unwrap();
        let line = format!("{} {json}", answer.http_status());
        assert!(line.starts_with(expected), "{line}");
        let answer: CompleteAnswer = serde_json::from_str(&json).unwrap();
        same_outcome(&result, &answer.into_result());
    }
}

/// HTTP-08
#[test]
fn a_definition_response_round_trips() {
    let results: [(Result<LimitStatus, DefineError>, _); 6] = [
        (Ok(LimitStatus::Active), r#"200 {"ok":true,"status":"active"}"#),
        (Ok(LimitStatus::Paused), r#"200 {"ok":true,"status":"paused"}"#),
        (
            Ok(LimitStatus::Decreasing { to: limit().capacity }),
            r#"200 {"ok":true,"status":"decreasing"}"#,
        ),
        (
            Err(DefineError::KindConflict { key: key("k"), is: "concurrency" }),
            r#"409 {"ok":false,"error":"kind_conflict:k""#,
        ),
        (Err(unanswered().into()), r#"503 {"ok":false,"error":"backend_error""#),
        (Err(refused().into()), r#"500 {"ok":false,"error":"backend_refused""#),
    ];
    for (result, expected) in results {
        let answer = DefineAnswer::of(result.clone());
        let json = serde_json::to_string(&answer).unwrap();
        let line = format!("{} {json}", answer.http_status());
        assert!(line.starts_with(expected), "{line}");
        let answer: DefineAnswer = serde_json::from_str(&json).unwrap();
        same_outcome(&result, &answer.into_result(&limit()));
    }
}

/// TPL-01: a key that cannot be defined is refused with its field, in a list too.
#[test]
fn tpl_01_a_key_that_cannot_be_defined_is_refused_with_its_field() {
    let error = || DefineError::InvalidKey { key: key("a*b"), reason: "for a reason".to_owned() };
    let one = DefineAnswer::of(Err(error()));
    let many = DefineAnswer::of_all(vec![key("a"), key("a*b")], Err(error()));
    for (answer, field) in [(one, "key"), (many, "limits[1].key")] {
        assert_eq!(answer.http_status(), 400);
        assert_eq!(answer.error, Some(ErrorCode::InvalidRequest { field: field.to_owned() }));
        let message = answer.message.clone().unwrap();
        assert_eq!(message, "a*b cannot be defined: for a reason");
        assert!(!answer.is_list_unsupported(), "a client does not send the list one by one");
        assert!(matches!(answer.into_result(&limit()), Err(DefineError::Refused(_))));
    }
}

/// HTTP-11
#[test]
fn a_deletion_response_round_trips() {
    let results: [(Result<(), DeleteError>, _); 3] = [
        (Ok(()), r#"200 {"ok":true}"#),
        (Err(DeleteError::UnknownKey { key: key("k") }), r#"404 {"ok":false,"error":"not_found""#),
        (Err(unanswered().into()), r#"503 {"ok":false,"error":"backend_error""#),
    ];
    for (result, expected) in results {
        let answer = DeleteAnswer::of(result.clone());
        let json = serde_json::to_string(&answer).unwrap();
        let line = format!("{} {json}", answer.http_status());
        assert!(line.starts_with(expected), "{line}");
        let answer: DeleteAnswer = serde_json::from_str(&json).unwrap();
        same_outcome(&result, &answer.into_result(&key("k")));
    }
}

/// OPS-01
#[test]
fn ops_01_a_release_response_round_trips() {
    let lease = LeaseId::from_u128(7);
    let results: [(Result<(), ReleaseError>, _); 4] = [
        (Ok(()), r#"200 {"ok":true}"#),
        (Err(ReleaseError::UnknownLease { lease }), r#"404 {"ok":false,"error":"not_found""#),
        (Err(unanswered().into()), r#"503 {"ok":false,"error":"backend_error""#),
        (Err(refused().into()), r#"500 {"ok":false,"error":"backend_refused""#),
    ];
    for (result, expected) in results {
        let answer = ReleaseAnswer::of(result.clone());
        let json = serde_json::to_string(&answer).unwrap();
        let line = format!("{} {json}", answer.http_status());
        assert!(line.starts_with(expected), "{line}");
        let answer: ReleaseAnswer = serde_json::from_str(&json).unwrap();
        same_outcome(&result, &answer.into_result(lease));
    }
    let other: ReleaseAnswer = serde_json::from_str("{}").unwrap();
    assert!(matches!(other.into_result(lease), Err(ReleaseError::Refused(_))));
}

/// OPS-02
#[test]
fn ops_02_a_forgive_response_round_trips() {
    let results: [(Result<u128, ForgiveError>, _); 5] = [
        (Ok(0), r#"200 {"ok":true,"forgiven":0}"#),
        (Ok(u128::MAX), r#"200 {"ok":true,"forgiven":340282366920938463463374607431768211455}"#),
        (
            Err(ForgiveError::UnknownKey { key: key("k") }),
            r#"404 {"ok":false,"error":"unknown_limit_key:k""#,
        ),
        (Err(unanswered().into()), r#"503 {"ok":false,"error":"backend_error""#),
        (Err(refused().into()), r#"500 {"ok":false,"error":"backend_refused""#),
    ];
    for (result, expected) in results {
        let answer = ForgiveAnswer::of(result.clone());
        let json = serde_json::to_string(&answer).unwrap();
        let line = format!("{} {json}", answer.http_status());
        assert!(line.starts_with(expected), "{line}");
        let answer: ForgiveAnswer = serde_json::from_str(&json).unwrap();
        same_outcome(&result, &answer.into_result());
    }
    let other: ForgiveAnswer = serde_json::from_str(r#"{"ok":true}"#).unwrap();
    assert!(matches!(other.into_result(), Err(ForgiveError::Refused(_))));
}

/// OPS-01
#[test]
fn ops_01_an_open_lease_round_trips() {
    let reserved_at = Timestamp::from_unix_ms(1_736_660_000_123);
    let lapses_at = reserved_at.after(Duration::from_secs(60));
    for job in [None, Some(JobId::new("nightly").unwrap())] {
        let amounts = vec![HeldAmount { key: key("k"), amount: u64::MAX, lapses_at }];
        let (lease, age) = (LeaseId::from_u128(7), Duration::from_secs(3));
        let open = OpenLease { lease, job, reserved_at, age, amounts };
        let json = serde_json::to_string(&OpenLeaseBody::from(&open)).unwrap();
        let body: OpenLeaseBody = serde_json::from_str(&json).unwrap();
        assert_eq!(OpenLease::try_from(body).unwrap(), open);
        for (field, wrong) in [
            (
                r#""reserved_at_unix_ms":1736660000123"#,
                r#""reserved_at_unix_ms":18446744073709551615"#,
            ),
            (r#""lapses_at_unix_ms":1736660060123"#, r#""lapses_at_unix_ms":18446744073709551615"#),
        ] {
            assert!(json.contains(field), "{json}");
            let body: OpenLeaseBody = serde_json::from_str(&json.replace(field, wrong)).unwrap();
            let name = field.split('"').nth(1).unwrap();
            let refusal = OpenLease::try_from(body).unwrap_err();
            assert_eq!(refusal.error.to_string(), format!("invalid_request:{name}"));
        }
    }
}

/// OPS-01
#[test]
fn ops_01_an_error_of_a_list_of_leases_round_trips() {
    let lease = LeaseId::from_u128(7);
    for (error, code) in [
        (LeasesError::UnknownLease { lease }, "invalid_request:after"),
        (unanswered().into(), "backend_error"),
        (refused().into(), "backend_refused"),
    ] {
        let body = ErrorBody::from(error.clone());
        assert_eq!(body.error.to_string(), code);
        same_outcome(&Err::<(), _>(error), &Err(body.into_leases_error(Some(lease))));
    }
    let body = ErrorBody::from(Refusal::of_field("after", "nothing was sent"));
    assert!(matches!(body.into_leases_error(None), LeasesError::Refused(_)));
}

/// COM-03: debt may exceed 64 bits.
#[test]
fn com_03_a_state_with_a_large_debt_round_trips() {
    let state = LimitState {
        limit: limit(),
        status: LimitStatus::Decreasing { to: Capacity::new(3).unwrap() },
        usage: Usage {
            used: 7,
            available: 3,
            debt: u128::MAX,
            uncovered: u128::from(u64::MAX) + 1,
        },
        resets_at: None,
    };
    let json = serde_json::to_string(&StateBody::from(&state)).unwrap();
    expect![[r#"{"key":"k","kind":"rolling","capacity":10,"window_seconds":60,"timeout_seconds":0,"unit":"","description":"","overage":"debt","status":"decreasing","pending_decrease_to":3,"used":7,"available":3,"debt":340282366920938463463374607431768211455,"uncovered":18446744073709551616}"#]].assert_eq(&json);
    let body: StateBody = serde_json::from_str(&json).unwrap();
    assert_eq!(LimitState::try_from(body).unwrap(), state);
}

/// PAUSE-01: with and without units in use.
#[test]
fn pause_01_a_paused_state_round_trips() {
    for (capacity, fields) in [
        (0, r#""status":"paused","pending_decrease_to":null"#),
        (10, r#""status":"paused","pending_decrease_to":0"#),
    ] {
        let limit = Limit { capacity: Capacity::new(capacity).unwrap(), ..limit() };
        let state = LimitState {
            limit,
            status: LimitStatus::Paused,
            usage: Usage::default(),
            resets_at: None,
        };
        let json = serde_json::to_string(&StateBody::from(&state)).unwrap();
        assert!(json.contains(fields), "{json}");
        let body: StateBody = serde_json::from_str(&json).unwrap();
        assert_eq!(LimitState::try_from(body).unwrap(), state);
    }
}

/// CAL-03, SHD-01: `used` may exceed the capacity of a limit in shadow mode.
#[test]
fn cal_03_shd_01_the_state_of_a_calendar_limit_in_shadow_mode_round_trips() {
    let resets = ResetSchedule::Daily { at: ResetTime::MIDNIGHT, zone: TimeZone::utc() };
    let state = LimitState {
        limit: Limit {
            mode: LimitMode::Shadow,
            ..Limit::new(key("k"), LimitKind::Calendar { resets }, Capacity::new(10).unwrap())
        },
        status: LimitStatus::Active,
        usage: Usage { used: 17, ..Usage::default() },
        resets_at: Some(Timestamp::from_unix_ms(1_736_726_400_000)),
    };
    let json = serde_json::to_string(&StateBody::from(&state)).unwrap();
    expect![[r#"{"key":"k","kind":"calendar","capacity":10,"window_seconds":0,"timeout_seconds":0,"period":"day","time_zone":"UTC","resets_at":"00:00","unit":"","description":"","overage":"debt","mode":"shadow","status":"active","pending_decrease_to":null,"used":17,"available":0,"debt":0,"uncovered":0,"resets_at_unix_ms":1736726400000}"#]].assert_eq(&json);
    let body: StateBody = serde_json::from_str(&json).unwrap();
    assert_eq!(LimitState::try_from(body).unwrap(), state);
}

#[test]
fn a_state_error_round_trips() {
    for (error, code) in [
        (StateError::from(unanswered()), ErrorCode::BackendError),
        (StateError::from(refused()), ErrorCode::BackendRefused),
    ] {
        let body = ErrorBody::from(error.clone());
        assert_eq!(body.error, code);
        same_outcome(&Err::<(), _>(error), &Err(StateError::from(body)));
    }
}

#[test]
fn a_refusal_becomes_an_answer_of_each_operation() {
    let refusal = Refusal::of_field("requirements[0].amount", "an amount is 1 or more");
    let answers = [
        serde_json::to_string(&ReserveAnswer::from(refusal.clone())).unwrap(),
        serde_json::to_string(&CompleteAnswer::from(refusal.clone())).unwrap(),
        serde_json::to_string(&ErrorBody::from(refusal)).unwrap(),
    ];
    expect![[r#"
        {"allowed":false,"retry_after_ms":0,"error":"invalid_request:requirements[0].amount","message":"an amount is 1 or more"}
        {"ok":false,"error":"invalid_request:requirements[0].amount","message":"an amount is 1 or more"}
        {"error":"invalid_request:requirements[0].amount","message":"an amount is 1 or more"}"#]].assert_eq(&answers.join("\n"));
}

/// Each outcome of a renew, in the order of the table in `docs/reference/http-api.md`.
fn renew_results() -> Vec<Result<Renewal, RenewError>> {
    let denied =
        |reason, ms| Ok(Renewal::Denied(Denial { reason, retry_after: Duration::from_millis(ms) }));
    let renewed = |shadow_denied| Renewal::Renewed {
        renewed_at: Timestamp::from_unix_ms(1_736_660_000_000),
        lapses_at: Timestamp::from_unix_ms(1_736_660_060_000),
        shadow_denied,
    };
    vec![
        Ok(renewed(Vec::new())),
        Ok(renewed(vec![key("a"), key("b")])),
        denied(DenialReason::NoRoom { keys: vec![key("a"), key("b")] }, 120),
        denied(DenialReason::Paused { key: key("a") }, 10_000),
        denied(DenialReason::Decreasing { key: key("a") }, 10_000),
        denied(DenialReason::TooManyInstances { template: key("a:*") }, 10_000),
        Err(RenewError::LeaseEnded),
        Err(RenewError::Superseded),
        Err(RenewError::InvalidAmount { key: key("a:b") }),
        Err(RenewError::UnknownKey { key: key("a:b") }),
        Err(RenewError::AmountExceedsCapacity { key: key("a") }),
        Err(RenewError::Unsupported),
        Err(unanswered().into()),
        Err(refused().into()),
    ]
}

/// HTTP-17, REN-01, REN-03
#[test]
fn ren_01_an_answer_to_a_renew_has_its_status_and_form() {
    let lines: String = renew_results()
        .into_iter()
        .map(|result| {
            let answer = RenewAnswer::of(result);
            format!("{} {}\n", answer.http_status(), serde_json::to_string(&answer).unwrap())
        })
        .collect();
    expect![[r#"
        200 {"renewed":true,"retry_after_ms":0,"renewed_at_unix_ms":1736660000000,"lapses_at_unix_ms":1736660060000}
        200 {"renewed":true,"retry_after_ms":0,"renewed_at_unix_ms":1736660000000,"lapses_at_unix_ms":1736660060000,"shadow_denied_keys":["a","b"]}
        200 {"renewed":false,"retry_after_ms":120,"denied_keys":["a","b"]}
        200 {"renewed":false,"retry_after_ms":10000,"error":"limit_paused:a","message":"a is paused (capacity 0); nothing is admitted until it is raised"}
        200 {"renewed":false,"retry_after_ms":10000,"error":"limit_decreasing:a","message":"the capacity of a is being lowered; nothing is admitted until it applies"}
        200 {"renewed":false,"retry_after_ms":10000,"error":"too_many_limits:a:*","message":"too many limits are made from templates, such as a:*; see registry.instances_max and registry.new_instances_per_second_max"}
        409 {"renewed":false,"retry_after_ms":0,"error":"lease_ended","message":"this lease is not open; reserve with a new lease ID"}
        409 {"renewed":false,"retry_after_ms":0,"error":"renew_superseded","message":"this lease was renewed with a greater number; take one above it"}
        400 {"renewed":false,"retry_after_ms":0,"error":"invalid_amount:a:b","message":"the lease has no requirement of a:b; a renew names keys of the lease's requirements"}
        404 {"renewed":false,"retry_after_ms":0,"error":"unknown_limit_key:a:b","message":"no limit is defined for a:b"}
        422 {"renewed":false,"retry_after_ms":0,"error":"amount_exceeds_capacity:a","message":"more is asked of a than its whole capacity; waiting cannot help"}
        404 {"renewed":false,"retry_after_ms":0,"error":"not_found","message":"this limiter does not renew leases"}
        503 {"renewed":false,"retry_after_ms":50,"error":"backend_error","message":"no answer: timed out"}
        500 {"renewed":false,"retry_after_ms":0,"error":"backend_refused","message":"refused: unknown server"}
    "#]].assert_eq(&lines);
}

/// REN-01
#[test]
fn ren_01_a_client_reads_the_answer_to_a_renew() {
    for result in renew_results() {
        let json = serde_json::to_string(&RenewAnswer::of(result.clone())).unwrap();
        let read = serde_json::from_str::<RenewAnswer>(&json).unwrap().into_result();
        match (&result, &read) {
            (Err(RenewError::Unanswered(_)), Err(RenewError::Unanswered(read))) => {
                assert_eq!(read.retry_after, Duration::from_millis(50));
            }
            (Err(RenewError::Refused(_)), Err(RenewError::Refused(_))) => {}
            _ => assert_eq!(read, result, "{json}"),
        }
    }
}

/// REN-01: an earlier server does not know the path, and another server answers something else.
#[test]
fn ren_01_an_answer_without_a_renewal_is_an_error() {
    let read = |json: &str| serde_json::from_str::<RenewAnswer>(json).unwrap().into_result();
    assert_eq!(read(r#"{"error":"not_found"}"#), Err(RenewError::Unsupported));
    for json in
        [r#"{"error":"invalid_request:number","message":"m"}"#, r#"{"error":"duplicate_key:a"}"#]
    {
        assert!(matches!(read(json), Err(RenewError::InvalidRequest { .. })), "{json}");
    }
    for json in [
        "{}",
        r#"{"ok":true}"#,
        r#"{"renewed":true}"#,
        r#"{"renewed":true,"renewed_at_unix_ms":1}"#,
        r#"{"renewed":true,"renewed_at_unix_ms":1,"lapses_at_unix_ms":18446744073709551615}"#,
        r#"{"error":"forbidden"}"#,
    ] {
        assert!(matches!(read(json), Err(RenewError::Refused(_))), "{json}");
    }
}
