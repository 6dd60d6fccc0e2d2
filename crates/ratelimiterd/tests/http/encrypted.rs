//! TLS: protocols, plain HTTP clients, handshakes and reload.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratelimiter::{Backend, Page};
use ratelimiter_client::{HttpLimiter, HttpOptions, TrustedRoots};
use ratelimiterd::{Reloaded, TlsErrorKind};
use testkit::eventually;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::certificates::{Pair, write_secret};
use crate::harness::{KEY, TestServer, lease, read_answer, request, reserve_body};

async fn encrypted(pair: &Pair) -> TestServer {
    encrypted_with(pair, |_| ()).await
}

async fn encrypted_with(
    pair: &Pair,
    change: impl FnOnce(&mut ratelimiterd::config::Config),
) -> TestServer {
    TestServer::start_with(|config| {
        let folder = config.registry.path.parent().unwrap().parent().unwrap();
        config.server.tls = pair.write(folder);
        change(config);
    })
    .await
}

fn limiter(server: &TestServer, pair: &Pair) -> HttpLimiter {
    let options = HttpOptions {
        roots: TrustedRoots::Pem(pair.cert_pem.clone().into_bytes()),
        repeat_for: Duration::ZERO,
        timeout: Duration::from_secs(30),
        ..HttpOptions::default()
    };
    let url = format!("https://localhost:{}", server.addr().port());
    HttpLimiter::with_options(&url, options).unwrap()
}

async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    // Only that the server closes matters here, not how.
    drop(stream.read_to_end(&mut bytes).await);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// HTTP-01
#[tokio::test]
async fn http_1_and_http_2_are_spoken_as_the_client_offers_them() {
    let pair = Pair::new();
    let server = encrypted(&pair).await;
    for (offered, agreed) in
        [(&[b"http/1.1".as_slice()][..], Some(b"http/1.1".as_slice())), (&[], None)]
    {
        let mut stream = pair.connect(server.addr(), offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        let ask = b"GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"), "{answer}");
    }
    let stream = pair.connect(server.addr(), &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let executor = TokioExecutor::new();
    let connecting = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream));
    let (mut sender, connection) = connecting.await.unwrap();
    let connection = tokio::spawn(connection);
    let ask = hyper::Request::get("https://localhost/healthz").body(Full::<Bytes>::default());
    let answer = sender.send_request(ask.unwrap()).await.unwrap();
    assert_eq!(answer.version(), hyper::Version::HTTP_2);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok\n");
    drop(sender);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_client_library_reserves_over_tls() {
    let pair = Pair::new();
    let server = encrypted(&pair).await;
    let limiter = limiter(&server, &pair);
    let states = limiter.states(&Page::default()).await.unwrap();
    assert!(states.is_empty());
    let other = self::limiter(&server, &Pair::new());
    let error = other.check().await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "another certificate is not trusted: {error}");
}

/// HTTP-16: a client that uses `http` instead of `https` gets an error at once.
#[tokio::test]
async fn plain_http_on_a_tls_port_gets_a_plain_answer() {
    let pair = Pair::new();
    let server = encrypted(&pair).await;
    let body = reserve_body(1, &[(KEY, 1)]);
    let answer = request(server.addr(), "POST", "/v1/reserve", "", &body).await;
    assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request:scheme"));
    assert!(answer.body.contains("https://"), "{}", answer.body);
    // Plain HTTP/2 as well; its client reports that the response is not HTTP/2.
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status, 400);
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut_off_and_garbage_is_not_answered() {
    let pair = Pair::new();
    let server = encrypted_with(&pair, |config| config.server.header_read_timeout_ms = 200).await;
    // Nothing, half of a TLS record, garbage, and a record with a wrong length.
    for sent in
        [&b""[..], b"\x16\x03\x01\x02\x00\x01", b"\x00\xff\x00garbage", b"\x16\x03\x01\xff\xff"]
    {
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let rest = read_to_end(&mut stream).await;
        assert!(!rest.contains("HTTP/1.1"), "{sent:?}: {rest:?}");
    }
    // A complete handshake without a request. On a busy machine it may take several attempts.
    eventually("the server goes on", async || match pair.connect(server.addr(), &[]).await {
        Ok(mut stream) => {
            assert_eq!(read_to_end(&mut stream).await, "");
            true
        }
        Err(_) => false,
    })
    .await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_handshakes() {
    let pair = Pair::new();
    let server = encrypted_with(&pair, |config| {
        config.server.shutdown_timeout_ms = 600_000;
        config.server.header_read_timeout_ms = 600_000;
    })
    .await;
    let mut silent = TcpStream::connect(server.addr()).await.unwrap();
    // Connections are accepted in order: once this one is served, the silent one is in its handshake.
    drop(pair.connect(server.addr(), &[]).await.unwrap());
    server.server.stop().await;
    assert_eq!(read_to_end(&mut silent).await, "");
}

#[tokio::test]
async fn a_new_certificate_is_shown_after_a_reload_and_a_bad_one_is_not() {
    let (first, second) = (Pair::new(), Pair::new());
    let server = encrypted(&first).await;
    let mut open = first.connect(server.addr(), &[]).await.unwrap();

    second.write(server.folder.path());
    assert!(second.connect(server.addr(), &[]).await.is_err(), "not before the reload");
    assert_eq!(server.server.reload().await, Ok(Reloaded::Certificate));
    assert!(second.connect(server.addr(), &[]).await.is_ok());
    assert!(first.connect(server.addr(), &[]).await.is_err());

    write_secret(&server.folder.path().join("key.pem"), &first.key_pem);
    let refused = server.server.reload().await.unwrap_err();
    assert!(matches!(refused.kind, TlsErrorKind::KeyMismatch { .. }), "{refused}");
    std::fs::remove_file(server.folder.path().join("cert.pem")).unwrap();
    let refused = server.server.reload().await.unwrap_err();
    assert!(matches!(refused.kind, TlsErrorKind::Unreadable { .. }), "{refused}");
    assert!(second.connect(server.addr(), &[]).await.is_ok(), "the old one stays in force");

    let ask = b"GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    open.write_all(ask).await.unwrap();
    assert!(read_to_end(&mut open).await.ends_with("ok\n"), "an open connection stays");
}

#[tokio::test]
async fn a_server_without_a_certificate_has_nothing_to_reload() {
    let server = TestServer::start().await;
    assert!(!server.server.is_encrypted());
    assert_eq!(server.server.reload().await, Ok(Reloaded::Nothing));
}

/// HTTP-16
#[tokio::test]
async fn a_token_is_sent_encrypted() {
    let pair = Pair::new();
    let server = encrypted_with(&pair, |config| {
        config.auth.client_tokens = vec![ratelimiterd::config::Token::new("s3cret-token").unwrap()];
    })
    .await;
    // A proxy between client and server records the bytes.
    let between = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, target) = (between.local_addr().unwrap(), server.addr());
    let recording = tokio::spawn(async move {
        let (mut client, _) = between.accept().await.unwrap();
        let mut server = TcpStream::connect(target).await.unwrap();
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let mut recorded = Vec::new();
        let record = async {
            let mut buffer = vec![0; 4096];
            while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
                recorded.extend_from_slice(&buffer[..count]);
                to_server.write_all(&buffer[..count]).await.unwrap();
            }
        };
        let forward = tokio::io::copy(&mut from_server, &mut to_client);
        tokio::select! { () = record => (), _ = forward => () }
        recorded
    });
    let mut stream = pair.connect(addr, &[]).await.unwrap();
    let body = reserve_body(1, &[(KEY, 1)]);
    let length = body.len();
    let ask = format!(
        "POST /v1/reserve HTTP/1.1\r\nhost: t\r\nauthorization: Bearer s3cret-token\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.contains("unknown_limit_key"), "the token is accepted: {answer}");
    drop(stream);
    let recorded = String::from_utf8_lossy(&recording.await.unwrap()).into_owned();
    assert!(!recorded.contains("s3cret-token") && !recorded.contains(&lease(1)), "{recorded}");
}
