//! What a hostile or broken client sends to the socket: each gets an answer or an end, and the server goes on.

mod garbage;
mod panics;
mod smuggling;
mod stalling;

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The answers on one connection, by their status.
type Statuses = Vec<u16>;

/// Sends bytes, says that no more will come, and reads all that is answered.
async fn exchange(addr: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // The server may close before it has read all; what it answered is what counts.
    drop(stream.write_all(sent).await);
    drop(stream.shutdown().await);
    let mut answered = Vec::new();
    drop(stream.read_to_end(&mut answered).await);
    answered
}

/// Every status line in what was answered; ours have no such text inside.
fn statuses(answered: &[u8]) -> Statuses {
    let text = String::from_utf8_lossy(answered);
    let heads = text.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].parse().unwrap()).collect()
}

async fn exchange_statuses(addr: SocketAddr, sent: &str) -> Statuses {
    statuses(&exchange(addr, sent.as_bytes()).await)
}
