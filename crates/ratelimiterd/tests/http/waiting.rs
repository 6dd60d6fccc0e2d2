//! Reserves that wait for room, over the socket.

use ratelimiter::{LeaseId, LimitKey, Limiter, Requirements, ReserveRequest, Wait};
use ratelimiter_client::{Cleartext, HttpLimiter, HttpOptions};
use std::time::Duration;
use testkit::eventually;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::harness::{Answer, TestServer, complete_body, read_answer, request, reserve_body};

const SLOTS: &str = "slots";

/// The body of a reserve of one slot that waits.
fn waiting_body(lease: u128, wait_ms: &str) -> String {
    let body = reserve_body(lease, &[(SLOTS, 1)]);
    format!(r#"{},"wait_ms":{wait_ms}}}"#, body.strip_suffix('}').unwrap())
}

/// A server with one slot, which lease 1 has.
async fn full_server() -> TestServer {
    let server = TestServer::start_with(|config| config.server.waiters_max = 2).await;
    server.define_concurrency(SLOTS, 1).await;
    assert_eq!(server.reserve(1, &[(SLOTS, 1)]).await.json()["allowed"], true);
    server
}

async fn waiters(server: &TestServer) -> u64 {
    metric(server, "ratelimiter_waiters").await
}

/// Reserves with this outcome.
async fn reserves(server: &TestServer, outcome: &str) -> u64 {
    metric(server, &format!("ratelimiter_reserve_total{{outcome=\"{outcome}\"}}")).await
}

async fn metric(server: &TestServer, name: &str) -> u64 {
    let metrics = server.get("/metrics").await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap().parse().unwrap()
}

/// Sends a reserve in the background, and returns when it waits.
async fn wait(server: &TestServer, path: &'static str, body: String) -> JoinHandle<Answer> {
    let (addr, before) = (server.addr(), waiters(server).await);
    let answer = tokio::spawn(async move { request(addr, "POST", path, "", &body).await });
    eventually("it waits", async || waiters(server).await > before).await;
    answer
}

/// WAIT-01
#[tokio::test]
async fn wait_01_a_reserve_waits_until_there_is_room() {
    let server = full_server().await;
    let answer = wait(&server, "/v1/reserve", waiting_body(2, "60000")).await;
    assert!(!answer.is_finished());
    server.complete(1, &[]).await;
    let answer = answer.await.unwrap().json();
    assert_eq!(answer["allowed"], true, "{answer}");
    assert!(answer["waited_ms"].is_u64(), "{answer}");
    assert_eq!(waiters(&server).await, 0);
}

/// WAIT-01
#[tokio::test]
async fn wait_01_when_its_time_is_over_it_is_denied() {
    let server = full_server().await;
    let answer = server.post("/v1/reserve", &waiting_body(2, "20")).await;
    let json = answer.json();
    assert_eq!((answer.status, &json["allowed"]), (200, &false.into()), "{json}");
    assert_eq!(json["denied_keys"], serde_json::json!([SLOTS]));
    assert!(json["waited_ms"].as_u64().unwrap() >= 20, "{json}");
    let at_once = server.post("/v1/reserve", &waiting_body(3, "0")).await.json();
    assert!(at_once["allowed"] == false && at_once["waited_ms"].is_u64(), "{at_once}");
    let without = server.reserve(4, &[(SLOTS, 1)]).await.json();
    assert!(without.get("waited_ms").is_none(), "{without}");
}

/// WAIT-01
#[tokio::test]
async fn wait_01_a_wait_out_of_range_is_refused_by_its_field() {
    let server = full_server().await;
    for wait_ms in ["60001", "-1", "1.5", r#""1000""#, "18446744073709551616"] {
        let answer = server.post("/v1/reserve", &waiting_body(2, wait_ms)).await;
        assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request:wait_ms"));
        assert!(answer.body.contains("60000"), "{}", answer.body);
    }
    for queue in [format!("\"{}\"", "x".repeat(257)), r#""a\nb""#.to_owned(), "7".to_owned()] {
        let body = waiting_body(2, "1");
        let body = format!(r#"{},"queue":{queue}}}"#, body.strip_suffix('}').unwrap());
        let answer = server.post("/v1/reserve", &body).await;
        assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request:queue"));
    }
    server.complete(1, &[]).await;
    let body = waiting_body(2, "60000");
    let body = format!(r#"{},"queue":"{}"}}"#, body.strip_suffix('}').unwrap(), "x".repeat(256));
    assert_eq!(server.post("/v1/reserve", &body).await.json()["allowed"], true);
}

/// WAIT-01: each item of a batch waits on its own; the batch is answered with the last one.
#[tokio::test]
async fn wait_01_a_batch_is_answered_when_its_last_item_is() {
    let server = full_server().await;
    server.define_rolling("other", 9).await;
    let items = [
        waiting_body(2, "60000"),
        reserve_body(3, &[("other", 1)]),
        reserve_body(4, &[(SLOTS, 1)]),
    ];
    let body = format!(r#"{{"requests":[{}]}}"#, items.join(","));
    let answer = wait(&server, "/v1/reserve/batch", body).await;
    assert_eq!(server.get("/v1/admin/limits/other").await.json()["limit"]["used"], 1);
    server.complete(1, &[]).await;
    let results = answer.await.unwrap().json()["results"].clone();
    let allowed: Vec<_> = (0..3).map(|at| results[at]["allowed"].as_bool().unwrap()).collect();
    assert_eq!(allowed, [true, true, false], "{results}");
    assert!(results[0]["waited_ms"].is_u64() && results[1].get("waited_ms").is_none(), "{results}");
}

/// WAIT-06, PAUSE-01: what an operator does wakes those that wait.
#[tokio::test]
async fn wait_06_a_change_by_an_operator_admits_who_waits() {
    let server = full_server().await;
    let answer = wait(&server, "/v1/reserve", waiting_body(2, "60000")).await;
    server.define_concurrency(SLOTS, 2).await;
    assert_eq!(answer.await.unwrap().json()["allowed"], true);
    let answer = wait(&server, "/v1/reserve", waiting_body(3, "60000")).await;
    let lease = LeaseId::from_u128(1);
    server.request("DELETE", &format!("/v1/admin/leases/{lease}"), "", "").await;
    assert_eq!(answer.await.unwrap().json()["allowed"], true);
    server.define_concurrency(SLOTS, 0).await;
    let answer = wait(&server, "/v1/reserve", waiting_body(4, "60000")).await;
    server.define_concurrency(SLOTS, 3).await;
    assert_eq!(answer.await.unwrap().json()["allowed"], true);
}

/// WAIT-04
#[tokio::test]
async fn wait_04_a_client_that_goes_away_is_forgotten() {
    let server = full_server().await;
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let body = waiting_body(2, "60000");
    let head =
        format!("POST /v1/reserve HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    eventually("it waits", async || waiters(&server).await == 1).await;
    drop(stream);
    eventually("it is forgotten", async || waiters(&server).await == 0).await;
    eventually("it is counted", async || reserves(&server, "client_gone").await == 1).await;
    assert_eq!(reserves(&server, "backend_error").await, 0);
    server.complete(1, &[]).await;
    assert_eq!(server.reserve(3, &[(SLOTS, 1)]).await.json()["allowed"], true);
}

/// WAIT-04: over HTTP/2 a client takes back one request of many on its connection.
#[tokio::test]
async fn wait_04_a_request_that_is_taken_back_is_forgotten() {
    let server = full_server().await;
    let options = HttpOptions { cleartext: Cleartext::Http2, ..HttpOptions::default() };
    let url = format!("http://{}", server.addr());
    let limiter = HttpLimiter::with_options(&url, options).unwrap();
    let ask = |lease| {
        let needs = Requirements::of([(LimitKey::new(SLOTS).unwrap(), 1)]).unwrap();
        let wait = Some(Wait::new(Duration::from_secs(60), "acme").unwrap());
        let request =
            ReserveRequest { wait, ..ReserveRequest::new(LeaseId::from_u128(lease), needs) };
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.reserve(&request).await })
    };
    let (gone, stays) = (ask(2), ask(3));
    eventually("both wait", async || waiters(&server).await == 2).await;
    gone.abort();
    eventually("one is forgotten", async || waiters(&server).await == 1).await;
    eventually("it is counted", async || reserves(&server, "client_gone").await == 1).await;
    server.complete(1, &[]).await;
    assert!(stays.await.unwrap().unwrap().is_allowed());
}

/// WAIT-04: a pipelined request is there after the answer to the one that waited.
#[tokio::test]
async fn wait_04_what_a_client_sends_while_it_waits_is_not_lost() {
    let server = full_server().await;
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let body = waiting_body(2, "60000");
    let head =
        format!("POST /v1/reserve HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    eventually("it waits", async || waiters(&server).await == 1).await;
    let next = "GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    stream.write_all(next.as_bytes()).await.unwrap();
    let (addr, body) = (server.addr(), complete_body(1, &[]));
    request(addr, "POST", "/v1/complete", "", &body).await;
    let answers = read_answer(&mut stream).await;
    assert!(answers.body.starts_with(r#"{"allowed":true"#), "{answers:?}");
    assert!(answers.body.ends_with("\r\n\r\nok\n"), "{answers:?}");
}

/// WAIT-04
#[tokio::test]
async fn wait_04_a_shutdown_answers_who_waits() {
    let server = full_server().await;
    let answer = wait(&server, "/v1/reserve", waiting_body(2, "60000")).await;
    server.server.stop().await;
    let answer = answer.await.unwrap();
    assert_eq!(answer.json()["denied_keys"], serde_json::json!([SLOTS]), "{answer:?}");
}

/// WAIT-05
#[tokio::test]
async fn wait_05_beyond_the_bound_the_denial_is_immediate() {
    let server = full_server().await;
    let first = wait(&server, "/v1/reserve", waiting_body(2, "60000")).await;
    let second = wait(&server, "/v1/reserve", waiting_body(3, "60000")).await;
    let third = server.post("/v1/reserve", &waiting_body(4, "60000")).await;
    let json = third.json();
    assert_eq!((third.status, &json["allowed"]), (200, &false.into()), "{json}");
    assert_eq!(
        (&json["error"], &json["retry_after_ms"]),
        (&"too_many_waiters".into(), &1000.into())
    );
    assert_eq!(json["denied_keys"], serde_json::json!([SLOTS]));
    assert_eq!(third.header("retry-after"), Some("1"));
    server.complete(1, &[]).await;
    assert_eq!(first.await.unwrap().json()["allowed"], true);
    server.complete(2, &[]).await;
    assert_eq!(second.await.unwrap().json()["allowed"], true);
}
