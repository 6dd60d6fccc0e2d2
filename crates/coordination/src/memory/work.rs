//! Work items, for messages, timers and runs: `Ready → Claimed → Done / Dead`.
//!
//! Plain data with `now` as an argument: no lock, no clock, no I/O. Each state has its own ordered
//! index, so that a claim reads only due items, a reap only expired ones, and a purge only old
//! ones.

mod ready;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

pub(super) use self::ready::LaneFilter;
use self::ready::Ready;
use crate::{BatchSize, LeaseDuration, OwnerToken, Retention, Timestamp};

/// Work items by key. Items in different lanes `L` can be claimed separately.
#[derive(Debug)]
pub(super) struct WorkItems<K, V, L = ()> {
    items: HashMap<K, Item<V, L>>,
    /// The next item's place in creation order.
    next_place: u64,
    ready: Ready<K, L>,
    claimed: BTreeMap<(Timestamp, u64), K>,
    /// By lane and outcome, each by the time it was finished. No list is empty.
    finished: BTreeMap<(L, Outcome), BTreeMap<(Timestamp, u64), K>>,
}

#[derive(Debug)]
pub(super) struct Item<V, L = ()> {
    place: u64,
    lane: L,
    pub(super) state: State,
    /// When it is or was due.
    pub(super) due_at: Timestamp,
    /// How often it was claimed.
    pub(super) attempts: u32,
    /// The caller's data.
    pub(super) value: V,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Due now or later.
    Ready,
    Claimed {
        owner: OwnerToken,
        until: Timestamp,
    },
    Finished {
        outcome: Outcome,
        at: Timestamp,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Done,
    Dead,
}

impl<K, V, L> Default for WorkItems<K, V, L> {
    fn default() -> WorkItems<K, V, L> {
        WorkItems {
            items: HashMap::new(),
            next_place: 0,
            ready: Ready::default(),
            claimed: BTreeMap::new(),
            finished: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, V, L: Ord + Clone> WorkItems<K, V, L> {
    pub(super) fn get(&self, key: &K) -> Option<&Item<V, L>> {
        self.items.get(key)
    }

    /// Adds a ready item to a lane. The key must be new.
    pub(super) fn add(&mut self, lane: L, key: K, due_at: Timestamp, value: V) {
        let place = self.next_place;
        self.next_place += 1;
        self.ready.add(&lane, due_at, place, key.clone());
        let item = Item { place, lane, state: State::Ready, due_at, attempts: 0, value };
        let before = self.items.insert(key, item);
        assert!(before.is_none(), "an item is added once");
    }

    /// Claims up to `max` due items of these lanes, in creation order, and maps each with `show`.
    pub(super) fn claim<T>(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        filter: &LaneFilter<'_, L>,
        mut show: impl FnMut(&K, &mut Item<V, L>) -> T,
    ) -> Vec<T> {
        let until = now.after(lease.get());
        let taken = self.ready.take_due(now, max.as_usize(), filter);
        let mut claimed = Vec::with_capacity(taken.len());
        for (place, key) in taken {
            let item = self.items.get_mut(&key).expect("every listed key has an item");
            assert!(item.state == State::Ready && item.place == place, "ready items are listed");
            item.state = State::Claimed { owner: owner.clone(), until };
            item.attempts += 1;
            claimed.push(show(&key, item));
            self.claimed.insert((until, place), key);
        }
        claimed
    }

    /// Extends the claim to at least `until` if `owner` has claimed the item, and returns its
    /// value.
    pub(super) fn extend(
        &mut self,
        owner: &OwnerToken,
        key: &K,
        until: Timestamp,
    ) -> Option<&mut V> {
        let item = self.items.get_mut(key)?;
        match &mut item.state {
            State::Claimed { owner: claimer, until: before } if claimer == owner => {
                if *before < until {
                    let key = self.claimed.remove(&(*before, item.place));
                    let key = key.expect("claimed items are listed");
                    self.claimed.insert((until, item.place), key);
                    *before = until;
                }
                Some(&mut item.value)
            }
            State::Ready | State::Claimed { .. } | State::Finished { .. } => None,
        }
    }

    /// Finishes the item if `owner` has claimed it, and returns its value.
    ///
    /// An expired claim is valid until it is reaped: the work was done, and no other owner has the
    /// item.
    pub(super) fn finish(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        key: &K,
        outcome: Outcome,
    ) -> Option<&mut V> {
        self.unlist_claimed_by(owner, key)?;
        Some(self.list_finished(now, key, outcome))
    }

    /// Makes the item ready at `due_at` if `owner` has claimed it.
    pub(super) fn give_back(
        &mut self,
        owner: &OwnerToken,
        key: &K,
        due_at: Timestamp,
    ) -> Option<&mut V> {
        self.unlist_claimed_by(owner, key)?;
        Some(self.list_ready(key, due_at))
    }

    /// Finishes the item if it is ready.
    pub(super) fn cancel(&mut self, now: Timestamp, key: &K) -> Option<&mut V> {
        self.unlist_ready(key)?;
        Some(self.list_finished(now, key, Outcome::Dead))
    }

    /// The dead items, unordered.
    pub(super) fn dead(&self) -> impl Iterator<Item = &K> {
        let is_dead = |(_, item): &(&K, &Item<V, L>)| {
            matches!(item.state, State::Finished { outcome: Outcome::Dead, .. })
        };
        self.items.iter().filter(is_dead).map(|(key, _)| key)
    }

    /// Makes a dead item ready at `due_at`.
    pub(super) fn revive(&mut self, key: &K, due_at: Timestamp) -> Option<&mut V> {
        let item = self.items.get(key)?;
        let State::Finished { outcome: Outcome::Dead, at } = item.state else {
            return None;
        };
        let place = item.place;
        let lane = (item.lane.clone(), Outcome::Dead);
        let listed = self.finished.get_mut(&lane).expect("finished items are listed");
        listed.remove(&(at, place)).expect("finished items are listed");
        if listed.is_empty() {
            self.finished.remove(&lane);
        }
        Some(self.list_ready(key, due_at))
    }

    /// Makes items ready whose claim has expired; their due time stays.
    pub(super) fn reap(&mut self, now: Timestamp) -> Vec<K> {
        let mut reaped = Vec::new();
        while let Some(entry) = self.claimed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            let due_at = self.items[&key].due_at;
            self.list_ready(&key, due_at);
            reaped.push(key);
        }
        reaped
    }

    /// Deletes finished items of these lanes whose retention has passed, and passes each to
    /// `forget`.
    pub(super) fn purge(
        &mut self,
        now: Timestamp,
        filter: &LaneFilter<'_, L>,
        keep: Retention,
        mut forget: impl FnMut(K, V),
    ) -> usize {
        let mut count = 0;
        let items = &mut self.items;
        self.finished.retain(|(lane, outcome), listed| {
            if !filter.contains(lane) {
                return true;
            }
            let finished_until = match outcome {
                Outcome::Done => now.before(keep.done),
                Outcome::Dead => now.before(keep.dead),
            };
            while let Some(entry) = listed.first_entry() {
                if entry.key().0 > finished_until {
                    break;
                }
                let key = entry.remove();
                let item = items.remove(&key).expect("every listed key has an item");
                forget(key, item.value);
                count += 1;
            }
            !listed.is_empty()
        });
        count
    }

    /// When the earliest ready item is or was due.
    pub(super) fn next_due_at(&self) -> Option<Timestamp> {
        self.ready.first_due_at()
    }

    /// How long until a ready item of these lanes is due; zero if one is.
    pub(super) fn next_due_after(
        &mut self,
        now: Timestamp,
        filter: &LaneFilter<'_, L>,
    ) -> Option<Duration> {
        self.ready.next_due_at(now, filter).map(|due_at| due_at.since(now))
    }

    /// How long the oldest ready and due item has been due.
    pub(super) fn oldest_ready_age(&self, now: Timestamp) -> Option<Duration> {
        self.next_due_at().filter(|due_at| *due_at <= now).map(|due_at| now.since(due_at))
    }

    fn unlist_claimed_by(&mut self, owner: &OwnerToken, key: &K) -> Option<()> {
        let item = self.items.get(key)?;
        match &item.state {
            State::Claimed { owner: claimer, until } if claimer == owner => {
                self.claimed.remove(&(*until, item.place)).expect("claimed items are listed");
                Some(())
            }
            State::Ready | State::Claimed { .. } | State::Finished { .. } => None,
        }
    }

    fn unlist_ready(&mut self, key: &K) -> Option<()> {
        let item = self.items.get(key)?;
        match item.state {
            State::Ready => self.ready.remove(&item.lane, item.due_at, item.place),
            State::Claimed { .. } | State::Finished { .. } => return None,
        }
        Some(())
    }

    fn list_ready(&mut self, key: &K, due_at: Timestamp) -> &mut V {
        let item = self.items.get_mut(key).expect("the caller looked the item up");
        item.state = State::Ready;
        item.due_at = due_at;
        self.ready.add(&item.lane, due_at, item.place, key.clone());
        &mut item.value
    }

    fn list_finished(&mut self, now: Timestamp, key: &K, outcome: Outcome) -> &mut V {
        let item = self.items.get_mut(key).expect("the caller looked the item up");
        item.state = State::Finished { outcome, at: now };
        let listed = self.finished.entry((item.lane.clone(), outcome)).or_default();
        listed.insert((now, item.place), key.clone());
        &mut item.value
    }
}

#[cfg(test)]
mod tests;
