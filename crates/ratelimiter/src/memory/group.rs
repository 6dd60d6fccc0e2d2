//! Limits that are locked together, because requests mostly need them together, and the leases that are kept beside them.

use super::live_limit::{LiveLimit, Made};
use super::open_leases::OpenLeases;
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::LimitKey;
use crate::limit::Limit;
use crate::registry::{LimitStatus, RegisteredLimit};

const NEVER: Timestamp = Timestamp::from_unix_nanos(u64::MAX);

/// The limits of one model, or a single other limit. They are few, so a key is found by looking at all of them.
#[derive(Debug)]
pub(super) struct Group {
    /// Nothing expires before this moment.
    next_expiry: Timestamp,
    /// A deleted limit stays while something of it is live, so that a live reservation's slot is that of its limit.
    limits: Box<[Option<LiveLimit>]>,
    /// The open leases that have this as the lowest of their groups.
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
            let limit = limit.as_ref().filter(|limit| limit.is_in_force_as(key))?;
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

    /// True if nothing is kept here.
    pub(super) fn is_unused(&self) -> bool {
        self.limits.iter().all(Option::is_none) && self.leases.len() == 0
    }

    /// Something will expire at this moment.
    #[inline]
    pub(super) fn note_expiry(&mut self, expires_at: Timestamp) {
        self.next_expiry = self.next_expiry.min(expires_at);
    }

    /// Returns what has expired by `now`, and ends decreases that have become possible.
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
    pub(super) fn end(&mut self, slot: u32, made: Made, actual: Option<u64>) {
        let limit = self.limit_mut(slot);
        limit.end(made, actual);
        if limit.is_deleted() {
            self.drop_deleted();
        }
    }

    /// Frees the slots of deleted limits of which nothing is live any more.
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

    /// Puts a limit back as it was registered. What is live of a limit of the same kind stays.
    pub(super) fn restore(&mut self, now: Timestamp, registered: RegisteredLimit) -> LimitStatus {
        let RegisteredLimit { limit, .. } = &registered;
        let target = Limit { capacity: registered.target(), ..limit.clone() };
        let defined = self.find(&limit.key).map(|(_, live)| live.kind());
        if defined.is_some_and(|kind| kind.is_same_kind(limit.kind)) {
            // First the capacity that was in force, then the one that waited for room below it.
            let restored = self.define(now, limit.clone()).and_then(|_| self.define(now, target));
            return restored.expect("the kind is the same");
        }
        self.remove(&limit.key);
        self.insert(registered)
    }

    /// Puts in a limit whose key is not defined. Nothing of it is live, so a decrease that was under way ends here.
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

    /// Takes a limit out of force; false if the key is not defined.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        let Some((slot, _)) = self.find(key) else {
            return false;
        };
        self.limit_mut(slot).delete();
        self.drop_deleted();
        true
    }

    /// Returns what has expired, ends decreases that have become possible, and gives unused room back.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.expire(now);
        self.limits.iter_mut().flatten().for_each(LiveLimit::give_room_back);
        self.leases.give_room_back();
    }
}
