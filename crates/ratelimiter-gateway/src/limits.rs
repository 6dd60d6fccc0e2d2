//! Which limits a call needs (`GW-02`), and how much of each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimiter::{Limit, LimitKey, LimitKind, LimitMode, REQUIREMENTS_MAX, Requirements};

use crate::dimension::Dimension;
use crate::estimate::{Certain, Estimate};
use crate::price::Price;
use crate::settle::Reserved;

/// The most combinations of provider, model and tenant whose keys are kept ready.
const SCOPES_MAX: usize = 10_000;

/// Provider, model and tenant of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub(crate) provider: Box<str>,
    /// The model's listed name, or the caller's where every model may be called.
    pub(crate) model: Box<str>,
    pub(crate) tenant: Option<Box<str>>,
}

/// The keys of all limits that a scope may have.
#[derive(Debug)]
pub(crate) struct ScopeKeys {
    pub(crate) keys: Box<[LimitKey]>,
    dimensions: Box<[Dimension]>,
}

/// The keys of scopes. Making a key takes far longer than looking one up.
#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    scopes: Mutex<HashMap<Scope, Arc<ScopeKeys>>>,
}

/// What a call reserves.
#[derive(Debug, Clone)]
pub(crate) struct Needs {
    pub(crate) requirements: Requirements,
    pub(crate) reserved: Arc<[Reserved]>,
    /// The shortest timeout of its holds.
    pub(crate) hold_timeout: Option<Duration>,
}

/// Why a call can never go ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NeedsError {
    /// A limit in dollars, and no price.
    NoPrice,
    /// More limits than a reserve takes.
    TooMany { count: usize },
    /// More than a whole capacity.
    NeverFits { key: LimitKey, amount: u64, capacity: u64 },
    /// The call goes on at the provider after its answer, so its tokens cannot be known.
    Background { key: LimitKey },
}

impl KeyCache {
    /// The keys of a scope; `None` if its names make no keys.
    pub(crate) fn get(&self, scope: &Scope) -> Option<Arc<ScopeKeys>> {
        let known = self.scopes.lock().unwrap_or_else(PoisonError::into_inner).get(scope).cloned();
        if known.is_some() {
            return known;
        }
        let keys = Arc::new(ScopeKeys::of(scope)?);
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if scopes.len() >= SCOPES_MAX {
            scopes.clear();
        }
        scopes.insert(scope.clone(), Arc::clone(&keys));
        Some(keys)
    }
}

impl ScopeKeys {
    fn of(Scope { provider, model, tenant }: &Scope) -> Option<Self> {
        let mut stems = vec![format!("global:llm:{provider}:{model}")];
        if let Some(tenant) = tenant {
            stems.push(format!("tenant:{tenant}:llm"));
            stems.push(format!("tenant:{tenant}:llm:{provider}:{model}"));
        }
        let named = |stem: &String, (name, dimension): (&str, Dimension)| {
            let key = LimitKey::new(format!("{stem}:{name}")).ok()?;
            (!key.is_template()).then_some((key, dimension))
        };
        let all = stems.iter().flat_map(|stem| Dimension::ALL.map(|one| named(stem, one)));
        let (keys, dimensions): (Vec<_>, Vec<_>) =
            all.collect::<Option<Vec<_>>>()?.into_iter().unzip();
        Some(Self { keys: keys.into(), dimensions: dimensions.into() })
    }
}

/// What a call is about to use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use<'a> {
    pub(crate) estimate: Estimate,
    pub(crate) certain: Certain,
    pub(crate) price: Option<&'a Price>,
    pub(crate) is_background: bool,
}

/// What a call needs of the limits that exist; `None` if no limit governs it. `limits` are those of `keys`, in order.
pub(crate) fn needs(
    keys: &ScopeKeys,
    limits: &[Option<Limit>],
    using: Use<'_>,
) -> Result<Option<Needs>, NeedsError> {
    assert_eq!(keys.keys.len(), limits.len(), "one answer for each key");
    let Use { estimate, certain, price, is_background } = using;
    let (mut reserved, mut amounts, mut hold_timeout) = (Vec::new(), Vec::new(), None);
    for ((key, dimension), limit) in keys.keys.iter().zip(&keys.dimensions).zip(limits) {
        let Some(limit) = limit else { continue };
        let at_most = dimension.at_most(estimate.input, estimate.output, price);
        let at_least = dimension.at_most(certain.input, certain.output, price);
        let (Some(at_most), Some(at_least)) = (at_most, at_least) else {
            return Err(NeedsError::NoPrice);
        };
        if is_background && dimension.counts_tokens() {
            return Err(NeedsError::Background { key: key.clone() });
        }
        let capacity = limit.capacity.get();
        // A pause ends, so the call waits. A limit in shadow mode counts whatever there is.
        let is_enforced = capacity > 0 && limit.mode == LimitMode::Enforce;
        if is_enforced && at_least > capacity {
            return Err(NeedsError::NeverFits { key: key.clone(), amount: at_least, capacity });
        }
        let amount = if is_enforced { at_most.min(capacity) } else { at_most };
        // Nothing is needed, such as the output of embeddings.
        if amount == 0 {
            continue;
        }
        let is_hold = match limit.kind {
            LimitKind::Concurrency { timeout } => {
                let timeout = Duration::from_secs(timeout.seconds().into());
                hold_timeout = Some(hold_timeout.unwrap_or(timeout).min(timeout));
                true
            }
            LimitKind::Rolling { .. } | LimitKind::Calendar { .. } => false,
        };
        reserved.push(Reserved { key: key.clone(), dimension: *dimension, is_hold });
        amounts.push((key.clone(), amount));
    }
    match amounts.len() {
        0 => Ok(None),
        count if count > REQUIREMENTS_MAX => Err(NeedsError::TooMany { count }),
        _ => {
            let requirements = Requirements::of(amounts);
            let requirements = requirements.expect("1 to 32 distinct keys with amounts above 0");
            Ok(Some(Needs { requirements, reserved: reserved.into(), hold_timeout }))
        }
    }
}

#[cfg(test)]
mod tests;
