//! Who calls (`GW-11`).

use std::sync::{Arc, PoisonError, RwLock};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};

use crate::refusal::{Refusal, RefusalKind};
use crate::settings::{Name, Secret, Tenant};

const TENANT_HEADER: &str = "x-ratelimiter-tenant";
const API_KEY_HEADER: &str = "x-api-key";

/// The tenants with their keys, and the keys of providers. A reload replaces them.
#[derive(Debug)]
pub(crate) struct Access {
    keys: RwLock<Arc<Keys>>,
}

#[derive(Debug)]
pub(crate) struct Keys {
    tenants: Vec<Tenant>,
    /// By provider.
    pub(crate) api_keys: Vec<Option<Secret>>,
}

/// Who calls; `None` if nobody says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallerTenant {
    pub(crate) name: Option<Box<str>>,
    /// The models that it may call; `None` for all.
    pub(crate) models: Option<Vec<String>>,
}

impl Access {
    pub(crate) fn new(tenants: Vec<Tenant>, api_keys: Vec<Option<Secret>>) -> Self {
        Self { keys: RwLock::new(Arc::new(Keys { tenants, api_keys })) }
    }

    pub(crate) fn replace(&self, tenants: Vec<Tenant>, api_keys: Vec<Option<Secret>>) {
        let keys = Arc::new(Keys { tenants, api_keys });
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    pub(crate) fn current(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Keys {
    /// The tenant that calls: by its key if there are tenants, else by a header.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<CallerTenant, Refusal> {
        if self.tenants.is_empty() {
            let mut given = headers.get_all(TENANT_HEADER).into_iter();
            let Some(value) = given.next() else {
                return Ok(CallerTenant { name: None, models: None });
            };
            if given.next().is_some() {
                let message = format!("{TENANT_HEADER} is there twice; a call has one tenant");
                return Err(Refusal::new(RefusalKind::Invalid, message));
            }
            let name = value.to_str().ok().and_then(|text| Name::new(text).ok());
            let name = name.ok_or_else(|| {
                let message =
                    format!("{TENANT_HEADER} must be 1 to 64 characters of A-Z a-z 0-9 . _ -");
                Refusal::new(RefusalKind::Invalid, message)
            })?;
            return Ok(CallerTenant { name: Some(name.as_str().into()), models: None });
        }
        let given = given_key(headers)?;
        // Every key is compared, so that the time tells nothing.
        let matching = self
            .tenants
            .iter()
            .fold(None, |found, tenant| if tenant.key.is(given) { Some(tenant) } else { found });
        let tenant =
            matching.ok_or_else(|| unauthorized("this key is not known to the gateway"))?;
        let Tenant { name, key: _, models } = tenant;
        Ok(CallerTenant { name: Some(name.as_str().into()), models: models.clone() })
    }
}

impl CallerTenant {
    /// Whether it may call a model by one of these names.
    pub(crate) fn may_call(&self, names: &[&str]) -> bool {
        self.models.as_ref().is_none_or(|models| {
            names.iter().any(|name| models.iter().any(|allowed| allowed == name))
        })
    }
}

/// The key of a call. Two different ones are an error: one of them is not meant for us.
fn given_key(headers: &HeaderMap) -> Result<&[u8], Refusal> {
    let mut given: Option<&[u8]> = None;
    let bearers = headers.get_all(AUTHORIZATION).into_iter().map(|value| {
        let bytes = value.as_bytes();
        match bytes.split_at_checked(7) {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => key.trim_ascii(),
            Some(_) | None => b"",
        }
    });
    let keys = headers.get_all(API_KEY_HEADER).into_iter().map(HeaderValue::as_bytes);
    for key in bearers.chain(keys) {
        match given {
            Some(earlier) if earlier != key => {
                return Err(unauthorized(
                    "two different keys: send one, as `Authorization: Bearer` or `x-api-key`",
                ));
            }
            Some(_) | None => given = Some(key),
        }
    }
    given.ok_or_else(|| {
        unauthorized("send a key of the gateway as `Authorization: Bearer` or `x-api-key`")
    })
}

fn unauthorized(message: &str) -> Refusal {
    Refusal::new(RefusalKind::Unauthorized, message)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn identify(tenants: &[(&str, &str)], headers: &[(&'static str, &'static str)]) -> String {
        let tenant = |(name, key): &(&str, &str)| Tenant {
            name: Name::new(name).unwrap(),
            key: Secret::new(key).unwrap(),
            models: None,
        };
        let keys = Keys { tenants: tenants.iter().map(tenant).collect(), api_keys: Vec::new() };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        match keys.identify(&map) {
            Ok(tenant) => tenant.name.map_or("nobody".to_owned(), String::from),
            Err(refusal) => format!("{:?}", refusal.kind),
        }
    }

    /// GW-11
    #[test]
    fn gw_11_with_tenants_the_key_decides_and_the_header_is_ignored() {
        let tenants = [("acme", "k1"), ("umbrella", "k2")];
        for (headers, expected) in [
            (&[("authorization", "Bearer k1")][..], "acme"),
            (&[("authorization", "bearer k2")], "umbrella"),
            (&[("x-api-key", "k2")], "umbrella"),
            (&[("x-api-key", "k1"), ("x-ratelimiter-tenant", "umbrella")], "acme"),
            (&[("x-api-key", "k1"), ("authorization", "Bearer k1")], "acme"),
            (&[("x-api-key", "k1"), ("authorization", "Bearer k2")], "Unauthorized"),
            (&[("x-api-key", "k1"), ("authorization", "Basic x")], "Unauthorized"),
            (&[("authorization", "Bearer k3")], "Unauthorized"),
            (&[("authorization", "k1")], "Unauthorized"),
            (&[("authorization", "Bearer ")], "Unauthorized"),
            (&[("x-ratelimiter-tenant", "acme")], "Unauthorized"),
            (&[], "Unauthorized"),
        ] {
            assert_eq!(identify(&tenants, headers), expected, "{headers:?}");
        }
    }

    /// GW-11
    #[test]
    fn gw_11_without_tenants_a_header_names_the_tenant() {
        for (headers, expected) in [
            (&[("x-ratelimiter-tenant", "acme"), ("authorization", "Bearer sk")][..], "acme"),
            (&[], "nobody"),
            (&[("x-ratelimiter-tenant", "a"), ("x-ratelimiter-tenant", "b")], "Invalid"),
            (&[("x-ratelimiter-tenant", "a:b")], "Invalid"),
            (&[("x-ratelimiter-tenant", "")], "Invalid"),
        ] {
            assert_eq!(identify(&[], headers), expected, "{headers:?}");
        }
    }
}
