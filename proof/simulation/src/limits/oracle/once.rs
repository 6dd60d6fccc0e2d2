//! `COM-05`: which of the completes of a lease may be the one that counts.
//!
//! A complete that is sent after another one was answered counts for nothing. Of those that were under way at the same time
//! one has counted, for all limits; what the backend shows rules out others, for good.

use ratelimiter::clock::Timestamp;

use super::bounds::Span;
use super::{LeaseFacts, Oracle, Reading};
use crate::outcome::{Invariant, Violation};

impl LeaseFacts {
    /// Somebody was told that it is completed.
    pub(super) fn is_completed(&self) -> bool {
        self.completes.iter().any(super::CompleteFacts::settles)
    }

    /// The same, if only this complete may have counted.
    fn with_only(&self, at: usize) -> Self {
        let mut alone = self.clone();
        for (index, complete) in alone.completes.iter_mut().enumerate() {
            complete.is_ruled_out |= index != at;
        }
        alone
    }
}

impl Oracle {
    /// Rules out the completes that do not explain what the backend shows, whatever other leases hold.
    pub(super) fn rule_out(
        &mut self,
        now: Timestamp,
        readings: &[Reading],
        spans: &[Span],
    ) -> Result<(), Violation> {
        let mut ruled_out = Vec::new();
        for (number, lease) in &self.leases {
            let [variant] = &lease.variants[..] else {
                continue;
            };
            if !lease.is_completed() || lease.candidates().count() < 2 {
                continue;
            }
            for at in (0..lease.completes.len()).filter(|at| !lease.completes[*at].is_ruled_out) {
                let alone = lease.with_only(at);
                let explains = |limit: &usize| {
                    let others = spans[*limit].minus(self.share(lease, *limit, now));
                    let span = others.plus(self.share(&alone, *limit, now));
                    span.explains(&readings[*limit], self.is_debt(*limit))
                };
                if !variant.needs.keys().all(explains) {
                    ruled_out.push((*number, at));
                }
            }
        }
        for (number, at) in ruled_out {
            let lease = self.leases.get_mut(&number).expect("it was looked at");
            lease.completes[at].is_ruled_out = true;
            if lease.candidates().next().is_none() {
                let detail = format!("no complete of L{number} alone explains {readings:?}");
                return Err(Violation { invariant: Invariant::FirstCompleteStands, detail });
            }
        }
        Ok(())
    }
}

impl Span {
    fn explains(&self, reading: &Reading, is_debt: bool) -> bool {
        let Reading { used, debt, .. } = *reading;
        let is_held = self.must <= used && used <= self.may;
        is_held && debt <= self.debt_max && (!is_debt || used + debt <= self.accounted)
    }
}
