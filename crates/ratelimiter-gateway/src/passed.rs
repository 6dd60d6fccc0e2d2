//! Requests that pass through without being counted.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Either;
use hyper::body::Body;
use hyper::{Request, Response};

use crate::answer_body::{AnswerBody, GatewayBody, Meter};
use crate::caller::Caller;
use crate::headers::{to_caller, to_provider};
use crate::limiter::GatewayLimiter;
use crate::prepared::target_uri;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::upstream::{BoxError, passing_body, refuses_the_gateway};

impl<L: GatewayLimiter> Shared<L> {
    /// A request that is not counted.
    pub(crate) async fn passed<B, C: Caller>(
        self: &Arc<Self>,
        provider: usize,
        rest: &str,
        request: Request<B>,
        caller: Option<C>,
    ) -> Result<Response<GatewayBody<L, C>>, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let keys = self.access.current();
        keys.identify(request.headers())?;
        let context = &self.providers[provider];
        let settings = &context.settings;
        let (parts, body) = request.into_parts();
        let api_key = keys.api_keys[provider].as_ref();
        let has_api_key = api_key.is_some();
        let headers = to_provider(&parts.headers, settings.api, api_key);
        let uri = target_uri(settings, rest, parts.uri.query())?;
        let mut sent = Request::new(passing_body(body));
        *sent.method_mut() = parts.method;
        *sent.uri_mut() = uri;
        *sent.headers_mut() = headers;
        let sending = tokio::time::timeout(settings.upstream_timeout, context.upstream.send(sent));
        match sending.await {
            Ok(Ok(answer)) => {
                if let Some(reason) = refuses_the_gateway(answer.status(), has_api_key) {
                    return Err(Refusal::bad_gateway(settings, reason));
                }
                let (parts, body) = answer.into_parts();
                let body = AnswerBody::new(
                    body,
                    Meter::None,
                    None,
                    caller,
                    settings.upstream_timeout,
                    None,
                );
                let mut response = Response::new(Either::Right(body));
                *response.status_mut() = parts.status;
                *response.headers_mut() = to_caller(&parts.headers);
                Ok(response)
            }
            Ok(Err(reason)) => {
                tracing::warn!(
                    provider = settings.name.as_str(),
                    reason,
                    "a request was not answered"
                );
                Err(Refusal::no_answer(settings))
            }
            Err(_) => Err(Refusal::timed_out(settings)),
        }
    }
}
