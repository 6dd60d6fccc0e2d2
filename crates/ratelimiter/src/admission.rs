//! Who asks a limiter next, and when: plain data with `now` as an argument.
//!
//! Work that needs limits waits in a queue until it may ask, asks, and then either leaves (it was allowed, or failed) or
//! waits again. A denial closes the limit's *gate* to all work that needs more than half of the denied amount, until the
//! hint is over or room comes back; smaller work may still ask. After a denial fewer waiters ask at a time, after an allow
//! more. A waiter that was denied too often *goes first*: no other passes it at the limits that denied it.
//!
//! Nothing in here asks a limiter, sleeps, logs or draws a random number: the caller does, and reports the
//! answer. Unstable: this API may change in any release.
//!
//! ```
//! use std::time::Duration;
//! use ratelimiter::admission::{Admission, STARVING_AFTER};
//! use ratelimiter::clock::{Clock, FakeClock};
//! use ratelimiter::{LimitKey, Requirements};
//!
//! let (clock, slots) = (FakeClock::new(), LimitKey::new("slots")?);
//! let needs = Requirements::of([(slots.clone(), 1)])?;
//! let mut admission = Admission::new(8, STARVING_AFTER);
//! let waiter = admission.add("openai:gpt-4o", "acme", &needs, "a call");
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
mod queues;
mod waiter;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::denials::{Denials, FIRST_LASTS_MAX, Owner};
pub use self::gates::{GateNumber, Gates};
use self::outage::Outage;
pub use self::outage::no_answer_pause;
use self::queues::{QueueNumber, Queues};
pub use self::waiter::Waiter;
use self::waiter::{Need, Standing, Wait};
use crate::clock::Timestamp;
use crate::{LeaseId, LimitKey, Requirement, Requirements};

/// After how many denials work usually goes first.
pub const STARVING_AFTER: u32 = 8;
/// The longest wait, whatever a hint says, so that adding it to a timestamp cannot overflow.
pub const WAIT_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// How many waiters of one lane are looked at to find one that may ask.
const LOOK_AHEAD_MAX: usize = 8;

/// The ID of a waiter within one [`Admission`], in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// What became of a waiter that is to be removed.
#[derive(Debug)]
pub enum Removed<W> {
    /// It waited, and is gone.
    Waiting(Waiter<W>),
    /// It is asking; the caller ends it when the answer arrives.
    Asking,
    /// It is not here: it was allowed, or has left.
    Absent,
}

/// All work that waits or asks, and how many workers are busy with it or with what was allowed. `W` is what the caller
/// keeps with a waiter.
#[derive(Debug)]
pub struct Admission<W> {
    workers_max: usize,
    /// After how many denials a waiter goes first at the limits that stood in its way.
    starving_after: u32,
    /// Waiters that ask, and work that runs. At most `workers_max`.
    busy: usize,
    /// Waiters that ask. At most `busy`.
    asking: usize,
    /// One stands in a lane of `queues` if and only if it is not [`Standing::Asking`].
    waiters: BTreeMap<WaiterId, Waiter<W>>,
    queues: Queues,
    gates: WaiterGates,
    outage: Outage,
    /// How many waiters there have been.
    added: u64,
}

/// The gates of waiters in memory.
type WaiterGates = Gates<QueueNumber, WaiterId>;

/// Whether a waiter may ask.
enum Readiness {
    Now,
    /// Not before this moment, unless something happens.
    At(Timestamp),
    /// Not before something happens.
    OnEvent,
}

impl<W> Admission<W> {
    /// Nobody waits yet. At most `workers_max` ask or run at a time; who was denied `starving_after` times goes first.
    ///
    /// # Panics
    /// If either is 0.
    pub fn new(workers_max: usize, starving_after: u32) -> Self {
        assert!(workers_max > 0, "somebody must do the work");
        assert!(starving_after > 0, "nobody is starving before it was denied");
        Self {
            workers_max,
            starving_after,
            busy: 0,
            asking: 0,
            waiters: BTreeMap::new(),
            queues: Queues::default(),
            gates: Gates::default(),
            outage: Outage::default(),
            added: 0,
        }
    }

    /// How many wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiters.len() - self.asking
    }

    /// How many ask, or were allowed and have not [ended](Admission::ended).
    pub const fn busy(&self) -> usize {
        self.busy
    }

    /// A waiter that waits or asks.
    pub fn get(&self, waiter: WaiterId) -> Option<&Waiter<W>> {
        self.waiters.get(&waiter)
    }

    /// Takes work in: it waits in this queue, in this lane. The queues take turns, and in each queue its lanes do; within a
    /// lane the order is that of arrival.
    pub fn add(&mut self, queue: &str, lane: &str, needs: &Requirements, work: W) -> WaiterId {
        let id = WaiterId(self.added);
        self.added += 1;
        let queue = self.queues.open(queue);
        let need = |requirement: &Requirement| Need {
            gate: self.gates.enter(&requirement.key, queue),
            amount: requirement.amount.get(),
            owner: Owner::of(&requirement.key),
        };
        let needs = needs.iter().map(need).collect();
        let waiter = Waiter::new(queue, lane.into(), needs, work);
        self.queues.put(queue, &waiter.lane, id);
        self.waiters.insert(id, waiter);
        id
    }

    /// The next waiter that may ask. It asks until the caller reports the answer.
    pub fn next(&mut self, now: Timestamp) -> Option<WaiterId> {
        self.queues.wake_due(now);
        if self.busy == self.workers_max || !self.outage.lets_ask(now, self.asking) {
            return None;
        }
        while let Some(queue) = self.queues.next_awake() {
            let (waiters, gates) = (&self.waiters, &self.gates);
            let readiness = |id| readiness(&waiters[&id], id, gates, now);
            match self.queues.pick(queue, readiness) {
                Ok(id) => {
                    self.begin(now, id);
                    return Some(id);
                }
                Err(due) => self.queues.sleep(queue, due),
            }
        }
        None
    }

    fn begin(&mut self, now: Timestamp, id: WaiterId) {
        self.busy += 1;
        self.asking += 1;
        let waiter = self.waiters.get_mut(&id).expect("who was picked is there");
        for need in &waiter.needs {
            self.gates.ask(need.gate);
        }
        waiter.attempts += 1;
        waiter.standing = Standing::Asking { since: self.gates.releases(), begun_at: now };
    }

    /// When [`Admission::next`] may have something, if nothing else happens.
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.busy == self.workers_max {
            return None;
        }
        let due = self.queues.earliest_due();
        match self.outage.until() {
            None => due,
            Some(_) if self.asking > 0 => None,
            Some(until) if self.queues.anyone_awake() => Some(until),
            Some(until) => due.map(|due| due.max(until)),
        }
    }

    /// The waiter does not ask any more. Who waited for its answer may ask now.
    fn end_asking(&mut self, id: WaiterId) {
        self.asking -= 1;
        for need in &self.waiters[&id].needs {
            for queue in self.gates.end_asking(need.gate) {
                self.queues.wake(queue);
            }
        }
    }

    fn assert_asks(&self, id: WaiterId) {
        let standing = self.waiters.get(&id).map(|waiter| &waiter.standing);
        assert!(matches!(standing, Some(Standing::Asking { .. })), "only who asks gets an answer");
    }

    /// The waiter was allowed and leaves; its worker stays busy with it until it has [ended](Admission::ended).
    ///
    /// # Panics
    /// If it does not ask.
    pub fn allowed(&mut self, id: WaiterId) -> Waiter<W> {
        self.assert_asks(id);
        self.outage.ends();
        self.end_asking(id);
        for need in &self.waiters[&id].needs {
            self.gates.widen(need.gate, self.workers_max);
        }
        self.take_out(id)
    }

    /// The waiter was refused for good and leaves; its worker is free.
    ///
    /// # Panics
    /// If it does not ask.
    pub fn refused(&mut self, id: WaiterId) -> Waiter<W> {
        self.outage.ends();
        self.give_up(id)
    }

    /// A waiter that asks leaves whatever the answer is; its worker is free.
    ///
    /// # Panics
    /// If it does not ask.
    pub fn give_up(&mut self, id: WaiterId) -> Waiter<W> {
        self.assert_asks(id);
        self.end_asking(id);
        self.busy -= 1;
        self.take_out(id)
    }

    /// The waiter was denied by these limits, and asks again with a new lease after `wait`, at most [`WAIT_MAX`], or when
    /// they get room back.
    ///
    /// # Panics
    /// If it does not ask.
    pub fn denied(&mut self, now: Timestamp, id: WaiterId, keys: &[LimitKey], wait: Duration) {
        self.outage.ends();
        let until = now.after(wait.min(WAIT_MAX));
        let waiter = self.waiters.get_mut(&id).expect("who asks is there");
        let Standing::Asking { since, .. } = waiter.standing else {
            unreachable!("only who asks is denied")
        };
        let is_denied = |need: &&Need| keys.contains(self.gates.key(need.gate));
        let denied: Box<[Need]> = waiter.needs.iter().filter(is_denied).copied().collect();
        let owner = Owner::of_denial(denied.iter().map(|need| need.owner));
        let blamed: Box<[&Need]> = denied.iter().filter(|need| need.owner == owner).collect();
        for need in &blamed {
            self.gates.close(now, need.gate, need.amount, until, since);
        }
        waiter.unanswered_lease = None;
        waiter.unanswered_count = 0;
        let first_at = match waiter.denials.count(now, owner, self.starving_after) {
            true => blamed.iter().map(|need| need.gate).collect(),
            false => Box::default(),
        };
        waiter.standing = Standing::Waiting(Wait {
            until,
            denied: denied.iter().map(|need| need.gate).collect(),
            since,
        });
        self.put_first(now, id, &first_at);
        self.wait_again(id);
    }

    /// Nobody knows whether the waiter was allowed: it asks again with the same lease after [`no_answer_pause`]. Until
    /// somebody gets an answer, one waiter at a time finds out whether there are any.
    ///
    /// # Panics
    /// If it does not ask.
    pub fn unanswered(
        &mut self,
        now: Timestamp,
        id: WaiterId,
        lease: LeaseId,
        retry_after: Duration,
        jitter: f64,
    ) {
        let waiter = self.waiters.get_mut(&id).expect("who asks is there");
        let Standing::Asking { begun_at, since } = waiter.standing else {
            unreachable!("only who asks goes without an answer")
        };
        waiter.unanswered_lease = Some(lease);
        waiter.unanswered_count = waiter.unanswered_count.saturating_add(1);
        let pause = no_answer_pause(waiter.unanswered_count, retry_after, jitter);
        waiter.standing =
            Standing::Waiting(Wait { until: now.after(pause), denied: Box::default(), since });
        self.outage.grows(now, begun_at, retry_after, jitter);
        self.wait_again(id);
    }

    /// The waiter's lease turned out to be of no use: it asks again at once with a new one.
    ///
    /// # Panics
    /// If it does not ask.
    pub fn lease_was_spent(&mut self, id: WaiterId) {
        self.assert_asks(id);
        self.outage.ends();
        let waiter = self.waiters.get_mut(&id).expect("who asks is there");
        waiter.unanswered_lease = None;
        waiter.unanswered_count = 0;
        waiter.standing = Standing::Ready;
        self.wait_again(id);
    }

    /// Work that was allowed has ended: its worker is free.
    ///
    /// # Panics
    /// If none was.
    pub fn ended(&mut self) {
        assert!(self.asking < self.busy, "only work that was allowed ends");
        self.busy -= 1;
    }

    /// These limits got room back: their gates open.
    pub fn released(&mut self, keys: &[LimitKey]) {
        for key in keys {
            for queue in self.gates.release(key) {
                self.queues.wake(queue);
            }
        }
    }

    /// Takes out a waiter, unless it asks.
    pub fn remove(&mut self, id: WaiterId) -> Removed<W> {
        let Some(waiter) = self.waiters.get(&id) else {
            return Removed::Absent;
        };
        match waiter.standing {
            Standing::Asking { .. } => Removed::Asking,
            Standing::Ready | Standing::Waiting(_) => {
                self.queues.take(waiter.queue, &waiter.lane, id);
                Removed::Waiting(self.take_out(id))
            }
        }
    }

    /// Takes out all waiters that do not ask, in the order of arrival.
    pub fn remove_all(&mut self) -> Vec<(WaiterId, Waiter<W>)> {
        let ids: Vec<_> = self.waiters.keys().copied().collect();
        let waiting = ids.into_iter().filter_map(|id| match self.remove(id) {
            Removed::Waiting(waiter) => Some((id, waiter)),
            Removed::Asking | Removed::Absent => None,
        });
        waiting.collect()
    }

    fn wait_again(&mut self, id: WaiterId) {
        self.end_asking(id);
        self.busy -= 1;
        let waiter = &self.waiters[&id];
        self.queues.put(waiter.queue, &waiter.lane, id);
    }

    fn take_out(&mut self, id: WaiterId) -> Waiter<W> {
        self.end_first(id, &[]);
        let waiter = self.waiters.remove(&id).expect("the waiter is there");
        for need in &waiter.needs {
            self.gates.leave(need.gate, waiter.queue);
        }
        self.queues.close_if_unused(waiter.queue);
        waiter
    }

    /// Lets the waiter go first at those of these gates where nobody else does, and nowhere else.
    fn put_first(&mut self, now: Timestamp, id: WaiterId, gates: &[GateNumber]) {
        self.end_first(id, gates);
        let got = |gate: &GateNumber| self.gates.put_first(now, *gate, id, None);
        let first_at = gates.iter().copied().filter(got).collect();
        self.waiters.get_mut(&id).expect("the waiter is there").first_at = first_at;
    }

    /// The waiter goes first at none of its gates any more but these.
    fn end_first(&mut self, id: WaiterId, kept: &[GateNumber]) {
        let waiter = self.waiters.get_mut(&id).expect("the waiter is there");
        let before = std::mem::take(&mut waiter.first_at);
        for gate in before.iter().filter(|gate| !kept.contains(gate)) {
            for queue in self.gates.end_first(*gate, id) {
                self.queues.wake(queue);
            }
        }
    }
}

fn readiness<W>(
    waiter: &Waiter<W>,
    id: WaiterId,
    gates: &WaiterGates,
    now: Timestamp,
) -> Readiness {
    let mut due = match &waiter.standing {
        Standing::Waiting(wait) if !wait.is_over(now, gates) => Some(wait.until),
        Standing::Ready | Standing::Waiting(_) => None,
        Standing::Asking { .. } => unreachable!("who asks stands in no lane"),
    };
    // Whoever was told to come back now may do so, whatever others were told meanwhile.
    let is_expected = matches!(&waiter.standing, Standing::Waiting(wait) if wait.until <= now);
    for need in &waiter.needs {
        let goes_after = gates.must_yield(now, need.gate, id, !waiter.first_at.is_empty());
        if goes_after || gates.is_crowded(need.gate) {
            return Readiness::OnEvent;
        }
        if !is_expected {
            due = due.max(gates.closed_until(now, need.gate, need.amount));
        }
    }
    due.map_or(Readiness::Now, Readiness::At)
}

#[cfg(test)]
mod tests;
