//! The bounded queue of items that wait for a session (`TB-09`).
//!
//! It keeps the order and never splits an item. Pure: the time is an argument. Each operation has a
//! lane, because a request has one operation; the lane with the oldest first item goes next.

use std::collections::VecDeque;
use std::time::Duration;

use ratelimiter::clock::Timestamp;

use super::observer::Operation;
use crate::ledger::LedgerError;

#[derive(Debug)]
pub(super) struct Queue<T> {
    lanes: [VecDeque<Queued<T>>; Operation::ALL.len()],
    /// The sum over the lanes.
    events: usize,
    items: usize,
    events_max: usize,
    next_number: u64,
}

#[derive(Debug)]
pub(super) struct Queued<T> {
    pub(super) item: T,
    /// The number of its events; they stay together.
    pub(super) events: usize,
    pub(super) queued_at: Timestamp,
    /// Whether it was sent before, so that its outcome is unknown.
    pub(super) sent: bool,
    number: u64,
}

/// Whether there is something to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    Empty,
    /// Other items are likely to join shortly.
    Linger,
    Ready(Operation),
}

impl<T> Queue<T> {
    pub(super) fn new(events_max: usize) -> Self {
        Self {
            lanes: [const { VecDeque::new() }; Operation::ALL.len()],
            events: 0,
            items: 0,
            events_max,
            next_number: 0,
        }
    }

    pub(super) fn items(&self) -> usize {
        self.items
    }

    pub(super) fn push(
        &mut self,
        operation: Operation,
        item: T,
        events: usize,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        if self.events + events > self.events_max {
            return Err(LedgerError::QueueFull {
                queued_events: self.events,
                queue_events_max: self.events_max,
            });
        }
        let number = self.next_number;
        self.next_number += 1;
        let queued = Queued { item, events, queued_at: now, sent: false, number };
        self.lanes[operation.index()].push_back(queued);
        self.events += events;
        self.items += 1;
        Ok(())
    }

    /// Whether an idle session should send now. `items_expected` is the size of its last batch,
    /// while it may wait for those callers to return; a single caller expects no one else, so it
    /// never waits.
    pub(super) fn readiness(&self, items_expected: Option<usize>) -> Readiness {
        match self.oldest() {
            None => Readiness::Empty,
            Some(_) if items_expected.is_some_and(|expected| self.items < expected) => {
                Readiness::Linger
            }
            Some(operation) => Readiness::Ready(operation),
        }
    }

    /// The items at the front of a lane that fit into `events_max`, at least one.
    pub(super) fn take(&mut self, operation: Operation, events_max: usize) -> Vec<Queued<T>> {
        let lane = &mut self.lanes[operation.index()];
        let mut events = 0;
        let fits = |queued: &&Queued<T>| {
            events += queued.events;
            events <= events_max
        };
        let together = lane.iter().take_while(fits).count().max(1).min(lane.len());
        let batch: Vec<Queued<T>> = lane.drain(..together).collect();
        self.count_out(&batch);
        batch
    }

    /// Puts a batch back to the front. It was admitted before, so no bound applies.
    pub(super) fn requeue(&mut self, operation: Operation, batch: Vec<Queued<T>>) {
        self.items += batch.len();
        self.events += batch.iter().map(|queued| queued.events).sum::<usize>();
        let lane = &mut self.lanes[operation.index()];
        for queued in batch.into_iter().rev() {
            lane.push_front(queued);
        }
    }

    /// Removes the items that have waited for `timeout`. Lanes are ordered by time.
    pub(super) fn expire(&mut self, now: Timestamp, timeout: Duration) -> Vec<Queued<T>> {
        let mut expired = Vec::new();
        for lane in &mut self.lanes {
            while lane.front().is_some_and(|queued| now.since(queued.queued_at) >= timeout) {
                expired.extend(lane.pop_front());
            }
        }
        self.count_out(&expired);
        expired
    }

    pub(super) fn drain(&mut self) -> Vec<Queued<T>> {
        self.items = 0;
        self.events = 0;
        self.lanes.iter_mut().flat_map(|lane| lane.drain(..)).collect()
    }

    fn oldest(&self) -> Option<Operation> {
        let heads = Operation::ALL.into_iter().filter_map(|operation| {
            let head = self.lanes[operation.index()].front()?;
            Some((head.number, operation))
        });
        heads.min_by_key(|&(number, _)| number).map(|(_, operation)| operation)
    }

    fn count_out(&mut self, batch: &[Queued<T>]) {
        self.items -= batch.len();
        self.events -= batch.iter().map(|queued| queued.events).sum::<usize>();
    }
}

#[cfg(test)]
impl<T> Queued<T> {
    pub(super) fn for_test(item: T) -> Self {
        let queued_at = Timestamp::from_unix_nanos(0);
        Self { item, events: 1, queued_at, sent: false, number: 0 }
    }
}

#[cfg(test)]
mod tests;
