//! The queues in turn, and in each queue its lanes in turn.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::{LOOK_AHEAD_MAX, Readiness, WaiterId};
use crate::clock::Timestamp;

/// The number of a queue while waiters belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueueNumber(u64);

/// All queues. One that is asleep is not looked at before its time comes or something happens to it.
#[derive(Debug, Default)]
pub(super) struct Queues {
    numbers: HashMap<Box<str>, QueueNumber>,
    queues: HashMap<QueueNumber, Queue>,
    /// The queues that are awake, the one whose turn it is in front.
    awake: VecDeque<QueueNumber>,
    /// The queues that are asleep until a moment.
    due: BTreeSet<(Timestamp, QueueNumber)>,
    opened: u64,
}

#[derive(Debug)]
struct Queue {
    name: Box<str>,
    /// Who waits in each lane, in the order of arrival. No lane is empty.
    lanes: HashMap<Arc<str>, VecDeque<WaiterId>>,
    /// The names of `lanes`, the one whose turn it is in front.
    turns: VecDeque<Arc<str>>,
    /// The waiters that belong to the queue, those included that ask.
    waiter_count: usize,
    sleep: Sleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    /// Until the moment, if there is one, or until something happens.
    Asleep(Option<Timestamp>),
}

impl Queues {
    /// The queue of this name, for one waiter more.
    pub(super) fn open(&mut self, name: &str) -> QueueNumber {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = QueueNumber(self.opened);
                self.opened += 1;
                self.numbers.insert(name.into(), number);
                self.queues.insert(number, Queue::new(name.into()));
                number
            }
        };
        self.queue(number).waiter_count += 1;
        number
    }

    /// One waiter fewer belongs to the queue.
    pub(super) fn close_if_unused(&mut self, number: QueueNumber) {
        let queue = self.queue(number);
        queue.waiter_count -= 1;
        if queue.waiter_count > 0 {
            return;
        }
        let queue = self.queues.remove(&number).expect("the queue is open");
        self.numbers.remove(&queue.name);
        match queue.sleep {
            Sleep::Awake => self.awake.retain(|awake| *awake != number),
            Sleep::Asleep(Some(due)) => drop(self.due.remove(&(due, number))),
            Sleep::Asleep(None) => {}
        }
    }

    /// Puts a waiter into its lane, where its ID says, and wakes the queue.
    pub(super) fn put(&mut self, number: QueueNumber, lane: &Arc<str>, waiter: WaiterId) {
        let queue = self.queue(number);
        if let Some(waiting) = queue.lanes.get_mut(lane) {
            let at = waiting.partition_point(|other| *other < waiter);
            waiting.insert(at, waiter);
        } else {
            queue.lanes.insert(lane.clone(), VecDeque::from([waiter]));
            queue.turns.push_back(lane.clone());
        }
        self.wake(number);
    }

    /// Takes a waiter out of its lane.
    pub(super) fn take(&mut self, number: QueueNumber, lane: &Arc<str>, waiter: WaiterId) {
        let queue = self.queue(number);
        let waiting = queue.lanes.get_mut(lane).expect("who waits stands in a lane");
        let at = waiting.binary_search(&waiter).expect("who waits stands in its lane");
        waiting.remove(at);
        if waiting.is_empty() {
            queue.lanes.remove(lane);
            // Whoever was just picked stands at the end.
            if queue.turns.back() == Some(lane) {
                queue.turns.pop_back();
            } else {
                queue.turns.retain(|other| other != lane);
            }
        }
    }

    /// Takes the first waiter that is ready out of the queue, whose lanes take turns. If none is, says when one may be.
    pub(super) fn pick(
        &mut self,
        number: QueueNumber,
        readiness: impl Fn(WaiterId) -> Readiness,
    ) -> Result<WaiterId, Option<Timestamp>> {
        let queue = self.queue(number);
        let mut due: Option<Timestamp> = None;
        for _ in 0..queue.turns.len() {
            let lane = queue.turns.front().expect("a turn for each round").clone();
            queue.turns.rotate_left(1);
            for waiter in queue.lanes[&lane].iter().copied().take(LOOK_AHEAD_MAX) {
                match readiness(waiter) {
                    Readiness::Now => {
                        self.take(number, &lane, waiter);
                        self.awake.push_back(number);
                        return Ok(waiter);
                    }
                    Readiness::At(at) => due = Some(due.map_or(at, |due| due.min(at))),
                    Readiness::OnEvent => {}
                }
            }
        }
        Err(due)
    }

    /// The queue whose turn it is. It must be picked from or put to sleep.
    pub(super) fn next_awake(&mut self) -> Option<QueueNumber> {
        self.awake.pop_front()
    }

    pub(super) fn anyone_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// Something happened to the queue: it is looked at again.
    pub(super) fn wake(&mut self, number: QueueNumber) {
        let Sleep::Asleep(due) = self.queue(number).sleep else {
            return;
        };
        if let Some(due) = due {
            self.due.remove(&(due, number));
        }
        self.queue(number).sleep = Sleep::Awake;
        self.awake.push_back(number);
    }

    /// The queue has nothing to do until then, or until something happens to it.
    pub(super) fn sleep(&mut self, number: QueueNumber, due: Option<Timestamp>) {
        self.queue(number).sleep = Sleep::Asleep(due);
        if let Some(due) = due {
            self.due.insert((due, number));
        }
    }

    /// Wakes the queues whose time has come.
    pub(super) fn wake_due(&mut self, now: Timestamp) {
        while let Some((due, number)) = self.due.first().copied() {
            if due > now {
                break;
            }
            self.wake(number);
        }
    }

    pub(super) fn earliest_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Self { numbers, queues, awake, due, opened: _ } = self;
        numbers.is_empty() && queues.is_empty() && awake.is_empty() && due.is_empty()
    }

    fn queue(&mut self, number: QueueNumber) -> &mut Queue {
        self.queues.get_mut(&number).expect("a queue is open while waiters belong to it")
    }
}

impl Queue {
    fn new(name: Box<str>) -> Self {
        Self {
            name,
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            waiter_count: 0,
            sleep: Sleep::Asleep(None),
        }
    }
}
