//! TLS.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use ratelimiter_client::{HttpError, HttpLimiter, HttpOptions, HttpSetupError, TrustedRoots};
use rcgen::{CertifiedKey, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Answers every request with an error that names its HTTP version.
pub(crate) async fn serve_http_version(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) {
    let service = service_fn(async |request: Request<Incoming>| {
        let body = format!(r#"{{"error":"{:?}"}}"#, request.version());
        Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(body))))
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // The client disconnects when the test is over.
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}

/// A TLS server at `localhost`, and its certificate.
async fn encrypted_server(alpn: &[&[u8]]) -> (String, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let CertifiedKey { cert, signing_key } = made;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], private_key(&signing_key))
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                serve_http_version(stream).await;
            }
        }
    });
    (format!("https://localhost:{port}"), cert.pem().into_bytes())
}

fn private_key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::try_from(key.serialize_der()).unwrap()
}

fn trusting(pem: Vec<u8>) -> HttpOptions {
    HttpOptions {
        roots: TrustedRoots::Pem(pem),
        repeat_for: Duration::ZERO,
        timeout: Duration::from_secs(60),
        ..HttpOptions::default()
    }
}

/// CLI-01
#[tokio::test]
async fn cli_01_with_encryption_http_2_is_used_if_the_server_offers_it() {
    for (alpn, version) in [
        (&[b"h2".as_slice(), b"http/1.1"][..], "HTTP/2.0"),
        (&[b"http/1.1".as_slice()], "HTTP/1.1"),
        (&[], "HTTP/1.1"),
    ] {
        let (url, pem) = encrypted_server(alpn).await;
        let limiter = HttpLimiter::with_options(&url, trusting(pem)).unwrap();
        let error = limiter.check().await.unwrap_err().to_string();
        assert!(error.contains(version), "{error}");
    }
}

/// CLI-01
#[tokio::test]
async fn cli_01_an_untrusted_certificate_is_reported_as_unreachable() {
    let (url, _) = encrypted_server(&[]).await;
    let (_, another) = encrypted_server(&[]).await;
    let limiter = HttpLimiter::with_options(&url, trusting(another)).unwrap();
    let error = limiter.check().await.unwrap_err();
    assert!(
        matches!(&error, HttpError::Unreachable { reason, .. } if reason.contains("certificate")),
        "{error:?}"
    );
}

/// CLI-01
#[test]
fn cli_01_certificates_that_cannot_be_read_are_refused_at_once() {
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"]
    {
        let options = trusting(pem.as_bytes().to_vec());
        let refused = HttpLimiter::with_options("https://localhost", options);
        assert!(matches!(refused, Err(HttpSetupError::Certificates { .. })));
    }
}
