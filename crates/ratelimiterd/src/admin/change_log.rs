//! One log line per change, with the old and the new definition (`OPS-04`). The span of the change names the caller.

use ratelimiter::{LimitKey, LimitStatus, RegisteredLimit, Unanswered};
use ratelimiter_wire::DefinitionBody;

/// A definition that changes nothing has no line.
pub(super) fn log_defined(
    old: Option<&RegisteredLimit>,
    new: &RegisteredLimit,
    status: LimitStatus,
) {
    if old == Some(new) {
        return;
    }
    let key = &new.limit.key;
    let (old, new) = (definition(old), definition(Some(new)));
    tracing::info!(%key, %old, %new, ?status, "limit defined");
}

pub(super) fn log_deleted(key: &LimitKey, old: Option<&RegisteredLimit>) {
    let (old, new) = (definition(old), definition(None));
    tracing::info!(%key, %old, %new, "limit deleted");
}

/// The backend has not confirmed the change, which may have been made; nobody rolls it back.
pub(super) fn log_unanswered(
    key: &LimitKey,
    old: Option<&RegisteredLimit>,
    new: Option<&RegisteredLimit>,
    unanswered: &Unanswered,
) {
    let (old, new, reason) = (definition(old), definition(new), &unanswered.reason);
    tracing::warn!(%key, %old, %new, reason, "limit perhaps changed; the backend did not confirm it");
}

/// The definition as it was requested, as in a PUT: on one line, since JSON escapes the control characters of the texts.
fn definition(registered: Option<&RegisteredLimit>) -> String {
    let Some(registered) = registered else { return "none".to_owned() };
    let mut body = DefinitionBody::from(&registered.limit);
    body.capacity = registered.target();
    serde_json::to_string(&body).expect("wire types are JSON")
}
