//! Open reservations with one lifetime, any of which can be removed at any time.

use smallvec::SmallVec;

use crate::clock::Timestamp;

/// No slot.
const NONE: u32 = u32::MAX;
/// With room for at most this many, nothing is released.
const ROOM_KEPT: usize = 16;

/// Reservations by slot, in a linked list in the order of expiry. Free slots form another list.
#[derive(Debug)]
pub(super) struct OpenReservations {
    /// The first is inline, so that a limit with few calls at a time needs one cache line for them.
    slots: SmallVec<[Slot; 1]>,
    oldest: u32,
    newest: u32,
    /// The first free slot, which links to the others by `newer`.
    free: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    expires_at: Timestamp,
    /// 0 in a free slot.
    amount: u64,
    older: u32,
    newer: u32,
}

impl Default for OpenReservations {
    fn default() -> Self {
        Self { slots: SmallVec::new(), oldest: NONE, newest: NONE, free: NONE }
    }
}

impl OpenReservations {
    pub(super) const fn is_empty(&self) -> bool {
        self.oldest == NONE
    }

    /// Adds a reservation, which expires at or after all others, and returns its slot.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        debug_assert!(amount > 0, "a requirement is never of nothing");
        let added = Slot { expires_at, amount, older: self.newest, newer: NONE };
        let slot = match self.slots.get_mut(self.free as usize) {
            Some(free) => {
                let slot = self.free;
                self.free = free.newer;
                *free = added;
                slot
            }
            None => {
                self.slots.push(added);
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 reservations")
            }
        };
        *self.newer_of(added.older) = slot;
        self.newest = slot;
        slot
    }

    #[inline]
    pub(super) fn amount_of(&self, slot: u32) -> u64 {
        self.slots[slot as usize].amount
    }

    /// Removes a reservation; returns when it would have expired, and its amount.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) -> (Timestamp, u64) {
        let removed = &mut self.slots[slot as usize];
        let Slot { expires_at, amount, older, newer } = *removed;
        assert!(amount > 0, "a reservation is removed once");
        removed.amount = 0;
        removed.newer = self.free;
        self.free = slot;
        *self.newer_of(older) = newer;
        *self.older_of(newer) = older;
        (expires_at, amount)
    }

    /// The link to the reservation after this one.
    #[inline]
    fn newer_of(&mut self, slot: u32) -> &mut u32 {
        match self.slots.get_mut(slot as usize) {
            Some(slot) => &mut slot.newer,
            None => &mut self.oldest,
        }
    }

    /// The link to the reservation before this one.
    #[inline]
    fn older_of(&mut self, slot: u32) -> &mut u32 {
        match self.slots.get_mut(slot as usize) {
            Some(slot) => &mut slot.older,
            None => &mut self.newest,
        }
    }

    /// Removes what has expired by `now`, and passes the amounts to `departed`.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(u64)) {
        while self.next_expiry().is_some_and(|expires_at| expires_at <= now) {
            departed(self.remove(self.oldest).1);
        }
    }

    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.slots.get(self.oldest as usize).map(|slot| slot.expires_at)
    }

    /// When each expires, and its amount, in the order of expiry.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        let at = |slot: u32| self.slots.get(slot as usize);
        let all = std::iter::successors(at(self.oldest), move |slot| at(slot.newer));
        all.map(|slot| (slot.expires_at, slot.amount))
    }

    /// Releases the memory of free slots after the last one in use, if that is most of it. A lasting reservation keeps the slots
    /// before its own, which are used again.
    pub(super) fn shrink_to_fit(&mut self) {
        let used = self.slots.iter().rposition(|slot| slot.amount > 0).map_or(0, |at| at + 1);
        if self.slots.capacity() <= ROOM_KEPT || used >= self.slots.capacity() / 4 {
            return;
        }
        self.slots.truncate(used);
        self.slots.shrink_to_fit();
        self.free = NONE;
        for (number, slot) in (0..).zip(&mut self.slots) {
            if slot.amount == 0 {
                slot.newer = self.free;
                self.free = number;
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

    fn expired(open: &mut OpenReservations, now: u64) -> Vec<u64> {
        let mut amounts = Vec::new();
        open.expire(at(now), |amount| amounts.push(amount));
        amounts
    }

    #[test]
    fn reservations_are_found_whatever_was_removed_before() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut open = OpenReservations::default();
        let mut expected: Vec<(u32, u64, u64)> = Vec::new();
        for n in 1..50_000 {
            let now = n / 200;
            let (live, dead): (Vec<_>, Vec<_>) =
                expected.into_iter().partition(|(_, expires_at, _)| *expires_at > now);
            expected = live;
            let dead: Vec<_> = dead.into_iter().map(|(_, _, amount)| amount).collect();
            assert_eq!(expired(&mut open, now), dead, "in their order");
            assert_eq!(open.is_empty(), expected.is_empty());
            let first = expected.first().map(|(_, expires_at, _)| at(*expires_at));
            assert_eq!(open.next_expiry(), first);
            if random.bool() && !expected.is_empty() {
                let (slot, expires_at, amount) = expected.remove(random.usize(..expected.len()));
                assert_eq!(open.amount_of(slot), amount);
                assert_eq!(open.remove(slot), (at(expires_at), amount));
            } else {
                expected.push((open.push(at(now + 1), n), now + 1, n));
            }
            if n % 1_000 == 0 {
                open.shrink_to_fit();
                let in_order = expected.iter().map(|(_, expires_at, n)| (at(*expires_at), *n));
                assert!(open.iter().eq(in_order));
            }
        }
    }

    /// MEM-03
    #[test]
    fn mem_03_a_lasting_reservation_does_not_keep_the_memory_of_later_ones() {
        let mut open = OpenReservations::default();
        open.push(at(1), 7);
        let mut later = std::collections::VecDeque::new();
        for _ in 0..100_000 {
            later.push_back(open.push(at(1), 1));
            if later.len() > 10 {
                open.remove(later.pop_front().unwrap());
            }
        }
        assert!(open.slots.capacity() <= 16, "{}", open.slots.capacity());
        assert_eq!(expired(&mut open, 1), [7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    /// MEM-03
    #[test]
    fn mem_03_the_memory_of_many_reservations_is_released() {
        let mut open = OpenReservations::default();
        let slots: Vec<_> = (0..1_000).map(|_| open.push(at(1), 1)).collect();
        for slot in &slots[2..] {
            open.remove(*slot);
        }
        open.shrink_to_fit();
        assert!(open.slots.capacity() <= 4, "{}", open.slots.capacity());
        open.remove(slots[0]);
        let again = [open.push(at(1), 2), open.push(at(2), 3)];
        assert_eq!(again.map(|slot| open.amount_of(slot)), [2, 3]);
        assert_eq!(expired(&mut open, 2), [1, 2, 3]);
    }
}
