//! Denials per limit, and those of shadow mode, read from a server's metrics.

use std::collections::HashMap;

use ratelimiter::LimitMode;
use ratelimiter_client::HttpLimiter;

/// Counts by mode and key.
pub(super) type DenialCounts = HashMap<(LimitMode, String), u64>;

const LINE_BEGINS: [(LimitMode, &str); 2] = [
    (LimitMode::Enforce, "ratelimiter_denied_total{key=\""),
    (LimitMode::Shadow, "ratelimiter_shadow_denied_total{key=\""),
];

/// Returns the counts; none if they are not available, for example to a token without access to the metrics: the
/// view works without them.
pub(super) async fn denied_counts(server: &HttpLimiter) -> DenialCounts {
    let text = server.metrics().await.unwrap_or_default();
    text.lines().filter_map(parse_line).collect()
}

/// The mode, the key and the count of a line such as `ratelimiter_denied_total{key="k"} 7`.
fn parse_line(line: &str) -> Option<((LimitMode, String), u64)> {
    let (mode, rest) =
        LINE_BEGINS.iter().find_map(|(mode, begin)| Some((*mode, line.strip_prefix(begin)?)))?;
    let (key, count) = rest.rsplit_once("\"} ")?;
    let mut unescaped = String::with_capacity(key.len());
    let mut characters = key.chars();
    while let Some(character) = characters.next() {
        let character = match character {
            '\\' => characters.next()?,
            other => other,
        };
        unescaped.push(character);
    }
    Some(((mode, unescaped), count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_metrics_is_parsed() {
        let key = || r#"odd"key\"#.to_owned();
        let line = r#"ratelimiter_denied_total{key="odd\"key\\"} 7"#;
        assert_eq!(parse_line(line), Some(((LimitMode::Enforce, key()), 7)));
        let line = r#"ratelimiter_shadow_denied_total{key="odd\"key\\"} 8"#;
        assert_eq!(parse_line(line), Some(((LimitMode::Shadow, key()), 8)));
        assert_eq!(parse_line("ratelimiter_open_leases 7"), None);
        assert_eq!(parse_line(r#"ratelimiter_denied_total{key="k"} many"#), None);
    }
}
