//! The life of a work item, once for messages, timers and runs: `Ready → Claimed → Done / Dead`.
//!
//! Plain data with `now` as an argument: no lock, no clock, no I/O. Each state has its own ordered
//! index, so that a claim looks only at what is due, a reap only at what has run out, and a purge
//! only at what is old.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use crate::{BatchSize, LeaseDuration, OwnerToken, Timestamp};

/// Work items by key, with what the caller keeps of each.
#[derive(Debug)]
pub(super) struct WorkItems<K, V> {
    items: HashMap<K, Item<V>>,
    /// The next item's place in the order of creation.
    next_place: u64,
    /// Ready, and not seen to be due yet.
    waiting: BTreeMap<(Timestamp, u64), K>,
    /// Ready and due, in the order of creation…
    due: BTreeMap<u64, K>,
    /// …and the same items by when they became due.
    due_since: BTreeSet<(Timestamp, u64)>,
    claimed: BTreeMap<(Timestamp, u64), K>,
    finished: BTreeMap<(Timestamp, u64), K>,
}

#[derive(Debug)]
struct Item<V> {
    place: u64,
    state: State,
    /// When it is or was due.
    due_at: Timestamp,
    /// How often it was claimed.
    attempts: u32,
    value: V,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Listed in `waiting`.
    Waiting,
    /// Listed in `due` and `due_since`.
    Due,
    Claimed {
        owner: OwnerToken,
        until: Timestamp,
    },
    Finished {
        outcome: Outcome,
        at: Timestamp,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Dead,
}

/// An item as the caller sees it.
#[derive(Debug)]
pub(super) struct View<'a, V> {
    pub(super) state: &'a State,
    pub(super) due_at: Timestamp,
    pub(super) attempts: u32,
    pub(super) value: &'a V,
}

impl<K, V> Default for WorkItems<K, V> {
    fn default() -> WorkItems<K, V> {
        WorkItems {
            items: HashMap::new(),
            next_place: 0,
            waiting: BTreeMap::new(),
            due: BTreeMap::new(),
            due_since: BTreeSet::new(),
            claimed: BTreeMap::new(),
            finished: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, V> WorkItems<K, V> {
    pub(super) fn contains(&self, key: &K) -> bool {
        self.items.contains_key(key)
    }

    pub(super) fn get(&self, key: &K) -> Option<View<'_, V>> {
        self.items.get(key).map(Item::view)
    }

    /// Adds a ready item. The key must be new.
    pub(super) fn add(&mut self, key: K, due_at: Timestamp, value: V) {
        let place = self.next_place;
        self.next_place += 1;
        self.waiting.insert((due_at, place), key.clone());
        let item = Item { place, state: State::Waiting, due_at, attempts: 0, value };
        let before = self.items.insert(key, item);
        assert!(before.is_none(), "an item is added once");
    }

    /// Claims up to `max` due items in the order of their creation, and shows each to `see`.
    pub(super) fn claim<T>(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        mut see: impl FnMut(&K, View<'_, V>) -> T,
    ) -> Vec<T> {
        self.notice_due(now);
        let until = now.after(lease.get());
        let mut claimed = Vec::with_capacity(max.as_usize().min(self.due.len()));
        while claimed.len() < max.as_usize() {
            let Some((place, key)) = self.due.pop_first() else {
                break;
            };
            let item = self.items.get_mut(&key).expect("every listed key has an item");
            assert!(item.state == State::Due && item.place == place, "only due items are listed");
            assert!(self.due_since.remove(&(item.due_at, place)), "due items are listed twice");
            item.state = State::Claimed { owner: owner.clone(), until };
            item.attempts += 1;
            claimed.push(see(&key, item.view()));
            self.claimed.insert((until, place), key);
        }
        claimed
    }

    /// Finishes the item if `owner` has claimed it; then what the caller keeps of it is the answer.
    ///
    /// A claim that has run out still counts until it is reaped: the work was done, and nobody else
    /// has it.
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
        Some(self.list_waiting(key, due_at))
    }

    /// Finishes the item if nobody has claimed it.
    pub(super) fn cancel(&mut self, now: Timestamp, key: &K) -> Option<&mut V> {
        self.unlist_ready(key)?;
        Some(self.list_finished(now, key, Outcome::Dead))
    }

    /// Makes a dead item ready at `due_at`; the answer has how often it was claimed before.
    pub(super) fn revive(&mut self, key: &K, due_at: Timestamp) -> Option<(&mut V, u32)> {
        let item = self.items.get(key)?;
        let State::Finished { outcome: Outcome::Dead, at } = item.state else {
            return None;
        };
        let (place, attempts) = (item.place, item.attempts);
        self.finished.remove(&(at, place)).expect("finished items are listed");
        Some((self.list_waiting(key, due_at), attempts))
    }

    /// Makes items ready whose claim has run out; they are due since they were before.
    pub(super) fn reap(&mut self, now: Timestamp) -> Vec<K> {
        let mut reaped = Vec::new();
        while let Some(entry) = self.claimed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            let due_at = self.items[&key].due_at;
            self.list_waiting(&key, due_at);
            reaped.push(key);
        }
        reaped
    }

    /// Forgets items that were finished at `finished_until` or before, and shows each to `forget`.
    pub(super) fn purge(
        &mut self,
        finished_until: Timestamp,
        mut forget: impl FnMut(K, V),
    ) -> usize {
        let mut count = 0;
        while let Some(entry) = self.finished.first_entry() {
            if entry.key().0 > finished_until {
                break;
            }
            let key = entry.remove();
            let item = self.items.remove(&key).expect("every listed key has an item");
            forget(key, item.value);
            count += 1;
        }
        count
    }

    /// When the earliest ready item is or was due.
    pub(super) fn next_due_at(&self) -> Option<Timestamp> {
        let waiting = self.waiting.first_key_value().map(|((due_at, _), _)| *due_at);
        let due = self.due_since.first().map(|(due_at, _)| *due_at);
        waiting.into_iter().chain(due).min()
    }

    /// How long the oldest ready and due item has been due.
    pub(super) fn oldest_ready_age(&self, now: Timestamp) -> Option<Duration> {
        self.next_due_at().filter(|due_at| *due_at <= now).map(|due_at| now.since(due_at))
    }

    /// Lists as due what has become due. Each item passes here once per wait, so a claim pays for
    /// due items only.
    fn notice_due(&mut self, now: Timestamp) {
        self.notice_a_clock_set_back(now);
        while let Some(entry) = self.waiting.first_entry() {
            let (due_at, place) = *entry.key();
            if due_at > now {
                break;
            }
            let key = entry.remove();
            self.items.get_mut(&key).expect("every listed key has an item").state = State::Due;
            self.due.insert(place, key);
            self.due_since.insert((due_at, place));
        }
    }

    /// Lists as waiting again what is not due any more.
    fn notice_a_clock_set_back(&mut self, now: Timestamp) {
        while let Some((due_at, place)) = self.due_since.last().copied().filter(|last| last.0 > now)
        {
            self.due_since.remove(&(due_at, place));
            let key = self.due.remove(&place).expect("due items are listed twice");
            self.list_waiting(&key, due_at);
        }
    }

    fn unlist_claimed_by(&mut self, owner: &OwnerToken, key: &K) -> Option<()> {
        let item = self.items.get(key)?;
        match &item.state {
            State::Claimed { owner: claimer, until } if claimer == owner => {
                self.claimed.remove(&(*until, item.place)).expect("claimed items are listed");
                Some(())
            }
            State::Waiting | State::Due | State::Claimed { .. } | State::Finished { .. } => None,
        }
    }

    fn unlist_ready(&mut self, key: &K) -> Option<()> {
        let item = self.items.get(key)?;
        match item.state {
            State::Waiting => {
                self.waiting.remove(&(item.due_at, item.place)).expect("waiting items are listed");
            }
            State::Due => {
                self.due.remove(&item.place).expect("due items are listed");
                assert!(self.due_since.remove(&(item.due_at, item.place)), "due items are listed");
            }
            State::Claimed { .. } | State::Finished { .. } => return None,
        }
        Some(())
    }

    fn list_waiting(&mut self, key: &K, due_at: Timestamp) -> &mut V {
        let item = self.items.get_mut(key).expect("the caller looked the item up");
        item.state = State::Waiting;
        item.due_at = due_at;
        self.waiting.insert((due_at, item.place), key.clone());
        &mut item.value
    }

    fn list_finished(&mut self, now: Timestamp, key: &K, outcome: Outcome) -> &mut V {
        let item = self.items.get_mut(key).expect("the caller looked the item up");
        item.state = State::Finished { outcome, at: now };
        self.finished.insert((now, item.place), key.clone());
        &mut item.value
    }
}

impl<V> Item<V> {
    fn view(&self) -> View<'_, V> {
        View {
            state: &self.state,
            due_at: self.due_at,
            attempts: self.attempts,
            value: &self.value,
        }
    }
}

#[cfg(test)]
mod tests;
