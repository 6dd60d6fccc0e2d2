//! Lists open leases without holding a lock for long.
//!
//! Shard by shard, the positions of the leases are read in one pass; then those leases that may be among the first ones are read, one
//! at a time. So the time grows with the number of open leases, whatever is listed.

use super::State;
use super::groups::LockedGroups;
use crate::error::{LeasesError, Unanswered};
use crate::key::LimitKey;
use crate::lease::LeaseId;
use crate::open_lease::{FirstLeases, HeldAmount, LeasePage, LeasePosition, OpenLease};

impl State {
    pub(super) fn leases(
        &self,
        page: &LeasePage,
        is_listed: &impl Fn(&LimitKey) -> bool,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        let after = page.after.map(|lease| self.position_of(lease)).transpose()?;
        let mut first = FirstLeases::new(after, page.len_max());
        for shard in self.leases.shards.each() {
            let mut positions = Vec::new();
            {
                let shard = shard.lock();
                let now = self.clock.now();
                self.poison.check()?;
                positions.extend(shard.open.iter().filter_map(|lease| {
                    let position = LeasePosition::of(lease.reserved_at, lease.id);
                    let is_old_enough = now.since(lease.reserved_at) >= page.older_than;
                    let may_be_listed = lease.is_live(now)
                        && is_old_enough
                        && first.admits(position)
                        && page.key.as_ref().is_none_or(|key| lease.may_hold(key));
                    may_be_listed.then_some(position)
                }));
            }
            positions.sort_unstable();
            for position in positions {
                if !first.admits(position) {
                    break;
                }
                if let Some(lease) = self.open_lease(position.lease, page, is_listed)? {
                    first.add(position, lease);
                }
            }
        }
        Ok(first.into_sorted())
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

    /// A lease as it is now; `None` if it is not open, or has nothing of the page's key or of a listed limit.
    fn open_lease(
        &self,
        lease: LeaseId,
        page: &LeasePage,
        is_listed: &impl Fn(&LimitKey) -> bool,
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
        let extras = shard.extras(id);
        let earlier = extras.earlier();
        for (at, held) in open.reservations.iter().enumerate().filter(|(_, held)| held.is_live(now))
        {
            let limit = locked.group(held.group).limit(held.slot);
            if !limit.is_deleted && is_listed(&limit.registered().limit.key) {
                let key = limit.registered().limit.key.clone();
                let earlier = earlier.iter().filter(|one| one.at == at && one.part.is_live(now));
                let parts = earlier.map(|one| &one.part).chain([held]);
                let amount = parts.map(|part| limit.amount_of(part.reference)).sum();
                amounts.push(HeldAmount { key, amount, lapses_at: held.expires_at });
            }
        }
        if !page.has(&amounts) {
            return Ok(None);
        }
        amounts.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let job = extras.details.and_then(|details| details.job.clone());
        let reserved_at = open.reserved_at;
        Ok(Some(OpenLease { lease, job, reserved_at, age: now.since(reserved_at), amounts }))
    }
}
