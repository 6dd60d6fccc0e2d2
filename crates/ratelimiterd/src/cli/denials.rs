//! Denials per limit, read from a server's metrics.

use std::collections::HashMap;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const METRICS_BYTES_MAX: usize = 16 * 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(2);
const LINE_BEGIN: &str = "ratelimiter_denied_total{key=\"";

/// Returns the counts by key, or `None` if they are not available (an `https` server, or a token without access to the
/// metrics): the view works without them.
pub(super) async fn denied_counts(url: &str, token: Option<&str>) -> Option<HashMap<String, u64>> {
    let text = tokio::time::timeout(TIMEOUT, metrics(url, token)).await.ok()??;
    Some(text.lines().filter_map(parse_line).collect())
}

async fn metrics(url: &str, token: Option<&str>) -> Option<String> {
    let rest = url.strip_prefix("http://")?;
    let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let stream = match authority.contains(':') {
        true => TcpStream::connect(authority).await,
        false => TcpStream::connect((authority, 80)).await,
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream.ok()?)).await.ok()?;
    let mut request = hyper::Request::get(format!("{}/metrics", base.trim_end_matches('/')));
    request = request.header(HOST, authority);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).ok()?);
    // The connection must be polled while the response is pending; it does not end before that.
    let answered = async {
        let answer = answer.await.ok().filter(|answer| answer.status().is_success())?;
        Limited::new(answer.into_body(), METRICS_BYTES_MAX).collect().await.ok()
    };
    let body = tokio::select! {
        body = answered => body?,
        _ = connection => return None,
    };
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

/// The key and the count of a line such as `ratelimiter_denied_total{key="k"} 7`.
fn parse_line(line: &str) -> Option<(String, u64)> {
    let (key, count) = line.strip_prefix(LINE_BEGIN)?.rsplit_once("\"} ")?;
    let mut unescaped = String::with_capacity(key.len());
    let mut characters = key.chars();
    while let Some(character) = characters.next() {
        let character = match character {
            '\\' => characters.next()?,
            other => other,
        };
        unescaped.push(character);
    }
    Some((unescaped, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_metrics_is_parsed() {
        let line = r#"ratelimiter_denied_total{key="odd\"key\\"} 7"#;
        assert_eq!(parse_line(line), Some((r#"odd"key\"#.to_owned(), 7)));
        assert_eq!(parse_line("ratelimiter_open_leases 7"), None);
        assert_eq!(parse_line(r#"ratelimiter_denied_total{key="k"} many"#), None);
    }
}
