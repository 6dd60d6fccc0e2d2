//! Lists open leases without holding a lock for long.
//!
//! First the positions of the oldest leases are found, shard by shard; then these leases are read, one at a time. A lease that ends in
//! between is left out, and more positions are looked for, so that only the last page is short.

use super::State;
use super::groups::LockedGroups;
use crate::clock::Timestamp;
use crate::error::{LeasesError, Unanswered};
use crate::key::LimitKey;
use crate::lease::LeaseId;
use crate::open_lease::{FirstLeases, HeldAmount, LeasePage, LeasePosition, OpenLease};

impl State {
    pub(super) fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        // Leases that come later are not listed, so that this ends, however many come and go.
        let until = self.clock.now();
        let mut after = page.after.map(|lease| self.position_of(lease)).transpose()?;
        let mut leases = Vec::new();
        while leases.len() < page.len_max() {
            let wanted = page.len_max() - leases.len();
            let positions = self.first_positions(page, after, until, wanted)?;
            for position in &positions {
                leases.extend(self.open_lease(position.lease, page.key.as_ref())?);
            }
            if positions.len() < wanted {
                break;
            }
            after = positions.last().copied();
        }
        Ok(leases)
    }

    /// Where a lease is, or was before it ended.
    fn position_of(&self, lease: LeaseId) -> Result<LeasePosition, LeasesError> {
        let (id, mut shard) = self.leases.lock(lease);
        let now = self.clock.now();
        let _change = self.poison.begin_change()?;
        let open = shard.find_open(id).map(|open| open.reserved_at.unix_ms());
        let reserved_at_ms = open.or_else(|| shard.past.reserved_at_ms(now, id));
        let reserved_at_ms = reserved_at_ms.ok_or(LeasesError::UnknownLease { lease })?;
        Ok(LeasePosition { reserved_at_ms, lease })
    }

    /// The first positions after this one, of leases that were reserved until then. They may have ended since, and instead of the key
    /// they may have another with its tag. A shard is locked for one pass over its leases, as by the sweep.
    fn first_positions(
        &self,
        page: &LeasePage,
        after: Option<LeasePosition>,
        until: Timestamp,
        count_max: usize,
    ) -> Result<Vec<LeasePosition>, Unanswered> {
        let mut first = FirstLeases::new(after, count_max);
        for shard in self.leases.shards.each() {
            let shard = shard.lock();
            let now = self.clock.now();
            self.poison.check()?;
            for lease in &shard.open {
                let position = LeasePosition::of(lease.reserved_at, lease.id);
                let is_old_enough = now.since(lease.reserved_at) >= page.older_than;
                let is_listed = lease.is_live(now) && lease.reserved_at <= until && is_old_enough;
                // Few get this far once the first ones are known.
                if is_listed
                    && first.admits(position)
                    && page.key.as_ref().is_none_or(|key| lease.may_hold(key))
                {
                    first.add(position, position);
                }
            }
        }
        Ok(first.into_sorted())
    }

    /// A lease as it is now; `None` if it is not open, or has nothing of the key.
    fn open_lease(
        &self,
        lease: LeaseId,
        key: Option<&LimitKey>,
    ) -> Result<Option<OpenLease>, Unanswered> {
        let (id, shard) = self.leases.lock(lease);
        let Some(open) = shard.find_open(id) else {
            return Ok(None);
        };
        let mut locked = LockedGroups::default();
        self.groups.lock(&mut locked, open.reservations.iter().map(|held| held.group.shard()));
        let now = self.clock.now();
        self.poison.check()?;
        let mut amounts = Vec::new();
        for held in open.reservations.iter().filter(|held| held.is_live(now)) {
            let limit = locked.group(held.group).limit(held.slot);
            if !limit.is_deleted {
                let key = limit.registered().limit.key.clone();
                let amount = limit.amount_of(held.reference);
                amounts.push(HeldAmount { key, amount, lapses_at: held.expires_at });
            }
        }
        let is_asked_for = |held: &HeldAmount| key.is_none_or(|key| held.key == *key);
        if !amounts.iter().any(is_asked_for) {
            return Ok(None);
        }
        amounts.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let job = shard.details.of(id).and_then(|details| details.job.clone());
        let reserved_at = open.reserved_at;
        Ok(Some(OpenLease { lease, job, reserved_at, age: now.since(reserved_at), amounts }))
    }
}
