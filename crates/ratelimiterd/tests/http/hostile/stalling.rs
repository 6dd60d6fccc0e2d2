//! Clients that are deliberately slow, or stop halfway.

use std::time::Duration;

use testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::exchange;
use crate::harness::{KEY, TestServer, reserve_body};

#[tokio::test]
async fn a_half_closed_connection_gets_its_answer() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1).await;
    let body = reserve_body(1, &[(KEY, 1)]);
    let head =
        format!("POST /v1/reserve HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n", body.len());
    let answered = exchange(server.addr(), format!("{head}{body}").as_bytes()).await;
    let answered = String::from_utf8(answered).unwrap();
    assert!(answered.contains("\"allowed\":true"), "{answered}");
}

/// A truncated body reserves nothing.
#[tokio::test]
async fn a_connection_that_closes_within_a_body_is_refused() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1).await;
    let body = reserve_body(1, &[(KEY, 1)]);
    let head = format!(
        "POST /v1/reserve HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n",
        body.len() + 1
    );
    let answered = exchange(server.addr(), format!("{head}{body}").as_bytes()).await;
    assert!(!String::from_utf8_lossy(&answered).contains("\"allowed\":true"));
    let state = server.get(&format!("/v1/admin/limits/{KEY}")).await;
    assert_eq!(state.json()["limit"]["used"], 0);
}

/// HTTP-02: one byte at a time, without end: the timeout covers the whole head, not the time between bytes.
#[tokio::test]
async fn a_head_that_drips_is_cut_off() {
    let server = TestServer::start_with(|config| config.server.header_read_timeout_ms = 300).await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let addr = server.addr();
        clients.spawn(async move {
            let (mut reading, mut writing) = TcpStream::connect(addr).await.unwrap().into_split();
            let drip = tokio::spawn(async move {
                let mut drops = tokio::time::interval(Duration::from_millis(20));
                writing.write_all(b"GET /healthz HTTP/1.1\r\nx-drip: ").await.unwrap();
                loop {
                    drops.tick().await;
                    if writing.write_all(b"x").await.is_err() {
                        return;
                    }
                }
            });
            let mut answered = Vec::new();
            drop(reading.read_to_end(&mut answered).await);
            drip.abort();
            assert!(!answered.starts_with(b"HTTP/1.1 200"), "no request ever came");
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
}

/// HTTP-02: a client that sends requests and never reads is disconnected, and its connection slot becomes free.
#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_disconnected() {
    let server = TestServer::start_with(|config| {
        config.server.connections_max = 1;
        config.server.write_timeout_ms = 100;
    })
    .await;
    let (_reading, mut writing) = TcpStream::connect(server.addr()).await.unwrap().into_split();
    // The responses fill the buffers of both ends, the server stops reading, and writing fails when it disconnects.
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: t\r\n\r\n".repeat(100);
    let asked =
        tokio::spawn(async move { while writing.write_all(ask.as_bytes()).await.is_ok() {} });
    asked.await.unwrap();
    assert_eq!(server.get("/healthz").await.status, 200, "there is room again");
}

/// HTTP-02: a client that disconnects early frees its connection slot.
#[tokio::test]
async fn connections_that_are_dropped_at_once_leave_room() {
    let server = TestServer::start_with(|config| config.server.connections_max = 8).await;
    for number in 0..200 {
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        let sent =
            &b"POST /v1/reserve HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\n{"[..number % 58];
        stream.write_all(sent).await.unwrap();
    }
    eventually("all have gone", async || server.get("/healthz").await.status == 200).await;
}
