//! Lower and upper bounds of the units held.

use std::time::Duration;

use ratelimiter::clock::Timestamp;

use super::parts::Began;
use super::{
    AllowedLag, Answer, CompleteFacts, LeaseFacts, LimitFacts, OperationFacts, Oracle,
    RequirementSet,
};
use crate::executor::Operation;
use crate::limits::plan::SetupKind;

/// How much longer than it wants a request may wait on a ledger: it arrives late, or the ledger does not answer.
const LATE_MAX: Duration = Duration::from_secs(5);

/// Units of one limit: those of one lease, or summed over all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    /// Somebody was told that they are held.
    pub(super) must: u128,
    /// Somebody has asked for them, and has not heard that they are not held.
    pub(super) may: u128,
    /// The largest excess of every lease.
    pub(super) debt_max: u128,
    /// Held and debt together.
    pub(super) accounted: u128,
}

impl Span {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            must: self.must + other.must,
            may: self.may + other.may,
            debt_max: self.debt_max + other.debt_max,
            accounted: self.accounted + other.accounted,
        }
    }

    /// Without a part of it.
    pub(super) fn minus(self, part: Self) -> Self {
        Self {
            must: self.must - part.must,
            may: self.may - part.may,
            debt_max: self.debt_max - part.debt_max,
            accounted: self.accounted - part.accounted,
        }
    }
}

impl Oracle {
    /// How many units of a limit must be held now, how many may be, and how many may be held or be debt.
    pub(super) fn span(&self, limit: usize, now: Timestamp) -> Span {
        let shares = self.leases.values().map(|lease| self.share(lease, limit, now));
        shares.fold(Span::default(), Span::plus)
    }

    /// What one lease has of a limit.
    pub(super) fn share(&self, lease: &LeaseFacts, limit: usize, now: Timestamp) -> Span {
        let (mut must, mut may) = (0, 0);
        for variant in &lease.variants {
            if variant.needs.contains_key(&limit) {
                must += u128::from(self.must_hold(lease, variant, limit, now));
                may += u128::from(self.may_hold(lease, variant, limit, now));
            }
        }
        // An excess is held or it is debt, not both.
        let excess = if self.is_debt(limit) { self.excess(lease, limit, now) } else { 0 };
        let debt_max = u128::from(excess);
        Span { must, may, debt_max, accounted: may.max(debt_max) }
    }

    pub(super) fn must_hold(
        &self,
        lease: &LeaseFacts,
        variant: &RequirementSet,
        limit: usize,
        now: Timestamp,
    ) -> u64 {
        let began = self.began(lease, variant, now).filter(|began| began.is_certain);
        let Some(began) = began.filter(|_| !variant.may_be_lost.contains_key(&limit)) else {
            return 0;
        };
        let held = self.parts(lease, variant, limit, began, now).least(now);
        // A complete may be carried out from the moment on at which it is sent.
        if self.limits[limit].setup.is_concurrency() {
            return if lease.candidates().next().is_some() { 0 } else { held };
        }
        // What has lapsed covers the first units of the use.
        let is_whole = now < self.expiry(limit, began.earliest).0;
        let completed = lease.candidates().map(|complete| match complete.actuals.get(&limit) {
            Some(_) if !is_whole => 0,
            Some(actual) if complete.covered.contains(&limit) => *actual,
            Some(actual) => held.min(*actual),
            None => held,
        });
        completed.min().unwrap_or(held)
    }

    fn may_hold(
        &self,
        lease: &LeaseFacts,
        variant: &RequirementSet,
        limit: usize,
        now: Timestamp,
    ) -> u64 {
        let Some(began) = self.began(lease, variant, now).filter(|_| !variant.denied) else {
            return 0;
        };
        let begun_at = lease.may_have_begun_at(began.latest);
        if !self.is_being_renewed(lease) && self.ends_at(lease, limit, begun_at) < now {
            return 0;
        }
        let held = self.most_held(lease, variant, limit, began, now);
        if !began.is_certain {
            return lease.most(limit, held);
        }
        // What has expired is not completed any more: the ledger releases it in its own time.
        let is_concurrency = self.limits[limit].setup.is_concurrency();
        let expires_at = match is_concurrency {
            true => self.hold_expires_at(lease, limit, began.earliest),
            false => self.expiry(limit, began.earliest).0,
        };
        let is_settled = !lease.is_muddled()
            && lease.completes.iter().any(|complete| complete.settles_before(expires_at));
        match (is_settled, is_concurrency) {
            (true, true) => 0,
            (false, true) => held,
            (true, false) => lease.most_reconciled(limit, held),
            (false, false) => lease.most(limit, held),
        }
    }

    /// The most that a lease may hold while it is not completed. A ledger releases late what has lapsed, and what a renew replaces lasts
    /// for whole seconds, so that all that was ever asked for may be held together there.
    fn most_held(
        &self,
        lease: &LeaseFacts,
        variant: &RequirementSet,
        limit: usize,
        began: Began,
        now: Timestamp,
    ) -> u64 {
        let AllowedLag { expiry_lag, reconciled, .. } = self.allowed_lag;
        match reconciled.is_zero() && expiry_lag.is_zero() {
            true => self.parts(lease, variant, limit, began, now).most(now),
            false => variant.needs[&limit] + lease.amounts(limit).sum::<u64>(),
        }
    }

    /// The most that a complete of a lease may have used above all that was reserved.
    fn excess(&self, lease: &LeaseFacts, limit: usize, now: Timestamp) -> u64 {
        let actuals = lease.candidates().filter_map(|complete| complete.actuals.get(&limit));
        let Some(actual) = actuals.max() else {
            return 0;
        };
        let variants = lease.variants.iter().filter(|variant| variant.needs.contains_key(&limit));
        let reserved = variants.map(|variant| match self.began(lease, variant, now) {
            Some(began) => self.parts(lease, variant, limit, began, now).least_reserved(),
            None => variant.needs[&limit],
        });
        reserved.min().map_or(0, |reserved| actual.saturating_sub(reserved))
    }

    /// When what a lease has of a limit has returned at the latest. A reconciled reservation begins anew, for the time
    /// that was left when the complete was sent; so one that travels long makes it longer. So does one that a renew has replaced.
    fn ends_at(&self, lease: &LeaseFacts, limit: usize, began_at: Timestamp) -> Timestamp {
        let AllowedLag { expiry_lag, reconciled, .. } = self.allowed_lag;
        let (_, expires_at) = self.expiry(limit, began_at);
        let mut ends_at = expires_at;
        if let SetupKind::Rolling { seconds } = self.limits[limit].setup.kind {
            if lease.may_be_renewed() {
                ends_at = expires_at.after(reconciled);
            }
            for complete in lease.candidates() {
                let touched_at = complete.touched_at.unwrap_or(began_at);
                let left = expires_at.since(complete.sent_at).min(Duration::from_secs(seconds));
                let again = touched_at.after(left).max(expires_at);
                ends_at = ends_at.max(again.after(reconciled));
            }
        }
        ends_at.after(expiry_lag)
    }

    /// When what began at a moment expires: at the earliest, and at the latest.
    pub(super) fn expiry(&self, limit: usize, began_at: Timestamp) -> (Timestamp, Timestamp) {
        let LimitFacts { setup, periods, .. } = &self.limits[limit];
        match setup.kind {
            SetupKind::Rolling { seconds } | SetupKind::Concurrency { seconds } => {
                let expires_at = began_at.after(Duration::from_secs(seconds));
                (expires_at, expires_at)
            }
            SetupKind::Calendar { .. } => {
                periods.as_ref().expect("a calendar limit has periods").expiry(began_at)
            }
        }
    }

    /// On a ledger a server asks for a request that waits, and goes on until it has given up, whatever its client knows.
    pub(super) fn may_wait_on(&self, operation: Operation) -> bool {
        let waits = |facts: &OperationFacts| facts.wait.is_some_and(|wait| wait.at_most_ms > 0);
        !self.allowed_lag.waits_at_once && self.operations.get(&operation).is_some_and(waits)
    }

    /// On a ledger nobody notes when a server answers: whether others may wait for limits that a reserve needs, so that it is denied for
    /// their sake.
    pub(super) fn may_be_behind(&self, operation: Operation) -> bool {
        let OperationFacts { lease, sent_at, .. } = self.operations[&operation];
        let needs = &self.leases[&lease].sent_by(operation).needs;
        let waits_before = |(other, facts): (&Operation, &OperationFacts)| {
            let at_most = facts.wait.map(|wait| wait.at_most()).unwrap_or_default();
            let needed = || self.leases[&facts.lease].sent_by(*other).needs.keys();
            facts.lease != lease
                && self.may_wait_on(*other)
                && facts.sent_at.after(at_most + LATE_MAX) >= sent_at
                && needed().any(|limit| needs.contains_key(limit))
        };
        self.operations.iter().any(waits_before)
    }

    pub(super) fn is_worked_on(&self, operation: Operation) -> bool {
        self.operations.get(&operation).is_some_and(|facts| facts.guards > 0)
    }
}

impl LeaseFacts {
    /// Its ID was used for requirements without a key in common. A backend may know a lease by its keys, and then these
    /// are two: both are counted in full, and completing one may leave the other to expire.
    pub(super) fn is_muddled(&self) -> bool {
        let [first, others @ ..] = &self.variants[..] else {
            return false;
        };
        let is_apart =
            |other: &RequirementSet| other.needs.keys().all(|k| !first.needs.contains_key(k));
        others.iter().any(is_apart)
    }

    /// The completes of which one has counted, or will: those that may have been the first.
    pub(super) fn candidates(&self) -> impl Iterator<Item = &CompleteFacts> {
        let is_muddled = self.is_muddled();
        let may_count = move |complete: &&CompleteFacts| {
            complete.told != Answer::Refused && (is_muddled || !complete.is_ruled_out)
        };
        self.completes.iter().filter(may_count)
    }

    /// The most that it may hold before anybody knows that it was completed.
    fn most(&self, limit: usize, reserved: u64) -> u64 {
        reserved.max(self.most_reconciled(limit, reserved))
    }

    /// The most that it may hold after it was completed; what has no actual keeps its reservation.
    fn most_reconciled(&self, limit: usize, reserved: u64) -> u64 {
        let actual = |complete: &CompleteFacts| complete.actuals.get(&limit).copied();
        let actuals = self.candidates().map(|complete| actual(complete).unwrap_or(reserved));
        actuals.max().unwrap_or(reserved)
    }
}

impl CompleteFacts {
    /// Everybody knows that the lease was completed, and that there was something to complete.
    pub(super) fn settles(&self) -> bool {
        self.after_allow && self.told == Answer::Done
    }

    fn settles_before(&self, moment: Timestamp) -> bool {
        self.settles() && self.told_at.is_some_and(|told_at| told_at < moment)
    }
}
