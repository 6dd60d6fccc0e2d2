//! Random bytes, and requests with random changes.

use std::net::SocketAddr;

use testkit::RunSeed;

use super::exchange;
use crate::harness::{KEY, TestServer, complete_body, reserve_body};

/// Default of `RATELIMITER_GARBAGE_ROUNDS`.
const ROUNDS: usize = 400;

fn requests() -> Vec<Vec<u8>> {
    let with_body = |line: &str, body: &str| {
        let length = body.len();
        format!("{line} HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
    };
    let reserve = reserve_body(1, &[(KEY, 1)]);
    let definition =
        format!(r#"{{"key":"{KEY}","kind":"rolling","capacity":5,"window_seconds":60}}"#);
    vec![
        with_body("POST /v1/reserve", &reserve),
        with_body("POST /v1/reserve/batch", &format!(r#"{{"requests":[{reserve}]}}"#)),
        with_body("POST /v1/complete", &complete_body(1, &[(KEY, 1)])),
        with_body("PUT /v1/admin/limits", &definition),
        with_body("GET /v1/admin/limits?prefix=a&limit=2", ""),
        with_body("DELETE /v1/admin/limits/a%2Fb", ""),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
    ]
}

/// A request with some bytes changed, removed, repeated or inserted.
fn changed(random: &mut fastrand::Rng, requests: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = random.choice(requests).unwrap().clone();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..bytes.len());
        let until = (at + random.usize(1..20)).min(bytes.len());
        match random.u8(..5) {
            0 => bytes[at] = random.u8(..),
            1 => drop(bytes.drain(at..until)),
            2 => {
                let again = bytes[at..until].to_vec();
                bytes.splice(at..at, again);
            }
            3 => bytes.insert(at, *random.choice(b"\r\n\0 :{}[]\",0").unwrap()),
            _ => bytes.extend((0..random.usize(..200)).map(|_| random.u8(..)).collect::<Vec<_>>()),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

/// Valid reactions: no response, a response of HTTP/1.1 or 1.0, or HTTP/2 frames.
async fn is_answered(addr: SocketAddr, sent: &[u8]) -> bool {
    let answered = exchange(addr, sent).await;
    answered.is_empty() || answered.starts_with(b"HTTP/1.") || sent.starts_with(b"PRI")
}

#[tokio::test]
async fn garbage_is_refused_and_the_server_goes_on() {
    let rounds = std::env::var("RATELIMITER_GARBAGE_ROUNDS").ok().map(|text| text.parse().unwrap());
    let rounds = rounds.unwrap_or(ROUNDS);
    if let Ok(seed) = std::env::var("RATELIMITER_TEST_SEED") {
        return garbage_is_refused(seed.parse().unwrap(), rounds).await;
    }
    // A fixed seed first, so that this part is deterministic.
    garbage_is_refused(1, rounds).await;
    let own = RunSeed::for_command("cargo test -p ratelimiterd --test http garbage");
    for seed in own.seeds(1) {
        garbage_is_refused(seed, rounds / 4).await;
    }
}

#[expect(clippy::print_stdout, reason = "the seed is needed to repeat the run")]
async fn garbage_is_refused(seed: u64, rounds: usize) {
    println!("RATELIMITER_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = TestServer::start_with(|config| {
        config.server.header_read_timeout_ms = 500;
        config.server.request_timeout_ms = 500;
    })
    .await;
    let requests = requests();
    for _ in 0..rounds {
        let sent = match random.u8(..8) {
            0 => (0..random.usize(1..2_000)).map(|_| random.u8(..)).collect(),
            _ => changed(&mut random, &requests),
        };
        assert!(is_answered(server.addr(), &sent).await, "{:?}", String::from_utf8_lossy(&sent));
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(server.define_rolling("after", 1).await.status, 200);
    assert_eq!(server.reserve(9, &[("after", 1)]).await.status, 200);
}
