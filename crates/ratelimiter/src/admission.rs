//! Which waiter asks the limiter next, and when: plain data with `now` as an argument.
//!
//! Work that needs limits waits in a queue until it may ask, asks, and then either leaves (it was allowed, or failed) or
//! waits again. A denial closes the limit's *gate* to all work that needs more than half of the denied amount, until the
//! hint is over or room comes back; smaller work may still ask. After a denial fewer waiters ask at a time, after an allow
//! more. A waiter that was denied too often *goes first*: no other passes it at the limits that denied it.
//!
//! A waiter that a gate holds up waits in the *room* of that gate, with all others that it holds up, whatever their queue. So
//! it delays nobody who does not need that limit, and when the gate opens, the lanes of that room take turns.
//!
//! Where the limiter lets requests wait, a denied waiter asks again at once, with a request that waits (see
//! [`Admission::wait_at_limiter`]). It *attends* the gates that denied it: nobody else asks there until it has its answer.
//!
//! Nothing in here asks a limiter, sleeps, logs or draws a random number: the caller does, and reports the
//! answer. [`TurnBackend`] is a backend that may be asked for waiters. Unstable: this API may change in any release.
//!
//! ```
//! use std::time::Duration;
//! use ratelimiter::admission::{Admission, STARVING_AFTER};
//! use ratelimiter::clock::{Clock, FakeClock};
//! use ratelimiter::{LimitKey, Requirements};
//!
//! let (clock, slots) = (FakeClock::new(), LimitKey::new("slots")?);
//! let requirements = Requirements::of([(slots.clone(), 1)])?;
//! let mut admission = Admission::new(8, STARVING_AFTER);
//! let waiter = admission.add("openai:gpt-4o", "acme", &requirements, "a call");
//!
//! assert_eq!(admission.next(clock.now()), Some(waiter));
//! // The limiter denies it, with a hint of one minute.
//! admission.denied(clock.now(), waiter, &[slots.clone()], Duration::from_secs(60));
//! assert_eq!(admission.next(clock.now()), None);
//! // A lease ends before that.
//! admission.released(&[slots]);
//! assert_eq!(admission.next(clock.now()), Some(waiter));
//! assert_eq!(admission.allowed(waiter).work, "a call");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod denials;
mod gates;
mod outage;
mod rooms;
mod turn;
mod turn_backend;
mod waiter;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use self::denials::{Denials, FIRST_LASTS_MAX, Owner};
pub use self::gates::{GateId, Gates};
use self::outage::Outage;
pub use self::outage::no_answer_pause;
use self::rooms::{Place, RoomId, Rooms, Scan, TurnNumber};
pub use self::turn::{Turn, TurnAnswer};
pub use self::turn_backend::TurnBackend;
pub use self::waiter::Waiter;
use self::waiter::{GateRequirement, Wait, WaiterState};
use crate::clock::Timestamp;
use crate::{LeaseId, LimitKey, Requirement, Requirements};

/// The default number of denials after which a waiter goes first.
pub const STARVING_AFTER: u32 = 8;
/// The longest wait, whatever a hint says: a capacity may be raised long before a month is over.
pub const WAIT_MAX: Duration = Duration::from_secs(5 * 60);
/// How often others may pass a denied waiter before it goes first.
const PASSES_MAX: u32 = 64;
/// How many waiters at the front of a lane are checked for one that may ask.
const LOOK_AHEAD_MAX: usize = 8;
/// How many waiters of a gate's room are checked in a row. The others follow after [`SCAN_PAUSE`], so that limits that have room in turn
/// do not move all waiters from room to room each time.
const CHECKS_MAX: usize = 16;
const SCAN_PAUSE: Duration = Duration::from_millis(1);

/// The ID of a waiter within one [`Admission`], in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// The result of removing a waiter.
#[derive(Debug)]
pub enum Removed<W> {
    /// It was waiting, and is removed.
    Waiting(Box<Waiter<W>>),
    /// It asks; the caller ends it when the answer arrives.
    Asking,
    /// It was allowed or removed before.
    Absent,
}

/// All waiters, and the number of busy workers. `W` is the caller's data of a waiter.
#[derive(Debug)]
pub struct Admission<W> {
    workers_max: usize,
    /// After how many denials a waiter goes first at the limits that denied it.
    starving_after: u32,
    /// Waiters that ask, and allowed work that has not ended. At most `workers_max`.
    busy: usize,
    /// Waiters that ask. At most `busy`.
    asking: usize,
    /// Waiters whose requests wait for room at the limiter. At most `asking`.
    attending: usize,
    waiters: BTreeMap<WaiterId, Waiter<W>>,
    rooms: Rooms,
    /// The waiters that are [`WaiterState::Resting`].
    resting: BTreeSet<(Timestamp, WaiterId)>,
    gates: WaiterGates,
    outage: Outage,
    /// Waiters added so far.
    added: u64,
}

type WaiterGates = Gates<WaiterId>;

/// When a waiter that is held up may ask.
#[derive(Clone, Copy)]
enum Wake {
    /// On its turn: others wait at that gate, which is open.
    OnTurn,
    /// Not before this time, unless an event happens.
    At(Timestamp),
    OnEvent,
}

/// The result of checking a waiter of a room.
enum Checked {
    MayAsk,
    /// To the room of another gate.
    Moved,
    /// Until this time, or until an event.
    Stays(Option<Timestamp>),
}

const EXISTS: &str = "the waiter exists";

impl<W> Admission<W> {
    /// Without waiters. At most `workers_max` ask or run at a time; a waiter that was denied `starving_after` times goes
    /// first.
    ///
    /// # Panics
    /// If either is 0.
    pub fn new(workers_max: usize, starving_after: u32) -> Self {
        assert!(workers_max > 0, "there is at least one worker");
        assert!(starving_after > 0, "a waiter starves after a denial at the earliest");
        Self {
            workers_max,
            starving_after,
            busy: 0,
            asking: 0,
            attending: 0,
            waiters: BTreeMap::new(),
            rooms: Rooms::default(),
            resting: BTreeSet::new(),
            gates: Gates::default(),
            outage: Outage::default(),
            added: 0,
        }
    }

    /// Waiters that do not ask.
    pub fn waiting(&self) -> usize {
        self.waiters.len() - self.asking
    }

    /// Waiters that ask, and allowed work that has not [ended](Admission::ended).
    pub const fn busy(&self) -> usize {
        self.busy
    }

    /// The waiter with this ID.
    pub fn get(&self, waiter: WaiterId) -> Option<&Waiter<W>> {
        self.waiters.get(&waiter)
    }

    /// Adds a waiter to a lane of a queue. Queues take turns, and so do the lanes of a queue; a lane is first in, first out.
    pub fn add(
        &mut self,
        queue: &str,
        lane: &str,
        requirements: &Requirements,
        work: W,
    ) -> WaiterId {
        let id = WaiterId(self.added);
        self.added += 1;
        let requirement = |requirement: &Requirement| GateRequirement {
            gate: self.gates.enter(&requirement.key),
            amount: requirement.amount.get(),
            owner: Owner::of(&requirement.key),
        };
        let requirements = requirements.iter().map(requirement).collect();
        self.waiters.insert(id, Waiter::new(queue, lane, requirements, work));
        self.enter_queue(id);
        id
    }

    /// The limit that would hold up a waiter with these requirements, if it came now.
    pub fn would_hold_up<'a>(
        &self,
        now: Timestamp,
        requirements: &'a Requirements,
    ) -> Option<&'a LimitKey> {
        let holds_up = |requirement: &&Requirement| {
            let Some(gate) = self.gates.find(&requirement.key) else { return false };
            self.gates.closed_until(now, gate, requirement.amount.get()).is_some()
                || self.gates.has_first(now, gate)
                || self.gates.is_at_width(gate)
                || self.rooms.find(&Place::Gate(gate)).is_some()
        };
        requirements.iter().find(holds_up).map(|requirement| &requirement.key)
    }

    /// The limits that hold waiters up, sorted by key, and the smallest amount that one of these needs there. A waiter is in the room of
    /// one gate; the others that denied it, and have got no room back, hold it up too.
    pub fn scarce(&self) -> Vec<(LimitKey, u64)> {
        let denied = self.waiters.values().flat_map(|waiter| waiter.all_denied_by(&self.gates));
        let denied = denied.map(|requirement| (requirement.gate, requirement.amount));
        let mut scarce = BTreeMap::<&LimitKey, u64>::new();
        for (gate, amount) in self.rooms.at_gates().chain(denied) {
            let smallest = scarce.entry(self.gates.key(gate)).or_insert(amount);
            *smallest = amount.min(*smallest);
        }
        scarce.into_iter().map(|(key, amount)| (key.clone(), amount)).collect()
    }

    /// True if a limit holds waiters up.
    pub fn has_scarce(&self) -> bool {
        self.rooms.at_gates().next().is_some()
    }

    /// All limits may have got room back, so all gates open.
    pub fn released_all(&mut self) {
        for gate in self.gates.release_all() {
            self.rooms.wake_gate(gate);
        }
    }

    /// The waiter with this ID.
    pub fn get_mut(&mut self, waiter: WaiterId) -> Option<&mut Waiter<W>> {
        self.waiters.get_mut(&waiter)
    }

    /// True if the waiter asks.
    pub fn is_asking(&self, waiter: WaiterId) -> bool {
        let state = self.waiters.get(&waiter).map(|waiter| &waiter.state);
        matches!(state, Some(WaiterState::Asking { .. }))
    }

    /// Puts a waiter that is in no room into the room of its queue.
    fn enter_queue(&mut self, id: WaiterId) {
        let room = self.enter_room(id, None);
        self.rooms.wake(room);
    }

    fn enter_room(&mut self, id: WaiterId, held_up_by: Option<GateRequirement>) -> RoomId {
        let waiter = self.waiters.get_mut(&id).expect(EXISTS);
        let room = match held_up_by {
            Some(GateRequirement { gate, .. }) => {
                self.rooms.put(&Place::Gate(gate), &waiter.guest(id, held_up_by))
            }
            None => self.rooms.put(&waiter.queue, &waiter.guest(id, None)),
        };
        waiter.state = WaiterState::InRoom { room, held_up_by };
        room
    }

    fn leave_room(&mut self, id: WaiterId) {
        let waiter = &self.waiters[&id];
        let WaiterState::InRoom { room, held_up_by } = waiter.state else {
            unreachable!("only a waiter in a room leaves one")
        };
        self.rooms.take(room, &waiter.guest(id, held_up_by));
    }

    /// Keeps a waiter that is in no room from asking until then.
    fn rest(&mut self, id: WaiterId, until: Timestamp) {
        self.resting.insert((until, id));
        self.waiters.get_mut(&id).expect(EXISTS).state = WaiterState::Resting(until);
    }

    /// The next waiter that may ask. It asks until the caller reports the answer.
    pub fn next(&mut self, now: Timestamp) -> Option<WaiterId> {
        while let Some((until, id)) = self.resting.first().copied()
            && until <= now
        {
            self.resting.pop_first();
            self.enter_queue(id);
        }
        self.rooms.wake_due(now);
        if self.busy == self.workers_max || !self.outage.may_ask(now, self.asking - self.attending)
        {
            return None;
        }
        while let Some(room) = self.rooms.next_awake() {
            match self.pick(now, room) {
                Ok(id) => {
                    let turn = self.rooms.take_turn(room, &self.waiters[&id].lane);
                    self.leave_room(id);
                    self.rooms.end_turn(room);
                    self.begin(now, id, turn);
                    return Some(id);
                }
                Err(due) => self.rooms.sleep(room, due),
            }
        }
        None
    }

    /// The waiter of a room that may ask, by turns. If none may, returns when one may be ready.
    fn pick(&mut self, now: Timestamp, room: RoomId) -> Result<WaiterId, Option<Timestamp>> {
        if let Some(Place::Gate(gate)) = self.rooms.place(room) {
            let gate = *gate;
            let smallest = self.rooms.smallest(room);
            if self.gates.is_at_width(gate) || self.gates.is_attended_for(gate, smallest) {
                self.rooms.set_scan(room, None);
                return Err(None);
            }
            if let Some(until) = self.gates.closed_until(now, gate, smallest) {
                self.rooms.set_scan(room, None);
                return Err(Some(until));
            }
            if self.gates.has_first(now, gate) {
                self.rooms.set_scan(room, None);
                return self.pick_first(now, room);
            }
            return self.scan(now, room, CHECKS_MAX);
        }
        // A waiter leaves the room of its queue once, so that this is not much in the long run.
        self.scan(now, room, usize::MAX)
    }

    /// Looks for a waiter of a room that may ask, and goes on later if it has checked many.
    fn scan(
        &mut self,
        now: Timestamp,
        room: RoomId,
        mut checks_left: usize,
    ) -> Result<WaiterId, Option<Timestamp>> {
        let begun = self.rooms.scan(room);
        let is_outdated = begun.is_some_and(|scan| scan.is_outdated);
        let (mut from, mut due) = begun.map_or((0, None), |scan| (scan.from, scan.due));
        while let Some(turn) = self.rooms.next_turn(room, from) {
            from = turn + 1;
            let mut at = 0;
            while at < LOOK_AHEAD_MAX
                && let Some(id) = self.rooms.waiter_at(room, turn, at)
            {
                if checks_left == 0 {
                    self.rooms.set_scan(room, Some(Scan { from: turn, due, is_outdated }));
                    return Err(earlier(due, Some(now.after(SCAN_PAUSE))));
                }
                checks_left -= 1;
                match self.check(now, room, id) {
                    Checked::MayAsk => {
                        let goes_on = begun.map(|scan| Scan { from: turn, due, ..scan });
                        self.rooms.set_scan(room, goes_on);
                        return Ok(id);
                    }
                    Checked::Moved => {}
                    Checked::Stays(until) => {
                        due = earlier(due, until);
                        at += 1;
                    }
                }
            }
        }
        self.rooms.set_scan(room, None);
        Err(if is_outdated { Some(now.after(SCAN_PAUSE)) } else { due })
    }

    /// Of a room at whose gate a waiter goes first, the waiters that go first there or elsewhere, the oldest in front.
    fn pick_first(&mut self, now: Timestamp, room: RoomId) -> Result<WaiterId, Option<Timestamp>> {
        let mut due = None;
        for id in self.rooms.first(room) {
            match self.check(now, room, id) {
                Checked::MayAsk => return Ok(id),
                Checked::Moved => {}
                Checked::Stays(until) => due = earlier(due, until),
            }
        }
        Err(due)
    }

    /// Checks whether a waiter may ask. One that another gate holds up moves to the room of that gate.
    fn check(&mut self, now: Timestamp, room: RoomId, id: WaiterId) -> Checked {
        let Some((by, wake)) = self.held_up(now, id) else {
            return Checked::MayAsk;
        };
        if self.rooms.place(room) == Some(&Place::Gate(by.gate)) {
            let Wake::At(until) = wake else { return Checked::Stays(None) };
            return Checked::Stays(Some(until));
        }
        let was_held_up = matches!(self.rooms.place(room), Some(Place::Gate(_)));
        self.leave_room(id);
        if by.owner == Owner::Tenant {
            // What its tenant lacks must not keep others out where it goes first.
            self.end_first(id, &[by.gate]);
        }
        let room = self.enter_room(id, Some(by));
        match wake {
            Wake::OnTurn => {
                self.waiters.get_mut(&id).expect(EXISTS).has_followed = was_held_up;
                self.rooms.wake(room);
            }
            Wake::At(until) => self.rooms.wake_by(room, until),
            Wake::OnEvent => {}
        }
        Checked::Moved
    }

    /// The requirement whose gate holds a waiter up.
    fn held_up(&self, now: Timestamp, id: WaiterId) -> Option<(GateRequirement, Wake)> {
        let waiter = &self.waiters[&id];
        if let Some((by, until)) = waiter.denied_by(now, &self.gates) {
            return Some((by, Wake::At(until)));
        }
        let is_in_queue = matches!(waiter.state, WaiterState::InRoom { held_up_by: None, .. });
        let held_up = waiter.requirements.iter().find_map(|requirement| {
            let gate = requirement.gate;
            let wake = if self.gates.must_yield(now, gate, id, waiter.goes_first())
                || self.gates.is_at_width(gate)
                || self.gates.is_attended_for(gate, requirement.amount)
            {
                Wake::OnEvent
            } else if let Some(until) = self.gates.closed_until(now, gate, requirement.amount) {
                Wake::At(until)
            } else if is_in_queue && self.rooms.find(&Place::Gate(gate)).is_some() {
                Wake::OnTurn
            } else {
                return None;
            };
            Some((*requirement, wake))
        });
        held_up.or_else(|| Some((self.follows(waiter)?, Wake::OnTurn)))
    }

    /// The gate to which others have moved before this waiter, in a scan that was interrupted. It follows once, lest it go to and fro
    /// between two rooms.
    fn follows(&self, waiter: &Waiter<W>) -> Option<GateRequirement> {
        let WaiterState::InRoom { room, held_up_by: Some(_) } = waiter.state else { return None };
        if waiter.has_followed || self.rooms.scan(room).is_none() {
            return None;
        }
        let mut requirements = waiter.requirements.iter();
        let found = requirements.find(|requirement| {
            let other = self.rooms.find(&Place::Gate(requirement.gate));
            other.is_some_and(|other| other != room && self.rooms.scan(other).is_none())
        });
        found.copied()
    }

    fn begin(&mut self, now: Timestamp, id: WaiterId, turn: TurnNumber) {
        self.busy += 1;
        self.asking += 1;
        let waiter = self.waiters.get_mut(&id).expect(EXISTS);
        for gate in waiter.gates() {
            self.gates.ask(gate);
        }
        waiter.attempts += 1;
        waiter.has_followed = false;
        waiter.turn = Some(turn);
        waiter.wait = None;
        waiter.state = WaiterState::Asking { since: self.gates.releases(), begun_at: now };
    }

    /// When to call [`Admission::next`] again if no event happens before.
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.busy == self.workers_max {
            return None;
        }
        let rested = self.resting.first().map(|(until, _)| *until);
        let due = earlier(self.rooms.earliest_due(), rested);
        match self.outage.until() {
            None => due,
            Some(_) if self.asking > self.attending => None,
            Some(until) if self.rooms.any_awake() => Some(until),
            Some(until) => due.map(|due| due.max(until)),
        }
    }

    /// The waiter asks no more. Others at a narrow gate may ask now.
    fn end_asking(&mut self, id: WaiterId) {
        self.asking -= 1;
        let attended = std::mem::take(&mut self.waiters.get_mut(&id).expect(EXISTS).attends);
        self.attending -= usize::from(!attended.is_empty());
        for gate in self.waiters[&id].gates() {
            let (was_at_width, was_attended) =
                (self.gates.end_asking(gate), attended.contains(&gate));
            if was_attended {
                self.gates.end_attending(gate);
            }
            if was_at_width || was_attended {
                self.rooms.wake_gate(gate);
            }
        }
    }

    /// The waiter was denied by these limits, and asks again with a new lease and a request that waits for room there. Until it
    /// has its answer, nobody else asks for them. False if it may not, because another one does so already or half of the workers
    /// wait; then it was [denied](Admission::denied).
    ///
    /// # Panics
    /// If the waiter does not ask.
    #[must_use]
    pub fn wait_at_limiter(&mut self, now: Timestamp, id: WaiterId, keys: &[LimitKey]) -> bool {
        let (waiter, ..) = asking(&mut self.waiters, id);
        let (_, blamed) = waiter.blamed(keys, &self.gates);
        let attends: Box<[GateId]> = blamed.iter().map(|blamed| blamed.gate).collect();
        // A tenant without budget must not take workers from others.
        let is_tenants = blamed.iter().any(|blamed| blamed.owner == Owner::Tenant);
        if attends.is_empty()
            || is_tenants
            || self.attending >= self.workers_max / 2
            || attends.iter().any(|gate| self.gates.is_attended(*gate))
        {
            return false;
        }
        for blamed in &blamed {
            self.gates.attend(blamed.gate, blamed.amount);
        }
        self.attending += 1;
        self.outage.end();
        waiter.attends = attends;
        waiter.attempts += 1;
        waiter.unanswered_lease = None;
        waiter.unanswered_count = 0;
        waiter.state = WaiterState::Asking { since: self.gates.releases(), begun_at: now };
        true
    }

    /// The waiter was allowed and leaves; its worker stays busy with it until it has [ended](Admission::ended).
    ///
    /// # Panics
    /// If the waiter does not ask.
    pub fn allowed(&mut self, id: WaiterId) -> Waiter<W> {
        let (_, _, begun_at) = asking(&mut self.waiters, id);
        self.outage.end();
        self.end_asking(id);
        let waiter = self.take_out(id);
        for gate in waiter.gates() {
            // If it was the last one that needed the limit, the gate is gone.
            if self.gates.is_needed(gate) {
                self.gates.widen(gate, self.workers_max);
                self.count_pass(begun_at, gate, id);
            }
        }
        waiter
    }

    /// A waiter has passed this gate. One that was denied there and came before goes first when it was passed too often.
    fn count_pass(&mut self, now: Timestamp, gate: GateId, passer: WaiterId) {
        let Some(passed) = self.rooms.oldest_denied(gate).filter(|passed| *passed < passer) else {
            return;
        };
        let waiter = self.waiters.get_mut(&passed).expect(EXISTS);
        waiter.passes += 1;
        if waiter.passes >= PASSES_MAX
            && !waiter.goes_first()
            && let WaiterState::InRoom { held_up_by: Some(held_up_by), .. } = waiter.state
        {
            waiter.denials.starve(now, held_up_by.owner, self.starving_after);
            self.leave_room(passed);
            self.put_first(now, passed, &[gate]);
            let room = self.enter_room(passed, Some(held_up_by));
            self.rooms.wake(room);
        }
    }

    /// The waiter was refused permanently and leaves; its worker is free.
    ///
    /// # Panics
    /// If the waiter does not ask.
    pub fn refused(&mut self, id: WaiterId) -> Waiter<W> {
        self.outage.end();
        self.give_up(id)
    }

    /// The waiter leaves, whatever its answer will be; its worker is free.
    ///
    /// # Panics
    /// If the waiter does not ask.
    pub fn give_up(&mut self, id: WaiterId) -> Waiter<W> {
        let waiter = self.withdraw(id);
        self.busy -= 1;
        waiter
    }

    /// As [`Admission::give_up`], but its worker stays busy until it has [ended](Admission::ended) what is left to do.
    ///
    /// # Panics
    /// If the waiter does not ask.
    pub fn withdraw(&mut self, id: WaiterId) -> Waiter<W> {
        asking(&mut self.waiters, id);
        self.end_asking(id);
        self.take_out(id)
    }

    /// The waiter was denied by these limits. It asks again with a new lease after `wait`, at most [`WAIT_MAX`], or as soon
    /// as all of them get room back.
    ///
    /// # Panics
    /// If the waiter does not ask.
    pub fn denied(&mut self, now: Timestamp, id: WaiterId, keys: &[LimitKey], wait: Duration) {
        self.outage.end();
        let until = now.after(wait.min(WAIT_MAX));
        let (waiter, since, _) = asking(&mut self.waiters, id);
        let (denied, blamed) = waiter.blamed(keys, &self.gates);
        let owner = Owner::of_denial(denied.iter().map(|requirement| requirement.owner));
        for requirement in &blamed {
            self.gates.close(now, requirement.gate, requirement.amount, until, since);
        }
        waiter.unanswered_lease = None;
        waiter.unanswered_count = 0;
        waiter.passes = 0;
        let first_at = match waiter.denials.count(now, owner, self.starving_after) {
            true => blamed.iter().map(|requirement| requirement.gate).collect(),
            false => Box::default(),
        };
        let held_up_by = blamed.first().copied();
        waiter.wait = Some(Wait { until, denied, since });
        self.put_first(now, id, &first_at);
        self.end_asking(id);
        self.busy -= 1;
        match held_up_by {
            Some(_) => {
                let room = self.enter_room(id, held_up_by);
                self.rooms.wake(room);
            }
            None => self.rest(id, until),
        }
        self.waiters.get_mut(&id).expect(EXISTS).turn = None;
    }

    /// The outcome is unknown: the waiter asks again with the same lease after [`no_answer_pause`]. Until the limiter
    /// answers again, one waiter at a time asks.
    ///
    /// # Panics
    /// If the waiter does not ask.
    pub fn unanswered(
        &mut self,
        now: Timestamp,
        id: WaiterId,
        lease: LeaseId,
        retry_after: Duration,
        jitter: f64,
    ) {
        let (waiter, _, begun_at) = asking(&mut self.waiters, id);
        waiter.unanswered_lease = Some(lease);
        waiter.unanswered_count = waiter.unanswered_count.saturating_add(1);
        let pause = no_answer_pause(waiter.unanswered_count, retry_after, jitter);
        self.outage.grow(now, begun_at, retry_after, jitter);
        self.end_asking(id);
        self.busy -= 1;
        self.rest(id, now.after(pause));
    }

    /// The waiter's lease has ended or conflicts: it asks again at once with a new one.
    ///
    /// # Panics
    /// If the waiter does not ask.
    pub fn lease_unusable(&mut self, id: WaiterId) {
        self.outage.end();
        let (waiter, ..) = asking(&mut self.waiters, id);
        waiter.unanswered_lease = None;
        waiter.unanswered_count = 0;
        self.end_asking(id);
        self.busy -= 1;
        self.enter_queue(id);
    }

    /// Work that was allowed has ended: its worker is free.
    ///
    /// # Panics
    /// If none was.
    pub fn ended(&mut self) {
        assert!(self.asking < self.busy, "only work that was allowed ends");
        self.busy -= 1;
    }

    /// These limits got room back, so their gates open.
    pub fn released(&mut self, keys: &[LimitKey]) {
        for gate in keys.iter().filter_map(|key| self.gates.release(key)) {
            self.rooms.wake_gate(gate);
        }
    }

    /// Removes a waiter, unless it asks.
    pub fn remove(&mut self, id: WaiterId) -> Removed<W> {
        let Some(waiter) = self.waiters.get(&id) else {
            return Removed::Absent;
        };
        match waiter.state {
            WaiterState::Asking { .. } => return Removed::Asking,
            WaiterState::InRoom { .. } => {
                self.leave_room(id);
                self.reopen_gates(id);
            }
            WaiterState::Resting(until) => drop(self.resting.remove(&(until, id))),
        }
        Removed::Waiting(Box::new(self.take_out(id)))
    }

    /// A waiter leaves. Those that its denial held up may ask: all where nobody else was denied, and smaller ones where its denial is
    /// the one that closed the gate.
    fn reopen_gates(&mut self, id: WaiterId) {
        let Some(Wait { denied, .. }) = &self.waiters[&id].wait else { return };
        for GateRequirement { gate, amount, .. } in denied {
            let room = self.rooms.find(&Place::Gate(*gate));
            let held_up_smaller = room.is_some_and(|room| self.rooms.smallest(room) < *amount)
                && self.gates.closed_for(*gate) == Some(*amount);
            if held_up_smaller || self.rooms.oldest_denied(*gate).is_none() {
                self.gates.reopen(*gate);
                self.rooms.wake_gate(*gate);
            }
        }
    }

    /// Removes all waiters that do not ask, in the order of arrival.
    pub fn remove_all(&mut self) -> Vec<(WaiterId, Waiter<W>)> {
        let ids: Vec<_> = self.waiters.keys().copied().collect();
        let waiting = ids.into_iter().filter_map(|id| match self.remove(id) {
            Removed::Waiting(waiter) => Some((id, *waiter)),
            Removed::Asking | Removed::Absent => None,
        });
        waiting.collect()
    }

    fn take_out(&mut self, id: WaiterId) -> Waiter<W> {
        self.end_first(id, &[]);
        let waiter = self.waiters.remove(&id).expect(EXISTS);
        for gate in waiter.gates() {
            self.gates.leave(gate);
        }
        waiter
    }

    /// Lets the waiter go first at exactly those of these gates where no other waiter does.
    fn put_first(&mut self, now: Timestamp, id: WaiterId, gates: &[GateId]) {
        self.end_first(id, gates);
        let got = |gate: &GateId| self.gates.put_first(now, *gate, id, None);
        let first_at = gates.iter().copied().filter(got).collect();
        self.waiters.get_mut(&id).expect(EXISTS).first_at = first_at;
    }

    /// The waiter no longer goes first, except at these gates.
    fn end_first(&mut self, id: WaiterId, kept: &[GateId]) {
        let waiter = self.waiters.get_mut(&id).expect(EXISTS);
        let before = std::mem::take(&mut waiter.first_at);
        for gate in before.iter().filter(|gate| !kept.contains(gate)) {
            self.gates.end_first(*gate, id);
            self.rooms.wake_gate(*gate);
        }
    }
}

/// A waiter that asks, with the number of releases and the time when it began to.
fn asking<W>(
    waiters: &mut BTreeMap<WaiterId, Waiter<W>>,
    id: WaiterId,
) -> (&mut Waiter<W>, u64, Timestamp) {
    let waiter = waiters.get_mut(&id).expect("only a waiter that asks gets an answer");
    let WaiterState::Asking { since, begun_at } = waiter.state else {
        unreachable!("only a waiter that asks gets an answer")
    };
    (waiter, since, begun_at)
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests;
