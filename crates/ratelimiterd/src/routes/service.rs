//! Answers one request.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Method;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::complete::Complete;
use super::reserve::Reserve;
use super::{App, LimiterCall, call, router};
use crate::hosted::HostedBackend;

/// Fast path: reserve and complete bypass the router.
#[derive(Debug)]
pub(crate) struct ApiService<B> {
    app: Arc<App<B>>,
    router: TowerToHyperService<Router>,
}

/// The body of an answer.
pub(crate) type AnswerBody = Either<Full<Bytes>, Body>;

impl<B: HostedBackend> ApiService<B> {
    pub(crate) fn new(app: App<B>) -> Self {
        let app = Arc::new(app);
        Self { router: TowerToHyperService::new(router(Arc::clone(&app))), app }
    }

    pub(crate) async fn answer(
        &self,
        request: hyper::Request<Incoming>,
    ) -> hyper::Response<AnswerBody> {
        let app = &*self.app;
        let call = LimiterCall::at(request.uri().path());
        let answer = match call.filter(|_| request.method() == Method::POST) {
            Some(LimiterCall::Reserve) => call::one::<Reserve, B>(app, request).await,
            Some(LimiterCall::ReserveBatch) => call::batch::<Reserve, B>(app, request).await,
            Some(LimiterCall::Complete) => call::one::<Complete, B>(app, request).await,
            Some(LimiterCall::CompleteBatch) => call::batch::<Complete, B>(app, request).await,
            None => {
                // Boxed, so that the future of a limiter's call stays small.
                let Ok(answer) = Box::pin(self.router.call(request)).await;
                return answer.map(Either::Right);
            }
        };
        answer.map(Either::Left)
    }
}
