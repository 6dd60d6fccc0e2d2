//! Hostile and broken clients: each is answered or disconnected, and the server keeps serving.

mod garbage;
mod panics;
mod smuggling;
mod stalling;

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The statuses of the responses on one connection.
type Statuses = Vec<u16>;

/// Sends bytes, closes the sending half, and reads until the end.
async fn exchange(addr: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // The server may close before it has read everything; only its response matters.
    drop(stream.write_all(sent).await);
    drop(stream.shutdown().await);
    let mut answered = Vec::new();
    drop(stream.read_to_end(&mut answered).await);
    answered
}

/// The status of every status line; our bodies do not contain such text.
fn statuses(answered: &[u8]) -> Statuses {
    let text = String::from_utf8_lossy(answered);
    let heads = text.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].parse().unwrap()).collect()
}

async fn exchange_statuses(addr: SocketAddr, sent: &str) -> Statuses {
    statuses(&exchange(addr, sent.as_bytes()).await)
}
