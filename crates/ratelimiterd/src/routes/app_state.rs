//! State shared by all routes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use ratelimiter::Unanswered;
use ratelimiter_waiting::Waiting;
use ratelimiter_wire::Refusal;

use super::body::{BODY_BYTES_MAX, ReadBody, read_body};
use super::timeout::within;
use crate::admin::Admin;
use crate::auth::{Access, CallerRef};
use crate::config::Permission;
use crate::hosted::HostedBackend;
use crate::metrics::{GatewayMetrics, Metrics};

/// Retry hint when the backend did not answer in time.
const RETRY_AFTER_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct AppState<B: HostedBackend> {
    pub(crate) backend: Arc<B>,
    /// Reserve, renew and complete on the backend.
    pub(crate) limiter: Waiting<B>,
    pub(crate) admin: Arc<Admin<B>>,
    pub(crate) access: Arc<Access>,
    pub(crate) metrics: Metrics,
    /// Of the gateway, if there is one.
    pub(crate) gateway_metrics: Option<Arc<GatewayMetrics>>,
    pub(crate) request_timeout: Duration,
}

impl<B: HostedBackend> AppState<B> {
    /// Checks a request's token, then reads its body.
    pub(super) async fn admit(
        &self,
        request: hyper::Request<impl ReadBody>,
        needed: Permission,
    ) -> Result<(CallerRef<'_>, Bytes), Refusal> {
        self.admit_up_to(BODY_BYTES_MAX, request, needed).await
    }

    /// As [`Self::admit`], with another bound on the body.
    pub(super) async fn admit_up_to(
        &self,
        bytes_max: usize,
        request: hyper::Request<impl ReadBody>,
        needed: Permission,
    ) -> Result<(CallerRef<'_>, Bytes), Refusal> {
        let caller = self.access.check(request.headers(), needed)?;
        Ok((caller, read_body(request, bytes_max, self.request_timeout).await?))
    }

    /// Waits for the backend's answer, at most for the request timeout.
    pub(crate) async fn with_timeout<T, E: From<Unanswered>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.with_timeout_after(Duration::ZERO, answer).await
    }

    /// As [`Self::with_timeout`], for an answer that may wait for room before.
    pub(crate) async fn with_timeout_after<T, E: From<Unanswered>>(
        &self,
        wait: Duration,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // Before the definitions are loaded, every key would be reported as unknown.
        if let Some(unanswered) = self.admin.not_started() {
            return Err(unanswered.into());
        }
        let answered = within(wait + self.request_timeout, answer).await;
        answered.unwrap_or_else(|_| Err(self.timeout_error().into()))
    }

    /// Runs an operator's change, which goes on even if nobody waits for it any more, so that its outcome is logged.
    pub(super) async fn run_to_end<T, E>(
        &self,
        change: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Unanswered> + Send + 'static,
    {
        let running = async {
            tokio::spawn(change).await.unwrap_or_else(|_| {
                let reason = "the change was interrupted".to_owned();
                Err(Unanswered { reason, retry_after: RETRY_AFTER_TIMEOUT }.into())
            })
        };
        self.with_timeout(running).await
    }

    pub(super) fn timeout_error(&self) -> Unanswered {
        let ms = self.request_timeout.as_millis();
        let reason = format!("the backend did not answer within {ms} ms");
        Unanswered { reason, retry_after: RETRY_AFTER_TIMEOUT }
    }
}
