//! Which headers travel (`GW-11`).

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, SET_COOKIE,
};

use crate::api::Api;
use crate::settings::Secret;

/// Of one connection only.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// What says who the caller is, at the gateway or at the provider.
const CREDENTIALS: [&str; 6] =
    ["authorization", "x-api-key", "api-key", "cookie", "openai-organization", "openai-project"];
/// Headers for the gateway begin with this.
const OWN_PREFIX: &str = "x-ratelimiter-";
const WAITED: HeaderName = HeaderName::from_static("x-ratelimiter-waited-ms");

/// Says in an answer how long its call waited for room.
pub(crate) fn set_waited(headers: &mut HeaderMap, waited: Duration) {
    let ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    headers.insert(WAITED, ms.into());
}

/// The headers of a call to the provider. With a key of the provider, the caller's credentials do not travel; without one they pass
/// unchanged.
pub(crate) fn to_provider(headers: &HeaderMap, api: Api, api_key: Option<&Secret>) -> HeaderMap {
    let mut sent = HeaderMap::with_capacity(headers.len() + 1);
    let named = named_by_connection(headers);
    for (name, value) in headers {
        let text = name.as_str();
        let is_dropped = is_of_connection(text, &named)
            || text.starts_with(OWN_PREFIX)
            || [HOST, CONTENT_LENGTH, ACCEPT_ENCODING].contains(name)
            || text == "expect"
            || api_key.is_some() && CREDENTIALS.contains(&text);
        if !is_dropped {
            sent.append(name.clone(), value.clone());
        }
    }
    // Usage is read as the answer passes.
    sent.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(key) = api_key {
        match api {
            Api::OpenAi => sent.insert("authorization", key.header_value("Bearer ")),
            Api::Anthropic => sent.insert("x-api-key", key.header_value("")),
        };
    }
    sent
}

/// The headers of the provider's answer that its caller gets.
pub(crate) fn to_caller(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    let mut sent = HeaderMap::with_capacity(headers.len() + 2);
    for (name, value) in headers {
        let text = name.as_str();
        let is_dropped =
            is_of_connection(text, &named) || text.starts_with(OWN_PREFIX) || *name == SET_COOKIE;
        if !is_dropped {
            sent.append(name.clone(), value.clone());
        }
    }
    sent
}

fn is_of_connection(name: &str, named: &[HeaderName]) -> bool {
    HOP_BY_HOP.contains(&name) || named.iter().any(|other| other == name)
}

/// The headers that `connection` names.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn shown(headers: &HeaderMap) -> String {
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines.join("\n")
    }

    const CALL: [(&str, &str); 16] = [
        ("host", "gateway"),
        ("authorization", "Bearer k"),
        ("x-api-key", "k"),
        ("api-key", "k"),
        ("cookie", "a=b"),
        ("openai-organization", "o"),
        ("openai-project", "p"),
        ("x-ratelimiter-tenant", "acme"),
        ("x-ratelimiter-anything", "1"),
        ("connection", "keep-alive, x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("accept-encoding", "gzip"),
        ("traceparent", "00-1-2-01"),
        ("idempotency-key", "i"),
        ("anthropic-version", "2023-06-01"),
    ];

    /// GW-09, GW-11
    #[test]
    fn gw_11_with_a_key_of_the_provider_the_callers_credentials_do_not_travel() {
        let key = Secret::new("sk").unwrap();
        let always = "anthropic-version: 2023-06-01";
        let sent = to_provider(&map(&CALL), Api::OpenAi, Some(&key));
        assert_eq!(
            shown(&sent),
            format!(
                "accept-encoding: identity\n{always}\nauthorization: Bearer sk\nidempotency-key: i\ntraceparent: 00-1-2-01"
            )
        );
        let sent = to_provider(&map(&CALL), Api::Anthropic, Some(&key));
        assert_eq!(
            shown(&sent),
            format!(
                "accept-encoding: identity\n{always}\nidempotency-key: i\ntraceparent: 00-1-2-01\nx-api-key: sk"
            )
        );
        assert!(sent["x-api-key"].is_sensitive());
    }

    /// GW-11
    #[test]
    fn gw_11_without_one_they_pass_unchanged() {
        let sent = to_provider(&map(&CALL), Api::OpenAi, None);
        assert_eq!(
            shown(&sent),
            "accept-encoding: identity\nanthropic-version: 2023-06-01\napi-key: k\nauthorization: Bearer k\ncookie: a=b\n\
             idempotency-key: i\nopenai-organization: o\nopenai-project: p\ntraceparent: 00-1-2-01\nx-api-key: k"
        );
    }

    /// GW-11
    #[test]
    fn gw_11_cookies_of_the_provider_and_headers_like_ours_do_not_come_back() {
        let answer = map(&[
            ("set-cookie", "a=b"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("x-ratelimiter-lease", "forged"),
            ("x-request-id", "r"),
            ("content-type", "text/event-stream"),
        ]);
        assert_eq!(shown(&to_caller(&answer)), "content-type: text/event-stream\nx-request-id: r");
    }
}
