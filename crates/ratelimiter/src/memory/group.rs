//! The limits of one model, or a single other limit.

use super::live_limit::{LiveLimit, ReservationRef};
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::LimitKey;
use crate::limit::Limit;
use crate::registry::{LimitStatus, RegisteredLimit};
use crate::template::{CountedTemplates, NewInstance};

/// Identifies the group of a key: a hash of what the limits of a model have in common. Requests usually need these together, so they
/// form one group; every other key is a group of one. Groups with the same hash are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(u32);

/// Limits that are usually needed together. They are few, so a key is found by a linear search.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Group {
    pub(super) id: GroupId,
    /// Nothing expires before this moment.
    pub(super) next_expiry: Timestamp,
    /// When the sweep looks at this group; [`Timestamp::NEVER`] if nothing was live when it last did.
    pub(super) swept_at: Timestamp,
    /// A deleted limit stays while it has live reservations, so that their slots remain valid.
    limits: Vec<Option<LiveLimit>>,
}

impl GroupId {
    #[inline]
    pub(super) const fn of(key: &LimitKey) -> Self {
        Self(key.hashes().stem)
    }

    #[inline]
    pub(super) const fn number(self) -> u32 {
        self.0
    }
}

impl Group {
    pub(super) const fn new(id: GroupId) -> Self {
        let never = Timestamp::NEVER;
        Self { id, next_expiry: never, swept_at: never, limits: Vec::new() }
    }

    /// The slot and the limit of a key.
    #[inline]
    pub(super) fn find(&self, key: &LimitKey) -> Option<(u32, &LiveLimit)> {
        (0..).zip(&self.limits).find_map(|(slot, limit)| {
            let limit = limit.as_ref().filter(|limit| limit.has_key(key) && !limit.is_deleted)?;
            Some((slot, limit))
        })
    }

    /// The limit in a slot that was found for a key, or of a live reservation.
    #[inline]
    pub(super) fn limit(&mut self, slot: u32) -> &mut LiveLimit {
        self.limits[slot as usize].as_mut().expect("a slot with a limit")
    }

    /// The key of the limit in a slot, if there is one.
    pub(super) fn key_in(&self, slot: u32) -> Option<&LimitKey> {
        let limit = self.limits.get(slot as usize)?.as_ref()?;
        Some(&limit.registered().limit.key)
    }

    /// All limits that are in force, in no order.
    pub(super) fn limits(&mut self) -> impl Iterator<Item = &mut LiveLimit> {
        self.limits.iter_mut().flatten().filter(|limit| !limit.is_deleted)
    }

    pub(super) fn has_no_limits(&self) -> bool {
        self.limits.iter().all(Option::is_none)
    }

    /// True if nothing is live.
    pub(super) fn is_idle(&self) -> bool {
        self.limits.iter().flatten().all(LiveLimit::is_idle)
    }

    /// Reserves an amount that fits. Also returns when it expires.
    #[inline]
    pub(super) fn hold(
        &mut self,
        now: Timestamp,
        slot: u32,
        amount: u64,
    ) -> (ReservationRef, Timestamp) {
        let (reference, expires_at) = self.limit(slot).hold(now, amount);
        self.next_expiry = self.next_expiry.min(expires_at);
        (reference, expires_at)
    }

    /// Frees what has expired by `now`, and applies pending decreases that fit.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) {
        if self.next_expiry <= now {
            self.collect(now);
        }
    }

    fn collect(&mut self, now: Timestamp) {
        self.limits.iter_mut().flatten().for_each(|limit| limit.expire(now));
        self.drop_deleted();
        let expiries = self.limits.iter().flatten().filter_map(LiveLimit::next_expiry);
        self.next_expiry = expiries.min().unwrap_or(Timestamp::NEVER);
    }

    /// The lease of a live reservation has ended; `actual` is what it used, if that is known.
    #[inline]
    pub(super) fn end(&mut self, slot: u32, reference: ReservationRef, actual: Option<u64>) {
        let limit = self.limit(slot);
        limit.end(reference, actual);
        if limit.is_deleted {
            self.drop_deleted();
        }
    }

    /// Frees the slots of deleted limits that have no live reservations.
    fn drop_deleted(&mut self) {
        for slot in &mut self.limits {
            slot.take_if(|limit| limit.is_deleted && limit.is_idle());
        }
    }

    /// Frees the slots of instances that nothing keeps.
    pub(super) fn drop_unused_instances(&mut self) {
        for slot in &mut self.limits {
            slot.take_if(|limit| limit.is_unused_instance());
        }
    }

    /// Frees the slot of a key's instance if nothing keeps it; true if so.
    pub(super) fn drop_unused_instance(&mut self, key: &LimitKey) -> bool {
        let Some((slot, _)) = self.find(key).filter(|(_, limit)| limit.is_unused_instance()) else {
            return false;
        };
        self.limits[slot as usize] = None;
        true
    }

    /// Adds an instance, whose key has no limit.
    pub(super) fn add_instance(&mut self, now: Timestamp, (limit, mark): NewInstance) {
        self.insert(LiveLimit::new(now, RegisteredLimit::in_force(limit), Some(mark)));
    }

    /// Brings the instances that match changed templates in line with all templates: like a definition of each, or a deletion if none
    /// of its kind is left.
    pub(super) fn realign(
        &mut self,
        now: Timestamp,
        is_changed: &impl Fn(&LimitKey) -> bool,
        templates: &CountedTemplates,
    ) {
        let is_concerned = |limit: &&mut LiveLimit| {
            limit.template().is_some() && is_changed(&limit.registered().limit.key)
        };
        if !self.limits().any(|limit| is_concerned(&limit)) {
            return;
        }
        self.expire(now);
        for limit in self.limits().filter(is_concerned) {
            let new = templates.instance(&limit.registered().limit.key);
            let kind = limit.registered().limit.kind;
            match new {
                _ if limit.is_unused_instance() => limit.delete(),
                Ok((new, mark)) if new.kind.is_same_kind(kind) => limit.govern(now, new, mark),
                Ok(_) | Err(_) => limit.delete(),
            }
        }
        self.drop_deleted();
    }

    /// Defines a limit, or changes it. An instance becomes a limit of its own; what is reserved stays counted.
    pub(super) fn define(
        &mut self,
        now: Timestamp,
        limit: Limit,
    ) -> Result<LimitStatus, DefineError> {
        self.expire(now);
        let Some((slot, live)) = self.find(&limit.key) else {
            return Ok(self.add(now, RegisteredLimit::in_force(limit)));
        };
        if live.template().is_none() {
            return self.limit(slot).redefine(now, limit);
        }
        if live.is_unused_instance() {
            self.limits[slot as usize] = None;
            return Ok(self.add(now, RegisteredLimit::in_force(limit)));
        }
        let status = self.limit(slot).redefine(now, limit)?;
        self.limit(slot).set_explicit();
        Ok(status)
    }

    /// Restores a limit as it was registered. Live reservations of a limit of the same kind stay.
    pub(super) fn restore(&mut self, now: Timestamp, registered: RegisteredLimit) -> LimitStatus {
        let RegisteredLimit { limit, .. } = &registered;
        let target = Limit { capacity: registered.target(), ..limit.clone() };
        let defined = self.find(&limit.key).map(|(_, live)| live.registered().limit.kind);
        if defined.is_some_and(|kind| kind.is_same_kind(limit.kind)) {
            // First the capacity that was in force, then the pending lower one.
            let restored = self.define(now, limit.clone()).and_then(|_| self.define(now, target));
            return restored.expect("the kind is the same");
        }
        if let Some(slot) = self.find(&limit.key).map(|(slot, _)| slot) {
            self.delete(slot);
        }
        self.add(now, registered)
    }

    /// Adds a limit whose key is not defined. It has no live reservations, so a pending decrease applies at once.
    fn add(&mut self, now: Timestamp, registered: RegisteredLimit) -> LimitStatus {
        let live = LiveLimit::new(now, registered, None);
        let status = live.registered().status;
        self.insert(live);
        status
    }

    fn insert(&mut self, live: LiveLimit) {
        match self.limits.iter_mut().find(|slot| slot.is_none()) {
            Some(free) => *free = Some(live),
            None => {
                self.limits.reserve_exact(1);
                self.limits.push(Some(live));
            }
        }
    }

    /// Deletes a limit; false if the key is not defined, though it may have an instance.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        let Some((slot, _)) = self.find(key).filter(|(_, limit)| limit.template().is_none()) else {
            return false;
        };
        self.delete(slot);
        true
    }

    fn delete(&mut self, slot: u32) {
        self.limit(slot).delete();
        self.drop_deleted();
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        self.limits.iter_mut().flatten().for_each(LiveLimit::shrink_to_fit);
    }
}
