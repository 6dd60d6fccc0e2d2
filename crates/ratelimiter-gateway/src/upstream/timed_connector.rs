//! A connector with a time to connect.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use tower_service::Service;

use super::BoxError;

/// Connects in time or not at all. All of it counts: the address, a tunnel through a proxy and the TLS handshake.
#[derive(Debug, Clone)]
pub(crate) struct TimedConnector<C> {
    pub(crate) connector: C,
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no connection within {} ms", .0.as_millis())]
struct ConnectTimeout(Duration);

impl<C> Service<Uri> for TimedConnector<C>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { connector, timeout } = self;
        let (connecting, timeout) = (connector.call(uri), *timeout);
        Box::pin(async move {
            match tokio::time::timeout(timeout, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(ConnectTimeout(timeout).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Pending, pending};

    use super::*;

    /// Never connects, like a proxy that accepts and says nothing.
    #[derive(Debug)]
    struct Silent;

    impl Service<Uri> for Silent {
        type Response = ();
        type Error = Infallible;
        type Future = Pending<Result<(), Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Uri) -> Self::Future {
            pending()
        }
    }

    /// GW-05
    #[tokio::test(start_paused = true)]
    async fn gw_05_whoever_does_not_connect_in_time_is_not_waited_for() {
        let mut connector = TimedConnector { connector: Silent, timeout: Duration::from_secs(10) };
        let error = connector.call(Uri::from_static("https://silent")).await.unwrap_err();
        assert_eq!(error.to_string(), "no connection within 10000 ms");
    }
}
