//! The state that all routes share.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use ratelimiter::Unanswered;
use ratelimiter_wire::Refusal;

use super::body::{ReadBody, read_body};
use super::timeout::within;
use crate::admin::Admin;
use crate::auth::{Access, Need};
use crate::metrics::Metrics;

/// When to repeat a request that the backend did not answer in time.
const RETRY_AFTER_NO_ANSWER: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct App<B> {
    pub(crate) backend: Arc<B>,
    pub(crate) admin: Arc<Admin<B>>,
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    pub(crate) request_timeout: Duration,
}

impl<B> App<B> {
    /// Checks a request's token, then reads its body.
    pub(super) async fn admit(
        &self,
        request: hyper::Request<impl ReadBody>,
        need: Need,
    ) -> Result<Bytes, Refusal> {
        self.access.check(request.headers(), need)?;
        read_body(request, self.request_timeout).await
    }

    /// Waits for the backend's answer for at most the request's timeout.
    pub(super) async fn within_time<T, E: From<Unanswered>>(
        &self,
        asked: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // Without its definitions a server would call every key unknown.
        if let Some(unanswered) = self.admin.not_started() {
            return Err(unanswered.into());
        }
        let answered = within(self.request_timeout, asked).await;
        answered.unwrap_or_else(|_| Err(self.no_answer().into()))
    }

    pub(super) fn no_answer(&self) -> Unanswered {
        let ms = self.request_timeout.as_millis();
        let reason = format!("the backend did not answer within {ms} ms");
        Unanswered { reason, retry_after: RETRY_AFTER_NO_ANSWER }
    }
}
