//! The ceiling over HTTP: a server that parses the same requests, decides nothing and answers with the same bytes.

use std::hint::black_box;
use std::process::ExitCode;

use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use ratelimiter::clock::{Clock, MonotonicClock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::child::announce;

#[derive(Debug, Deserialize)]
struct Reserve {
    lease_id: String,
    job_id: Option<String>,
    requirements: Vec<Requirement>,
}

#[derive(Debug, Deserialize)]
struct Requirement {
    key: String,
    amount: u64,
}

#[derive(Debug, Deserialize)]
struct Batch {
    requests: Vec<Reserve>,
}

#[derive(Debug, Serialize)]
struct Allowed {
    allowed: bool,
    retry_after_ms: u64,
    reserved_at_unix_ms: u64,
}

#[derive(Debug, Serialize)]
struct Results {
    results: Vec<Allowed>,
}

/// Serves on a free port until it is killed, on the same runtime as `ratelimiterd`.
pub(crate) fn serve() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let router = Router::new()
            .route("/v1/reserve", post(one))
            .route("/v1/reserve/batch", post(batch))
            .with_state(MonotonicClock::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        announce(listener.local_addr().expect("it is bound"));
        let listener = listener.tap_io(|stream| {
            stream.set_nodelay(true).expect("the connection is open");
        });
        axum::serve(listener, router).await.expect("it serves until it is killed");
    });
    ExitCode::SUCCESS
}

async fn one(State(clock): State<MonotonicClock>, body: Bytes) -> Json<Allowed> {
    Json(allow(&clock, read(&body)))
}

async fn batch(State(clock): State<MonotonicClock>, body: Bytes) -> Json<Results> {
    let batch: Batch = read(&body);
    let results = batch.requests.into_iter().map(|request| allow(&clock, request)).collect();
    Json(Results { results })
}

/// Not axum's `Json`, which also tracks the path to an invalid field: this is the least that parsing costs.
fn read<T: DeserializeOwned>(body: &[u8]) -> T {
    serde_json::from_slice(body).expect("the load generator sends valid requests")
}

fn allow(clock: &MonotonicClock, request: Reserve) -> Allowed {
    let Reserve { lease_id, job_id, requirements } = black_box(request);
    black_box((lease_id, job_id));
    for Requirement { key, amount } in requirements {
        black_box((key, amount));
    }
    let reserved_at_unix_ms = clock.now().unix_ms();
    Allowed { allowed: true, retry_after_ms: 0, reserved_at_unix_ms }
}
