//! Which topics a worker claims next, and how many messages: only what it can start now.
//!
//! Each topic with a handler is a lane with permits of its own. A claim names only lanes that can
//! start whatever mix of them it brings, so nothing that is claimed waits for a permit. Lanes take
//! turns, and every lane without a running handler has a place kept for it, so that neither slow nor
//! busy topics hold another up.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::WorkerSettings;
use crate::{BatchSize, Topic, TopicSet, Topics};

#[derive(Debug)]
pub(super) struct Lanes {
    /// At most [`TOPICS_MAX`](crate::TOPICS_MAX).
    lanes: Vec<Lane>,
    /// All topics without a handler, if they are claimed. They need no permit: their messages are
    /// failed, not started.
    others: Option<Turn>,
    batch: BatchSize,
    in_flight_max: usize,
    topic_concurrency_max: usize,
}

#[derive(Debug)]
struct Lane {
    topic: Topic,
    permits: Arc<Semaphore>,
    turn: Turn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// To be claimed.
    Next,
    /// Was claimed and may have more, or may have new work; after the others.
    Had,
    /// Had nothing more to claim, until there may be new work.
    Dry,
}

/// What to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) topics: Topics,
    pub(super) max: BatchSize,
}

impl Lanes {
    pub(super) fn new<'a>(
        topics: impl Iterator<Item = &'a Topic>,
        claims_others: bool,
        settings: &WorkerSettings,
    ) -> Lanes {
        let topic_concurrency_max = settings.topic_concurrency_max;
        let lane = |topic: &Topic| Lane {
            topic: topic.clone(),
            permits: Arc::new(Semaphore::new(topic_concurrency_max)),
            turn: Turn::Next,
        };
        Lanes {
            lanes: topics.map(lane).collect(),
            others: claims_others.then_some(Turn::Next),
            batch: settings.batch,
            in_flight_max: settings.in_flight_max,
            topic_concurrency_max,
        }
    }

    /// The next claim, if there may be something to claim that can start now.
    pub(super) fn next_ask(&mut self, in_flight: usize) -> Option<Ask> {
        let room = self.in_flight_max.saturating_sub(in_flight);
        if room == 0 {
            return None;
        }
        self.ask(room).or_else(|| {
            self.turn_all(Turn::Had, Turn::Next);
            self.ask(room)
        })
    }

    /// A claim brought less than it asked for: its topics have nothing more.
    pub(super) fn dry(&mut self, ask: &Ask) {
        for lane in self.lanes.iter_mut().filter(|lane| ask.topics.contains(&lane.topic)) {
            lane.turn = Turn::Dry;
        }
        if !matches!(ask.topics, Topics::Only(_)) {
            self.others = self.others.map(|_| Turn::Dry);
        }
    }

    /// Nothing is claimed until there may be new work.
    pub(super) fn rest(&mut self) {
        self.turn_all(Turn::Next, Turn::Dry);
        self.turn_all(Turn::Had, Turn::Dry);
    }

    /// There may be new work. Lanes that were dry go after those that still wait for their turn, which
    /// would never come if something woke the dry ones again and again.
    pub(super) fn wake(&mut self) {
        self.turn_all(Turn::Dry, Turn::Had);
    }

    /// A permit to start a message; none if the topic has no handler or no permit is left.
    pub(super) fn start(&self, topic: &Topic) -> Option<OwnedSemaphorePermit> {
        let lane = self.lanes.iter().find(|lane| lane.topic == *topic)?;
        Arc::clone(&lane.permits).try_acquire_owned().ok()
    }

    /// Asks for as many as the lane that can start the most, of all lanes that can start so many.
    fn ask(&mut self, room: usize) -> Option<Ask> {
        let startable = self.startable(room);
        let next = |turn: Turn, count: usize| if turn == Turn::Next { count } else { 0 };
        let others = self.others.map_or(0, |turn| next(turn, room.min(self.topic_concurrency_max)));
        let most = self.lanes.iter().zip(&startable).map(|(lane, count)| next(lane.turn, *count));
        let most = most.chain([others]).max().filter(|most| *most > 0)?;
        let (mut asked, mut left) = (Vec::new(), Vec::new());
        for (lane, count) in self.lanes.iter_mut().zip(startable) {
            if next(lane.turn, count) == most {
                lane.turn = Turn::Had;
                asked.push(lane.topic.clone());
            } else {
                left.push(lane.topic.clone());
            }
        }
        let set = |topics| TopicSet::of(topics).expect("a worker has no more topics than a set");
        let topics = if others < most {
            Topics::Only(set(asked))
        } else {
            self.others = Some(Turn::Had);
            if left.is_empty() { Topics::All } else { Topics::Except(set(left)) }
        };
        let most = u32::try_from(most).unwrap_or(u32::MAX).min(self.batch.get());
        Some(Ask { topics, max: BatchSize::new(most).expect("from 1 to a batch") })
    }

    /// How many messages each lane can start. One place is kept for every other lane that has
    /// nothing running.
    fn startable(&self, room: usize) -> Vec<usize> {
        // Read once: handlers that end meanwhile give their permits back.
        let free = self.lanes.iter().map(|lane| lane.permits.available_permits());
        let free: Vec<_> = free.collect();
        let is_idle = |free: usize| free == self.topic_concurrency_max;
        let idle = free.iter().filter(|free| is_idle(**free)).count();
        let startable = |free: usize| {
            let own = usize::from(is_idle(free));
            let room = room.saturating_sub(idle - own).max(own);
            free.min(room)
        };
        free.into_iter().map(startable).collect()
    }

    fn turn_all(&mut self, from: Turn, to: Turn) {
        let turns = self.lanes.iter_mut().map(|lane| &mut lane.turn).chain(&mut self.others);
        turns.filter(|turn| **turn == from).for_each(|turn| *turn = to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(names: &[&str]) -> Vec<Topic> {
        names.iter().map(|name| Topic::new(*name).unwrap()).collect()
    }

    fn lanes(names: &[&str], claims_others: bool, in_flight_max: usize) -> Lanes {
        let settings =
            WorkerSettings { topic_concurrency_max: 3, in_flight_max, ..Default::default() };
        Lanes::new(topics(names).iter(), claims_others, &settings)
    }

    fn ask(topics: Topics, max: u32) -> Option<Ask> {
        Some(Ask { topics, max: BatchSize::new(max).unwrap() })
    }

    fn only(names: &[&str]) -> Topics {
        Topics::Only(TopicSet::of(topics(names)).unwrap())
    }

    fn except(names: &[&str]) -> Topics {
        Topics::Except(TopicSet::of(topics(names)).unwrap())
    }

    fn start(lanes: &Lanes, name: &str) -> Option<OwnedSemaphorePermit> {
        lanes.start(&topics(&[name])[0])
    }

    #[test]
    fn a_claim_names_only_what_can_start() {
        let mut lanes = lanes(&["a", "b"], true, 64);
        let first = lanes.next_ask(0);
        assert_eq!(first, ask(Topics::All, 3));
        let _running = [(); 3].map(|()| start(&lanes, "a").unwrap());
        assert!(start(&lanes, "a").is_none(), "no more than its permits");
        assert!(start(&lanes, "unhandled").is_none());
        assert_eq!(lanes.next_ask(3), ask(except(&["a"]), 3));
        let _other = start(&lanes, "b").unwrap();
        assert_eq!(lanes.next_ask(4), ask(except(&["a", "b"]), 3), "those without a handler");
        assert_eq!(lanes.next_ask(4), ask(only(&["b"]), 2), "and then what has fewer permits");
    }

    #[test]
    fn a_lane_that_is_dry_is_left_alone_until_there_may_be_work() {
        let mut lanes = lanes(&["a", "b"], false, 64);
        let first = lanes.next_ask(0).unwrap();
        assert_eq!(first.topics, only(&["a", "b"]));
        lanes.dry(&first);
        assert_eq!(lanes.next_ask(0), None);
        lanes.wake();
        assert!(lanes.next_ask(0).is_some());
        lanes.rest();
        assert_eq!(lanes.next_ask(0), None);
    }

    #[test]
    fn lanes_take_turns() {
        let mut lanes = lanes(&["a", "b"], false, 64);
        let _running = start(&lanes, "b").unwrap();
        for _ in 0..2 {
            assert_eq!(lanes.next_ask(1), ask(only(&["a"]), 3));
            assert_eq!(lanes.next_ask(1), ask(only(&["b"]), 2), "before a is asked for again");
        }
    }

    /// `CRD-01`
    #[test]
    fn crd_01_a_dry_lane_that_is_woken_goes_after_those_that_wait_for_their_turn() {
        let mut lanes = lanes(&["b"], true, 64);
        let _running = start(&lanes, "b").unwrap();
        for _ in 0..2 {
            let first = lanes.next_ask(1).unwrap();
            assert_eq!(first.topics, except(&["b"]), "it can start the most");
            lanes.dry(&first);
            lanes.wake();
            assert_eq!(lanes.next_ask(1), ask(only(&["b"]), 2), "however often others are woken");
        }
    }

    #[test]
    fn a_place_is_kept_for_every_lane_with_nothing_running() {
        let mut lanes = lanes(&["a", "b", "c"], false, 4);
        let _running = [start(&lanes, "a").unwrap(), start(&lanes, "a").unwrap()];
        let first = lanes.next_ask(2).unwrap();
        assert_eq!(first, Ask { topics: only(&["b", "c"]), max: BatchSize::ONE });
        lanes.dry(&first);
        assert_eq!(lanes.next_ask(2), None, "a could start a third, and b or c would have to wait");
        lanes.wake();
        let _running = start(&lanes, "b").unwrap();
        assert_eq!(lanes.next_ask(3), ask(only(&["c"]), 1));
        assert_eq!(lanes.next_ask(4), None);
    }
}
