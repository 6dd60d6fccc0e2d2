//! A part of the limits: those whose keys fall into one shard.

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
    /// The slots of limits with live reservations: the only ones that a sweep looks at.
    busy: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    /// The hash of the limit's key.
    hash: u64,
    state: SlotState,
    /// True while the slot stands in `busy`.
    is_busy: bool,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all slots have a limit, and a request finds it a step sooner"
)]
enum SlotState {
    Limit(LiveLimit),
    /// No limit; the next one goes on counting reservations here.
    Free {
        next_number: u64,
    },
}

impl LimitShard {
    /// The slot of a key.
    pub(super) fn find(&self, hash: u64, key: &LimitKey) -> Option<u32> {
        let same = |slot: &u32| {
            self.limit_at(*slot)
                .is_some_and(|limit| limit.limit().key == *key)
        };
        self.index.find(hash, same).copied()
    }

    /// The limit in a slot, if there is one.
    pub(super) fn limit_at(&self, slot: u32) -> Option<&LiveLimit> {
        match &self.slots[slot as usize].state {
            SlotState::Limit(limit) => Some(limit),
            SlotState::Free { .. } => None,
        }
    }

    /// The limit in a slot, if there is one.
    pub(super) fn limit_at_mut(&mut self, slot: u32) -> Option<&mut LiveLimit> {
        match &mut self.slots[slot as usize].state {
            SlotState::Limit(limit) => Some(limit),
            SlotState::Free { .. } => None,
        }
    }

    /// The limit in a slot that was found for a key.
    pub(super) fn limit(&mut self, slot: u32) -> &mut LiveLimit {
        self.limit_at_mut(slot)
            .expect("the slot was found for a key under the same lock")
    }

    /// Reserves an amount that fits. Answers with the reservation's number and expiry.
    pub(super) fn hold(&mut self, slot: u32, now: Timestamp, amount: u64) -> (u64, Timestamp) {
        let held = self.limit(slot).hold(now, amount);
        let entry = &mut self.slots[slot as usize];
        if !entry.is_busy {
            entry.is_busy = true;
            self.busy.push(slot);
        }
        held
    }

    /// Defines a limit, or changes it.
    pub(super) fn define(
        &mut self,
        now: Timestamp,
        hash: u64,
        limit: Limit,
    ) -> Result<LimitStatus, DefineError> {
        match self.find(hash, &limit.key) {
            Some(slot) => {
                let live = self.limit(slot);
                live.expire(now);
                live.redefine(limit)
            }
            None => Ok(self.insert(hash, RegisteredLimit::active(limit))),
        }
    }

    /// Puts in a limit whose key is not defined.
    pub(super) fn insert(&mut self, hash: u64, registered: RegisteredLimit) -> LimitStatus {
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        let entry = &mut self.slots[slot as usize];
        let SlotState::Free { next_number } = entry.state else {
            unreachable!("a slot in the free list has no limit");
        };
        entry.hash = hash;
        let mut live = LiveLimit::new(registered, next_number);
        // Nothing is live in a new limit, so a decrease that was under way ends here.
        live.settle_if_possible();
        let status = live.status();
        entry.state = SlotState::Limit(live);
        let slots = &self.slots;
        self.index
            .insert_unique(hash, slot, |slot| slots[*slot as usize].hash);
        status
    }

    fn add_slot(&mut self) -> u32 {
        let slot = u32::try_from(self.slots.len()).expect("a shard has fewer than 2^32 limits");
        let state = SlotState::Free { next_number: 0 };
        self.slots.push(Slot {
            hash: 0,
            state,
            is_busy: false,
        });
        slot
    }

    /// Takes out a limit with its reservations; false if the key is not defined.
    pub(super) fn remove(&mut self, hash: u64, key: &LimitKey) -> bool {
        let Some(slot) = self.find(hash, key) else {
            return false;
        };
        let next_number = self.limit(slot).next_number();
        self.slots[slot as usize].state = SlotState::Free { next_number };
        let entry = self.index.find_entry(hash, |other| *other == slot);
        entry.expect("the slot was found by this hash").remove();
        self.free.push(slot);
        true
    }

    /// Returns what has expired in all limits, and ends decreases that have become possible.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let Self { busy, slots, .. } = self;
        busy.retain(|slot| {
            let entry = &mut slots[*slot as usize];
            if let SlotState::Limit(limit) = &mut entry.state {
                limit.expire(now);
                entry.is_busy = !limit.is_idle();
            } else {
                entry.is_busy = false;
            }
            entry.is_busy
        });
        if busy.is_empty() {
            busy.shrink_to(0);
        }
    }

    /// All limits, in no order, to look at them.
    pub(super) fn limits_mut(&mut self) -> impl Iterator<Item = &mut LiveLimit> {
        self.slots
            .iter_mut()
            .filter_map(|slot| match &mut slot.state {
                SlotState::Limit(limit) => Some(limit),
                SlotState::Free { .. } => None,
            })
    }
}
