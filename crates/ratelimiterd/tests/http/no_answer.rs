//! A backend that does not answer: 503, and the outcome is unknown.

use ratelimiter::admission::TurnBackend;
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, ForgiveError,
    LeaseId, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus, Limiter, OpenLease,
    Page, RegisteredLimit, ReleaseError, ReserveError, ReserveRequest, StateError, Unanswered,
};
use ratelimiter_waiting::Runtime;
use ratelimiterd::{HostedBackend, NotReady};
use testkit::eventually;

use crate::harness::{KEY, TestServer, limits_path};
use crate::renew::renew_body;

/// An unreachable backend: some calls never return, others fail.
pub(crate) struct UnreachableBackend;

fn unanswered() -> Unanswered {
    Unanswered {
        reason: "the cluster is gone".into(),
        retry_after: std::time::Duration::from_millis(1_500),
    }
}

impl Limiter for UnreachableBackend {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        match request.lease.as_u128() {
            1 => std::future::pending().await,
            _ => Err(unanswered().into()),
        }
    }

    async fn complete(&self, _: &CompleteRequest) -> Result<(), CompleteError> {
        std::future::pending().await
    }
}

impl Backend for UnreachableBackend {
    async fn define(&self, _: Limit) -> Result<LimitStatus, DefineError> {
        Err(unanswered().into())
    }

    async fn delete(&self, _: &LimitKey) -> Result<(), DeleteError> {
        Err(unanswered().into())
    }

    async fn state(&self, _: &LimitKey) -> Result<Option<LimitState>, StateError> {
        Err(unanswered().into())
    }

    async fn states(&self, _: &Page) -> Result<Vec<LimitState>, StateError> {
        std::future::pending().await
    }

    async fn leases(&self, _: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        std::future::pending().await
    }

    async fn release(&self, _: LeaseId) -> Result<(), ReleaseError> {
        std::future::pending().await
    }

    async fn forgive(&self, _: &LimitKey) -> Result<u128, ForgiveError> {
        Err(unanswered().into())
    }
}

impl TurnBackend for UnreachableBackend {}

impl HostedBackend for UnreachableBackend {
    async fn restore(&self, _: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        Ok(LimitStatus::Active)
    }

    async fn check(&self, _: &[Limit]) -> Result<(), DefineError> {
        Err(unanswered().into())
    }

    async fn visible_states(
        &self,
        page: &Page,
        _: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        self.states(page).await
    }

    async fn visible_leases(
        &self,
        page: &LeasePage,
        _: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        self.leases(page).await
    }

    async fn ready(&self) -> Result<(), NotReady> {
        Err(NotReady { reason: "the cluster is gone".into() })
    }

    async fn tick(&self, _: &dyn Runtime) {}

    fn open_leases(&self) -> Option<u64> {
        None
    }

    fn write_metrics(&self, text: &mut String) {
        text.push_str("ratelimiter_tb_sessions_busy 0\n");
    }
}

async fn start() -> TestServer {
    TestServer::start_on(|_| UnreachableBackend, |config| config.server.request_timeout_ms = 50)
        .await
}

/// HTTP-12
#[tokio::test]
async fn a_reserve_without_an_answer_is_unknown() {
    let server = start().await;
    let answer = server.reserve(1, &[(KEY, 1)]).await;
    assert_eq!(
        answer.line(),
        r#"503 {"allowed":false,"error":"backend_error","retry_after_ms":500}"#
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    let answer = server.reserve(2, &[(KEY, 1)]).await;
    assert_eq!(
        answer.line(),
        r#"503 {"allowed":false,"error":"backend_error","retry_after_ms":1500}"#
    );
    assert_eq!(answer.header("retry-after"), Some("2"));
}

/// HTTP-12
#[tokio::test]
async fn each_item_of_a_batch_without_an_answer_is_unknown() {
    let server = start().await;
    let item = crate::harness::reserve_body(1, &[(KEY, 1)]);
    let body = format!(r#"{{"requests":[{item},{{}}]}}"#);
    let answer = server.post("/v1/reserve/batch", &body).await;
    let results = answer.json()["results"].clone();
    assert_eq!((answer.status, &results[0]["error"]), (200, &"backend_error".into()));
    assert_eq!(results[1]["error"], "invalid_request:lease_id");
}

/// HTTP-12
#[tokio::test]
async fn a_complete_without_an_answer_is_unknown() {
    let server = start().await;
    let answer = server.complete(1, &[]).await;
    assert_eq!((answer.status, answer.error().as_str()), (503, "backend_error"));
    assert_eq!(answer.json()["ok"], false);
}

/// HTTP-12, OPS-01, OPS-02
#[tokio::test]
async fn what_an_operator_asks_without_an_answer_is_unknown() {
    let server = start().await;
    let answer = server.get("/v1/admin/leases").await;
    assert_eq!(answer.line(), r#"503 {"error":"backend_error"}"#);
    let path = format!("/v1/admin/leases/{}", LeaseId::from_u128(1));
    let answer = server.request("DELETE", &path, "", "").await;
    assert_eq!(answer.line(), r#"503 {"error":"backend_error","ok":false}"#);
    let answer = server.post("/v1/admin/forgive", r#"{"key":"k"}"#).await;
    assert_eq!(answer.line(), r#"503 {"error":"backend_error","ok":false}"#);
}

/// DEF-08, HTTP-12: nothing is persisted if the backend could not be provisioned.
#[tokio::test]
async fn def_08_a_definition_that_the_backend_did_not_apply_is_not_stored() {
    // With the long default timeout: the backend fails at once, but the disk may be slow.
    let server = TestServer::start_on(|_| UnreachableBackend, |_| ()).await;
    let answer = server.define_rolling(KEY, 1).await;
    assert_eq!(answer.line(), r#"503 {"error":"backend_error","ok":false}"#);
    assert!(!limits_path(&server.folder).exists());
    let path = limits_path(&server.folder);
    let is_staged = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().ends_with(".tmp")
    };
    eventually("no staged file is left", async || {
        !std::fs::read_dir(path.parent().unwrap()).unwrap().any(is_staged)
    })
    .await;
    assert!(!path.exists());
}

/// OPS-03
#[tokio::test]
async fn ops_03_a_list_that_the_backend_did_not_apply_is_not_stored() {
    let server = TestServer::start_on(|_| UnreachableBackend, |_| ()).await;
    let limit = r#"{"key":"k","kind":"rolling","capacity":1,"window_seconds":60}"#;
    let answer = server.put(&format!(r#"{{"limits":[{limit}]}}"#)).await;
    assert_eq!(answer.line(), r#"503 {"error":"backend_error","ok":false}"#);
    assert!(!limits_path(&server.folder).exists());
}

/// HTTP-13
#[tokio::test]
async fn a_server_without_its_backend_is_alive_and_not_ready() {
    let server = start().await;
    assert_eq!(server.get("/healthz").await.status, 200);
    let answer = server.get("/readyz").await;
    assert_eq!((answer.status, answer.error().as_str()), (503, "backend_error"));
    assert!(answer.body.contains("the cluster is gone"), "{}", answer.body);
    assert_eq!(server.get("/v1/admin/limits").await.status, 503);
    assert_eq!(server.get("/v1/admin/limits/k").await.status, 503);
    assert_eq!(server.get("/").await.status, 503);
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.status, 200, "the server's own metrics are still exported");
    assert!(metrics.body.ends_with("ratelimiter_tb_sessions_busy 0\n"));
}

/// The timeout for the first bytes ends when a request has arrived, however short it is.
#[tokio::test]
async fn a_short_request_is_not_cut_off_while_it_is_decided() {
    use tokio::io::AsyncWriteExt;
    let timeouts = |config: &mut ratelimiterd::config::Config| {
        config.server.header_read_timeout_ms = 20;
        config.server.request_timeout_ms = 200;
    };
    let server = TestServer::start_on(|_| UnreachableBackend, timeouts).await;
    let mut stream = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    assert_eq!(crate::harness::read_answer(&mut stream).await.status, 503);
}

/// REN-01: a backend of another program may not renew.
#[tokio::test]
async fn ren_01_a_renew_on_a_backend_that_cannot_is_not_found() {
    let server = start().await;
    let answer = server.post("/v1/renew", &renew_body(2, 1, &[])).await;
    let expected = r#"404 {"error":"not_found","renewed":false,"retry_after_ms":0}"#;
    assert_eq!(answer.line(), expected);
}
