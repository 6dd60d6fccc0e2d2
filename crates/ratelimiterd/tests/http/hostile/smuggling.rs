//! Request smuggling.
//!
//! A proxy and the server must agree on where a request ends: an ambiguous request is refused, and the connection closed.

use super::{Statuses, exchange_statuses};
use crate::harness::TestServer;

/// A request hidden in the body of another one.
const HIDDEN: &str = "GET /healthz HTTP/1.1\r\nhost: hidden\r\n\r\n";

async fn check(server: &TestServer, request: &str, expected: &[u16]) {
    let got: Statuses = exchange_statuses(server.addr(), request).await;
    assert_eq!(got, expected, "{request:?}");
}

fn post(headers: &str, body: &str) -> String {
    format!("POST /v1/complete HTTP/1.1\r\nhost: t\r\n{headers}\r\n{body}")
}

#[tokio::test]
async fn a_length_that_can_be_read_in_two_ways_is_refused() {
    let server = TestServer::start().await;
    for headers in [
        "content-length: 2\r\ncontent-length: 40\r\n",
        "content-length: 2, 40\r\n",
        "content-length: +2\r\n",
        "content-length: -2\r\n",
        "content-length: 0x2\r\n",
        "content-length: 2 2\r\n",
        "content-length: 99999999999999999999\r\n",
        "content-length:\r\n",
        "content-length : 2\r\n",
        "content-length: 2\r\n folded: 40\r\n",
        "content\0-length: 2\r\n",
        "x: \0\r\n",
        "no colon\r\n",
    ] {
        check(&server, &post(headers, &format!("{{}}{HIDDEN}")), &[400]).await;
    }
    check(&server, &post("content-length: 2\r\n", "{}"), &[400]).await;
    check(&server, &post("content-length: 2\r\n", &format!("{{}}{HIDDEN}")), &[400, 200]).await;
}

#[tokio::test]
async fn an_encoding_that_can_be_read_in_two_ways_is_refused() {
    let server = TestServer::start().await;
    for headers in [
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: \x0bchunked\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer-encoding: gzip\r\n",
    ] {
        check(&server, &post(headers, &format!("2\r\n{{}}\r\n0\r\n\r\n{HIDDEN}")), &[400]).await;
    }
    for chunks in [
        "g\r\n{}\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n{}",
        "-2\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}xx0\r\n\r\n",
    ] {
        let request = post("transfer-encoding: chunked\r\n", &format!("{chunks}{HIDDEN}"));
        check(&server, &request, &[400]).await;
    }
}

/// With both headers, the encoding counts, and nothing after the body is parsed as a request.
#[tokio::test]
async fn a_content_length_next_to_chunked_encoding_hides_no_request() {
    let server = TestServer::start().await;
    for headers in [
        "content-length: 6\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 6\r\n",
    ] {
        check(&server, &post(headers, &format!("0\r\n\r\n{HIDDEN}")), &[400]).await;
    }
    // HTTP/1.0 has no chunks.
    let request = post("transfer-encoding: chunked\r\n", &format!("0\r\n\r\n{HIDDEN}"));
    check(&server, &request.replacen("HTTP/1.1", "HTTP/1.0", 1), &[400]).await;
}

#[tokio::test]
async fn an_invalid_request_line_is_refused() {
    let server = TestServer::start().await;
    for line in [
        "GET /healthz",
        "GET /healthz HTTP/3.0",
        "GET  /healthz HTTP/1.1",
        "GET /health\0z HTTP/1.1",
        "GE\tT /healthz HTTP/1.1",
        "get\r/healthz HTTP/1.1",
        "\x16\x03\x01\x02",
    ] {
        check(&server, &format!("{line}\r\nhost: t\r\n\r\n"), &[400]).await;
    }
    // Valid requests that the API does not have.
    for (line, status) in [
        ("OPTIONS * HTTP/1.1", 404),
        ("CONNECT example.org:443 HTTP/1.1", 404),
        ("GET http://example.org/v2 HTTP/1.1", 404),
        ("BREW /healthz HTTP/1.1", 405),
        ("GET /v1/admin/limits/%00 HTTP/1.1", 400),
        ("GET /v1/admin/limits/%zz HTTP/1.1", 404),
        ("GET /../../etc/passwd HTTP/1.1", 404),
        ("GET /v1/admin/limits/../../../etc/passwd HTTP/1.1", 404),
    ] {
        check(&server, &format!("{line}\r\nhost: t\r\n\r\n"), &[status]).await;
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_turn_up_to_the_first_garbage() {
    let server = TestServer::start().await;
    let ask = "GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n";
    check(&server, &ask.repeat(20), &[200; 20]).await;
    check(&server, &format!("{ask}{ask}garbage\r\n\r\n{ask}"), &[200, 200, 400]).await;
}
