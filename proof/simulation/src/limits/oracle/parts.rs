//! What a lease has of a limit at a moment, at least and at most, by the renews that were carried out and those that may have been.
//!
//! A renew sets an amount: what it adds begins then, and what it gives back would have lapsed first (`REN-01`). So by a later
//! moment as much of the new amount has lapsed as of what was held before. Plans have too few renews for parts to be joined.

use ratelimiter::clock::Timestamp;

use super::renew_facts::RenewFacts;
use super::{LeaseFacts, Oracle, RequirementSet};

/// What a lease may have had of one limit.
pub(super) struct Parts<'a> {
    oracle: &'a Oracle,
    limit: usize,
    is_hold: bool,
    reserved: u64,
    began: Began,
    may_be_lost: bool,
    /// In the order in which they were carried out.
    renews: Vec<Renewed>,
}

/// When a lease was admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Began {
    pub(super) earliest: Timestamp,
    pub(super) latest: Timestamp,
    /// Somebody was told so.
    pub(super) is_certain: bool,
}

/// A renew that was carried out at one moment of a span, certainly or perhaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Renewed {
    number: u64,
    /// What it asks for of the limit.
    amount: Option<u64>,
    earliest: Timestamp,
    latest: Timestamp,
    /// On a ledger its server decides at another moment what has lapsed.
    seen_from: Timestamp,
    seen_until: Timestamp,
    is_certain: bool,
}

impl Parts<'_> {
    /// As they were at a moment.
    pub(super) fn before_moment(mut self, moment: Timestamp) -> Self {
        self.renews.retain(|renew| renew.earliest < moment);
        self
    }

    /// As they were when a renew was decided on that was carried out, or denied.
    pub(super) fn before_number(mut self, number: u64) -> Self {
        self.renews.retain(|renew| renew.number < number);
        self
    }

    /// The least that is held at a moment at which nothing is completed.
    pub(super) fn least(&self, at: Timestamp) -> u64 {
        if self.may_be_lost { 0 } else { self.least_after(self.renews.len(), at) }
    }

    fn least_after(&self, count: usize, at: Timestamp) -> u64 {
        let Some((renew, before)) = self.renews[..count].split_last() else {
            let is_live = self.began.is_certain && at < self.expiry(self.began.earliest).0;
            return if is_live { self.reserved } else { 0 };
        };
        let held = self.least_after(before.len(), at);
        let is_live = at < self.expiry(renew.earliest).0;
        let after = match (self.is_hold, renew.amount) {
            (true, _) if !is_live => 0,
            (true, Some(amount)) => amount,
            (true, None) => self.least_after(before.len(), renew.latest),
            (false, None) => held,
            (false, Some(amount)) if is_live => {
                let before = self.most_after(before.len(), renew.seen_from).min(amount);
                amount - before.saturating_sub(held)
            }
            (false, Some(amount)) => amount.min(held),
        };
        if renew.is_certain { after } else { after.min(held) }
    }

    /// The most that is held at a moment at which nothing is completed.
    pub(super) fn most(&self, at: Timestamp) -> u64 {
        self.most_after(self.renews.len(), at)
    }

    fn most_after(&self, count: usize, at: Timestamp) -> u64 {
        let Some((renew, before)) = self.renews[..count].split_last() else {
            let is_live = at <= self.expiry(self.began.latest).1;
            return if is_live { self.reserved } else { 0 };
        };
        let held = self.most_after(before.len(), at);
        let is_live = at <= self.expiry(renew.latest).1;
        let after = match (self.is_hold, renew.amount) {
            (true, _) if !is_live => 0,
            (true, Some(amount)) => amount,
            (true, None) => self.most_after(before.len(), renew.earliest),
            (false, None) => held,
            (false, Some(amount)) if is_live => {
                let is_kept = !self.may_be_lost;
                let before =
                    if is_kept { self.least_after(before.len(), renew.seen_until) } else { 0 };
                amount - before.min(amount).saturating_sub(held)
            }
            (false, Some(amount)) => amount.min(held),
        };
        if renew.is_certain { after } else { after.max(held) }
    }

    /// The least that was reserved and not given back, lapsed or not, when the lease was completed.
    pub(super) fn least_reserved(&self) -> u64 {
        let mut reserved = self.reserved;
        for (count, renew) in self.renews.iter().enumerate() {
            let Some(amount) = renew.amount else {
                continue;
            };
            let lapsed = reserved.saturating_sub(self.most_after(count, renew.seen_from));
            let after = amount + lapsed;
            reserved = if renew.is_certain { after } else { after.min(reserved) };
        }
        reserved
    }

    fn expiry(&self, began_at: Timestamp) -> (Timestamp, Timestamp) {
        self.oracle.expiry(self.limit, began_at)
    }
}

impl Oracle {
    /// When a lease was admitted for these requirements; `None` if it cannot have been.
    pub(super) fn began(
        &self,
        lease: &LeaseFacts,
        variant: &RequirementSet,
        now: Timestamp,
    ) -> Option<Began> {
        if let Some(at) = variant.allowed {
            return Some(Began { earliest: at, latest: at, is_certain: true });
        }
        // What was renewed was admitted before.
        let renewed_at = lease.renews.iter().filter_map(RenewFacts::renewed_at).min();
        if let Some(latest) = renewed_at.filter(|_| lease.variants.len() == 1) {
            return Some(Began { earliest: variant.first_sent_at, latest, is_certain: true });
        }
        let mut operations = variant.operations.iter();
        let comes = operations
            .any(|operation| self.is_worked_on(*operation) || self.may_wait_on(*operation));
        let latest = if comes { now } else { variant.touched_at? };
        Some(Began { earliest: variant.first_sent_at, latest, is_certain: false })
    }

    pub(super) fn parts<'a>(
        &'a self,
        lease: &LeaseFacts,
        variant: &RequirementSet,
        limit: usize,
        began: Began,
        now: Timestamp,
    ) -> Parts<'a> {
        Parts {
            oracle: self,
            limit,
            is_hold: self.limits[limit].setup.is_concurrency(),
            reserved: variant.needs[&limit],
            began,
            may_be_lost: variant.may_be_lost.contains_key(&limit),
            renews: self.renewed(lease, limit, now),
        }
    }

    /// The renews that have changed something of a lease, or may have.
    fn renewed(&self, lease: &LeaseFacts, limit: usize, now: Timestamp) -> Vec<Renewed> {
        let mut sent: Vec<&RenewFacts> =
            lease.renews.iter().filter(|renew| renew.may_count()).collect();
        sent.sort_by_key(|renew| renew.number);
        let mut renewed: Vec<Renewed> = Vec::new();
        for same in sent.chunk_by(|a, b| a.number == b.number) {
            let first = same[0];
            let sent_at = same.iter().fold(first.sent_at, |at, renew| at.min(renew.sent_at));
            let moment = same.iter().find_map(|renew| renew.renewed_at());
            // Of a lease ID that was used for other requirements, or a number for other amounts, nobody knows what counts.
            let is_clear = lease.variants.len() == 1
                && same.iter().all(|renew| renew.amounts == first.amounts);
            let is_certain = moment.is_some() && is_clear;
            for renew in if is_certain { &same[..1] } else { same } {
                let latest = match self.is_worked_on(renew.operation) {
                    true => Some(now),
                    false => renew.touched_at,
                };
                let span = match moment.filter(|_| is_certain) {
                    Some(moment) => Some((moment, moment)),
                    None => latest.map(|latest| (sent_at, latest)),
                };
                let Some((earliest, latest)) = span else {
                    continue;
                };
                renewed.push(Renewed {
                    number: renew.number,
                    amount: renew.amounts.get(&limit).copied(),
                    earliest,
                    latest,
                    seen_from: self.seen_from(sent_at.min(earliest), earliest),
                    seen_until: latest.after(self.allowed_lag.noticed),
                    is_certain,
                });
            }
        }
        in_order(&mut renewed);
        renewed
    }

    /// When a renew is decided on at the earliest: in memory when it is carried out, on a ledger by a server whose time may be behind.
    fn seen_from(&self, sent_at: Timestamp, earliest: Timestamp) -> Timestamp {
        let Ok(noticed_nanos @ 1..) = u64::try_from(self.allowed_lag.noticed.as_nanos()) else {
            return earliest;
        };
        Timestamp::from_unix_nanos(sent_at.unix_nanos() - noticed_nanos)
    }
}

/// A greater number is carried out later, or the smaller one never is.
fn in_order(renewed: &mut Vec<Renewed>) {
    let certain: Vec<_> = renewed.iter().filter(|renew| renew.is_certain).copied().collect();
    for renew in renewed.iter_mut().filter(|renew| !renew.is_certain) {
        for other in &certain {
            match other.number < renew.number {
                true => renew.earliest = renew.earliest.max(other.earliest),
                false => renew.latest = renew.latest.min(other.latest),
            }
        }
    }
    renewed.retain(|renew| renew.earliest <= renew.latest);
}
