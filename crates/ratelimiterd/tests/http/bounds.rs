//! Bounds on the size and duration of requests.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratelimiter::TEMPLATES_MAX;
use ratelimiterd::BODY_BYTES_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{KEY, TestServer, read_answer, reserve_body};

fn padded(bytes: usize) -> String {
    let body = reserve_body(1, &[(KEY, 1)]);
    let padding = " ".repeat(bytes - body.len());
    body + &padding
}

/// HTTP-02
#[tokio::test]
async fn a_body_of_a_mebibyte_is_read_and_one_byte_more_is_refused() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1).await;
    let answer = server.post("/v1/reserve", &padded(BODY_BYTES_MAX)).await;
    assert_eq!((answer.status, &answer.json()["allowed"]), (200, &true.into()));
    let answer = server.post("/v1/reserve", &padded(BODY_BYTES_MAX + 1)).await;
    assert_eq!((answer.status, answer.error().as_str()), (413, "body_too_large"));
}

/// HTTP-02
#[tokio::test]
async fn a_body_without_a_length_is_bounded_too() {
    let server = TestServer::start().await;
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let head = "POST /v1/reserve HTTP/1.1\r\nhost: t\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, " ".repeat(64 * 1024));
    // The server stops reading before the end; only its response matters.
    let sent = tokio::spawn(async move {
        for _ in 0..17 {
            if writing.write_all(chunk.as_bytes()).await.is_err() {
                break;
            }
        }
        writing
    });
    let mut answer = vec![0; 1024];
    let count = reading.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body_too_large"), "{answer}");
    drop(sent.await.unwrap());
}

/// HTTP-02
#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let server = TestServer::start().await;
    let long = format!("x-long: {}\r\n", "x".repeat(80 * 1024));
    assert_eq!(server.request("GET", "/healthz", &long, "").await.status, 431);
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    assert_eq!(server.request("GET", "/healthz", &many, "").await.status, 431);
    let some: String = (0..50).map(|n| format!("x-{n}: 1\r\n")).collect();
    assert_eq!(server.request("GET", "/healthz", &some, "").await.status, 200);
}

/// HTTP-02
#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_refused() {
    let server = TestServer::start_with(|config| config.server.request_timeout_ms = 50).await;
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let head =
        "POST /v1/reserve HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_answer(&mut stream).await;
    assert_eq!((answer.status, answer.error().as_str()), (408, "request_timeout"));
}

/// HTTP-02: an incomplete head, a silent connection, and an incomplete HTTP/2 preface.
#[tokio::test]
async fn a_connection_that_sends_no_request_is_closed() {
    let server = TestServer::start_with(|config| config.server.header_read_timeout_ms = 50).await;
    for sent in ["", "GET /healthz HT", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // Closed, with or without a response: reading ends.
        drop(stream.read_to_end(&mut rest).await);
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "{sent:?}");
    }
}

/// HTTP-08
#[tokio::test]
async fn a_limit_more_than_allowed_is_refused_and_a_known_one_can_still_change() {
    let server = TestServer::start_with(|config| config.registry.limits_max = 2).await;
    for (key, status) in [("a", 200), ("b", 200), ("c", 409), ("a", 200)] {
        assert_eq!(server.define_rolling(key, 7).await.status, status, "{key}");
    }
    let answer = server.define_rolling("c", 7).await;
    assert_eq!(answer.line(), r#"409 {"error":"too_many_limits","ok":false}"#);
    assert!(answer.body.contains("registry.limits_max"), "{}", answer.body);
    assert_eq!(server.request("DELETE", "/v1/admin/limits/a", "", "").await.status, 200);
    assert_eq!(server.define_rolling("c", 7).await.status, 200, "there is room again");
}

/// TPL-07
#[tokio::test]
async fn tpl_07_a_template_more_than_allowed_is_refused() {
    let server = TestServer::start().await;
    let template = |n: usize| {
        format!(r#"{{"key":"t{n}:*","kind":"rolling","capacity":1,"window_seconds":60}}"#)
    };
    let list = |count: usize| {
        let templates: Vec<_> = (0..count).map(template).collect();
        format!(r#"{{"limits":[{}]}}"#, templates.join(","))
    };
    let answer = server.put(&list(TEMPLATES_MAX + 1)).await;
    assert_eq!(answer.line(), r#"409 {"error":"too_many_limits","ok":false}"#);
    assert_eq!(server.put(&list(TEMPLATES_MAX)).await.status, 200);
    let answer = server.define_rolling("one:more:*", 7).await;
    assert_eq!(answer.line(), r#"409 {"error":"too_many_limits","ok":false}"#);
    assert!(answer.body.contains("1000 templates are defined"), "{}", answer.body);
    assert_eq!(server.define_rolling("t7:*", 7).await.status, 200, "a known one can still change");
    assert_eq!(server.define_rolling("a", 7).await.status, 200, "and limits are not templates");
}

/// HTTP-02
#[tokio::test]
async fn more_connections_than_allowed_wait_for_their_turn() {
    let server = TestServer::start_with(|config| config.server.connections_max = 1).await;
    let mut first = TcpStream::connect(server.addr()).await.unwrap();
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    let mut byte = [0; 1];
    first.read_exact(&mut byte).await.unwrap();

    let mut second = TcpStream::connect(server.addr()).await.unwrap();
    second
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut waiting = std::pin::pin!(read_answer(&mut second));
    let while_open =
        tokio::time::timeout(std::time::Duration::from_millis(100), waiting.as_mut()).await;
    assert!(while_open.is_err(), "the second waits while the first is open");
    drop(first);
    assert_eq!(waiting.await.status, 200);
}

/// HTTP-01
#[tokio::test]
async fn http_2_is_spoken_in_cleartext() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1).await;
    let stream = TcpStream::connect(server.addr()).await.unwrap();
    let connecting =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = connecting.await.unwrap();
    let connection = tokio::spawn(connection);
    for (lease, allowed) in [(1, true), (2, false)] {
        let body = Full::new(Bytes::from(reserve_body(lease, &[(KEY, 1)])));
        let uri = format!("http://{}/v1/reserve", server.addr());
        let request = hyper::Request::post(uri).body(body).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.version(), hyper::Version::HTTP_2);
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["allowed"], allowed);
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}
