//! The beginning of an encrypted connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter_wire::{ErrorBody, Refusal};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The most bytes that are read of a request in clear before it is answered.
const CLEAR_BYTES_MAX: u64 = 64 * 1024;

/// Agrees on encryption with whoever connected.
///
/// # Errors
/// It did not come about in time, or the other side does not speak TLS; one that speaks HTTP in clear is told.
pub(super) async fn handshake(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    within: Duration,
) -> io::Result<TlsStream<TcpStream>> {
    let agreed = tokio::time::timeout(within, agree(stream, config)).await;
    agreed.unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake did not end in time"))
    })
}

async fn agree(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // A TLS record begins with a small number, an HTTP request with its method.
    if first[0].is_ascii_uppercase() {
        answer_in_clear(stream).await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "HTTP in clear, not TLS"));
    }
    TlsAcceptor::from(config).accept(stream).await
}

/// The one answer that is given in clear. What was asked is not looked at.
async fn answer_in_clear(mut stream: TcpStream) -> io::Result<()> {
    let message = "this port speaks TLS; ask https:// instead of http://";
    let body = ErrorBody::from(Refusal::of_field("scheme", message));
    let body = serde_json::to_string(&body).expect("wire types are JSON");
    let length = body.len();
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close";
    let answer = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing with the request unread would take the answer back.
    tokio::io::copy(&mut stream.take(CLEAR_BYTES_MAX), &mut tokio::io::sink()).await?;
    Ok(())
}
