//! The service that answers every request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Method;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::client::Client;
use super::complete::Complete;
use super::renew::Renew;
use super::reserve::Reserve;
use super::{AppState, LimiterRoute, call, router};
use crate::gateway::{MountedGateway, call_provider};
use crate::hosted::HostedBackend;

/// Fast path: reserve, renew and complete bypass the router.
#[derive(Debug)]
pub(crate) struct ApiService<B: HostedBackend> {
    app: Arc<AppState<B>>,
    gateway: Option<Arc<MountedGateway<B>>>,
    router: TowerToHyperService<Router>,
}

pub(crate) type AnswerBody = Either<Full<Bytes>, Body>;

impl<B: HostedBackend> ApiService<B> {
    pub(crate) fn new(app: Arc<AppState<B>>, gateway: Option<Arc<MountedGateway<B>>>) -> Self {
        Self { router: TowerToHyperService::new(router(Arc::clone(&app))), gateway, app }
    }

    /// Requests that wait for room are answered, and no more may wait.
    pub(crate) fn end_waiting(&self) {
        self.app.limiter.shut_down();
    }

    /// Calls of the gateway that have ended are settled, within this time. No request comes any more.
    pub(crate) async fn settle_calls(&self, within: Duration) {
        let Some(gateway) = &self.gateway else { return };
        if tokio::time::timeout(within, gateway.settled()).await.is_err() {
            tracing::warn!("some calls were not settled in time; their leases lapse by themselves");
        }
    }

    pub(crate) async fn answer(
        &self,
        request: hyper::Request<Incoming>,
        client: &impl Client,
    ) -> hyper::Response<AnswerBody> {
        let app = &*self.app;
        let route = LimiterRoute::at(request.uri().path());
        let answer = match route.filter(|_| request.method() == Method::POST) {
            Some(LimiterRoute::Reserve) => call::one::<Reserve, B>(app, request, client).await,
            Some(LimiterRoute::ReserveBatch) => {
                call::batch::<Reserve, B>(app, request, client).await
            }
            // Boxed, so that the futures of reserve and complete stay small.
            Some(LimiterRoute::Renew) => {
                Box::pin(call::one::<Renew, B>(app, request, client)).await
            }
            Some(LimiterRoute::Complete) => call::one::<Complete, B>(app, request, client).await,
            Some(LimiterRoute::CompleteBatch) => {
                call::batch::<Complete, B>(app, request, client).await
            }
            None => {
                let gateway = self.gateway.as_ref();
                if let Some(gateway) =
                    gateway.filter(|gateway| gateway.serves(request.uri().path()))
                {
                    let answer = Box::pin(call_provider(gateway, request, client.clone())).await;
                    return answer.map(Either::Right);
                }
                // Boxed, so that the futures of reserve and complete stay small.
                let Ok(answer) = Box::pin(self.router.call(request)).await;
                return answer.map(Either::Right);
            }
        };
        answer.map(Either::Left)
    }
}
