//! Chooses the topics and size of a worker's next claim: only messages that can start now.
//!
//! Each topic with a handler is a lane with its own permits. A claim names only lanes that can
//! start whatever mix it returns, so no claimed message waits for a permit. Lanes take turns, and
//! one place is reserved for every lane without a running handler, so that neither slow nor busy
//! topics delay another.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::WorkerSettings;
use crate::{BatchSize, Topic, TopicSet, Topics};

#[derive(Debug)]
pub(super) struct TopicLanes {
    /// At most [`TOPICS_MAX`](crate::TOPICS_MAX).
    lanes: Vec<Lane>,
    /// All topics without a handler, if they are claimed. Their messages need no permit: they are
    /// failed, not started.
    others: Option<LaneState>,
    batch: BatchSize,
    in_flight_max: usize,
    topic_concurrency_max: usize,
}

#[derive(Debug)]
struct Lane {
    topic: Topic,
    permits: Arc<Semaphore>,
    state: LaneState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneState {
    /// To be claimed next.
    Next,
    /// May have work, but was claimed or woken after the others; claimed after them.
    Later,
    /// Has nothing more to claim until there may be new work.
    Empty,
}

/// The topics and size of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimRequest {
    pub(super) topics: Topics,
    pub(super) max: BatchSize,
}

impl TopicLanes {
    pub(super) fn new<'a>(
        topics: impl Iterator<Item = &'a Topic>,
        claims_others: bool,
        settings: &WorkerSettings,
    ) -> TopicLanes {
        let topic_concurrency_max = settings.topic_concurrency_max;
        let lane = |topic: &Topic| Lane {
            topic: topic.clone(),
            permits: Arc::new(Semaphore::new(topic_concurrency_max)),
            state: LaneState::Next,
        };
        TopicLanes {
            lanes: topics.map(lane).collect(),
            others: claims_others.then_some(LaneState::Next),
            batch: settings.batch,
            in_flight_max: settings.in_flight_max,
            topic_concurrency_max,
        }
    }

    /// The next claim, if there may be messages that can start now.
    pub(super) fn next_claim(&mut self, in_flight: usize) -> Option<ClaimRequest> {
        let room = self.in_flight_max.saturating_sub(in_flight);
        if room == 0 {
            return None;
        }
        self.request(room).or_else(|| {
            self.set_all(LaneState::Later, LaneState::Next);
            self.request(room)
        })
    }

    /// A claim returned fewer messages than requested: its topics have no more.
    pub(super) fn mark_empty(&mut self, request: &ClaimRequest) {
        for lane in self.lanes.iter_mut().filter(|lane| request.topics.contains(&lane.topic)) {
            lane.state = LaneState::Empty;
        }
        if !matches!(request.topics, Topics::Only(_)) {
            self.others = self.others.map(|_| LaneState::Empty);
        }
    }

    /// Nothing is claimed until there may be new work.
    pub(super) fn mark_all_empty(&mut self) {
        self.set_all(LaneState::Next, LaneState::Empty);
        self.set_all(LaneState::Later, LaneState::Empty);
    }

    /// There may be new work. Lanes that were empty go after those that still wait for their turn,
    /// which would never come if the empty ones were woken again and again.
    pub(super) fn wake(&mut self) {
        self.set_all(LaneState::Empty, LaneState::Later);
    }

    /// A permit to start a message; `None` if the topic has no handler or no permit is left.
    pub(super) fn start(&self, topic: &Topic) -> Option<OwnedSemaphorePermit> {
        let lane = self.lanes.iter().find(|lane| lane.topic == *topic)?;
        Arc::clone(&lane.permits).try_acquire_owned().ok()
    }

    /// Requests as many messages as the lane with the most room can start, from all lanes with as
    /// much room.
    fn request(&mut self, room: usize) -> Option<ClaimRequest> {
        let startable = self.startable(room);
        let next =
            |state: LaneState, count: usize| if state == LaneState::Next { count } else { 0 };
        let others =
            self.others.map_or(0, |state| next(state, room.min(self.topic_concurrency_max)));
        let most = self.lanes.iter().zip(&startable).map(|(lane, count)| next(lane.state, *count));
        let most = most.chain([others]).max().filter(|most| *most > 0)?;
        let (mut asked, mut left) = (Vec::new(), Vec::new());
        for (lane, count) in self.lanes.iter_mut().zip(startable) {
            if next(lane.state, count) == most {
                lane.state = LaneState::Later;
                asked.push(lane.topic.clone());
            } else {
                left.push(lane.topic.clone());
            }
        }
        let set = |topics| TopicSet::of(topics).expect("a worker has no more topics than a set");
        let topics = if others < most {
            Topics::Only(set(asked))
        } else {
            self.others = Some(LaneState::Later);
            if left.is_empty() { Topics::All } else { Topics::Except(set(left)) }
        };
        let most = u32::try_from(most).unwrap_or(u32::MAX).min(self.batch.get());
        Some(ClaimRequest { topics, max: BatchSize::new(most).expect("from 1 to a batch") })
    }

    /// How many messages each lane can start. One place is reserved for every other lane that has
    /// nothing running.
    fn startable(&self, room: usize) -> Vec<usize> {
        // Read once: handlers that end in the meantime release their permits.
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

    fn set_all(&mut self, from: LaneState, to: LaneState) {
        let states = self.lanes.iter_mut().map(|lane| &mut lane.state).chain(&mut self.others);
        states.filter(|state| **state == from).for_each(|state| *state = to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(names: &[&str]) -> Vec<Topic> {
        names.iter().map(|name| Topic::new(*name).unwrap()).collect()
    }

    fn lanes(names: &[&str], claims_others: bool, in_flight_max: usize) -> TopicLanes {
        let settings =
            WorkerSettings { topic_concurrency_max: 3, in_flight_max, ..Default::default() };
        TopicLanes::new(topics(names).iter(), claims_others, &settings)
    }

    fn ask(topics: Topics, max: u32) -> Option<ClaimRequest> {
        Some(ClaimRequest { topics, max: BatchSize::new(max).unwrap() })
    }

    fn only(names: &[&str]) -> Topics {
        Topics::Only(TopicSet::of(topics(names)).unwrap())
    }

    fn except(names: &[&str]) -> Topics {
        Topics::Except(TopicSet::of(topics(names)).unwrap())
    }

    fn start(lanes: &TopicLanes, name: &str) -> Option<OwnedSemaphorePermit> {
        lanes.start(&topics(&[name])[0])
    }

    #[test]
    fn a_claim_names_only_what_can_start() {
        let mut lanes = lanes(&["a", "b"], true, 64);
        let first = lanes.next_claim(0);
        assert_eq!(first, ask(Topics::All, 3));
        let _running = [(); 3].map(|()| start(&lanes, "a").unwrap());
        assert!(start(&lanes, "a").is_none(), "no more than its permits");
        assert!(start(&lanes, "unhandled").is_none());
        assert_eq!(lanes.next_claim(3), ask(except(&["a"]), 3));
        let _other = start(&lanes, "b").unwrap();
        assert_eq!(lanes.next_claim(4), ask(except(&["a", "b"]), 3), "those without a handler");
        assert_eq!(lanes.next_claim(4), ask(only(&["b"]), 2), "and then what has fewer permits");
    }

    #[test]
    fn an_empty_lane_is_not_claimed_until_there_may_be_work() {
        let mut lanes = lanes(&["a", "b"], false, 64);
        let first = lanes.next_claim(0).unwrap();
        assert_eq!(first.topics, only(&["a", "b"]));
        lanes.mark_empty(&first);
        assert_eq!(lanes.next_claim(0), None);
        lanes.wake();
        assert!(lanes.next_claim(0).is_some());
        lanes.mark_all_empty();
        assert_eq!(lanes.next_claim(0), None);
    }

    #[test]
    fn lanes_take_turns() {
        let mut lanes = lanes(&["a", "b"], false, 64);
        let _running = start(&lanes, "b").unwrap();
        for _ in 0..2 {
            assert_eq!(lanes.next_claim(1), ask(only(&["a"]), 3));
            assert_eq!(lanes.next_claim(1), ask(only(&["b"]), 2), "before a is asked for again");
        }
    }

    /// `CRD-01`
    #[test]
    fn crd_01_an_empty_lane_that_is_woken_goes_after_those_that_wait_for_their_turn() {
        let mut lanes = lanes(&["b"], true, 64);
        let _running = start(&lanes, "b").unwrap();
        for _ in 0..2 {
            let first = lanes.next_claim(1).unwrap();
            assert_eq!(first.topics, except(&["b"]), "it can start the most");
            lanes.mark_empty(&first);
            lanes.wake();
            assert_eq!(lanes.next_claim(1), ask(only(&["b"]), 2), "however often others are woken");
        }
    }

    #[test]
    fn a_place_is_reserved_for_every_lane_with_nothing_running() {
        let mut lanes = lanes(&["a", "b", "c"], false, 4);
        let _running = [start(&lanes, "a").unwrap(), start(&lanes, "a").unwrap()];
        let first = lanes.next_claim(2).unwrap();
        assert_eq!(first, ClaimRequest { topics: only(&["b", "c"]), max: BatchSize::ONE });
        lanes.mark_empty(&first);
        assert_eq!(
            lanes.next_claim(2),
            None,
            "a could start a third, and b or c would have to wait"
        );
        lanes.wake();
        let _running = start(&lanes, "b").unwrap();
        assert_eq!(lanes.next_claim(3), ask(only(&["c"]), 1));
        assert_eq!(lanes.next_claim(4), None);
    }
}
