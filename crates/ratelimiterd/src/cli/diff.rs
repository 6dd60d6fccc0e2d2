//! The changes that turn a server's limits into those of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ratelimiter::{Limit, LimitKey, LimitMode, LimitState, RegisteredLimit, Registry};
use ratelimiter_wire::DefinitionBody;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A new or changed limit.
    Define {
        limit: Box<Limit>,
        /// The changed fields as text; empty for a new limit.
        fields: Vec<String>,
    },
    Delete {
        key: LimitKey,
    },
}

/// Returns the changes sorted by key. A limit that is decreasing is compared by its target capacity.
pub(super) fn changes(present: &[LimitState], wanted: &Registry, keep_others: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    let by_key: BTreeMap<_, _> = present.iter().map(|state| (&state.limit.key, state)).collect();
    for registered in wanted.iter() {
        let limit = target(registered.clone());
        let state = by_key.get(&limit.key);
        let now = state.map(|state| {
            target(RegisteredLimit { limit: state.limit.clone(), status: state.status })
        });
        match now {
            Some(now) if now == limit => {}
            Some(now) => {
                let fields = differing_fields(&now, &limit);
                changes.push(Change::Define { limit: Box::new(limit), fields });
            }
            None => changes.push(Change::Define { limit: Box::new(limit), fields: Vec::new() }),
        }
    }
    if !keep_others {
        let others = present.iter().filter(|state| wanted.get(&state.limit.key).is_none());
        changes.extend(others.map(|state| Change::Delete { key: state.limit.key.clone() }));
    }
    changes.sort_by(|a, b| a.key().cmp(b.key()));
    changes
}

fn target(mut registered: RegisteredLimit) -> Limit {
    registered.settle();
    registered.limit
}

/// `capacity 10 -> 5` for each changed field, named as in the limits file.
fn differing_fields(now: &Limit, then: &Limit) -> Vec<String> {
    let fields = |limit: &Limit| {
        let mut fields = serde_json::to_value(DefinitionBody::from(limit)).ok()?;
        // It is left out of a definition that enforces.
        fields["mode"] = limit.mode.name().into();
        Some(fields)
    };
    let (Some(Value::Object(now)), Some(Value::Object(then))) = (fields(now), fields(then)) else {
        return Vec::new();
    };
    let shown = |value: Option<&Value>| value.map_or_else(|| "none".to_owned(), Value::to_string);
    let names: BTreeSet<_> = now.keys().chain(then.keys()).collect();
    let differing = names.into_iter().filter(|name| now.get(*name) != then.get(*name));
    differing
        .map(|name| format!("{name} {} -> {}", shown(now.get(name)), shown(then.get(name))))
        .collect()
}

impl Change {
    pub(super) fn key(&self) -> &LimitKey {
        match self {
            Self::Define { limit, .. } => &limit.key,
            Self::Delete { key } => key,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Define { limit, fields } if fields.is_empty() => {
                let Limit { key, kind, capacity, mode, .. } = &**limit;
                write!(f, "+ {key}: {kind}, capacity {capacity}")?;
                match mode {
                    LimitMode::Enforce => Ok(()),
                    LimitMode::Shadow => f.write_str(", shadow"),
                }
            }
            Self::Define { limit, fields } => write!(f, "~ {}: {}", limit.key, fields.join(", ")),
            Self::Delete { key } => write!(f, "- {key}"),
        }
    }
}
