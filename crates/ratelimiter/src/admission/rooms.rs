//! Rooms, where waiters wait: one for each queue, and one for each gate that holds waiters up. The lanes of a room take turns.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::WaiterId;
use super::gates::GateId;
use crate::clock::Timestamp;

/// Whose room it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// Waiters of this queue that have not asked yet, or that nothing holds up.
    Queue(Arc<str>),
    /// Waiters that this gate holds up.
    Gate(GateId),
}

/// The ID of a room while a waiter is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RoomId(u64);

/// A waiter as its room knows it.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    pub(super) id: WaiterId,
    pub(super) lane: &'a Arc<str>,
    /// What it needs of the gate's limit; 0 in the room of a queue.
    pub(super) amount: u64,
    /// It goes first at a gate, perhaps at another one.
    pub(super) goes_first: bool,
    /// By the gate's limit.
    pub(super) was_denied: bool,
    /// The turn that its lane gets back, because the waiter was denied.
    pub(super) turn: Option<TurnNumber>,
}

/// The number of a lane's turn; the lowest is next.
pub(super) type TurnNumber = u64;

/// All rooms with waiters. One that is asleep is skipped until its time comes or an event wakes it.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    ids: HashMap<Place, RoomId, RandomState>,
    rooms: HashMap<RoomId, Room, RandomState>,
    /// The rooms that are awake, the next one in front.
    awake: VecDeque<RoomId>,
    /// The rooms that are asleep until a time.
    due: BTreeSet<(Timestamp, RoomId)>,
    opened: u64,
    /// The turns that lanes got so far.
    turns: TurnNumber,
}

#[derive(Debug)]
struct Room {
    place: Place,
    /// No lane is empty.
    lanes: HashMap<Arc<str>, Lane, RandomState>,
    /// The names of `lanes`.
    turns: BTreeMap<TurnNumber, Arc<str>>,
    /// The number of waiters by amount.
    amounts: BTreeMap<u64, usize>,
    /// The waiters that go first.
    first: BTreeSet<WaiterId>,
    /// The waiters that the gate's limit denied.
    denied: BTreeSet<WaiterId>,
    sleep: Sleep,
    scan: Option<Scan>,
}

/// A look for a waiter that may ask, which was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scan {
    /// The turn to go on with.
    pub(super) from: TurnNumber,
    /// When one of the waiters that were checked may be ready.
    pub(super) due: Option<Timestamp>,
    /// An event has woken the room since the scan began, so that those that were checked may be ready.
    pub(super) is_outdated: bool,
}

#[derive(Debug)]
struct Lane {
    /// In the order of arrival.
    waiting: VecDeque<WaiterId>,
    turn: TurnNumber,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    /// Until an event, or until the time if there is one.
    Asleep(Option<Timestamp>),
}

impl Rooms {
    /// Puts a waiter into its lane, in the order of IDs. A new room is asleep.
    pub(super) fn put(&mut self, place: &Place, guest: &Guest<'_>) -> RoomId {
        let id = self.find(place).unwrap_or_else(|| self.open(place));
        let new = guest.turn.unwrap_or_else(|| self.new_turn());
        let room = self.room(id);
        if let Some(Lane { waiting, turn }) = room.lanes.get_mut(guest.lane) {
            let at = waiting.partition_point(|other| *other < guest.id);
            waiting.insert(at, guest.id);
            if new < *turn {
                room.turns.remove(turn);
                room.turns.insert(new, guest.lane.clone());
                *turn = new;
            }
        } else {
            let lane = Lane { waiting: VecDeque::from([guest.id]), turn: new };
            room.lanes.insert(guest.lane.clone(), lane);
            room.turns.insert(new, guest.lane.clone());
        }
        *room.amounts.entry(guest.amount).or_insert(0) += 1;
        if guest.goes_first {
            room.first.insert(guest.id);
        }
        if guest.was_denied {
            room.denied.insert(guest.id);
        }
        id
    }

    fn open(&mut self, place: &Place) -> RoomId {
        let id = RoomId(self.opened);
        self.opened += 1;
        self.ids.insert(place.clone(), id);
        let room = Room {
            place: place.clone(),
            lanes: HashMap::default(),
            turns: BTreeMap::new(),
            amounts: BTreeMap::new(),
            first: BTreeSet::new(),
            denied: BTreeSet::new(),
            sleep: Sleep::Asleep(None),
            scan: None,
        };
        self.rooms.insert(id, room);
        id
    }

    /// Takes a waiter out of its room, which ends with its last waiter.
    pub(super) fn take(&mut self, id: RoomId, guest: &Guest<'_>) {
        let room = self.room(id);
        let Lane { waiting, turn } = room.lanes.get_mut(guest.lane).expect("a waiter has a lane");
        let at = waiting.binary_search(&guest.id).expect("a waiter is in its lane");
        waiting.remove(at);
        if waiting.is_empty() {
            room.turns.remove(turn);
            room.lanes.remove(guest.lane);
        }
        let count = room.amounts.get_mut(&guest.amount).expect("its amount was counted");
        *count -= 1;
        if *count == 0 {
            room.amounts.remove(&guest.amount);
        }
        room.first.remove(&guest.id);
        room.denied.remove(&guest.id);
        if room.lanes.is_empty() {
            self.close(id);
        }
    }

    fn close(&mut self, id: RoomId) {
        let Room { place, sleep, .. } = self.rooms.remove(&id).expect("the room is open");
        self.ids.remove(&place);
        match sleep {
            // Usually its turn is on.
            Sleep::Awake if self.awake.front() == Some(&id) => drop(self.awake.pop_front()),
            Sleep::Awake => self.awake.retain(|awake| *awake != id),
            Sleep::Asleep(Some(due)) => drop(self.due.remove(&(due, id))),
            Sleep::Asleep(None) => {}
        }
    }

    /// The room of this place, if a waiter is in it.
    pub(super) fn find(&self, place: &Place) -> Option<RoomId> {
        self.ids.get(place).copied()
    }

    /// Whose room it is; `None` if its last waiter has left.
    pub(super) fn place(&self, id: RoomId) -> Option<&Place> {
        self.rooms.get(&id).map(|room| &room.place)
    }

    /// The smallest amount that a waiter of the room needs.
    pub(super) fn smallest(&self, id: RoomId) -> u64 {
        *self.rooms[&id].amounts.first_key_value().expect("a room has waiters").0
    }

    /// The gates that hold waiters up, in any order, and the smallest amount that one of these needs there.
    pub(super) fn at_gates(&self) -> impl Iterator<Item = (GateId, u64)> {
        self.ids.iter().filter_map(|(place, id)| match place {
            Place::Gate(gate) => Some((*gate, self.smallest(*id))),
            Place::Queue(_) => None,
        })
    }

    /// The waiters of the room that go first, the oldest in front.
    pub(super) fn first(&self, id: RoomId) -> Vec<WaiterId> {
        self.rooms[&id].first.iter().copied().collect()
    }

    /// The oldest waiter at this gate that was denied.
    pub(super) fn oldest_denied(&self, gate: GateId) -> Option<WaiterId> {
        let room = self.find(&Place::Gate(gate))?;
        self.rooms[&room].denied.first().copied()
    }

    /// The next turn from this one on. `None` if there is none, or the last waiter has left the room.
    pub(super) fn next_turn(&self, id: RoomId, from: TurnNumber) -> Option<TurnNumber> {
        self.rooms.get(&id)?.turns.range(from..).next().map(|(turn, _)| *turn)
    }

    /// The waiter at this position of the lane that has this turn.
    pub(super) fn waiter_at(&self, id: RoomId, turn: TurnNumber, at: usize) -> Option<WaiterId> {
        let room = self.rooms.get(&id)?;
        room.lanes[room.turns.get(&turn)?].waiting.get(at).copied()
    }

    /// A waiter of this lane asks: the lane gets a new turn, after all others. Returns the one that it had.
    pub(super) fn take_turn(&mut self, id: RoomId, lane: &str) -> TurnNumber {
        let new = self.new_turn();
        let room = self.room(id);
        let lane = room.lanes.get_mut(lane).expect("a waiter has a lane");
        let name = room.turns.remove(&lane.turn).expect("a lane has a turn");
        room.turns.insert(new, name);
        std::mem::replace(&mut lane.turn, new)
    }

    const fn new_turn(&mut self) -> TurnNumber {
        self.turns += 1;
        self.turns
    }

    /// The room whose turn it is. The caller ends its turn, or puts it to sleep.
    pub(super) fn next_awake(&self) -> Option<RoomId> {
        self.awake.front().copied()
    }

    pub(super) fn any_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// The room has had its turn, and gets another one after all others; unless its last waiter has left.
    pub(super) fn end_turn(&mut self, id: RoomId) {
        if self.awake.front() == Some(&id) {
            self.awake.rotate_left(1);
        }
    }

    /// The scan of the room that was interrupted. `None` if there is none, or the last waiter has left the room.
    pub(super) fn scan(&self, id: RoomId) -> Option<Scan> {
        self.rooms.get(&id)?.scan
    }

    /// The scan of the room goes on later, or has ended.
    pub(super) fn set_scan(&mut self, id: RoomId, scan: Option<Scan>) {
        if let Some(room) = self.rooms.get_mut(&id) {
            room.scan = scan;
        }
    }

    /// An event lets the room take its turns again.
    pub(super) fn wake(&mut self, id: RoomId) {
        if let Some(scan) = &mut self.room(id).scan {
            scan.is_outdated = true;
        }
        self.rouse(id);
    }

    fn rouse(&mut self, id: RoomId) {
        let Sleep::Asleep(due) = self.room(id).sleep else {
            return;
        };
        if let Some(due) = due {
            self.due.remove(&(due, id));
        }
        self.room(id).sleep = Sleep::Awake;
        self.awake.push_back(id);
    }

    /// Wakes the room of a gate, if there is one.
    pub(super) fn wake_gate(&mut self, gate: GateId) {
        if let Some(id) = self.find(&Place::Gate(gate)) {
            self.wake(id);
        }
    }

    /// Skips the room, whose turn it is, until then or until it is woken; unless its last waiter has left.
    pub(super) fn sleep(&mut self, id: RoomId, due: Option<Timestamp>) {
        if self.awake.front() == Some(&id) {
            self.awake.pop_front();
            self.rest(id, due);
        }
    }

    fn rest(&mut self, id: RoomId, due: Option<Timestamp>) {
        self.room(id).sleep = Sleep::Asleep(due);
        self.due.extend(due.map(|due| (due, id)));
    }

    /// A room that is asleep wakes by then at the latest.
    pub(super) fn wake_by(&mut self, id: RoomId, at: Timestamp) {
        match self.room(id).sleep {
            Sleep::Awake => {}
            Sleep::Asleep(Some(due)) if due <= at => {}
            Sleep::Asleep(due) => {
                due.map(|due| self.due.remove(&(due, id)));
                self.rest(id, Some(at));
            }
        }
    }

    /// Wakes the rooms whose time has come.
    pub(super) fn wake_due(&mut self, now: Timestamp) {
        while let Some((due, id)) = self.due.first().copied() {
            if due > now {
                break;
            }
            self.rouse(id);
        }
    }

    pub(super) fn earliest_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Self { ids, rooms, awake, due, opened: _, turns: _ } = self;
        ids.is_empty() && rooms.is_empty() && awake.is_empty() && due.is_empty()
    }

    fn room(&mut self, id: RoomId) -> &mut Room {
        self.rooms.get_mut(&id).expect("a room is open while a waiter is in it")
    }
}
