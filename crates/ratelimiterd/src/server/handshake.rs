//! The TLS handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter_wire::{ErrorBody, Refusal};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The most bytes of a plain HTTP request that are read before the connection is closed.
const PLAINTEXT_BYTES_MAX: u64 = 64 * 1024;

/// Performs the TLS handshake. A client that speaks plain HTTP gets an HTTP error.
///
/// # Errors
/// The handshake timed out, or the client does not speak TLS.
pub(super) async fn handshake(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    timeout: Duration,
) -> io::Result<TlsStream<TcpStream>> {
    let negotiated = tokio::time::timeout(timeout, negotiate(stream, config)).await;
    negotiated
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake timed out")))
}

async fn negotiate(
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // A TLS record starts with a small number, an HTTP request with its method.
    if first[0].is_ascii_uppercase() {
        answer_plaintext(stream).await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "plain HTTP, not TLS"));
    }
    TlsAcceptor::from(config).accept(stream).await
}

/// Answers every plain HTTP request with the same error, without parsing it.
async fn answer_plaintext(mut stream: TcpStream) -> io::Result<()> {
    let message = "this port speaks TLS; use https:// instead of http://";
    let body = ErrorBody::from(Refusal::of_field("scheme", message));
    let body = serde_json::to_string(&body).expect("wire types are JSON");
    let length = body.len();
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close";
    let answer = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing the socket with unread data would reset the connection, and the client might lose the response.
    tokio::io::copy(&mut stream.take(PLAINTEXT_BYTES_MAX), &mut tokio::io::sink()).await?;
    Ok(())
}
