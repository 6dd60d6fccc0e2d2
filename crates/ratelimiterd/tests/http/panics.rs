//! Panics inside the memory backend.
//!
//! A panic before the first change costs one request. After any other, the server is not ready and reports why.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimiter::MemoryLimiter;
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use testkit::eventually;

use crate::harness::{KEY, TestServer, limits_path};

const BEGAN_MS: u64 = 1_736_660_000_000;

/// A faulty clock: it panics at 0, and it can be set back.
#[derive(Debug, Default)]
struct BreakableClock {
    ms: AtomicU64,
    panic_count: AtomicU64,
}

impl Clock for BreakableClock {
    fn now(&self) -> Timestamp {
        let ms = self.ms.load(Ordering::SeqCst);
        if ms == 0 {
            self.panic_count.fetch_add(1, Ordering::SeqCst);
            panic!("the clock has stopped");
        }
        Timestamp::from_unix_ms(ms)
    }
}

async fn start() -> (TestServer, Arc<BreakableClock>) {
    let clock = Arc::new(BreakableClock::default());
    clock.ms.store(BEGAN_MS, Ordering::SeqCst);
    let memory = MemoryLimiter::with_options(MemoryOptions::for_tests(Arc::clone(&clock)));
    let server = TestServer::start_on(|_| memory, |_| ()).await;
    assert_eq!(server.define_rolling(KEY, 10).await.status, 200);
    assert_eq!(server.reserve(1, &[(KEY, 1)]).await.status, 200);
    (server, clock)
}

#[tokio::test]
async fn a_panic_that_changed_nothing_costs_one_request() {
    let (server, clock) = start().await;
    clock.ms.store(0, Ordering::SeqCst);
    let answer = server.reserve(2, &[(KEY, 1)]).await;
    assert_eq!((answer.status, answer.error().as_str()), (503, "backend_error"));
    // One panic in the request, and at least one in a tick.
    eventually("a tick panics too", async || clock.panic_count.load(Ordering::SeqCst) > 1).await;

    clock.ms.store(BEGAN_MS + 1, Ordering::SeqCst);
    assert_eq!(server.get("/readyz").await.status, 200);
    let answer = server.reserve(2, &[(KEY, 1)]).await;
    assert_eq!((answer.status, &answer.json()["allowed"]), (200, &true.into()));
    clock.ms.store(BEGAN_MS + 61_000, Ordering::SeqCst);
    eventually("ticks go on", async || {
        server.get("/metrics").await.body.contains("ratelimiter_open_leases 0\n")
    })
    .await;
}

/// DEF-07
#[tokio::test]
async fn def_07_a_decrease_ends_after_panics_in_the_background_task() {
    let (server, clock) = start().await;
    assert_eq!(server.reserve(2, &[(KEY, 5)]).await.status, 200);
    let answer = server.define_rolling(KEY, 3).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &"decreasing".into()));
    clock.ms.store(0, Ordering::SeqCst);
    // One panic in the sweep, and one in the check of the decrease.
    eventually("a tick panics", async || clock.panic_count.load(Ordering::SeqCst) > 1).await;
    clock.ms.store(BEGAN_MS + 61_000, Ordering::SeqCst);
    eventually("the file shows the end of the decrease", async || {
        let file = std::fs::read_to_string(limits_path(&server.folder)).unwrap();
        file.contains("\"status\": \"active\"")
    })
    .await;
    assert_eq!(server.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_server_with_half_updated_limits_is_not_ready_and_reports_why() {
    let (server, clock) = start().await;
    clock.ms.store(BEGAN_MS - 1, Ordering::SeqCst);
    let answer = server.complete(1, &[(KEY, 1)]).await;
    assert_eq!((answer.status, answer.error().as_str()), (503, "backend_error"));
    clock.ms.store(BEGAN_MS + 1, Ordering::SeqCst);

    let answer = server.get("/readyz").await;
    assert_eq!((answer.status, answer.error().as_str()), (503, "backend_error"));
    assert!(answer.body.contains("panicked while updating its state"), "{}", answer.body);
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(
        server.reserve(2, &[(KEY, 1)]).await.line(),
        r#"503 {"allowed":false,"error":"backend_error","retry_after_ms":1000}"#
    );
    let answer = server.complete(1, &[]).await;
    assert_eq!(answer.line(), r#"503 {"error":"backend_error","ok":false,"retry_after_ms":1000}"#);
    assert_eq!(server.define_rolling(KEY, 11).await.status, 503);
    assert_eq!(server.get("/v1/admin/limits").await.status, 503);
    assert_eq!(server.get("/metrics").await.status, 200);
}
