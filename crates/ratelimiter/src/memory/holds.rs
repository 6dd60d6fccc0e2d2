//! Holds on one concurrency limit with the same timeout.

use smallvec::SmallVec;

use crate::clock::Timestamp;

/// At most this many slots are kept when the last hold ends, until a sweep.
const ROOM_KEPT_BETWEEN_SWEEPS: usize = 64;
/// At most this many slots are always kept.
const ROOM_KEPT: usize = 16;
/// No slot.
const NONE: u32 = u32::MAX;

/// Holds by slot in a linked list in the order of expiry, so that any of them is removed in constant time. Free slots form another
/// list.
#[derive(Debug)]
pub(super) struct Holds {
    /// The first two are inline, so that a limit with few holds needs one cache line for them.
    slots: SmallVec<[Hold; 2]>,
    oldest: u32,
    newest: u32,
    /// The first free slot, which links to the others by `newer`.
    free: u32,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    expires_at: Timestamp,
    /// 0 in a free slot.
    amount: u64,
    older: u32,
    newer: u32,
}

impl Default for Holds {
    fn default() -> Self {
        Self { slots: SmallVec::new(), oldest: NONE, newest: NONE, free: NONE }
    }
}

impl Holds {
    pub(super) const fn is_empty(&self) -> bool {
        self.oldest == NONE
    }

    /// Adds a hold, which expires at or after all others, and returns its slot.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        debug_assert!(amount > 0, "a requirement is never of nothing");
        let hold = Hold { expires_at, amount, older: self.newest, newer: NONE };
        let slot = match self.slots.get_mut(self.free as usize) {
            Some(free) => {
                let slot = self.free;
                self.free = free.newer;
                *free = hold;
                slot
            }
            None => {
                self.slots.push(hold);
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 holds")
            }
        };
        *self.newer_of(hold.older) = slot;
        self.newest = slot;
        slot
    }

    /// The amount of a hold.
    #[inline]
    pub(super) fn amount_of(&self, slot: u32) -> u64 {
        self.slots[slot as usize].amount
    }

    /// Removes a hold and returns its amount.
    #[inline]
    pub(super) fn release(&mut self, slot: u32) -> u64 {
        let hold = &mut self.slots[slot as usize];
        let Hold { amount, older, newer, .. } = *hold;
        assert!(amount > 0, "a hold is released once");
        hold.amount = 0;
        hold.newer = self.free;
        self.free = slot;
        *self.newer_of(older) = newer;
        *self.older_of(newer) = older;
        if self.is_empty() && self.slots.capacity() > ROOM_KEPT_BETWEEN_SWEEPS {
            *self = Self::default();
        }
        amount
    }

    /// What links to the hold after this one.
    #[inline]
    fn newer_of(&mut self, slot: u32) -> &mut u32 {
        match self.slots.get_mut(slot as usize) {
            Some(hold) => &mut hold.newer,
            None => &mut self.oldest,
        }
    }

    /// What links to the hold before this one.
    #[inline]
    fn older_of(&mut self, slot: u32) -> &mut u32 {
        match self.slots.get_mut(slot as usize) {
            Some(hold) => &mut hold.older,
            None => &mut self.newest,
        }
    }

    /// Removes what has expired by `now`, and passes the amounts to `departed`.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(u64)) {
        while self.next_expiry().is_some_and(|expires_at| expires_at <= now) {
            departed(self.release(self.oldest));
        }
    }

    /// When the first hold expires.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.slots.get(self.oldest as usize).map(|hold| hold.expires_at)
    }

    /// Releases the memory of free slots after the last hold, if that is most of it.
    pub(super) fn shrink_to_fit(&mut self) {
        let used = self.slots.iter().rposition(|hold| hold.amount > 0).map_or(0, |at| at + 1);
        if self.slots.capacity() <= ROOM_KEPT || used >= self.slots.capacity() / 4 {
            return;
        }
        self.slots.truncate(used);
        self.slots.shrink_to_fit();
        self.free = NONE;
        for (slot, hold) in (0..).zip(&mut self.slots) {
            if hold.amount == 0 {
                hold.newer = self.free;
                self.free = slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1_000)
    }

    fn expired(holds: &mut Holds, now: u64) -> Vec<u64> {
        let mut amounts = Vec::new();
        holds.expire(at(now), |amount| amounts.push(amount));
        amounts
    }

    #[test]
    fn holds_are_found_whatever_was_released_before() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut holds = Holds::default();
        let mut open: Vec<(u32, u64, u64)> = Vec::new();
        for n in 1..50_000 {
            let now = n / 200;
            let (live, dead): (Vec<_>, Vec<_>) =
                open.into_iter().partition(|(_, expires_at, _)| *expires_at > now);
            open = live;
            let dead: Vec<_> = dead.into_iter().map(|(_, _, amount)| amount).collect();
            assert_eq!(expired(&mut holds, now), dead, "in their order");
            assert_eq!(holds.is_empty(), open.is_empty());
            assert_eq!(holds.next_expiry(), open.first().map(|(_, expires_at, _)| at(*expires_at)));
            if random.bool() && !open.is_empty() {
                let (slot, _, amount) = open.remove(random.usize(..open.len()));
                assert_eq!(holds.amount_of(slot), amount);
                holds.release(slot);
            } else {
                open.push((holds.push(at(now + 1), n), now + 1, n));
            }
            if n % 1_000 == 0 {
                holds.shrink_to_fit();
            }
        }
    }

    /// MEM-03
    #[test]
    fn mem_03_a_lasting_hold_does_not_keep_the_memory_of_later_ones() {
        let mut holds = Holds::default();
        holds.push(at(1), 7);
        let mut open = std::collections::VecDeque::new();
        for _ in 0..100_000 {
            open.push_back(holds.push(at(1), 1));
            if open.len() > 10 {
                holds.release(open.pop_front().unwrap());
            }
        }
        assert!(holds.slots.capacity() <= 16, "{}", holds.slots.capacity());
        assert_eq!(expired(&mut holds, 1), [7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    /// MEM-03
    #[test]
    fn mem_03_the_memory_of_many_holds_is_released() {
        let mut holds = Holds::default();
        let slots: Vec<_> = (0..1_000).map(|_| holds.push(at(1), 1)).collect();
        for slot in &slots[2..] {
            holds.release(*slot);
        }
        holds.shrink_to_fit();
        assert!(holds.slots.capacity() <= 4, "{}", holds.slots.capacity());
        holds.release(slots[0]);
        let again = [holds.push(at(1), 2), holds.push(at(2), 3)];
        assert_eq!(again.map(|slot| holds.amount_of(slot)), [2, 3]);
        assert_eq!(expired(&mut holds, 2), [1, 2, 3]);
    }
}
