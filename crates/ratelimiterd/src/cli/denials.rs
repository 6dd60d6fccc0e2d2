//! Denials per limit, read from a server's metrics.

use std::collections::HashMap;

use ratelimiter_client::HttpLimiter;

const LINE_BEGIN: &str = "ratelimiter_denied_total{key=\"";

/// Returns the counts by key; none if they are not available, for example to a token without access to the metrics: the
/// view works without them.
pub(super) async fn denied_counts(server: &HttpLimiter) -> HashMap<String, u64> {
    let text = server.metrics().await.unwrap_or_default();
    text.lines().filter_map(parse_line).collect()
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
