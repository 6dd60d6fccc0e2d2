//! Reserves that wait, in plans that were made without them.
//!
//! Like the second edition they have a generator of their own.

use super::super::{
    EVENTS_MS, EventKind, Leave, LimitsEvent, PlannedWait, Queue, UNMATCHED, WAITERS_MAX_WIDE,
};
use super::{DOWN_MS_MAX, Generator, Topology};

/// The longest wait. With the longest lifetime it ends before only time passes.
const WAIT_MS_MAX: u64 = 3_000;
const QUEUES: u8 = 3;

impl Generator {
    /// Lets reserves wait, some until their client goes away, and adds a crowd that needs the same; in most plans.
    pub(super) fn waits(&mut self, seed: u64) {
        let own = fastrand::Rng::with_seed(seed.rotate_left(24) ^ 0x3A17_1267);
        let before = std::mem::replace(&mut self.random, own);
        if self.percent(65) {
            self.waiters_max = *self
                .random
                .choice(&[WAITERS_MAX_WIDE, WAITERS_MAX_WIDE, WAITERS_MAX_WIDE, 2, 1])
                .expect("there are five");
            for event in 0..self.events.len() {
                let planned = self.percent(60).then(|| self.wait());
                if let EventKind::Reserve { wait, .. } = &mut self.events[event].kind {
                    *wait = planned;
                }
            }
            if self.percent(70) {
                self.crowd();
            }
            // On a ledger nobody waits, and a stop is but another restart.
            let may_stop = self.topology == Topology::OneProcess && self.fault_percent > 0;
            if may_stop && self.percent(30) {
                self.stop();
            }
        }
        self.random = before;
    }

    fn wait(&mut self) -> PlannedWait {
        let at_most_ms = match self.random.u8(..10) {
            0 => 0,
            1 | 2 => self.random.u64(1..=50),
            _ => self.random.u64(50..=WAIT_MS_MAX),
        };
        let queue = Queue(self.random.u8(..QUEUES));
        let leaves = match self.random.u8(..10) {
            0 | 1 => Some(Leave::After { ms: self.random.u64(0..=at_most_ms) }),
            2 | 3 => Some(Leave::WithNextComplete),
            _ => None,
        };
        PlannedWait { at_most_ms, queue, leaves }
    }

    /// Clients that need the same, at one server, one after another.
    fn crowd(&mut self) {
        let lease_of = |event: &LimitsEvent| match event.kind {
            EventKind::Reserve { lease, .. } => Some(lease),
            EventKind::Complete { .. }
            | EventKind::Define { .. }
            | EventKind::Delete { .. }
            | EventKind::Extra { .. }
            | EventKind::Crash { .. }
            | EventKind::Stop { .. }
            | EventKind::LedgerRestart { .. }
            | EventKind::Upkeep { .. }
            | EventKind::Leap { .. } => None,
        };
        let first = self.events.iter().filter_map(lease_of).max().map_or(0, |last| last + 1);
        let limit = self.random.usize(..self.limits.len().min(UNMATCHED.end));
        let needs = vec![(limit, self.random.u64(1..=3))];
        let server = self.server();
        let mut at_ms = self.random.u64(..EVENTS_MS / 2);
        for lease in first..first + self.random.usize(4..=9) {
            at_ms += self.random.u64(1..=120);
            let client = self.random.usize(..self.clients);
            // Most are in one queue, and stay.
            let queue = Queue(u8::from(self.percent(25)));
            let leaves = self.wait().leaves.filter(|_| self.random.bool());
            let at_most_ms = self.random.u64(WAIT_MS_MAX / 3..=WAIT_MS_MAX);
            let wait = Some(PlannedWait { at_most_ms, queue, leaves });
            let wait = wait.filter(|_| self.percent(85));
            let needs = needs.clone();
            self.event(at_ms, client, EventKind::Reserve { server, lease, needs, wait });
            let (end_ms, actuals) = (at_ms + self.random.u64(50..=WAIT_MS_MAX), Vec::new());
            self.event(end_ms, client, EventKind::Complete { server, lease, actuals });
        }
    }

    fn stop(&mut self) {
        let (server, at_ms) = (self.server(), self.random.u64(..EVENTS_MS));
        let ends_after_ms = self.random.u64(1..=500);
        let down_ms = self.random.u64(1..=DOWN_MS_MAX);
        self.event(at_ms, self.clients + 1, EventKind::Stop { server, ends_after_ms, down_ms });
    }
}
