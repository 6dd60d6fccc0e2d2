//! The caller's key.

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

/// True if a request has `key`, in either of the headers that the SDKs use.
pub(crate) fn has_key(headers: &HeaderMap, key: &str) -> bool {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    let plain = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    bearer == Some(key) || plain == Some(key)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_key_comes_in_either_header() {
        for (name, value, is_valid) in [
            ("authorization", "Bearer secret", true),
            ("x-api-key", "secret", true),
            ("authorization", "secret", false),
            ("authorization", "Basic secret", false),
            ("x-api-key", "other", false),
        ] {
            let headers = HeaderMap::from_iter([(
                name.parse().expect("a header"),
                HeaderValue::from_static(value),
            )]);
            assert_eq!(has_key(&headers, "secret"), is_valid, "{name}: {value}");
        }
    }
}
