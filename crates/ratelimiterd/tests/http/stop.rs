//! Shutdown: open requests finish, new connections are refused.

use ratelimiterd::Server;
use testkit::eventually;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::{KEY, TestServer, read_answer, reserve_body};

async fn half_sent(server: &TestServer) -> (TcpStream, String) {
    let body = reserve_body(1, &[(KEY, 1)]);
    let (first, rest) = body.split_at(10);
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let length = body.len();
    // The server sends 100 Continue when it has read the head.
    let head = format!(
        "POST /v1/reserve HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut asked = [0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(first.as_bytes()).await.unwrap();
    (stream, rest.to_owned())
}

#[tokio::test]
async fn a_stop_lets_open_requests_finish_and_accepts_no_new_ones() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1).await;
    let (mut stream, rest) = half_sent(&server).await;
    let addr = server.addr();
    let stopping = tokio::spawn(server.server.stop());
    eventually("new connections are refused", async || TcpStream::connect(addr).await.is_err())
        .await;
    assert!(!stopping.is_finished(), "a request is open");
    stream.write_all(rest.as_bytes()).await.unwrap();
    let answer = read_answer(&mut stream).await;
    assert_eq!((answer.status, &answer.json()["allowed"]), (200, &true.into()));
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_stop_does_not_wait_longer_than_its_deadline() {
    let server = TestServer::start_with(|config| config.server.shutdown_timeout_ms = 50).await;
    server.define_rolling(KEY, 1).await;
    let (mut stream, _) = half_sent(&server).await;
    server.server.stop().await;
    let mut rest = Vec::new();
    drop(tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await);
    assert!(rest.is_empty(), "the request was aborted");
}

#[tokio::test]
async fn a_stop_closes_idle_connections_at_once() {
    let server = TestServer::start_with(|config| config.server.shutdown_timeout_ms = 600_000).await;
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    let mut byte = [0; 1];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut byte).await.unwrap();
    server.server.stop().await;
    assert_eq!(read_answer_rest(&mut stream).await.last(), Some(&b'\n'), "the answer was whole");
}

async fn read_answer_rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    drop(tokio::io::AsyncReadExt::read_to_end(stream, &mut rest).await);
    rest
}

#[tokio::test]
async fn a_port_in_use_is_reported() {
    let server = TestServer::start().await;
    let mut config = crate::harness::config_in(&server.folder);
    config.server.listen_addr = server.addr().to_string().parse().unwrap();
    let error = Server::bind(&config, crate::harness::memory_on(&server.clock)).await.unwrap_err();
    assert!(
        error.to_string().starts_with(&format!("{} is in use by another program", server.addr())),
        "{error}"
    );
}
