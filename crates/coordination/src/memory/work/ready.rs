//! Ready items in lanes: one lane per topic, or one for all.
//!
//! Each lane keeps its items in order, and the lanes are ordered by their first items. So a claim
//! reads only the items it takes and the lanes it names, whatever waits in the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::Timestamp;

/// Ready items by lane. An item is identified by its lane, due time, and place in creation order.
#[derive(Debug)]
pub(super) struct Ready<K, L> {
    /// Only lanes with items.
    lanes: BTreeMap<L, Lane<K>>,
    /// The first item of each lane's `waiting`.
    waiting_heads: BTreeSet<(Timestamp, u64, L)>,
    /// The first item of each lane's `due`.
    due_heads: BTreeSet<(u64, L)>,
    /// All due items, by when they became due.
    due_since: BTreeMap<(Timestamp, u64), L>,
}

#[derive(Debug)]
struct Lane<K> {
    /// Not yet moved to `due`.
    waiting: BTreeMap<(Timestamp, u64), K>,
    /// Due, in creation order.
    due: BTreeMap<u64, (Timestamp, K)>,
}

/// Some of the lanes.
#[derive(Debug)]
pub(in super::super) enum LaneFilter<'a, L> {
    All,
    Only(&'a BTreeSet<L>),
    Except(&'a BTreeSet<L>),
}

impl<L: Ord> LaneFilter<'_, L> {
    /// Whether this lane is included.
    pub(super) fn contains(&self, lane: &L) -> bool {
        match self {
            LaneFilter::All => true,
            LaneFilter::Only(lanes) => lanes.contains(lane),
            LaneFilter::Except(lanes) => !lanes.contains(lane),
        }
    }
}

impl<K, L> Default for Ready<K, L> {
    fn default() -> Ready<K, L> {
        Ready {
            lanes: BTreeMap::new(),
            waiting_heads: BTreeSet::new(),
            due_heads: BTreeSet::new(),
            due_since: BTreeMap::new(),
        }
    }
}

impl<K, L: Ord + Clone> Ready<K, L> {
    pub(super) fn add(&mut self, lane: &L, due_at: Timestamp, place: u64, key: K) {
        self.change(lane, |lane| lane.waiting.insert((due_at, place), key));
    }

    /// Removes an item, which must be there.
    pub(super) fn remove(&mut self, lane: &L, due_at: Timestamp, place: u64) {
        let removed = self.change(lane, |lane| {
            lane.waiting.remove(&(due_at, place)).is_some() || lane.due.remove(&place).is_some()
        });
        assert!(removed, "ready items are listed");
        self.due_since.remove(&(due_at, place));
    }

    /// Removes up to `max` due items of these lanes, in creation order.
    pub(super) fn take_due(
        &mut self,
        now: Timestamp,
        max: usize,
        filter: &LaneFilter<'_, L>,
    ) -> Vec<(u64, K)> {
        self.move_due(now);
        let mut heads = self.take_heads(filter);
        let mut taken = Vec::with_capacity(max.min(self.due_since.len()));
        while taken.len() < max
            && let Some((_, name)) = heads.pop_first()
        {
            let lane = self.lanes.get_mut(&name).expect("a head has a lane");
            let (place, (due_at, key)) = lane.due.pop_first().expect("a head is an item");
            self.due_since.remove(&(due_at, place)).expect("due items are listed twice");
            match lane.due.first_key_value().map(|(place, _)| *place) {
                Some(next) => {
                    heads.insert((next, name));
                }
                None if lane.waiting.is_empty() => {
                    self.lanes.remove(&name);
                }
                None => {}
            }
            taken.push((place, key));
        }
        self.put_back_heads(heads);
        taken
    }

    /// When the next item of these lanes is due: not after `now` if one is due.
    pub(super) fn next_due_at(
        &mut self,
        now: Timestamp,
        filter: &LaneFilter<'_, L>,
    ) -> Option<Timestamp> {
        self.move_due(now);
        match filter {
            LaneFilter::All => self.first_due_at(),
            LaneFilter::Only(lanes) => {
                let lanes = lanes.iter().filter_map(|name| self.lanes.get(name));
                let first = |lane: &Lane<K>| match lane.due.first_key_value() {
                    Some((_, (due_at, _))) => Some(*due_at),
                    None => lane.waiting.first_key_value().map(|((due_at, _), _)| *due_at),
                };
                lanes.filter_map(first).min()
            }
            // At most as many heads are skipped as lanes are excepted.
            LaneFilter::Except(lanes) => {
                if self.due_heads.iter().any(|(_, name)| !lanes.contains(name)) {
                    return Some(now);
                }
                let mut waiting = self.waiting_heads.iter();
                let first = waiting.find(|(_, _, name)| !lanes.contains(name));
                first.map(|(due_at, _, _)| *due_at)
            }
        }
    }

    /// The earliest due time of all items.
    pub(super) fn first_due_at(&self) -> Option<Timestamp> {
        let waiting = self.waiting_heads.first().map(|(due_at, _, _)| *due_at);
        let due = self.due_since.first_key_value().map(|((due_at, _), _)| *due_at);
        waiting.into_iter().chain(due).min()
    }

    /// Moves items that have become due from `waiting` to `due`. Each item moves once per wait, so
    /// a claim costs nothing for items that are not due.
    fn move_due(&mut self, now: Timestamp) {
        self.handle_clock_step_back(now);
        while let Some((due_at, place, name)) = self.waiting_heads.first().cloned() {
            if due_at > now {
                break;
            }
            self.change(&name, |lane| {
                let key = lane.waiting.remove(&(due_at, place)).expect("a head is an item");
                lane.due.insert(place, (due_at, key));
            });
            self.due_since.insert((due_at, place), name);
        }
    }

    /// Moves items back that are no longer due, because the clock was set back.
    fn handle_clock_step_back(&mut self, now: Timestamp) {
        while let Some(last) = self.due_since.last_entry() {
            let (due_at, place) = *last.key();
            if due_at <= now {
                break;
            }
            let name = last.remove();
            self.change(&name, |lane| {
                let (_, key) = lane.due.remove(&place).expect("due items are listed twice");
                lane.waiting.insert((due_at, place), key);
            });
        }
    }

    /// Changes a lane and updates its heads.
    fn change<T>(&mut self, name: &L, change: impl FnOnce(&mut Lane<K>) -> T) -> T {
        if !self.lanes.contains_key(name) {
            self.lanes.insert(name.clone(), Lane::default());
        }
        let lane = self.lanes.get_mut(name).expect("it was just made");
        let (waiting, due) = lane.heads();
        let result = change(lane);
        let (waiting_now, due_now) = lane.heads();
        if lane.waiting.is_empty() && lane.due.is_empty() {
            self.lanes.remove(name);
        }
        if waiting != waiting_now {
            waiting.map(|(at, place)| self.waiting_heads.remove(&(at, place, name.clone())));
            waiting_now.map(|(at, place)| self.waiting_heads.insert((at, place, name.clone())));
        }
        if due != due_now {
            due.map(|place| self.due_heads.remove(&(place, name.clone())));
            due_now.map(|place| self.due_heads.insert((place, name.clone())));
        }
        result
    }

    /// Removes the heads of these lanes; the caller puts them back.
    fn take_heads(&mut self, filter: &LaneFilter<'_, L>) -> BTreeSet<(u64, L)> {
        let named = match filter {
            LaneFilter::All => return std::mem::take(&mut self.due_heads),
            LaneFilter::Only(lanes) | LaneFilter::Except(lanes) => {
                lanes.iter().filter_map(|name| {
                    let (place, _) = self.lanes.get(name)?.due.first_key_value()?;
                    self.due_heads.take(&(*place, name.clone()))
                })
            }
        };
        let named: BTreeSet<(u64, L)> = named.collect();
        match filter {
            LaneFilter::Except(_) => std::mem::replace(&mut self.due_heads, named),
            LaneFilter::All | LaneFilter::Only(_) => named,
        }
    }

    fn put_back_heads(&mut self, mut heads: BTreeSet<(u64, L)>) {
        if heads.len() > self.due_heads.len() {
            std::mem::swap(&mut heads, &mut self.due_heads);
        }
        self.due_heads.extend(heads);
    }
}

impl<K> Default for Lane<K> {
    fn default() -> Lane<K> {
        Lane { waiting: BTreeMap::new(), due: BTreeMap::new() }
    }
}

impl<K> Lane<K> {
    fn heads(&self) -> (Option<(Timestamp, u64)>, Option<u64>) {
        let waiting = self.waiting.first_key_value().map(|(first, _)| *first);
        (waiting, self.due.first_key_value().map(|(place, _)| *place))
    }
}

#[cfg(test)]
impl<K, L: Ord + Clone> Ready<K, L> {
    pub(super) fn len(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len() + lane.due.len()).sum()
    }

    /// Every item is listed where it belongs, and nowhere else.
    pub(super) fn check(&self) {
        let mut waiting_heads = BTreeSet::new();
        let mut due_heads = BTreeSet::new();
        let mut due_since = BTreeSet::new();
        for (name, lane) in &self.lanes {
            let (waiting, due) = lane.heads();
            assert!(waiting.is_some() || due.is_some(), "no empty lane is kept");
            waiting_heads.extend(waiting.map(|(at, place)| (at, place, name.clone())));
            due_heads.extend(due.map(|place| (place, name.clone())));
            due_since.extend(lane.due.iter().map(|(place, (at, _))| (*at, *place)));
        }
        assert!(waiting_heads == self.waiting_heads);
        assert!(due_heads == self.due_heads);
        assert!(due_since.iter().eq(self.due_since.keys()));
    }
}
