//! What a limit admits and denies, by the definitions that a request may have met: `DEF-07`, `SHD-01`, `SHD-02`, `CAL-03`.

use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{Denial, DenialReason, LimitKey};

use super::parts::Began;
use super::{LeaseFacts, Oracle, RequirementSet};
use crate::executor::Operation;
use crate::limits::plan::{self, SetupKind, key};
use crate::outcome::{Invariant, Violation};

/// The longest backoff with its jitter (`HINT-03`).
const BACKOFF_MAX: Duration = Duration::from_millis(5_050);

impl LeaseFacts {
    /// The requirements that an operation sent.
    pub(super) fn sent_by(&self, operation: Operation) -> &RequirementSet {
        let sent = self.variants.iter().find(|v| v.operations.contains(&operation));
        sent.expect("it was sent")
    }

    /// Nothing else was ever sent for it, so that no earlier answer is repeated.
    fn is_asked_once(&self) -> bool {
        matches!(&self.variants[..], [variant] if variant.operations.len() == 1)
    }
}

impl Oracle {
    /// An allowed reserve had room at every limit that enforces, and names those that would have denied it.
    pub(super) fn check_admission(
        &self,
        operation: Operation,
        reserved_at: Timestamp,
        shadow_denied: &[LimitKey],
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = &self.operations[&operation];
        let (number, lease) = (facts.lease, &self.leases[&facts.lease]);
        let variant = lease.sent_by(operation);
        let violation = |invariant, detail| Err(Violation { invariant, detail });
        if let Some(key) =
            shadow_denied.iter().find(|key| !variant.needs.contains_key(&plan::number(key)))
        {
            let detail = format!("L{number} needs nothing of {key}, which it is told of");
            return violation(Invariant::ShadowDenialsNamed, detail);
        }
        for (limit, amount) in &variant.needs {
            let (name, met) = (key(*limit), &facts.met[limit]);
            let is_named = shadow_denied.contains(&name);
            let least = self.held_before(*limit, number, reserved_at, now) + u128::from(*amount);
            let (most, capacity_max) = (facts.may_max[limit], met.capacity_max());
            if is_named && met.shadow_capacity_min().is_none_or(|capacity| most <= capacity) {
                let detail = format!(
                    "{name} would have denied L{number}, though it has at most {most} units: {met:?}"
                );
                return violation(Invariant::ShadowDenialsNamed, detail);
            }
            let is_due = met.is_certainly_shadow() && lease.is_asked_once();
            if is_due && !is_named && least > capacity_max {
                let detail = format!(
                    "{name} has {least} units with L{number}, and its capacity is {capacity_max}"
                );
                return violation(Invariant::ShadowDenialsNamed, detail);
            }
            let is_admitted_now = facts.sent_at <= reserved_at && met.certainly_enforces();
            if is_admitted_now && least > capacity_max {
                let detail = format!(
                    "{name} has {least} units with L{number}, and is to have {capacity_max}"
                );
                return violation(Invariant::AdmitsWhatFits, detail);
            }
        }
        Ok(())
    }

    /// The least that other leases held of a limit when one was admitted.
    fn held_before(&self, limit: usize, except: usize, moment: Timestamp, now: Timestamp) -> u128 {
        let mut held = 0;
        for (_, lease) in self.leases.iter().filter(|(number, _)| **number != except) {
            for variant in &lease.variants {
                let before = variant.allowed.filter(|reserved_at| *reserved_at < moment);
                if let Some(at) = before.filter(|_| variant.needs.contains_key(&limit)) {
                    let began = Began { earliest: at, latest: at, is_certain: true };
                    let then = self.parts(lease, variant, limit, began, now).before_moment(moment);
                    let must = self.must_hold(lease, variant, limit, now);
                    held += u128::from(must.min(then.least(moment)));
                }
            }
        }
        held
    }

    /// A limit that denies enforces; and the hint of a calendar limit is the time to its reset, unless an open lease may
    /// free room before.
    pub(super) fn check_denial(
        &self,
        operation: Operation,
        denial: &Denial,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = &self.operations[&operation];
        let lease = &self.leases[&facts.lease];
        let is_first_answer = match denial.reason {
            DenialReason::NoRoom { .. } => lease.is_asked_once(),
            // These are not remembered.
            DenialReason::Paused { .. }
            | DenialReason::Decreasing { .. }
            | DenialReason::TooManyInstances { .. }
            | DenialReason::TooManyWaiters { .. } => true,
        };
        if !is_first_answer {
            return Ok(());
        }
        let enforces = |key: &&LimitKey| {
            facts.met.get(&plan::number(key)).is_some_and(super::Possible::may_enforce)
        };
        if let Some(key) = denial.keys().iter().find(|key| !enforces(key)) {
            let detail = format!("{key} denies L{}, and is in shadow mode", facts.lease);
            return Err(Violation { invariant: Invariant::ShadowNeverDenies, detail });
        }
        match &denial.reason {
            DenialReason::NoRoom { keys } => self.check_hint(operation, keys, denial, now),
            DenialReason::Paused { .. }
            | DenialReason::Decreasing { .. }
            | DenialReason::TooManyInstances { .. }
            | DenialReason::TooManyWaiters { .. } => Ok(()),
        }
    }

    fn check_hint(
        &self,
        operation: Operation,
        keys: &[LimitKey],
        denial: &Denial,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = &self.operations[&operation];
        // It was denied at some moment since it was sent, maybe in the period after that.
        let longest = |limit: &usize| match self.limits[*limit].setup.kind {
            SetupKind::Calendar { .. } => self.expiry(*limit, now).1.since(facts.sent_at),
            SetupKind::Rolling { seconds } | SetupKind::Concurrency { seconds } => {
                BACKOFF_MAX.max(Duration::from_secs(seconds))
            }
        };
        let needs = &self.leases[&facts.lease].sent_by(operation).needs;
        let longest = needs.keys().map(longest).max().expect("something is needed");
        // Nobody knows when those in front will have what they wait for.
        let longest = if facts.is_behind { longest.max(BACKOFF_MAX) } else { longest };
        let shortest = match keys {
            [key] if self.is_settled(plan::number(key), operation, now) => {
                self.expiry(plan::number(key), facts.sent_at).0.since(now)
            }
            _ => Duration::ZERO,
        };
        let hint = denial.retry_after;
        if (shortest..=longest).contains(&hint) {
            return Ok(());
        }
        let detail = format!(
            "L{} is denied for {keys:?} and told to wait for {hint:?}, not {shortest:?} to {longest:?}",
            facts.lease
        );
        Err(Violation { invariant: Invariant::HintsReachTheReset, detail })
    }

    /// It is a calendar limit, and no open lease had units of it since an operation was sent.
    fn is_settled(&self, limit: usize, operation: Operation, now: Timestamp) -> bool {
        let facts = &self.operations[&operation];
        let is_closed = |(number, lease): (&usize, &LeaseFacts)| {
            let is_completed = lease.completes.iter().any(|complete| {
                complete.settles() && complete.told_at.is_some_and(|at| at <= facts.sent_at)
            });
            let is_involved = lease.variants.iter().any(|v| v.needs.contains_key(&limit));
            *number == facts.lease || is_completed || !is_involved
        };
        let is_calendar = self.limits[limit].periods.is_some();
        is_calendar && self.expiry(limit, now).1 > now && self.leases.iter().all(is_closed)
    }
}
