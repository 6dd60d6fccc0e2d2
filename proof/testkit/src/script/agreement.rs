//! What the memory backend and TigerBeetle may answer differently.

use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Decision, Denial, DenialReason, LeaseId, LimitKey, RenewError, Renewal, ReserveError,
};

use super::{Answer, Call};

/// The leases of a script and the decisions that every backend remembers.
#[derive(Debug, Default)]
pub struct History {
    pub(super) leases: Vec<PastReserve>,
}

#[derive(Debug, Clone)]
pub(super) struct PastReserve {
    pub(super) lease: LeaseId,
    /// The requirements of the decision; until then, those of the first request.
    pub(super) needs: Vec<(LimitKey, u64)>,
    pub(super) decided: Option<Decided>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    Allowed,
    Denied,
}

impl History {
    /// Records a reserve, and its lease's first decision.
    pub fn note(&mut self, call: &Call, answer: &Answer) {
        let (Call::Reserve(request), Answer::Decided(answer)) = (call, answer) else {
            return;
        };
        let needs = request.requirements.iter();
        let needs: Vec<_> = needs.map(|need| (need.key.clone(), need.amount.get())).collect();
        let known = self.leases.iter().rposition(|past| past.lease == request.lease);
        let at = known.unwrap_or_else(|| {
            let lease = request.lease;
            self.leases.push(PastReserve { lease, needs: needs.clone(), decided: None });
            self.leases.len() - 1
        });
        let decided = match answer {
            Ok(Decision::Allowed { .. }) => Decided::Allowed,
            Ok(Decision::Denied(Denial { reason: DenialReason::NoRoom { .. }, .. })) => {
                Decided::Denied
            }
            Ok(Decision::Denied(_)) | Err(_) => return,
        };
        let past = &mut self.leases[at];
        past.decided.get_or_insert(decided);
        past.needs = needs;
    }

    /// Whether TigerBeetle's answer agrees with that of the memory backend, except for documented differences: hints are backoffs,
    /// one key is named (the one for which the lease was denied first), a reservation may begin later by less than `lag`, and a lease
    /// ID used again with a further key may be denied for that key.
    pub fn agree(&self, call: &Call, memory: &Answer, other: &Answer, lag: Duration) -> bool {
        use Decision::{Allowed, Denied};
        use DenialReason::NoRoom;
        if let (Answer::Renewed(memory), Answer::Renewed(other)) = (memory, other) {
            return renewals_agree(memory, other, lag);
        }
        let (Call::Reserve(request), Answer::Decided(memory), Answer::Decided(other)) =
            (call, memory, other)
        else {
            return memory == other;
        };
        let past = self.leases.iter().rfind(|past| past.lease == request.lease);
        let is = |decided| past.is_some_and(|past| past.decided == Some(decided));
        match (memory, other) {
            (
                Ok(Allowed { reserved_at: memory, shadow_denied: memory_shadow }),
                Ok(Allowed { reserved_at: other, shadow_denied: other_shadow }),
            ) => is_within(lag, *memory, *other) && memory_shadow == other_shadow,
            (
                Ok(Denied(Denial { reason: NoRoom { keys: memory }, .. })),
                Ok(Denied(Denial { reason: NoRoom { keys: other }, .. })),
            ) => other.len() == 1 && (memory.contains(&other[0]) || is(Decided::Denied)),
            (
                Err(ReserveError::LeaseConflict | ReserveError::LeaseEnded),
                Ok(Denied(Denial { reason: NoRoom { keys }, .. })),
            ) => {
                let had = |past: &PastReserve| past.needs.iter().any(|(key, _)| *key == keys[0]);
                keys.len() == 1 && is(Decided::Allowed) && !past.is_some_and(had)
            }
            (memory, other) => memory == other,
        }
    }
}

/// Whether answers to a renew agree, with the differences of reserves.
fn renewals_agree(
    memory: &Result<Renewal, RenewError>,
    other: &Result<Renewal, RenewError>,
    lag: Duration,
) -> bool {
    match (memory, other) {
        (
            Ok(Renewal::Renewed { renewed_at, lapses_at, shadow_denied }),
            Ok(Renewal::Renewed {
                renewed_at: other_at,
                lapses_at: other_lapses_at,
                shadow_denied: other_shadow,
            }),
        ) => {
            is_within(lag, *renewed_at, *other_at)
                && is_within(lag, *lapses_at, *other_lapses_at)
                && shadow_denied == other_shadow
        }
        (
            Ok(Renewal::Denied(Denial { reason: DenialReason::NoRoom { keys: memory }, .. })),
            Ok(Renewal::Denied(Denial { reason: DenialReason::NoRoom { keys: other }, .. })),
        ) => other.len() == 1 && memory.contains(&other[0]),
        (Ok(Renewal::Denied(memory)), Ok(Renewal::Denied(other))) => memory.reason == other.reason,
        (memory, other) => memory == other,
    }
}

/// Whether TigerBeetle's time is that of the memory backend, or later by less than `lag`.
fn is_within(lag: Duration, memory: Timestamp, other: Timestamp) -> bool {
    memory <= other && other.since(memory) < lag
}
