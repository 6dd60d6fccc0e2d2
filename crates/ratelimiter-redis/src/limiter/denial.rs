//! Denials and their hints.

use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{Denial, DenialReason, HintPolicy, LimitKey, LimitKind, Unanswered};

use crate::reply::{Reply, timestamp};

/// Hint for a repeated denied lease when there is room by now: retry at once with a new lease ID.
pub(super) const AT_ONCE: Duration = Duration::from_millis(1);

/// A limit without room, as a script describes it.
#[derive(Debug)]
pub(super) struct LackingLimit {
    key: LimitKey,
    /// `None` if its definition has gone meanwhile.
    kind: Option<LimitKind>,
    streak: u32,
    /// An open lease may free units early.
    is_open: bool,
    /// When enough units will have expired.
    freed_at: Option<Timestamp>,
}

impl LackingLimit {
    /// From what `hint_of` in `hints.lua` returns. `named` finds the limit by the first value.
    pub(super) fn read(
        row: &Reply,
        named: impl Fn(&Reply) -> Option<(LimitKey, Option<LimitKind>)>,
    ) -> Result<Self, Unanswered> {
        let (key, kind) = named(row).ok_or_else(|| row.unexpected())?;
        Ok(Self {
            key,
            kind,
            streak: u32::try_from(row.number(1)?).unwrap_or(u32::MAX),
            is_open: row.number(2)? == 1,
            freed_at: row.moment(3),
        })
    }

    /// When to retry. `random` is in 0..1.
    fn hint(&self, now: Timestamp, policy: &HintPolicy, random: f64) -> Duration {
        let delay = |kind| policy.delay(kind, self.streak.max(1), random);
        let backoff = self.kind.map_or(policy.decreasing, delay);
        match self.freed_at.map(|moment| moment.since(now)) {
            Some(wait) if !self.is_open || wait <= backoff => wait,
            _ => backoff,
        }
    }
}

/// Denied because these limits, at least one, are full: the hint is the longest of theirs.
pub(super) fn no_room(now: Timestamp, lacking: Vec<LackingLimit>, policy: &HintPolicy) -> Denial {
    let random = fastrand::f64();
    let hints = lacking.iter().map(|limit| limit.hint(now, policy, random));
    let retry_after = hints.max().unwrap_or_default();
    let keys = lacking.into_iter().map(|limit| limit.key).collect();
    Denial { reason: DenialReason::NoRoom { keys }, retry_after }
}

/// The time of an answer.
pub(super) fn time_of(reply: &Reply) -> Result<Timestamp, Unanswered> {
    reply.number(1).map(timestamp)
}
