//! Parses the key or lease in a path, and the page in a query.

use std::time::Duration;

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use ratelimiter::{
    KeyPattern, LEASE_AGE_SECONDS_MAX, LEASE_PAGE_MAX, LeaseId, LeasePage, LimitKey, Page,
};
use ratelimiter_wire::Refusal;

use crate::server::as_usize;

const LIMITS_PATH: &str = "/v1/admin/limits/";
const LEASES_PATH: &str = "/v1/admin/leases/";

/// The key is percent-decoded; a `/` in it may be literal.
pub(super) fn key_of(uri: &Uri) -> Result<LimitKey, Refusal> {
    let encoded = uri.path().strip_prefix(LIMITS_PATH).unwrap_or_default();
    let text = percent_decode_str(encoded)
        .decode_utf8()
        .map_err(|_| Refusal::of_field("key", "a key is UTF-8; encode its bytes as %XX"))?;
    LimitKey::new(text).map_err(|error| Refusal::of_field("key", error.to_string()))
}

/// `?prefix=` filters, `?template=` asks for its instances, `?limit=` and `?after=` page.
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
            "template" if value.is_empty() => page.template = None,
            "template" => {
                let template = KeyPattern::new(&value);
                page.template = Some(
                    template.map_err(|error| Refusal::of_field("template", error.to_string()))?,
                );
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
                    "unknown parameter; use prefix, template, limit and after",
                ));
            }
        }
    }
    Ok(page)
}

/// The lease ID in a path.
pub(super) fn lease_of(uri: &Uri) -> Result<LeaseId, Refusal> {
    parse_lease("lease_id", uri.path().strip_prefix(LEASES_PATH).unwrap_or_default())
}

/// `?key=` and `?older_than_seconds=` filter, `?limit=` and `?after=` page.
pub(super) fn lease_page_of(uri: &Uri) -> Result<LeasePage, Refusal> {
    let mut page = LeasePage::default();
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*name {
            "key" if value.is_empty() => page.key = None,
            "key" => {
                let key = LimitKey::new(&value);
                page.key = Some(key.map_err(|error| Refusal::of_field("key", error.to_string()))?);
            }
            "older_than_seconds" => {
                let seconds = parse_number(&name, &value, 0, LEASE_AGE_SECONDS_MAX.into())?;
                page.older_than = Duration::from_secs(seconds);
            }
            "after" if value.is_empty() => page.after = None,
            "after" => page.after = Some(parse_lease("after", &value)?),
            "limit" => {
                let count_max = parse_number(&name, &value, 1, LEASE_PAGE_MAX as u64)?;
                page.count_max = as_usize(count_max);
            }
            other => {
                return Err(Refusal::of_field(
                    other,
                    "unknown parameter; use key, older_than_seconds, limit and after",
                ));
            }
        }
    }
    Ok(page)
}

fn parse_lease(field: &str, text: &str) -> Result<LeaseId, Refusal> {
    text.parse::<LeaseId>().map_err(|error| Refusal::of_field(field, error.to_string()))
}

fn parse_number(field: &str, text: &str, min: u64, max: u64) -> Result<u64, Refusal> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    let error = || format!("must be a whole number from {min} to {max}, not {text:?}");
    number.ok_or_else(|| Refusal::of_field(field, error()))
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
        for query in ["/", "/?after=&template="] {
            assert_eq!(page_of(&query.parse().unwrap()).unwrap(), Page::default());
        }
        let page = page_of(&"/?template=tenant%3A*%3Arpm".parse().unwrap()).unwrap();
        assert_eq!(page.template.unwrap().as_str(), "tenant:*:rpm");
        for (query, field) in [
            ("limit=0", "limit"),
            ("limit=-1", "limit"),
            ("after=a%20b", "after"),
            ("template=a*b", "template"),
            ("template=**", "template"),
            ("perfix=a", "perfix"),
        ] {
            let refusal = page_of(&format!("/?{query}").parse().unwrap()).unwrap_err();
            assert_eq!(refusal.error.to_string(), format!("invalid_request:{field}"));
        }
    }

    /// OPS-01
    #[test]
    fn ops_01_a_page_of_leases_is_read_from_the_query() {
        let id = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D";
        let query = format!("/?key=a%3Ab&older_than_seconds=60&limit=7&after={id}");
        let page = lease_page_of(&query.parse().unwrap()).unwrap();
        let LeasePage { key, older_than, after, count_max } = page;
        assert_eq!((key.unwrap().as_str(), older_than.as_secs(), count_max), ("a:b", 60, 7));
        assert_eq!(after.unwrap().to_string(), id);
        for query in ["/", "/?key=&after="] {
            assert_eq!(lease_page_of(&query.parse().unwrap()).unwrap(), LeasePage::default());
        }
        for query in ["limit=1000", "older_than_seconds=2764800", "older_than_seconds=0"] {
            assert!(lease_page_of(&format!("/?{query}").parse().unwrap()).is_ok(), "{query}");
        }
        for (query, expected) in [
            ("limit=0", "invalid_request:limit: must be a whole number from 1 to 1000, not \"0\""),
            (
                "limit=1001",
                "invalid_request:limit: must be a whole number from 1 to 1000, not \"1001\"",
            ),
            (
                "older_than_seconds=2764801",
                "invalid_request:older_than_seconds: must be a whole number from 0 to 2764800, not \"2764801\"",
            ),
            (
                "older_than_seconds=1.5",
                "invalid_request:older_than_seconds: must be a whole number from 0 to 2764800, not \"1.5\"",
            ),
            (
                "after=7",
                "invalid_request:after: a lease ID is a ULID of 26 characters, this text has 1 bytes",
            ),
            (
                "job=7",
                "invalid_request:job: unknown parameter; use key, older_than_seconds, limit and after",
            ),
        ] {
            let refusal = lease_page_of(&format!("/?{query}").parse().unwrap()).unwrap_err();
            assert_eq!(refusal.to_string(), expected);
        }
        let refusal = lease_page_of(&"/?key=a%20b".parse().unwrap()).unwrap_err();
        assert_eq!(refusal.error.to_string(), "invalid_request:key");
    }

    /// OPS-01
    #[test]
    fn ops_01_a_lease_is_read_from_the_path() {
        let lease = |path: &str| lease_of(&path.parse().unwrap()).map(|lease| lease.to_string());
        let id = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D";
        assert_eq!(lease(&format!("{LEASES_PATH}{}", id.to_lowercase())).unwrap(), id);
        for path in ["7", "01J9ZC3V9W8Q4N2M6T5R7Y1K0%44"] {
            let refusal = lease(&format!("{LEASES_PATH}{path}")).unwrap_err();
            assert_eq!(refusal.error.to_string(), "invalid_request:lease_id");
        }
    }
}
