//! `REN-01` to `REN-03`: what a renew may have changed, and its answers.
//!
//! [`parts`](super::parts) has what a lease holds by them.

use std::collections::BTreeMap;

use ratelimiter::clock::Timestamp;
use ratelimiter::{Denial, DenialReason, LimitKey, RenewError, Renewal};

use super::bounds::Span;
use super::parts::Began;
use super::renew_facts::{RenewAnswer, RenewFacts};
use super::{LeaseFacts, OperationFacts, Oracle, Possible, Reading, RequirementSet};
use crate::executor::Operation;
use crate::limits::plan;
use crate::outcome::{Invariant, Violation};

/// What a client knows of a renew: an answer, or nothing.
pub(crate) type RenewTold = Option<Result<Renewal, RenewError>>;

impl LeaseFacts {
    pub(super) fn may_be_renewed(&self) -> bool {
        self.renews.iter().any(RenewFacts::may_count)
    }

    /// Somebody was told that it is allowed, or renewed.
    pub(super) fn is_known_to_be_allowed(&self) -> bool {
        self.variants.iter().any(|variant| variant.allowed.is_some())
            || self.renews.iter().any(|renew| renew.renewed_at().is_some())
    }

    /// What may have been asked for of a limit.
    pub(super) fn amounts(&self, limit: usize) -> impl Iterator<Item = u64> {
        let renews = self.renews.iter().filter(|renew| renew.may_count());
        renews.filter_map(move |renew| renew.amounts.get(&limit).copied())
    }

    /// When something of it may have begun, at the latest: at first, or with a renew.
    pub(super) fn may_have_begun_at(&self, began_at: Timestamp) -> Timestamp {
        let renews = self.renews.iter().filter(|renew| renew.may_count());
        renews.filter_map(|renew| renew.touched_at).fold(began_at, Timestamp::max)
    }
}

impl Oracle {
    /// REN-02: when the hold of a lease expires that was renewed in time.
    pub(super) fn hold_expires_at(
        &self,
        lease: &LeaseFacts,
        limit: usize,
        reserved_at: Timestamp,
    ) -> Timestamp {
        let mut renewed: Vec<Timestamp> =
            lease.renews.iter().filter_map(RenewFacts::renewed_at).collect();
        renewed.sort_unstable();
        let mut expires_at = self.expiry(limit, reserved_at).0;
        for at in renewed {
            if reserved_at <= at && at < expires_at {
                expires_at = self.expiry(limit, at).0;
            }
        }
        expires_at
    }

    /// REN-02: the last hold of a lease that is not completed has not lapsed; without holds, its last reservation.
    fn is_renewable(
        &self,
        lease: &LeaseFacts,
        variant: &RequirementSet,
        began: Began,
        now: Timestamp,
    ) -> bool {
        let is_hold = |limit: &&usize| self.limits[**limit].setup.is_concurrency();
        let hold_lasts = |limit: &usize| self.hold_expires_at(lease, *limit, began.earliest) > now;
        let lasts = |limit: &usize| self.expiry(*limit, began.earliest).0 > now;
        match variant.needs.keys().any(|limit| is_hold(&limit)) {
            true => variant.needs.keys().filter(is_hold).any(hold_lasts),
            false => variant.needs.keys().any(lasts),
        }
    }

    /// Something works for a renew of the lease that may change something.
    pub(super) fn is_being_renewed(&self, lease: &LeaseFacts) -> bool {
        let renews = lease.renews.iter().filter(|renew| renew.may_count());
        renews.into_iter().any(|renew| self.is_worked_on(renew.operation))
    }

    pub(crate) fn renew_sent(
        &mut self,
        operation: Operation,
        lease: usize,
        number: u64,
        amounts: &[(usize, u64)],
        now: Timestamp,
    ) {
        let amounts: BTreeMap<usize, u64> = amounts.iter().copied().collect();
        let limits = amounts.keys().copied().collect();
        self.note_operation(operation, lease, now, limits);
        let (touched_at, told) = (None, RenewAnswer::None);
        let renew = RenewFacts { operation, number, amounts, sent_at: now, touched_at, told };
        self.leases.entry(lease).or_default().renews.push(renew);
    }

    pub(crate) fn renew_told(
        &mut self,
        operation: Operation,
        told: &RenewTold,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = self.operations.get_mut(&operation).expect("it was sent");
        facts.is_open = false;
        let lease = facts.lease;
        if facts.epoch != self.epoch {
            return Ok(());
        }
        let renews = &self.leases[&lease].renews;
        let at = renews.iter().position(|renew| renew.operation == operation);
        let at = at.expect("it was sent");
        if let Some(told) = told {
            self.check_ended_stays_ended(lease, at, told)?;
        }
        let answer = match told {
            None => return Ok(()),
            Some(Ok(Renewal::Renewed { renewed_at, .. })) => {
                self.check_renewed(lease, at, *renewed_at)?;
                RenewAnswer::Renewed { at: *renewed_at, told_at: now }
            }
            Some(Ok(Renewal::Denied(denial))) => {
                self.check_renew_denied(lease, at, denial, now)?;
                RenewAnswer::Denied { told_at: now }
            }
            Some(Err(error)) => return self.check_renew_error(lease, at, error, now),
        };
        let renews = &mut self.leases.get_mut(&lease).expect("it was sent").renews;
        let number = renews[at].number;
        renews[at].told = answer;
        if matches!(answer, RenewAnswer::Denied { .. }) {
            // It is one request, however often it was sent.
            let same = renews.iter_mut().filter(|renew| renew.number == number);
            same.for_each(|renew| renew.told = answer);
        }
        Ok(())
    }

    /// Its number may not have been answered otherwise, and no greater one may have been answered.
    fn check_renewed(&self, lease: usize, at: usize, moment: Timestamp) -> Result<(), Violation> {
        let facts = &self.leases[&lease];
        let RenewFacts { number, sent_at, .. } = facts.renews[at];
        let violation = |invariant, what: &str| {
            let detail = format!("renew {number} of L{lease} is done, and {what}");
            Err(Violation { invariant, detail })
        };
        if matches!(&facts.variants[..], [variant] if variant.denied) {
            return violation(Invariant::DeniedStaysDenied, "its lease was denied");
        }
        for renew in &facts.renews {
            match renew.told {
                _ if renew.number > number && renew.is_answered_by(sent_at) => {
                    return violation(Invariant::SameLeaseSameAnswer, "a later one was before");
                }
                RenewAnswer::Renewed { at, .. } if renew.number == number && at != moment => {
                    return violation(Invariant::SameLeaseSameAnswer, "was at another moment");
                }
                RenewAnswer::Denied { .. } if renew.number == number => {
                    return violation(Invariant::DeniedStaysDenied, "it was denied");
                }
                RenewAnswer::None | RenewAnswer::Renewed { .. } | RenewAnswer::Denied { .. } => {}
            }
        }
        Ok(())
    }

    /// REN-03: a lease that was completed before has ended, whatever else is wrong with a renew.
    fn check_ended_stays_ended(
        &self,
        lease: usize,
        at: usize,
        told: &Result<Renewal, RenewError>,
    ) -> Result<(), Violation> {
        let facts = &self.leases[&lease];
        let RenewFacts { number, sent_at, .. } = facts.renews[at];
        let is_completed = facts.completes.iter().any(|complete| {
            complete.settles() && complete.told_at.is_some_and(|told_at| told_at <= sent_at)
        });
        let says_so = match told {
            Ok(Renewal::Renewed { .. } | Renewal::Denied(_)) => false,
            Err(RenewError::LeaseEnded | RenewError::Unanswered(_) | RenewError::Refused(_)) => {
                true
            }
            Err(
                RenewError::Superseded
                | RenewError::InvalidAmount { .. }
                | RenewError::UnknownKey { .. }
                | RenewError::AmountExceedsCapacity { .. }
                | RenewError::InvalidRequest { .. }
                | RenewError::Unsupported,
            ) => false,
        };
        if !is_completed || says_so || facts.is_muddled() {
            return Ok(());
        }
        let detail = format!("L{lease} was completed before renew {number}, which is {told:?}");
        Err(Violation { invariant: Invariant::EndedStaysEnded, detail })
    }

    fn check_renew_denied(
        &self,
        lease: usize,
        at: usize,
        denial: &Denial,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = &self.leases[&lease];
        let RenewFacts { operation, number, .. } = facts.renews[at];
        let mut same = facts.renews.iter().filter(|renew| renew.number == number);
        if same.clone().any(|renew| renew.renewed_at().is_some()) {
            let detail = format!("renew {number} of L{lease} is denied now");
            return Err(Violation { invariant: Invariant::SameLeaseSameAnswer, detail });
        }
        let violation =
            |detail| Err(Violation { invariant: Invariant::AnswersHaveReasons, detail });
        let may_grow = |limit: &usize| self.may_grow(facts, at, *limit, now);
        if !facts.renews[at].amounts.keys().any(may_grow) {
            return violation(format!(
                "renew {number} of L{lease} is denied, and asks for no more"
            ));
        }
        // An earlier denial of the number is repeated.
        if same.nth(1).is_some() {
            return Ok(());
        }
        let OperationFacts { roomy, met, .. } = &self.operations[&operation];
        let grows_at = |key: &LimitKey| {
            let limit = plan::number(key);
            may_grow(&limit) && met.get(&limit).is_some_and(Possible::may_enforce)
        };
        let has_reason = match &denial.reason {
            DenialReason::NoRoom { keys } => {
                let is_full = |key: &LimitKey| grows_at(key) && !roomy.contains(&plan::number(key));
                keys.iter().all(is_full)
            }
            DenialReason::Paused { key } => {
                grows_at(key) && self.limits[plan::number(key)].asked_for_zero
            }
            DenialReason::Decreasing { key } => grows_at(key),
            DenialReason::TooManyInstances { template } => {
                let needed = facts.renews[at].amounts.keys().filter(|limit| may_grow(limit));
                self.is_bound_reached(operation, template, needed)
            }
            DenialReason::TooManyWaiters { .. } => false,
        };
        match has_reason {
            true => Ok(()),
            false => violation(format!("renew {number} of L{lease} is denied: {denial:?}")),
        }
    }

    /// A renew of an open lease may ask for more of a limit than the lease had.
    fn may_grow(&self, lease: &LeaseFacts, at: usize, limit: usize, now: Timestamp) -> bool {
        let RenewFacts { number, amounts, .. } = &lease.renews[at];
        let Some(amount) = amounts.get(&limit) else {
            return false;
        };
        let [variant] = &lease.variants[..] else {
            return true;
        };
        let began = self.began(lease, variant, now).filter(|_| variant.needs.contains_key(&limit));
        began.is_none_or(|began| {
            let parts = self.parts(lease, variant, limit, began, now).before_number(*number);
            *amount > parts.least(now)
        })
    }

    /// Keeps up which renews certainly had room for all that they ask for.
    pub(super) fn note_room_of_renews(
        &mut self,
        now: Timestamp,
        readings: &[Reading],
        spans: &[Span],
    ) {
        let mut full = Vec::new();
        for lease in self.leases.values() {
            for renew in &lease.renews {
                let facts = &self.operations[&renew.operation];
                for limit in facts.roomy.iter().filter(|_| facts.is_open) {
                    let own = self.share(lease, *limit, now).may;
                    let others = spans[*limit].may - own;
                    let Reading { capacity, is_closed, .. } = readings[*limit];
                    let needed = others + own.max(renew.amounts[limit].into());
                    if is_closed || needed > capacity {
                        full.push((renew.operation, *limit));
                    }
                }
            }
        }
        for (operation, limit) in full {
            let facts = self.operations.get_mut(&operation).expect("it was sent");
            facts.roomy.remove(&limit);
        }
    }

    fn check_renew_error(
        &self,
        lease: usize,
        at: usize,
        error: &RenewError,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = &self.leases[&lease];
        let RenewFacts { operation, number, ref amounts, sent_at, .. } = facts.renews[at];
        let met = &self.operations[&operation].met;
        let is_certainly_open = |variant: &RequirementSet| {
            let began = self.began(facts, variant, now).filter(|began| began.is_certain);
            facts.completes.is_empty()
                && !facts.is_muddled()
                && variant.may_be_lost.is_empty()
                && began.is_some_and(|began| {
                    began.latest <= sent_at && self.is_renewable(facts, variant, began, now)
                })
        };
        let has_reason = match error {
            RenewError::LeaseEnded => !facts.variants.iter().any(is_certainly_open),
            RenewError::Superseded => facts.renews.iter().any(|renew| renew.number > number),
            // Its ID may have been used for other requirements.
            RenewError::InvalidAmount { key } => facts
                .variants
                .iter()
                .any(|variant| variant.needs.keys().all(|limit| plan::key(*limit) != *key)),
            RenewError::UnknownKey { key } => {
                let limit = plan::number(key);
                self.may_grow(facts, at, limit, now) && met[&limit].may_be_missing()
            }
            RenewError::AmountExceedsCapacity { key } => {
                let limit = plan::number(key);
                let capacity_min = self.limits[limit].asked.range(1..).next();
                self.may_grow(facts, at, limit, now)
                    && amounts.get(&limit) > capacity_min
                    && met[&limit].may_enforce()
            }
            RenewError::InvalidRequest { .. } | RenewError::Unsupported => false,
            RenewError::Unanswered(_) | RenewError::Refused(_) => true,
        };
        match has_reason {
            true => Ok(()),
            false => {
                let detail = format!("renew {number} of L{lease}: {error}");
                Err(Violation { invariant: Invariant::AnswersHaveReasons, detail })
            }
        }
    }
}
