//! Parses the key in a path and the page in a query.

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use ratelimiter::{LimitKey, Page};
use ratelimiter_wire::Refusal;

const LIMITS_PATH: &str = "/v1/admin/limits/";

/// The key is percent-decoded; a `/` in it may be literal.
pub(super) fn key_of(uri: &Uri) -> Result<LimitKey, Refusal> {
    let encoded = uri.path().strip_prefix(LIMITS_PATH).unwrap_or_default();
    let text = percent_decode_str(encoded)
        .decode_utf8()
        .map_err(|_| Refusal::of_field("key", "a key is UTF-8; encode its bytes as %XX"))?;
    LimitKey::new(text).map_err(|error| Refusal::of_field("key", error.to_string()))
}

/// `?prefix=` filters, `?limit=` and `?after=` page.
pub(super) fn page_of(uri: &Uri) -> Result<Page, Refusal> {
    let mut page = Page::default();
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*name {
            "prefix" => page.prefix = value.into_owned(),
            "after" if value.is_empty() => page.after = None,
            "after" => {
                let after = LimitKey::new(&value);
                page.after =
                    Some(after.map_err(|error| Refusal::of_field("after", error.to_string()))?);
            }
            "limit" => match value.parse() {
                Ok(count_max) if count_max > 0 => page.count_max = Some(count_max),
                Ok(_) | Err(_) => {
                    return Err(Refusal::of_field(
                        "limit",
                        format!("must be a number from 1, not {value:?}"),
                    ));
                }
            },
            other => {
                return Err(Refusal::of_field(
                    other,
                    "unknown parameter; use prefix, limit and after",
                ));
            }
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> String {
        match key_of(&path.parse().unwrap()) {
            Ok(key) => key.to_string(),
            Err(refusal) => refusal.error.to_string(),
        }
    }

    /// HTTP-10
    #[test]
    fn a_key_is_percent_decoded_and_may_have_slashes() {
        assert_eq!(key("/v1/admin/limits/a:b"), "a:b");
        assert_eq!(key("/v1/admin/limits/org%2Fmodel%40v1:rpm"), "org/model@v1:rpm");
        assert_eq!(key("/v1/admin/limits/org/model"), "org/model");
        assert_eq!(key("/v1/admin/limits/cl%C3%A9"), "clé");
        assert_eq!(key("/v1/admin/limits/100%25"), "100%");
        assert_eq!(key("/v1/admin/limits/%FF"), "invalid_request:key");
        assert_eq!(key("/v1/admin/limits/two%20words"), "invalid_request:key");
    }

    /// HTTP-09
    #[test]
    fn a_page_is_read_from_the_query() {
        let page = page_of(&"/?prefix=a%3A&limit=7&after=a%3Ab".parse().unwrap()).unwrap();
        assert_eq!((page.prefix.as_str(), page.count_max), ("a:", Some(7)));
        assert_eq!(page.after.unwrap().as_str(), "a:b");
        assert_eq!(page_of(&"/".parse().unwrap()).unwrap(), Page::default());
        for (query, field) in [
            ("limit=0", "limit"),
            ("limit=-1", "limit"),
            ("after=a%20b", "after"),
            ("perfix=a", "perfix"),
        ] {
            let refusal = page_of(&format!("/?{query}").parse().unwrap()).unwrap_err();
            assert_eq!(refusal.error.to_string(), format!("invalid_request:{field}"));
        }
    }
}
