//! A part of the limits: those whose keys belong to one shard.

use hashbrown::HashTable;

use super::live_limit::LiveLimit;
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::LimitKey;
use crate::limit::Limit;
use crate::registry::{LimitStatus, RegisteredLimit};

/// A part of the limits, found by key or by slot.
#[derive(Debug, Default)]
pub(super) struct LimitShard {
    /// The slots of the limits, by the hash of their keys.
    index: HashTable<u32>,
    slots: Vec<Slot>,
    /// The slots without a limit.
    free: Vec<u32>,
    /// The slots of the limits with live reservations: the only ones that a sweep looks at.
    busy: Vec<u32>,
}

#[derive(Debug)]
enum Slot {
    Limit(LiveLimit),
    /// No limit; the next one goes on counting reservations here.
    Free {
        next_number: u64,
    },
}

impl Slot {
    const fn limit(&self) -> Option<&LiveLimit> {
        match self {
            Self::Limit(limit) => Some(limit),
            Self::Free { .. } => None,
        }
    }

    const fn limit_mut(&mut self) -> Option<&mut LiveLimit> {
        match self {
            Self::Limit(limit) => Some(limit),
            Self::Free { .. } => None,
        }
    }
}

impl LimitShard {
    /// The slot of a key.
    pub(super) fn find(&self, key: &LimitKey) -> Option<u32> {
        let is_key = |slot: &u32| {
            let limit = self.slots[*slot as usize].limit();
            limit.is_some_and(|limit| limit.key() == key)
        };
        self.index.find(key.place().hash(), is_key).copied()
    }

    /// The limit in a slot that was found for a key.
    pub(super) fn limit(&mut self, slot: u32) -> &mut LiveLimit {
        let limit = self.slots[slot as usize].limit_mut();
        limit.expect("the slot was found for a key under the same lock")
    }

    /// The limit in a slot, if there is one.
    pub(super) fn limit_at(&mut self, slot: u32) -> Option<&mut LiveLimit> {
        self.slots[slot as usize].limit_mut()
    }

    /// Reserves an amount that fits. Answers with the reservation's number and expiry.
    pub(super) fn hold(&mut self, slot: u32, now: Timestamp, amount: u64) -> (u64, Timestamp) {
        let limit = self.limit(slot);
        let held = limit.hold(now, amount);
        if !limit.mark_swept() {
            self.busy.push(slot);
        }
        held
    }

    /// Defines a limit, or changes it.
    pub(super) fn define(
        &mut self,
        now: Timestamp,
        limit: Limit,
    ) -> Result<LimitStatus, DefineError> {
        match self.find(&limit.key) {
            Some(slot) => {
                let live = self.limit(slot);
                live.expire(now);
                live.redefine(limit)
            }
            None => Ok(self.insert(RegisteredLimit::active(limit))),
        }
    }

    /// Puts in a limit whose key is not defined. Nothing of it is live, so a decrease that was under way ends here.
    pub(super) fn insert(&mut self, registered: RegisteredLimit) -> LimitStatus {
        let hash = registered.limit.key.place().hash();
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        let place = &mut self.slots[slot as usize];
        let Slot::Free { next_number } = *place else {
            unreachable!("a slot in the free list has no limit");
        };
        let live = LiveLimit::new(registered, next_number);
        let status = live.status();
        *place = Slot::Limit(live);
        let slots = &self.slots;
        let hash_at = |slot: &u32| {
            let limit = slots[*slot as usize].limit().expect("the index has slots with limits");
            limit.key().place().hash()
        };
        self.index.insert_unique(hash, slot, hash_at);
        status
    }

    fn add_slot(&mut self) -> u32 {
        let slot = u32::try_from(self.slots.len()).expect("a shard has fewer than 2^32 limits");
        self.slots.push(Slot::Free { next_number: 0 });
        slot
    }

    /// Takes out a limit with its reservations; false if the key is not defined.
    pub(super) fn remove(&mut self, key: &LimitKey) -> bool {
        let Some(slot) = self.find(key) else {
            return false;
        };
        let next_number = self.limit(slot).next_number();
        self.slots[slot as usize] = Slot::Free { next_number };
        let entry = self.index.find_entry(key.place().hash(), |other| *other == slot);
        entry.expect("the slot was found by this hash").remove();
        self.free.push(slot);
        self.busy.retain(|other| *other != slot);
        true
    }

    /// Returns what has expired in all limits, and ends decreases that have become possible.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let Self { busy, slots, .. } = self;
        busy.retain(|slot| {
            let limit = slots[*slot as usize].limit_mut().expect("busy slots have limits");
            limit.expire(now);
            limit.keep_swept_while_live()
        });
        if busy.is_empty() {
            busy.shrink_to(0);
        }
    }

    /// All limits, in no order.
    pub(super) fn limits_mut(&mut self) -> impl Iterator<Item = &mut LiveLimit> {
        self.slots.iter_mut().filter_map(Slot::limit_mut)
    }
}
