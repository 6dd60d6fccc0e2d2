//! A group of limits with one lock, and its open leases.

use super::live_limit::{LiveLimit, ReservationRef};
use super::open_leases::OpenLeases;
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::LimitKey;
use crate::limit::Limit;
use crate::registry::{LimitStatus, RegisteredLimit};

const NEVER: Timestamp = Timestamp::from_unix_nanos(u64::MAX);

/// The limits of one model, or a single other limit. They are few, so a key is found by a linear search.
#[derive(Debug)]
pub(super) struct Group {
    /// Nothing expires before this moment.
    next_expiry: Timestamp,
    /// A deleted limit stays while it has live reservations, so that their slots remain valid.
    limits: Box<[Option<LiveLimit>]>,
    /// The open leases whose lowest-numbered group this is.
    pub(super) leases: OpenLeases,
}

impl Default for Group {
    fn default() -> Self {
        Self { next_expiry: NEVER, limits: Box::default(), leases: OpenLeases::default() }
    }
}

impl Group {
    /// The slot and the limit of a key.
    #[inline]
    pub(super) fn find(&self, key: &LimitKey) -> Option<(u32, &LiveLimit)> {
        (0..).zip(&self.limits).find_map(|(slot, limit)| {
            let limit = limit.as_ref().filter(|limit| limit.is_active_key(key))?;
            Some((slot, limit))
        })
    }

    /// The limit in a slot that was found for a key, or of a live reservation.
    #[inline]
    pub(super) fn limit(&self, slot: u32) -> &LiveLimit {
        self.limits[slot as usize].as_ref().expect("a slot with a limit")
    }

    #[inline]
    pub(super) fn limit_mut(&mut self, slot: u32) -> &mut LiveLimit {
        self.limits[slot as usize].as_mut().expect("a slot with a limit")
    }

    /// All limits that are in force, in no order.
    pub(super) fn limits(&self) -> impl Iterator<Item = &LiveLimit> {
        self.limits.iter().flatten().filter(|limit| !limit.is_deleted())
    }

    /// True if the group has no limits and no leases.
    pub(super) fn is_unused(&self) -> bool {
        self.limits.iter().all(Option::is_none) && self.leases.len() == 0
    }

    /// Records that something will expire at this moment.
    #[inline]
    pub(super) fn note_expiry(&mut self, expires_at: Timestamp) {
        self.next_expiry = self.next_expiry.min(expires_at);
    }

    /// Frees what has expired by `now`, and applies pending decreases that fit.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) {
        if self.next_expiry <= now {
            self.collect(now);
        }
    }

    fn collect(&mut self, now: Timestamp) {
        let mut next_expiry = NEVER;
        for limit in self.limits.iter_mut().flatten() {
            limit.expire(now);
            next_expiry = limit.next_expiry().unwrap_or(NEVER).min(next_expiry);
        }
        self.next_expiry = next_expiry;
        self.drop_deleted();
    }

    /// The lease of a live reservation has ended; `actual` is what it used, if that is known.
    #[inline]
    pub(super) fn end(&mut self, slot: u32, reference: ReservationRef, actual: Option<u64>) {
        let limit = self.limit_mut(slot);
        limit.end(reference, actual);
        if limit.is_deleted() {
            self.drop_deleted();
        }
    }

    /// Frees the slots of deleted limits that have no live reservations.
    fn drop_deleted(&mut self) {
        for slot in &mut self.limits {
            if slot.as_ref().is_some_and(|limit| limit.is_deleted() && limit.is_idle()) {
                *slot = None;
            }
        }
    }

    /// Defines a limit, or changes it.
    pub(super) fn define(
        &mut self,
        now: Timestamp,
        limit: Limit,
    ) -> Result<LimitStatus, DefineError> {
        self.expire(now);
        match self.find(&limit.key) {
            Some((slot, _)) => self.limit_mut(slot).redefine(limit),
            None => Ok(self.insert(RegisteredLimit::in_force(limit))),
        }
    }

    /// Restores a limit as it was registered. Live reservations of a limit of the same kind stay.
    pub(super) fn restore(&mut self, now: Timestamp, registered: RegisteredLimit) -> LimitStatus {
        let RegisteredLimit { limit, .. } = &registered;
        let target = Limit { capacity: registered.target(), ..limit.clone() };
        let defined = self.find(&limit.key).map(|(_, live)| live.kind());
        if defined.is_some_and(|kind| kind.is_same_kind(limit.kind)) {
            // First the capacity that was in force, then the pending lower one.
            let restored = self.define(now, limit.clone()).and_then(|_| self.define(now, target));
            return restored.expect("the kind is the same");
        }
        self.remove(&limit.key);
        self.insert(registered)
    }

    /// Adds a limit whose key is not defined. It has no live reservations, so a pending decrease applies at once.
    fn insert(&mut self, registered: RegisteredLimit) -> LimitStatus {
        let live = LiveLimit::new(registered);
        let status = live.status();
        match self.limits.iter_mut().find(|slot| slot.is_none()) {
            Some(free) => *free = Some(live),
            None => {
                let limits = std::mem::take(&mut self.limits).into_iter();
                self.limits = limits.chain([Some(live)]).collect();
            }
        }
        status
    }

    /// Deletes a limit; false if the key is not defined.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        let Some((slot, _)) = self.find(key) else {
            return false;
        };
        self.limit_mut(slot).delete();
        self.drop_deleted();
        true
    }

    /// Frees what has expired, applies pending decreases that fit, and releases unused memory.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.expire(now);
        self.limits.iter_mut().flatten().for_each(LiveLimit::shrink_to_fit);
        self.leases.shrink_to_fit();
    }
}
