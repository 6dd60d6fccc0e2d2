//! Checks of each answer against earlier answers.

use ratelimiter::clock::Timestamp;
use ratelimiter::{CompleteError, Decision, DenialReason, LimitKey, ReserveError};

use super::{Answer, CompleteFacts, Oracle, RequirementSet};
use crate::executor::Operation;
use crate::limits::plan;
use crate::outcome::{Invariant, Violation};

/// What a client knows of a reserve: an answer, or nothing.
pub(crate) type ReserveTold = Option<Result<Decision, ReserveError>>;
/// What a client knows of a complete: an answer, or nothing.
pub(crate) type CompleteTold = Option<Result<(), CompleteError>>;

fn violation<T>(invariant: Invariant, detail: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { invariant, detail: detail.into() })
}

impl Oracle {
    pub(crate) fn reserve_told(
        &mut self,
        operation: Operation,
        told: &ReserveTold,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = self.operations.get_mut(&operation).expect("it was sent");
        facts.is_open = false;
        let (lease, sent_at, epoch) = (facts.lease, facts.sent_at, facts.epoch);
        let roomy = std::mem::take(&mut facts.roomy);
        let waits = facts.wait.is_some_and(|wait| wait.at_most_ms > 0);
        let (is_behind, is_denied_for_now) = (facts.is_behind, facts.is_denied_for_now);
        if epoch != self.epoch {
            return Ok(());
        }
        let is_behind = is_behind || self.may_be_behind(operation);
        // Another request of the lease may still wait.
        let mut others = self.leases[&lease].sent_by(operation).operations.iter();
        let is_denied_for_now = is_denied_for_now
            || others.any(|other| *other != operation && self.may_wait_on(*other));
        match told {
            None | Some(Err(ReserveError::Unanswered(_) | ReserveError::Refused(_))) => Ok(()),
            Some(Ok(Decision::Allowed { reserved_at, shadow_denied })) => {
                self.told_allowed(operation, lease, *reserved_at, sent_at, now)?;
                self.check_admission(operation, *reserved_at, shadow_denied, now)
            }
            Some(Ok(Decision::Denied(denial))) => {
                self.check_denial(operation, denial, now)?;
                match &denial.reason {
                    DenialReason::Decreasing { .. } => Ok(()),
                    DenialReason::Paused { key }
                        if self.limits[plan::number(key)].asked_for_zero =>
                    {
                        Ok(())
                    }
                    DenialReason::Paused { key } => {
                        let detail = format!("{key} is paused, which nobody asked for");
                        violation(Invariant::AnswersHaveReasons, detail)
                    }
                    DenialReason::TooManyInstances { template } => {
                        self.check_too_many(operation, template)
                    }
                    DenialReason::TooManyWaiters { .. } if waits => Ok(()),
                    DenialReason::TooManyWaiters { .. } => {
                        let detail = format!("too many wait, and L{lease} does not want to");
                        violation(Invariant::AnswersHaveReasons, detail)
                    }
                    DenialReason::NoRoom { .. } if is_denied_for_now => Ok(()),
                    DenialReason::NoRoom { keys } => {
                        // It may be denied for the sake of those that wait.
                        let had_room =
                            |key: &&LimitKey| !is_behind && roomy.contains(&plan::number(key));
                        let roomy = keys.iter().find(had_room);
                        self.told_denied(operation, lease, roomy.map(|key| format!("{key}")))
                    }
                }
            }
            Some(Err(error)) => self.told_refused(operation, lease, error, now),
        }
    }

    fn told_allowed(
        &mut self,
        operation: Operation,
        lease: usize,
        reserved_at: Timestamp,
        sent_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let expires_at = |limit: &usize| self.expiry(*limit, reserved_at).1;
        let facts = self.leases.get(&lease).expect("it was sent");
        let at = facts.variants.iter().position(|variant| variant.operations.contains(&operation));
        let at = at.expect("it was sent");
        let variant = &facts.variants[at];
        if variant.denied {
            return violation(Invariant::DeniedStaysDenied, format!("L{lease} is allowed now"));
        }
        if let Some(first) = variant.allowed.filter(|first| *first != reserved_at) {
            let detail = format!("L{lease} was reserved at {first:?}, and now at {reserved_at:?}");
            return violation(Invariant::SameLeaseSameAnswer, detail);
        }
        // Events of one request are a nanosecond apart, and the ledger never gives out the same moment twice.
        let is_possible =
            variant.first_sent_at <= reserved_at && reserved_at.unix_ms() <= now.unix_ms() + 1;
        if !is_possible {
            let detail = format!("L{lease} was reserved at {reserved_at:?}, it is {now:?}");
            return violation(Invariant::SameLeaseSameAnswer, detail);
        }
        let ended_before = |complete: &CompleteFacts| {
            complete.settles() && complete.told_at.is_some_and(|told_at| told_at <= sent_at)
        };
        let expires_at = variant.needs.keys().map(expires_at).min().expect("something is needed");
        let expired_before = expires_at.after(self.allowed_lag.noticed) < sent_at;
        let completed_before = !facts.is_muddled() && facts.completes.iter().any(ended_before);
        if expired_before || completed_before {
            let why = if expired_before { "expired" } else { "was completed" };
            return violation(Invariant::EndedStaysEnded, format!("L{lease} {why} and is allowed"));
        }
        for (index, other) in facts.variants.iter().enumerate() {
            let is_other = index != at && other.allowed.is_some();
            if is_other && other.needs.keys().any(|limit| variant.needs.contains_key(limit)) {
                let detail = format!("L{lease} is allowed twice, for different requirements");
                return violation(Invariant::SameLeaseSameAnswer, detail);
            }
        }
        let facts = self.leases.get_mut(&lease).expect("it was sent");
        facts.variants[at].allowed = Some(reserved_at);
        Ok(())
    }

    fn told_denied(
        &mut self,
        operation: Operation,
        lease: usize,
        roomy: Option<String>,
    ) -> Result<(), Violation> {
        let facts = self.leases.get_mut(&lease).expect("it was sent");
        let is_alone = facts.variants.len() == 1;
        let variant = facts.variants.iter_mut().find(|v| v.operations.contains(&operation));
        let variant = variant.expect("it was sent");
        if variant.allowed.is_some() {
            return violation(Invariant::SameLeaseSameAnswer, format!("L{lease} is denied now"));
        }
        if let Some(key) = roomy
            && is_alone
            && variant.operations.len() == 1
        {
            let detail = format!("L{lease} is denied for {key}, which had room all the time");
            return violation(Invariant::AnswersHaveReasons, detail);
        }
        variant.denied = true;
        Ok(())
    }

    fn told_refused(
        &self,
        operation: Operation,
        lease: usize,
        error: &ReserveError,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = self.leases.get(&lease).expect("it was sent");
        let variant = facts.sent_by(operation);
        let met = &self.operations[&operation].met;
        let has_reason = match error {
            ReserveError::LeaseConflict => facts.variants.len() > 1,
            ReserveError::LeaseEnded => {
                let has_left = |operation: &Operation| self.operations[operation].has_left;
                let mut senders = facts.variants.iter().flat_map(|variant| &variant.operations);
                !facts.completes.is_empty()
                    || senders.any(has_left)
                    || facts.variants.iter().any(|variant| self.may_have_ended(variant, now))
            }
            ReserveError::AmountExceedsCapacity { key } => {
                let limit = plan::number(key);
                let capacity_min = self.limits[limit].asked.range(1..).next();
                variant.needs.get(&limit) > capacity_min && met[&limit].may_enforce()
            }
            ReserveError::UnknownKey { key } => met[&plan::number(key)].may_be_missing(),
            ReserveError::InvalidRequest { .. } => false,
            ReserveError::Unanswered(_) | ReserveError::Refused(_) => true,
        };
        match has_reason {
            true => Ok(()),
            false => violation(Invariant::AnswersHaveReasons, format!("L{lease}: {error}")),
        }
    }

    /// A reservation may have expired, or its limit may have been deleted.
    fn may_have_ended(&self, variant: &RequirementSet, now: Timestamp) -> bool {
        let began_at = variant.allowed.unwrap_or(variant.first_sent_at);
        let has_expired = |limit: &usize| self.expiry(*limit, began_at).0 <= now;
        !variant.may_be_lost.is_empty() || variant.needs.keys().any(has_expired)
    }

    pub(crate) fn complete_told(
        &mut self,
        operation: Operation,
        told: &CompleteTold,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let facts = self.operations.get_mut(&operation).expect("it was sent");
        facts.is_open = false;
        let lease = facts.lease;
        if facts.epoch != self.epoch {
            return Ok(());
        }
        let lease_facts = self.leases.get_mut(&lease).expect("it was sent");
        let is_alone = lease_facts.variants.len() == 1;
        let variants = &lease_facts.variants;
        let completes = &mut lease_facts.completes;
        let complete = completes.iter_mut().find(|complete| complete.operation == operation);
        let complete = complete.expect("it was sent");
        complete.told_at = Some(now);
        match told {
            None | Some(Err(CompleteError::Unanswered(_) | CompleteError::Refused(_))) => Ok(()),
            Some(Ok(())) => {
                complete.told = Answer::Done;
                self.note_excess(lease, operation, now);
                Ok(())
            }
            Some(Err(CompleteError::InvalidActual { key })) => {
                complete.told = Answer::Refused;
                let limit = plan::number(key);
                let is_held = variants.iter().any(|variant| variant.needs.contains_key(&limit));
                let is_rolling = !self.limits[limit].setup.is_concurrency();
                match is_alone && is_held && is_rolling {
                    true => {
                        let detail = format!("the actual of {key} for L{lease} is refused");
                        violation(Invariant::AnswersHaveReasons, detail)
                    }
                    false => Ok(()),
                }
            }
        }
    }

    /// The excess of a complete that was the only one, and in time, is debt if it had no room at any moment, and held if
    /// it had room at every moment.
    fn note_excess(&mut self, lease: usize, operation: Operation, now: Timestamp) {
        let facts = &self.leases[&lease];
        let ([variant], [complete]) = (&facts.variants[..], &facts.completes[..]) else {
            return;
        };
        let Some(reserved_at) = variant.allowed else {
            return;
        };
        assert_eq!(complete.operation, operation, "there is only one");
        if !complete.settles() {
            return;
        }
        let expiry = |limit: usize| self.expiry(limit, reserved_at);
        let is_kept = |limit: usize| {
            variant.needs.contains_key(&limit) && !variant.may_be_lost.contains_key(&limit)
        };
        let in_time = |limit: &&usize| now < expiry(**limit).0 && is_kept(**limit);
        let met = &self.operations[&operation].met;
        let is_owed = |limit: usize| self.is_debt(limit) && met[&limit].certainly_enforces();
        let mut due = Vec::new();
        for limit in complete.tight.iter().filter(in_time).filter(|limit| is_owed(**limit)) {
            due.push((*limit, complete.actuals[limit] - variant.needs[limit]));
        }
        // `CAL-04`: after the period nothing has room, and the excess counts while the lease is open.
        let is_open = variant.needs.keys().any(|limit| now < expiry(*limit).0 && is_kept(*limit));
        for (limit, actual) in complete.actuals.iter().filter(|_| is_open) {
            let is_calendar = self.limits[*limit].periods.is_some();
            let is_late = is_calendar && is_kept(*limit) && expiry(*limit).1 <= complete.sent_at;
            if is_late && is_owed(*limit) {
                due.push((*limit, actual.saturating_sub(variant.needs[limit])));
            }
        }
        let covered = complete.roomy.iter().filter(in_time).copied().collect();
        for (limit, excess) in due {
            self.limits[limit].debt_min += u128::from(excess);
        }
        let facts = self.leases.get_mut(&lease).expect("it was looked at");
        facts.completes[0].covered = covered;
    }
}
