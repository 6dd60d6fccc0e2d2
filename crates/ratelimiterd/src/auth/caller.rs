//! A caller: what it may do, to which keys, and what it has done.

use std::sync::Arc;

use ratelimiter::{KeyPattern, LimitKey};
use ratelimiter_wire::{ErrorCode, Refusal};

use crate::config::{CallerName, Permission, TokenHolder};
use crate::metrics::OutcomeCounters;

/// Whoever sent a request (`OPS-04`).
#[derive(Debug)]
pub(crate) struct Caller {
    name: String,
    may: Box<[Permission]>,
    /// The keys that it may name and see; `None` for all.
    keys: Option<Box<[KeyPattern]>>,
    /// Shared with the caller of this name before a reload.
    calls: Arc<OutcomeCounters>,
}

impl Caller {
    /// A caller that needs no token.
    pub(super) fn anonymous() -> Self {
        Self::unbounded(CallerName::ANONYMOUS, Permission::Admin)
    }

    pub(super) fn of(holder: TokenHolder<'_>) -> Self {
        match holder {
            TokenHolder::Client => Self::unbounded(CallerName::CLIENT_TOKENS, Permission::Call),
            TokenHolder::Admin => Self::unbounded(CallerName::ADMIN_TOKENS, Permission::Admin),
            TokenHolder::Named(config) => Self {
                name: config.name.to_string(),
                may: config.may.clone().into(),
                keys: config.keys.clone().map(Into::into),
                calls: Arc::default(),
            },
        }
    }

    fn unbounded(name: &str, may: Permission) -> Self {
        Self { name: name.to_owned(), may: [may].into(), keys: None, calls: Arc::default() }
    }

    /// The same caller, counting on where `earlier` stopped.
    pub(super) fn continuing(self, earlier: Option<&Self>) -> Self {
        match earlier {
            Some(earlier) => Self { calls: Arc::clone(&earlier.calls), ..self },
            None => self,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn calls(&self) -> &OutcomeCounters {
        &self.calls
    }

    /// The patterns that bound its keys; `None` if it may use all.
    pub(crate) fn keys(&self) -> Option<&[KeyPattern]> {
        self.keys.as_deref()
    }

    /// # Errors
    /// `forbidden` (403): its token does not permit this.
    pub(crate) fn check_may(&self, needed: Permission) -> Result<(), Refusal> {
        if self.may.contains(&needed) || self.may.contains(&Permission::Admin) {
            return Ok(());
        }
        let message = match self.name.as_str() {
            CallerName::CLIENT_TOKENS => {
                let needed = match needed {
                    Permission::Read => "a token that may read, or an admin token",
                    Permission::Call | Permission::Admin => "an admin token",
                };
                format!(
                    "a client token is valid for reserve, renew and complete only; this needs {needed}"
                )
            }
            name => {
                let may: Vec<_> = self.may.iter().map(|permission| permission.name()).collect();
                let (may, needed) = (may.join(" and "), needed.name());
                format!("the token of {name} permits {may}; this needs {needed}")
            }
        };
        Err(Refusal { error: ErrorCode::Forbidden, message })
    }

    /// Whether it may name and see a key.
    pub(crate) fn may_use(&self, key: &LimitKey) -> bool {
        self.keys().is_none_or(|keys| keys.iter().any(|pattern| pattern.matches(key)))
    }

    /// # Errors
    /// `forbidden_key:<key>` (403): the key is not one of its keys.
    pub(crate) fn check_key(&self, key: &LimitKey) -> Result<(), Refusal> {
        if self.may_use(key) {
            return Ok(());
        }
        let message = format!(
            "the token of {} does not permit the key {key}; its keys are in the server's auth.tokens",
            self.name
        );
        Err(Refusal { error: ErrorCode::ForbiddenKey { key: key.clone() }, message })
    }

    /// # Errors
    /// `forbidden` (403): it may not use all keys, and a lease may have any.
    pub(crate) fn check_unbounded(&self) -> Result<(), Refusal> {
        if self.keys().is_none() {
            return Ok(());
        }
        let message = format!(
            "the token of {} permits some keys only; releasing a lease needs a token without keys",
            self.name
        );
        Err(Refusal { error: ErrorCode::Forbidden, message })
    }

    /// The span of a change, so that its log lines name the caller.
    pub(crate) fn change_span(&self) -> tracing::Span {
        tracing::info_span!("change", caller = self.name.as_str())
    }
}
