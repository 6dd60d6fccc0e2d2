//! Round robin over queues, and over the lanes of a queue.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::{LOOK_AHEAD_MAX, Readiness, WaiterId};
use crate::clock::Timestamp;

/// The ID of a queue while waiters belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueueId(u64);

/// All queues. One that is asleep is skipped until its time comes or an event wakes it.
#[derive(Debug, Default)]
pub(super) struct Queues {
    ids: HashMap<Box<str>, QueueId>,
    queues: HashMap<QueueId, Queue>,
    /// The queues that are awake, the next one in front.
    awake: VecDeque<QueueId>,
    /// The queues that are asleep until a time.
    due: BTreeSet<(Timestamp, QueueId)>,
    opened: u64,
}

#[derive(Debug)]
struct Queue {
    name: Box<str>,
    /// The waiters of each lane, in the order of arrival. No lane is empty.
    lanes: HashMap<Arc<str>, VecDeque<WaiterId>>,
    /// The names of `lanes`, the next one in front.
    turns: VecDeque<Arc<str>>,
    /// The waiters of the queue, including those that ask.
    waiter_count: usize,
    sleep: Sleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    /// Until an event, or until the time if there is one.
    Asleep(Option<Timestamp>),
}

impl Queues {
    /// The queue of this name, with one more waiter.
    pub(super) fn open(&mut self, name: &str) -> QueueId {
        let id = match self.ids.get(name) {
            Some(id) => *id,
            None => {
                let id = QueueId(self.opened);
                self.opened += 1;
                self.ids.insert(name.into(), id);
                self.queues.insert(id, Queue::new(name.into()));
                id
            }
        };
        self.queue(id).waiter_count += 1;
        id
    }

    /// The queue has one waiter less.
    pub(super) fn close_if_unused(&mut self, id: QueueId) {
        let queue = self.queue(id);
        queue.waiter_count -= 1;
        if queue.waiter_count > 0 {
            return;
        }
        let queue = self.queues.remove(&id).expect("the queue is open");
        self.ids.remove(&queue.name);
        match queue.sleep {
            Sleep::Awake => self.awake.retain(|awake| *awake != id),
            Sleep::Asleep(Some(due)) => drop(self.due.remove(&(due, id))),
            Sleep::Asleep(None) => {}
        }
    }

    /// Puts a waiter into its lane, in the order of IDs, and wakes the queue.
    pub(super) fn put(&mut self, id: QueueId, lane: &Arc<str>, waiter: WaiterId) {
        let queue = self.queue(id);
        if let Some(waiting) = queue.lanes.get_mut(lane) {
            let at = waiting.partition_point(|other| *other < waiter);
            waiting.insert(at, waiter);
        } else {
            queue.lanes.insert(lane.clone(), VecDeque::from([waiter]));
            queue.turns.push_back(lane.clone());
        }
        self.wake(id);
    }

    /// Takes a waiter out of its lane.
    pub(super) fn take(&mut self, id: QueueId, lane: &Arc<str>, waiter: WaiterId) {
        let queue = self.queue(id);
        let waiting = queue.lanes.get_mut(lane).expect("a waiter has a lane");
        let at = waiting.binary_search(&waiter).expect("a waiter is in its lane");
        waiting.remove(at);
        if waiting.is_empty() {
            queue.lanes.remove(lane);
            // The lane of the waiter that was just picked is last.
            if queue.turns.back() == Some(lane) {
                queue.turns.pop_back();
            } else {
                queue.turns.retain(|other| other != lane);
            }
        }
    }

    /// Takes the first waiter that is ready out of the queue, whose lanes take turns. If none is, returns when one may be.
    pub(super) fn pick(
        &mut self,
        id: QueueId,
        readiness: impl Fn(WaiterId) -> Readiness,
    ) -> Result<WaiterId, Option<Timestamp>> {
        let queue = self.queue(id);
        let mut due: Option<Timestamp> = None;
        for _ in 0..queue.turns.len() {
            let lane = queue.turns.front().expect("a turn for each round").clone();
            queue.turns.rotate_left(1);
            for waiter in queue.lanes[&lane].iter().copied().take(LOOK_AHEAD_MAX) {
                match readiness(waiter) {
                    Readiness::Now => {
                        self.take(id, &lane, waiter);
                        self.awake.push_back(id);
                        return Ok(waiter);
                    }
                    Readiness::At(at) => due = Some(due.map_or(at, |due| due.min(at))),
                    Readiness::OnEvent => {}
                }
            }
        }
        Err(due)
    }

    /// The next queue. The caller must pick from it or put it to sleep.
    pub(super) fn next_awake(&mut self) -> Option<QueueId> {
        self.awake.pop_front()
    }

    pub(super) fn any_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// Lets the queue take its turns again.
    pub(super) fn wake(&mut self, id: QueueId) {
        let Sleep::Asleep(due) = self.queue(id).sleep else {
            return;
        };
        if let Some(due) = due {
            self.due.remove(&(due, id));
        }
        self.queue(id).sleep = Sleep::Awake;
        self.awake.push_back(id);
    }

    /// Skips the queue until then, or until it is woken.
    pub(super) fn sleep(&mut self, id: QueueId, due: Option<Timestamp>) {
        self.queue(id).sleep = Sleep::Asleep(due);
        if let Some(due) = due {
            self.due.insert((due, id));
        }
    }

    /// Wakes the queues whose time has come.
    pub(super) fn wake_due(&mut self, now: Timestamp) {
        while let Some((due, id)) = self.due.first().copied() {
            if due > now {
                break;
            }
            self.wake(id);
        }
    }

    pub(super) fn earliest_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Self { ids, queues, awake, due, opened: _ } = self;
        ids.is_empty() && queues.is_empty() && awake.is_empty() && due.is_empty()
    }

    fn queue(&mut self, id: QueueId) -> &mut Queue {
        self.queues.get_mut(&id).expect("a queue is open while waiters belong to it")
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
