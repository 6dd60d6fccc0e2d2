//! Connections to the providers.

mod timed_connector;
mod tracked_body;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use self::timed_connector::TimedConnector;
pub(crate) use self::tracked_body::{SentFlag, TrackedBody};
use crate::proxy_url::ProxyUrl;

/// Time to connect to a provider, with the tunnel through a proxy and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection without calls is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Whatever can go wrong with a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a call to a provider: read before, or passed on as it comes.
pub(crate) type UpstreamBody = Either<TrackedBody, UnsyncBoxBody<Bytes, BoxError>>;

/// The pool of connections to one provider.
#[derive(Debug)]
pub(crate) enum Upstream {
    Direct(Pool<HttpConnector>),
    /// Through a proxy.
    Tunnelled(Pool<Tunnel<HttpConnector>>),
}

type Pool<C> = Client<TimedConnector<HttpsConnector<C>>, UpstreamBody>;

/// Why a provider cannot be reached over TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each variant is")]
pub enum UpstreamError {
    #[error("cannot be read: {reason}")]
    CaFile { reason: String },
    #[error("has no certificate in PEM")]
    NoCertificate,
    #[error("the system's certificates cannot be used: {reason}; set ca_file")]
    NoRoots { reason: String },
}

impl Upstream {
    /// Connects over TLS, if it is encrypted, with the authorities in a file or those of the system; through a proxy, if there is one.
    pub(crate) fn new(
        is_encrypted: bool,
        ca_file: Option<&Path>,
        https_proxy: Option<&ProxyUrl>,
    ) -> Result<Self, UpstreamError> {
        let mut roots = RootCertStore::empty();
        match ca_file {
            Some(path) => add_authorities(&mut roots, path)?,
            None if is_encrypted => add_system_authorities(&mut roots)?,
            None => {}
        }
        let provider = rustls::crypto::ring::default_provider();
        let tls = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .expect("ring supports the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let over_tls = HttpsConnectorBuilder::new().with_tls_config(tls);
        let over_tls = over_tls.https_or_http().enable_all_versions();
        let mut pool = Client::builder(TokioExecutor::new());
        pool.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
        Ok(match https_proxy {
            None => Self::Direct(pool.build(timed(over_tls.wrap_connector(connector)))),
            Some(proxy) => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
                if let Some(authorization) = proxy.authorization() {
                    tunnel = tunnel.with_auth(authorization.clone());
                }
                Self::Tunnelled(pool.build(timed(over_tls.wrap_connector(tunnel))))
            }
        })
    }

    /// Sends a call, and waits for the head of its answer. Without one, the error says why.
    pub(crate) async fn send(
        &self,
        request: Request<UpstreamBody>,
    ) -> Result<Response<Incoming>, String> {
        let answering = match self {
            Self::Direct(client) => client.request(request),
            Self::Tunnelled(client) => client.request(request),
        };
        answering.await.map_err(|error| with_sources(&error))
    }
}

const fn timed<C>(connector: C) -> TimedConnector<C> {
    TimedConnector { connector, timeout: CONNECT_TIMEOUT }
}

/// A body that passes as it comes.
pub(crate) fn passing_body<B>(body: B) -> UpstreamBody
where
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Either::Right(body.map_err(Into::into).boxed_unsync())
}

/// What a status says that is not about the call, but about how the gateway makes it. Such an answer is not for the caller: it may
/// quote the key.
pub(crate) fn refuses_the_gateway(status: StatusCode, has_api_key: bool) -> Option<&'static str> {
    if status.is_redirection() {
        return Some(
            "answers with a redirect, which is not followed; base_url in the gateway's config is wrong",
        );
    }
    (status == StatusCode::UNAUTHORIZED && has_api_key)
        .then_some("does not take the gateway's key; api_key in the gateway's config is wrong")
}

fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), UpstreamError> {
    let unreadable = |reason: String| UpstreamError::CaFile { reason };
    let pem = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() { Err(UpstreamError::NoCertificate) } else { Ok(()) }
}

fn add_system_authorities(roots: &mut RootCertStore) -> Result<(), UpstreamError> {
    let found = rustls_native_certs::load_native_certs();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let reason = found.errors.first().map_or("there are none".to_owned(), ToString::to_string);
        return Err(UpstreamError::NoRoots { reason });
    }
    Ok(())
}

/// An error with its causes. It has names of hosts and no header.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += ": ";
        text += &cause.to_string();
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GW-11
    #[test]
    fn gw_11_a_status_about_the_gateways_own_setting_is_not_the_callers() {
        for (status, has_api_key, is_about_the_gateway) in [
            (StatusCode::UNAUTHORIZED, true, true),
            (StatusCode::UNAUTHORIZED, false, false),
            (StatusCode::FORBIDDEN, true, false),
            (StatusCode::BAD_REQUEST, true, false),
            (StatusCode::MOVED_PERMANENTLY, false, true),
            (StatusCode::TEMPORARY_REDIRECT, true, true),
        ] {
            let reason = refuses_the_gateway(status, has_api_key);
            assert_eq!(reason.is_some(), is_about_the_gateway, "{status}");
        }
    }
}
