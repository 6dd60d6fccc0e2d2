//! Renew in its simplest form.

use std::ops::RangeInclusive;
use std::time::Duration;

use ratelimiter::{LeaseId, LimitKey, LimitStatus, PARTS_MAX, RenewError, RenewRequest, Renewal};

use super::{Lease, Need, OpenLease, Oracle, is_shadow};

/// The expected answer to a renew.
#[derive(Debug)]
pub(crate) enum ExpectedRenewal {
    Renewed {
        /// `None` if its last hold has lapsed, so that it was the last renew: another hold has become a reservation.
        lapses_at_nanos: Option<u64>,
        shadow_denied: Vec<LimitKey>,
    },
    Denied {
        keys: Vec<LimitKey>,
        hint: RangeInclusive<Duration>,
    },
    Paused {
        key: LimitKey,
    },
    Decreasing {
        key: LimitKey,
    },
    Refused(RenewError),
    /// The answer to the last renew.
    Again(Renewal),
}

/// A new amount of a limit.
struct Change {
    key: LimitKey,
    held: u64,
    amount: u64,
    /// Nothing is left, or the limit was deleted.
    is_over: bool,
}

impl Change {
    const fn grows(&self) -> bool {
        self.amount > self.held
    }

    /// What needs room.
    const fn extra(&self) -> u64 {
        self.amount - if self.is_over { 0 } else { self.held }
    }
}

impl Oracle {
    pub(crate) fn renew(&mut self, request: &RenewRequest) -> ExpectedRenewal {
        let expected = self.try_renew(request);
        self.settle();
        expected.unwrap_or_else(ExpectedRenewal::Refused)
    }

    /// REN-03: the answer to a renew, for its repetition.
    pub(crate) fn note_renewal(&mut self, request: &RenewRequest, renewal: &Renewal) {
        let mut renewal = renewal.clone();
        if let Renewal::Renewed { shadow_denied, .. } = &mut renewal {
            shadow_denied.clear();
        }
        self.open_lease(request.lease).last_renew = Some((request.number, renewal));
    }

    fn open_lease(&mut self, lease: LeaseId) -> &mut OpenLease {
        match self.leases.get_mut(&lease) {
            Some(Lease::Open(open)) => open,
            other => panic!("{other:?} is not open"),
        }
    }

    /// REN-02: when the last hold expires, else the last reservation; `None` if that has happened.
    fn renewable_until(&self, lease: LeaseId, needs: &[Need]) -> Option<u64> {
        let is_hold = |generation: &u64| self.generations_of_holds.contains(generation);
        let has_holds = needs.iter().any(|need| is_hold(&need.generation));
        let own = self.reservations.iter().filter(|held| held.is_open_of(lease));
        let counted = own.filter(|held| !has_holds || is_hold(&held.generation));
        counted.map(|held| held.expires_at).max()
    }

    fn try_renew(&mut self, request: &RenewRequest) -> Result<ExpectedRenewal, RenewError> {
        let lease = request.lease;
        let Some(Lease::Open(OpenLease { needs, last_renew, .. })) = self.leases.get(&lease) else {
            return Err(RenewError::LeaseEnded);
        };
        self.renewable_until(lease, needs).ok_or(RenewError::LeaseEnded)?;
        match last_renew {
            Some((number, _)) if request.number < *number => return Err(RenewError::Superseded),
            Some((number, answer)) if request.number == *number => {
                return Ok(ExpectedRenewal::Again(answer.clone()));
            }
            Some(_) | None => {}
        }
        let mut changes = Vec::new();
        for new in request.amounts.iter() {
            let Some(need) = needs.iter().find(|need| need.key == new.key) else {
                return Err(RenewError::InvalidAmount { key: new.key.clone() });
            };
            let parts = self.parts(lease, &new.key);
            let defined = self.limits.get(&new.key);
            changes.push(Change {
                key: new.key.clone(),
                held: parts.iter().map(|n| self.reservations[*n].amount).sum(),
                amount: new.amount,
                is_over: parts.is_empty()
                    || defined.is_none_or(|defined| defined.generation != need.generation),
            });
        }
        if let Some(refusal) = self.refusal(&changes)? {
            return Ok(refusal);
        }
        let growing = changes.iter().filter(|change| change.grows());
        let shadow = growing.filter(|change| self.shadow_denies(&change.key, change.extra()));
        let shadow_denied = shadow.map(|change| change.key.clone()).collect();
        self.apply(lease, &changes);
        let needs = self.open_lease(lease).needs.clone();
        let lapses_at_nanos = self.renewable_until(lease, &needs);
        Ok(ExpectedRenewal::Renewed { lapses_at_nanos, shadow_denied })
    }

    /// Why what is asked in addition is not given, if so.
    fn refusal(&mut self, changes: &[Change]) -> Result<Option<ExpectedRenewal>, RenewError> {
        let growing: Vec<&Change> = changes.iter().filter(|change| change.grows()).collect();
        for Change { key, .. } in &growing {
            if self.instance_of(key).is_none() && !self.limits.contains_key(key) {
                return Err(RenewError::UnknownKey { key: key.clone() });
            }
        }
        growing.iter().for_each(|change| self.make_instance(&change.key));
        let first = |is_so: &dyn Fn(&Change) -> bool| {
            growing.iter().find(|change| is_so(change)).map(|change| change.key.clone())
        };
        let is_paused = |change: &Change| {
            let defined = &self.limits[&change.key];
            defined.status() == LimitStatus::Paused && !is_shadow(&defined.limit)
        };
        if let Some(key) = first(&is_paused) {
            return Ok(Some(ExpectedRenewal::Paused { key }));
        }
        let ceiling = |key: &LimitKey| self.limits[key].limit.ceiling().get();
        if let Some(key) = first(&|change| change.amount > ceiling(&change.key)) {
            return Err(RenewError::AmountExceedsCapacity { key });
        }
        if let Some(key) = first(&|change| self.limits[&change.key].target.is_some()) {
            return Ok(Some(ExpectedRenewal::Decreasing { key }));
        }
        let is_full = |change: &&&Change| change.extra() > self.available(&change.key);
        let full: Vec<_> = growing.iter().filter(is_full).collect();
        for change in &full {
            self.limits.get_mut(&change.key).unwrap().streak += 1;
        }
        let hints: Vec<_> =
            full.iter().map(|change| self.hint(&change.key, change.extra())).collect();
        let lowest = hints.iter().map(|hint| *hint.start()).max();
        let highest = hints.iter().map(|hint| *hint.end()).max();
        let keys = full.iter().map(|change| change.key.clone()).collect();
        let hint = lowest.zip(highest).map(|(lowest, highest)| lowest..=highest);
        Ok(hint.map(|hint| ExpectedRenewal::Denied { keys, hint }))
    }

    fn apply(&mut self, lease: LeaseId, changes: &[Change]) {
        let now = self.now;
        let has_lapsed = self.open_lease(lease).first_expiry <= now;
        let is_anew = changes.iter().any(|change| change.is_over && change.grows());
        for change in changes {
            match change.grows() {
                false => self.shrink(lease, change),
                true => self.grow(lease, change),
            }
        }
        // REN-02
        for held in self.reservations.iter_mut().filter(|held| held.is_open_of(lease)) {
            if let Some(timeout) = self.timeouts.get(&held.generation) {
                (held.lifetime, held.expires_at) = (*timeout, now + timeout);
            }
        }
        let first = self.expiries(lease).min().unwrap();
        let last = self.expiries(lease).max().unwrap();
        let open = self.open_lease(lease);
        open.first_expiry = if has_lapsed || is_anew { 0 } else { first };
        open.last_expiry = last;
        open.is_renewed = true;
        for change in changes {
            let need = open.needs.iter_mut().find(|need| need.key == change.key).unwrap();
            need.reserved = need.reserved - u128::from(change.held) + u128::from(change.amount);
        }
    }

    /// What lapses first goes first. The last part stays, even of 0 units.
    fn shrink(&mut self, lease: LeaseId, change: &Change) {
        self.set_parts(lease, &change.key, change.amount);
        let last = self.parts(lease, &change.key).last().copied();
        let mut number = 0;
        self.reservations.retain(|held| {
            let is_last = Some(number) == last;
            number += 1;
            !held.is_open_of(lease) || held.key != change.key || held.amount > 0 || is_last
        });
    }

    fn grow(&mut self, lease: LeaseId, change: &Change) {
        let Change { key, amount, .. } = change;
        let is_hold = self.limits[key].limit.kind.is_concurrency();
        if is_hold && !change.is_over {
            self.limits.get_mut(key).unwrap().streak = 0;
            return self.set_parts(lease, key, *amount);
        }
        if change.is_over || change.held == 0 {
            self.reservations.retain(|held| !held.is_open_of(lease) || held.key != *key);
        }
        let generation = self.hold(lease, key, change.extra());
        let open = self.open_lease(lease);
        open.needs.iter_mut().find(|need| need.key == *key).unwrap().generation = generation;
        let parts = self.parts(lease, key);
        if parts.len() > PARTS_MAX {
            let last = parts[PARTS_MAX];
            let mut number = 0;
            self.reservations.retain(|held| {
                let is_last = number == last;
                number += 1;
                !held.is_open_of(lease) || held.key != *key || is_last
            });
            self.set_parts(lease, key, *amount);
        }
    }
}
