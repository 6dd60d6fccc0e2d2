//! OPS-03: several limits in one request.

use ratelimiter_client::{
    Backend, Capacity, DefineError, HttpLimiter, Limit, LimitKey, LimitKind, LimitStatus, Window,
};

use crate::scripted_server::{ScriptedServer, json};

fn limit(key: &str, capacity: u64) -> Limit {
    let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
    Limit::new(LimitKey::new(key).unwrap(), kind, Capacity::new(capacity).unwrap())
}

/// OPS-03
#[tokio::test]
async fn ops_03_several_limits_are_one_request() {
    let statuses = r#"{"ok":true,"statuses":[{"key":"b","status":"active"},{"key":"a","status":"decreasing"}]}"#;
    let conflict = r#"{"ok":false,"error":"kind_conflict:a","message":"a is a concurrency limit"}"#;
    let replies = vec![json("200 OK", statuses), json("409 Conflict", conflict)];
    let server = ScriptedServer::start(replies).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let limits = || vec![limit("b", 1), limit("a", 2)];
    let to = limit("a", 2).capacity;
    let expected = vec![LimitStatus::Active, LimitStatus::Decreasing { to }];
    assert_eq!(limiter.define_all(limits()).await, Ok(expected));
    let conflict = DefineError::KindConflict { key: limit("a", 2).key, is: "concurrency" };
    assert_eq!(limiter.define_all(limits()).await, Err(conflict));
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].line, "PUT /v1/admin/limits");
    assert!(seen[0].body.starts_with(r#"{"limits":[{"key":"b","#), "{}", seen[0].body);
    assert_eq!(limiter.define_all(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(server.seen().len(), 2, "an empty list is no request");
}

/// OPS-03
#[tokio::test]
async fn ops_03_more_limits_than_a_request_may_have_are_several_requests() {
    let answer = |range: std::ops::Range<usize>| {
        let status = |number| format!(r#"{{"key":"{number}","status":"active"}}"#);
        let statuses: Vec<_> = range.map(status).collect();
        json("200 OK", &format!(r#"{{"ok":true,"statuses":[{}]}}"#, statuses.join(",")))
    };
    let server = ScriptedServer::start(vec![answer(0..10_000), answer(10_000..10_001)]).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let limits = (0..10_001).map(|number| limit(&number.to_string(), 1)).collect();
    assert_eq!(limiter.define_all(limits).await.unwrap().len(), 10_001);
    let counts: Vec<_> =
        server.seen().iter().map(|seen| seen.body.matches("\"key\"").count()).collect();
    assert_eq!(counts, [10_000, 1]);
}

/// OPS-03: an older server does not know lists, or does not accept as long a body.
#[tokio::test]
async fn ops_03_an_older_server_gets_the_limits_one_by_one() {
    let unknown = r#"{"ok":false,"error":"invalid_request:limits","message":"unknown field"}"#;
    let too_large = r#"{"ok":false,"error":"body_too_large","message":"m"}"#;
    for (status, refusal) in [("400 Bad Request", unknown), ("413 Content Too Large", too_large)] {
        let one = |status| json("200 OK", &format!(r#"{{"ok":true,"status":"{status}"}}"#));
        let replies = vec![json(status, refusal), one("active"), one("paused")];
        let server = ScriptedServer::start(replies).await;
        let limiter = HttpLimiter::new(&server.url).unwrap();
        let defined = limiter.define_all(vec![limit("b", 1), limit("a", 0)]).await;
        assert_eq!(defined, Ok(vec![LimitStatus::Active, LimitStatus::Paused]));
        let bodies: Vec<_> = server.seen().into_iter().map(|seen| seen.body).collect();
        assert_eq!(bodies.len(), 3);
        assert!(bodies[1].starts_with(r#"{"key":"b","#), "{}", bodies[1]);
        assert!(bodies[2].starts_with(r#"{"key":"a","#), "{}", bodies[2]);
    }
    let refused = r#"{"ok":false,"error":"invalid_request:limits[0].unit","message":"m"}"#;
    let server = ScriptedServer::start(vec![json("400 Bad Request", refused)]).await;
    let limiter = HttpLimiter::new(&server.url).unwrap();
    let answer = limiter.define_all(vec![limit("a", 1)]).await;
    assert!(matches!(answer, Err(DefineError::Refused(_))), "{answer:?}");
    assert_eq!(server.seen().len(), 1, "a refused entry is no older server");
}
