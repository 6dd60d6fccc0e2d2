//! Bearer token authentication.

mod caller;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use ratelimiter_wire::{ErrorCode, Refusal};
use subtle::{ConditionallySelectable, ConstantTimeEq};

pub(crate) use self::caller::Caller;
use crate::config::{AuthConfig, Permission, ValueError};

/// Who may send requests: anyone, or callers with a token. A reload replaces the tokens.
pub(crate) struct Access {
    /// Whether no tokens are configured. Checked first, so that a server without tokens takes no lock.
    is_open: AtomicBool,
    anonymous: Caller,
    tokens: RwLock<Tokens>,
}

#[derive(Default)]
struct Tokens {
    /// Each token with the position of its caller.
    secrets: Vec<(String, u32)>,
    callers: Vec<Arc<Caller>>,
}

/// The caller of a request.
#[derive(Debug)]
pub(crate) enum CallerRef<'a> {
    /// No tokens are configured.
    Anonymous(&'a Caller),
    Known(Arc<Caller>),
}

impl Access {
    /// Reads the configured tokens.
    ///
    /// # Errors
    /// A token cannot be used.
    pub(crate) fn new(config: &AuthConfig) -> Result<Self, ValueError> {
        let access = Self {
            is_open: AtomicBool::new(true),
            anonymous: Caller::anonymous(),
            tokens: RwLock::default(),
        };
        access.reload(config)?;
        Ok(access)
    }

    /// Replaces the tokens by those of a config; returns their number. Callers that keep their name keep their counters.
    ///
    /// # Errors
    /// A token cannot be used; the old ones stay valid.
    pub(crate) fn reload(&self, config: &AuthConfig) -> Result<usize, ValueError> {
        let read = config.read_secrets();
        let read =
            read.map_err(|errors| errors.into_iter().next().expect("a failure has an error"))?;
        let mut new = Tokens::default();
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        for (holder, secret) in read {
            let caller = Caller::of(holder);
            let position = match new.position(caller.name()) {
                Some(known) => known,
                None => {
                    let earlier = tokens.position(caller.name()).map(|at| &*tokens.callers[at]);
                    new.callers.push(Arc::new(caller.continuing(earlier)));
                    new.callers.len() - 1
                }
            };
            let position = u32::try_from(position).expect("callers are bounded");
            new.secrets.push((secret, position));
        }
        let count = new.secrets.len();
        *tokens = new;
        self.is_open.store(count == 0, Ordering::Release);
        Ok(count)
    }

    /// Whose token a request has.
    ///
    /// # Errors
    /// `unauthorized` (401) without a valid token.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<CallerRef<'_>, Refusal> {
        if self.is_open.load(Ordering::Acquire) {
            return Ok(CallerRef::Anonymous(&self.anonymous));
        }
        let Some(given) = bearer(headers) else {
            return Err(unauthorized("send `Authorization: Bearer <token>`"));
        };
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        // A reload has just removed the last one.
        if tokens.secrets.is_empty() {
            return Ok(CallerRef::Anonymous(&self.anonymous));
        }
        let caller = tokens.caller_of(given).ok_or_else(|| unauthorized("unknown token"))?;
        Ok(CallerRef::Known(Arc::clone(caller)))
    }

    /// Whose token a request has, if it permits what the request needs.
    ///
    /// # Errors
    /// `unauthorized` (401) without a valid token, `forbidden` (403) with one that does not permit it.
    pub(crate) fn check(
        &self,
        headers: &HeaderMap,
        needed: Permission,
    ) -> Result<CallerRef<'_>, Refusal> {
        let caller = self.identify(headers)?;
        caller.check_may(needed)?;
        Ok(caller)
    }

    /// The callers that a caller may see: all, or itself if its keys are bounded.
    pub(crate) fn callers_shown_to<'a>(&'a self, caller: &CallerRef<'a>) -> Vec<CallerRef<'a>> {
        match caller {
            CallerRef::Known(bounded) if bounded.keys().is_some() => {
                vec![CallerRef::Known(Arc::clone(bounded))]
            }
            CallerRef::Known(_) | CallerRef::Anonymous(_) => {
                let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
                let known = tokens.callers.iter().map(|known| CallerRef::Known(Arc::clone(known)));
                std::iter::once(CallerRef::Anonymous(&self.anonymous)).chain(known).collect()
            }
        }
    }
}

impl Tokens {
    fn position(&self, name: &str) -> Option<usize> {
        self.callers.iter().position(|caller| caller.name() == name)
    }

    /// Constant time: every token is compared, so that the duration does not reveal where a match is. If a token is in two
    /// lists, the last one counts: `auth.admin_tokens` comes after `auth.client_tokens`.
    fn caller_of(&self, given: &[u8]) -> Option<&Arc<Caller>> {
        let mut found = u32::MAX;
        for (secret, position) in &self.secrets {
            found.conditional_assign(position, secret.as_bytes().ct_eq(given));
        }
        self.callers.get(usize::try_from(found).ok()?)
    }
}

impl Deref for CallerRef<'_> {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        match self {
            Self::Anonymous(caller) => caller,
            Self::Known(caller) => caller,
        }
    }
}

fn unauthorized(message: &str) -> Refusal {
    Refusal { error: ErrorCode::Unauthorized, message: message.to_owned() }
}

/// The token of an `Authorization: Bearer …` header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

impl std::fmt::Debug for Access {
    /// Shows no tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Access({} tokens)", tokens.secrets.len())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::config::{CallerConfig, CallerName, Token};

    /// A caller whose token is its name in front of `-token`.
    fn caller(name: &str) -> CallerConfig {
        let token = Token::new(&format!("{name}-token")).unwrap();
        let name = CallerName::new(name).unwrap();
        CallerConfig { name, token, may: vec![Permission::Call], keys: None }
    }

    /// The name of the caller with a token, or the error.
    fn name(access: &Access, token: &str) -> String {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        match access.identify(&headers) {
            Ok(caller) => caller.name().to_owned(),
            Err(refusal) => refusal.error.to_string(),
        }
    }

    /// OPS-04
    #[test]
    fn ops_04_every_token_has_its_caller() {
        let tokens = |texts: [&str; 2]| texts.map(|text| Token::new(text).unwrap()).to_vec();
        let config = AuthConfig {
            client_tokens: tokens(["client", "both"]),
            admin_tokens: tokens(["admin", "both"]),
            tokens: vec![caller("one"), caller("two")],
            allow_anonymous: false,
        };
        let access = Access::new(&config).unwrap();
        for (token, expected) in [
            ("client", "client_tokens"),
            ("admin", "admin_tokens"),
            ("both", "admin_tokens"),
            ("one-token", "one"),
            ("two-token", "two"),
            ("one", "unauthorized"),
            ("one-tokens", "unauthorized"),
        ] {
            assert_eq!(name(&access, token), expected, "{token}");
        }
        assert_eq!(format!("{access:?}"), "Access(6 tokens)", "no token is shown");
        assert_eq!(name(&Access::new(&AuthConfig::default()).unwrap(), "any"), "anonymous");
    }

    /// OPS-04: a request meets the tokens from before a reload or from after it, never none.
    #[test]
    fn ops_04_a_token_that_stays_is_valid_during_reloads() {
        let config = |tokens| AuthConfig { tokens, ..AuthConfig::default() };
        let configs =
            [config(vec![caller("stays")]), config(vec![caller("comes"), caller("stays")])];
        let access = Access::new(&configs[0]).unwrap();
        std::thread::scope(|scope| {
            let reloading = scope.spawn(|| {
                for round in 0..1_000 {
                    access.reload(&configs[round % 2]).unwrap();
                }
            });
            while !reloading.is_finished() {
                assert_eq!(name(&access, "stays-token"), "stays");
            }
        });
    }
}
