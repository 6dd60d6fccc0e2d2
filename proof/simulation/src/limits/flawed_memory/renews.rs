//! Renews with a deliberate bug, and completes of renewed leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratelimiter::{
    Actual, Actuals, CompleteError, CompleteRequest, Denial, DenialReason, LEASE_PAGE_MAX, LeaseId,
    LeasePage, LimitKey, LimitKind, LimitStatus, NewAmount, NewAmounts, OpenLease, RenewError,
    RenewNumber, RenewRequest, Renewal, ReserveRequest,
};

use super::FlawedMemory;
use crate::flaw::Flaw;

type Freeing = Result<(Renewal, Vec<LimitKey>), RenewError>;

/// What a limiter with a bug knows of renews.
#[derive(Debug, Default)]
pub(super) struct RenewNotes {
    admitted: BTreeSet<LeaseId>,
    /// The last renew of a lease that reached the limiter.
    last: BTreeMap<LeaseId, RenewNumber>,
    /// All that a lease has reserved of a limit and not given back.
    reserved: BTreeMap<(LeaseId, LimitKey), u64>,
    completed: BTreeSet<LeaseId>,
    /// Leases that were completed, and whose holds are still there.
    pub(super) ended: BTreeSet<LeaseId>,
    /// The last renew of a lease that never reached the limiter, and its answer.
    made_up: BTreeMap<LeaseId, (RenewNumber, Renewal)>,
}

impl RenewNotes {
    /// A lease was admitted, or is told so again.
    pub(super) fn admit(&mut self, request: &ReserveRequest) {
        if self.admitted.insert(request.lease) {
            let amounts = request.requirements.iter();
            let amounts = amounts.map(|one| ((request.lease, one.key.clone()), one.amount.get()));
            self.reserved.extend(amounts);
        }
    }
}

impl FlawedMemory {
    pub(super) fn flawed_renew(&self, request: &RenewRequest) -> Freeing {
        let lease = request.lease;
        match self.flaw {
            Some(Flaw::ForgetsRenews) => Ok((self.renewal(), Vec::new())),
            Some(Flaw::RenewsWakeNobody) => {
                let (renewal, _) = self.inner.renew_freeing_now(request)?;
                Ok((renewal, Vec::new()))
            }
            Some(Flaw::CountsNoGrowth) => self.renew_without_growth(request),
            Some(Flaw::RestartsWindows) => self.renew_windows(request),
            Some(Flaw::KeepsRenewedHolds) if self.notes().renews.ended.contains(&lease) => {
                Err(RenewError::LeaseEnded)
            }
            Some(Flaw::ForgetsLapsed) => self.noted_renew(request),
            Some(Flaw::DeniesShrinking) => self.deny_renew(request, |new, held| new < held),
            Some(Flaw::DeniesGrowing) => self.deny_renew(request, |new, held| new > held),
            Some(Flaw::RenewsUnknownLeases)
                if !self.notes().renews.admitted.contains(&lease) || self.is_made_up(request) =>
            {
                self.answer_made_up(request, self.renewal())
            }
            Some(Flaw::RenewsUnknownLeases) => self.noted_renew(request),
            _ => self.inner.renew_freeing_now(request),
        }
    }

    pub(super) fn flawed_complete(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        let lease = request.lease;
        self.notes().renews.completed.insert(lease);
        match self.flaw {
            Some(Flaw::KeepsRenewedHolds) if self.has_outlived(request) => {
                self.notes().renews.ended.insert(lease);
                Ok(Vec::new())
            }
            Some(Flaw::ForgetsLapsed) if self.notes().renews.last.contains_key(&lease) => {
                self.inner.complete_freeing_now(&self.with_lapsed(request))
            }
            _ => self.inner.complete_freeing_now(request),
        }
    }

    fn renewal(&self) -> Renewal {
        let (renewed_at, lapses_at) = (self.inner.now(), self.inner.now());
        Renewal::Renewed { renewed_at, lapses_at, shadow_denied: Vec::new() }
    }

    fn open_lease(&self, lease: LeaseId) -> Option<OpenLease> {
        let page = LeasePage { count_max: LEASE_PAGE_MAX, ..LeasePage::default() };
        let leases = self.inner.leases_now(&page).expect("the limiter is sound");
        leases.into_iter().find(|open| open.lease == lease)
    }

    /// What is asked for never grows.
    fn renew_without_growth(&self, request: &RenewRequest) -> Freeing {
        let capacity = |key: &LimitKey| {
            self.inner.state_now(key).map_or(0, |state| state.limit.capacity.get())
        };
        let open = self.open_lease(request.lease);
        let is_too_much = |new: &NewAmount| new.amount > capacity(&new.key);
        let Some(open) = open.filter(|_| !request.amounts.iter().any(is_too_much)) else {
            return self.inner.renew_freeing_now(request);
        };
        let amounts = request.amounts.iter();
        let amounts =
            amounts.map(|new| (new.key.clone(), new.amount.min(held_of(&open, &new.key))));
        let amounts = NewAmounts::of(amounts).expect("they were valid before");
        self.inner.renew_freeing_now(&RenewRequest { amounts, ..request.clone() })
    }

    /// What is kept of a rolling limit is given back and reserved anew, by two renews in the place of one.
    fn renew_windows(&self, request: &RenewRequest) -> Freeing {
        let number = |number| RenewNumber::new(number).expect("it is not 0");
        let last = RenewRequest { number: number(2 * request.number.get()), ..request.clone() };
        let Some(open) = self.open_lease(request.lease) else {
            return self.inner.renew_freeing_now(&last);
        };
        if request.amounts.iter().any(|new| new.amount > held_of(&open, &new.key)) {
            return self.inner.renew_freeing_now(&last);
        }
        let mut amounts: BTreeMap<LimitKey, u64> =
            request.amounts.iter().map(|new| (new.key.clone(), new.amount)).collect();
        let mut nothing = Vec::new();
        for held in &open.amounts {
            let state = self.inner.state_now(&held.key).expect("it is held");
            let is_rolling = matches!(state.limit.kind, LimitKind::Rolling { .. });
            if is_rolling && state.status == LimitStatus::Active {
                nothing.push((held.key.clone(), 0));
                amounts.entry(held.key.clone()).or_insert(held.amount);
            }
        }
        let nothing = NewAmounts::of(nothing).expect("each key once");
        let first = RenewRequest::new(request.lease, number(last.number.get() - 1), nothing);
        match self.inner.renew_freeing_now(&first) {
            Ok(_) | Err(RenewError::Superseded) => {}
            Err(error) => return Err(error),
        }
        let amounts = NewAmounts::of(amounts).expect("each key once");
        let (renewal, _) = self.inner.renew_freeing_now(&RenewRequest { amounts, ..last })?;
        let is_freed = |new: &&NewAmount| new.amount < held_of(&open, &new.key);
        let freed = request.amounts.iter().filter(is_freed);
        Ok((renewal, freed.map(|new| new.key.clone()).collect()))
    }

    /// A hold of the lease would have lapsed without a renew, and nothing else is given back.
    fn has_outlived(&self, request: &CompleteRequest) -> bool {
        let Some(open) = self.open_lease(request.lease) else {
            return false;
        };
        let has_outlived = |key: &LimitKey| {
            let kind = self.inner.state_now(key).map(|state| state.limit.kind);
            let timeout = kind.filter(|kind| kind.is_concurrency());
            let seconds = timeout.and_then(LimitKind::lifetime_seconds);
            let lapsed_at = seconds.map(|seconds| open.reserved_at.after_seconds(seconds));
            lapsed_at.is_some_and(|at| at <= self.inner.now())
        };
        let is_used = |actual: &Actual| actual.amount >= held_of(&open, &actual.key);
        open.amounts.iter().any(|held| has_outlived(&held.key))
            && request.actuals.iter().all(is_used)
    }

    /// A complete whose use is greater by all that has lapsed.
    fn with_lapsed(&self, request: &CompleteRequest) -> CompleteRequest {
        let open = self.open_lease(request.lease);
        let actuals = request.actuals.iter().map(|actual| {
            let held = open.as_ref().map_or(0, |open| held_of(open, &actual.key));
            let reserved =
                self.notes().renews.reserved.get(&(request.lease, actual.key.clone())).copied();
            (actual.key.clone(), actual.amount + reserved.unwrap_or(held).saturating_sub(held))
        });
        let actuals = Actuals::of(actuals).expect("they were valid before");
        CompleteRequest { actuals, ..request.clone() }
    }

    /// Denies a renew of an open lease because of new amounts for which this is so, whatever room there is.
    fn deny_renew(&self, request: &RenewRequest, is_denied: fn(u64, u64) -> bool) -> Freeing {
        let last = self.notes().renews.last.get(&request.lease).copied();
        let open = self.open_lease(request.lease).filter(|_| last < Some(request.number));
        let denied = |new: &&NewAmount| {
            open.as_ref().is_some_and(|open| is_denied(new.amount, held_of(open, &new.key)))
        };
        let denied = request.amounts.iter().filter(denied);
        let keys: Vec<_> = denied.map(|new| new.key.clone()).collect();
        if keys.is_empty() && !self.is_made_up(request) {
            return self.noted_renew(request);
        }
        let reason = DenialReason::NoRoom { keys };
        let denial = Denial { reason, retry_after: Duration::from_secs(1) };
        self.answer_made_up(request, Renewal::Denied(denial))
    }

    fn noted_renew(&self, request: &RenewRequest) -> Freeing {
        let open = self.open_lease(request.lease);
        let answer = self.inner.renew_freeing_now(request)?;
        let RenewNotes { last, reserved, .. } = &mut self.notes().renews;
        let before = last.get(&request.lease).copied();
        if before >= Some(request.number) {
            return Ok(answer);
        }
        last.insert(request.lease, request.number);
        for new in request.amounts.iter().filter(|_| answer.0.is_renewed()) {
            let held = open.as_ref().map_or(0, |open| held_of(open, &new.key));
            if let Some(reserved) = reserved.get_mut(&(request.lease, new.key.clone())) {
                *reserved = *reserved + new.amount - held.min(*reserved);
            }
        }
        Ok(answer)
    }

    /// A renew of this number, or a greater one, was answered without the limiter.
    fn is_made_up(&self, request: &RenewRequest) -> bool {
        let notes = self.notes();
        notes.renews.made_up.get(&request.lease).is_some_and(|(last, _)| request.number <= *last)
    }

    /// The answer to a renew that the limiter does not hear of.
    fn answer_made_up(&self, request: &RenewRequest, renewal: Renewal) -> Freeing {
        let RenewNotes { made_up, completed, last, .. } = &mut self.notes().renews;
        if last.get(&request.lease).is_some_and(|last| request.number < *last) {
            return Err(RenewError::Superseded);
        }
        if completed.contains(&request.lease) {
            return Err(RenewError::LeaseEnded);
        }
        let new = (request.number, renewal);
        let last = made_up.entry(request.lease).or_insert_with(|| new.clone());
        if request.number < last.0 {
            return Err(RenewError::Superseded);
        }
        if request.number > last.0 {
            *last = new;
        }
        Ok((last.1.clone(), Vec::new()))
    }
}

fn held_of(open: &OpenLease, key: &LimitKey) -> u64 {
    open.amounts.iter().find(|held| held.key == *key).map_or(0, |held| held.amount)
}
